"""cleanlab's table of label issues, as Datalab gives it for several labels per image, or for one.

    is_label_issue    whether the labels of the image look wrong
    label_score       from 0 to 1, lower is more suspect
    given_label       numbers of the classes that are given
    predicted_label   numbers of the classes that are proposed

Where every image has one label, both are a number and no list.

Tables written here also have `id`, `unknown_label` (numbers of the classes that are not labelled, which cleanlab has no
word for), `expected` (how many labels are expected to be wrong) and `wrong_label` (the probability of each). The names
of the classes stand in `classes`, once in the first row.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bomd.data.cells import harmless
from bomd.data.datasets import folder
from bomd.data.label_files import read_cells
from bomd.errors import InputError
from bomd.exchange.documents import listed, short
from bomd.exchange.judgement import Doubts, Judgement, amounts, number, soundness
from bomd.exchange.table import truths
from bomd.files import replacing, spare
from bomd.tables import Floats, LabelTable, rows_of

ISSUE, SCORE, GIVEN, PREDICTED = "is_label_issue", "label_score", "given_label", "predicted_label"
UNKNOWN, EXPECTED, WRONG, CLASSES = "unknown_label", "expected", "wrong_label", "classes"


def to_frame(judgement: Judgement) -> pd.DataFrame:
    """The issues table; rows are named by id. Proposals count from 0.5; a given probability is an error.

    Without doubts no image is an issue and every score is NaN.
    """
    given = judgement.given
    soft = ~(np.isnan(given.values) | np.isin(given.values, (0, 1)))
    if soft.any():
        first = str(given.ids[int(np.argmax(soft.any(axis=1)))])
        raise InputError(f"cleanlab's table holds given labels that are 0, 1 or unknown: image {first!r} has others.")
    doubts = judgement.doubts or no_doubts(given)
    frame = pd.DataFrame(
        {
            ISSUE: doubts.flagged,
            SCORE: soundness(doubts.expected),
            GIVEN: label_lists(given),
            PREDICTED: label_lists(judgement.best),
            UNKNOWN: [np.flatnonzero(row).tolist() for row in np.isnan(given.values)],
            EXPECTED: doubts.expected,
            WRONG: [json.dumps([number(value) for value in row]) for row in doubts.wrong],
        },
        index=pd.Index(given.ids.astype(object), name="id"),
    )
    frame.attrs[CLASSES] = list(given.classes)
    return frame


def label_lists(table: LabelTable) -> list[Any]:
    """Labels as cleanlab wants them: for each image the numbers of its classes, those at 0.5 or more, or its one."""
    lists = [np.flatnonzero(row).tolist() for row in table.values >= 0.5]
    if table.exclusive and all(len(own) == 1 for own in lists):
        return [own[0] for own in lists]
    return lists


def from_frame(
    issues: pd.DataFrame, classes: Sequence[str] | None = None, ids: Sequence[str] | None = None
) -> Judgement:
    """Labels, proposals and doubts of an issues table with given labels in it.

    Args:
        issues: As `Datalab.get_issues("label")` returns it, or `to_frame`.
        ids: Names of the images, by their position in what cleanlab was given; by default the table's own index.
    """
    classes = classes or issues.attrs.get(CLASSES)
    if not classes:
        raise InputError("cleanlab's table numbers the classes: pass their names as classes.")
    if GIVEN not in issues:
        raise InputError(f"The issues table has no column {GIVEN!r}: pass the labels that cleanlab was given.")
    names = issues.index.astype(str) if ids is None else [str(ids[place]) for place in _places(issues, len(ids))]
    one = all(re.fullmatch(r"\d{1,9}", str(cell).strip()) for cell in issues[GIVEN])
    numbered = {name: _matrix(issues[name], len(classes)) for name in (GIVEN, PREDICTED, UNKNOWN) if name in issues}
    unknown = numbered.get(UNKNOWN, np.zeros_like(numbered[GIVEN])) == 1
    values = np.where(unknown, np.float32(np.nan), numbered[GIVEN])
    given = LabelTable(np.asarray(names, dtype=np.str_), tuple(classes), values, exclusive=one)
    proposed = given.replace(numbered[PREDICTED]) if PREDICTED in issues else None
    return Judgement(given, proposed, doubts(issues.set_axis(given.ids, axis=0), given))


def doubts(
    issues: pd.DataFrame | NDArray[np.bool_], given: LabelTable, per_class: NDArray[Any] | None = None
) -> Doubts:
    """What cleanlab says about labels: a score of 1 is no doubt, and a lower one stands for more wrong labels.

    Args:
        issues: An issues table whose rows are named by id, or by their position in `given`, which is what cleanlab
            itself does; or (N) or (N, C) a mask as `find_label_issues` or `find_multilabel_issues_per_class` gives it.
        per_class: (N, C) scores as `get_label_quality_scores_per_class` gives them.
    """
    shape, found = given.values.shape, no_doubts(given)
    if per_class is not None:
        found = replace(found, wrong=(1 - np.asarray(per_class)).astype(np.float32))
    if found.wrong.shape != shape:
        raise InputError(f"Scores of single labels have shape {found.wrong.shape}, not {shape}.")
    if isinstance(issues, np.ndarray):
        if issues.dtype != np.bool_ or issues.shape not in (shape, shape[:1]):
            raise InputError(f"A mask of {len(given)} images is needed, not {issues.dtype} {issues.shape}.")
        return replace(found, flagged=np.asarray(issues.reshape(len(given), -1).any(axis=1)))
    if ISSUE not in issues:
        raise InputError(f"There is no column {ISSUE!r} in the issues table: {', '.join(map(str, issues.columns))}.")
    if _by_position(issues):
        rows = _places(issues, len(given))
    else:
        rows = rows_of(given.ids, np.asarray(issues.index.astype(str), dtype=np.str_))
    if len(rows) != len(given) or len(np.unique(rows)) != len(given):
        raise InputError(f"The issues table has {len(rows)} rows, and {len(given)} images were given, each needs one.")
    found.flagged[rows] = truths(issues[ISSUE], "The issues table")
    if EXPECTED in issues:
        found.expected[rows] = pd.to_numeric(issues[EXPECTED], errors="coerce")
    elif SCORE in issues:
        score = pd.to_numeric(issues[SCORE], errors="coerce").to_numpy(dtype=np.float64)
        found.expected[rows] = -np.log(np.clip(score, 1e-30, 1))
    if WRONG in issues and per_class is None:
        found.wrong[rows] = [_probabilities(cell, len(given.classes)) for cell in issues[WRONG]]
    return found


def no_doubts(given: LabelTable) -> Doubts:
    """Nothing is flagged, and nothing known."""
    unknown = np.full(given.values.shape, np.nan, dtype=np.float32)
    return Doubts(given.ids, np.zeros(len(given), np.bool_), np.full(len(given), np.nan, np.float32), unknown)


def write(judgement: Judgement, path: Path) -> None:
    """Write the issues table as CSV."""
    frame = to_frame(judgement)
    frame[CLASSES] = [json.dumps(judgement.given.classes), *[""] * (len(frame) - 1)][: len(frame)]
    spare(path, f"{','.join([str(frame.index.name), *frame.columns])}\n")
    with replacing(path) as temporary:
        frame.rename(index=lambda name: harmless(str(name))).to_csv(temporary, encoding="utf-8", lineterminator="\n")


def read(path: Path, given: LabelTable | None = None, classes: Sequence[str] | None = None) -> Judgement:
    """Read an issues table that was saved as CSV; labels or names of classes are for one that does not hold them."""
    frame = read_cells(path)
    if ISSUE not in frame:
        raise InputError(f"{path} is no issues table of cleanlab: it has no column {ISSUE!r}.")
    if "id" in frame:
        frame = frame.set_index("id")
    elif str(frame.columns[0]).startswith("Unnamed"):  # as pandas writes positions
        frame = frame.set_index(frame.columns[0])
        if all(str(name).isdecimal() and len(str(name)) < 10 for name in frame.index):
            frame.index = frame.index.astype(np.int64)
    if given is not None:
        return Judgement(given, None, doubts(frame, given))
    if classes is None and CLASSES in frame:
        try:
            classes = listed(json.loads(str(frame[CLASSES].iloc[0])), f"{path}, classes")
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: the first cell of {CLASSES!r} does not list the classes.") from error
    if GIVEN not in frame:
        raise InputError(f"{path} holds no given labels: pass the file that cleanlab was given (--set labels=FILE).")
    if classes is None:
        raise InputError(f"{path} numbers the classes: {folder.CLASSES}.")
    return from_frame(frame, classes)


def _by_position(issues: pd.DataFrame) -> bool:
    return isinstance(issues.index.dtype, np.dtype) and issues.index.dtype.kind in "iu"


def _places(issues: pd.DataFrame, images: int) -> NDArray[np.intp]:
    """(N) positions that name the rows of a table."""
    if not _by_position(issues):
        raise InputError("The rows of the issues table are not named by position, as cleanlab names them.")
    places = issues.index.to_numpy(dtype=np.intp)
    if len(places) and not (places.min() >= 0 and places.max() < images):
        raise InputError(f"The issues table names row {places.max()}, and there are {images} images.")
    return places


def _matrix(cells: pd.Series[Any], classes: int) -> Floats:
    """(N, C) 0 and 1 of lists of numbers."""
    values = np.zeros((len(cells), classes), dtype=np.float32)
    for row, cell in enumerate(cells):
        values[row, _numbers(cell, str(cells.name), classes)] = 1
    return values


def _numbers(cell: Any, column: str, classes: int) -> list[int]:
    """Numbers of classes: one, a list, or the text that pandas makes of either: `[0, 2]`, or `[np.int64(0)]`."""
    text = str(cell.tolist() if isinstance(cell, np.ndarray) else cell)
    plain = re.sub(r"np\.int\d+\((\d{1,9})\)", r"\1", text).strip()
    if not re.fullmatch(r"\d{1,9}|\[\s*(\d{1,9}(\s*,\s*\d{1,9})*)?\s*\]", plain):
        raise InputError(f"{short(cell)} in column {column!r} of the issues table is no list of class numbers.")
    found = [int(digits) for digits in re.findall(r"\d+", plain)]
    wrong = [item for item in found if not 0 <= item < classes]
    if wrong:
        raise InputError(f"Column {column!r} of the issues table names class {wrong[0]}, and {classes} have names.")
    return found


def _probabilities(cell: Any, classes: int) -> Floats:
    """(C) one for each class, as `to_frame` writes them; NaN where there is none."""
    try:
        found = json.loads(cell)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{short(cell)} in column {WRONG!r} is no list of probabilities.") from error
    if not isinstance(found, list) or len(found) != classes:
        raise InputError(f"{short(cell)} in column {WRONG!r} is not one probability for each of {classes} classes.")
    return amounts(found)
