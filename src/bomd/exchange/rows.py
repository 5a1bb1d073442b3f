"""One object per image, the shape that tasks, tags, samples and lines of other tools have in common.

id, patient              text
given, proposed          the value of every class by its name, null where unknown
flag, expected, wrong    whether the image is worth a look, how many of its labels are expected to be wrong, and
                         the probability of each
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bomd.data.datasets.folder import CLASSES
from bomd.errors import InputError
from bomd.exchange.documents import checked
from bomd.exchange.judgement import Doubts, Judgement, amounts, from_lists, from_names, number
from bomd.tables import NO_FINDING, LabelTable, Text

Lists = Sequence[Sequence[Iterable[str]]]  # for each image the classes that each of some people listed


def to_rows(judgement: Judgement) -> list[dict[str, Any]]:
    """The objects, without what the judgement does not have."""
    given, proposed, doubts = judgement.given, judgement.proposed, judgement.doubts
    rows = []
    for row, name in enumerate(given.ids.tolist()):
        cells: dict[str, Any] = {"id": name}
        if given.patients is not None:
            cells["patient"] = str(given.patients[row])
        cells["given"] = _by_name(given.values[row], given.classes)
        if proposed is not None:
            cells["proposed"] = _by_name(proposed.values[row], given.classes)
        if doubts is not None:
            cells |= {"flag": bool(doubts.flagged[row]), "expected": number(doubts.expected[row])}
            cells["wrong"] = _by_name(doubts.wrong[row], given.classes)
        rows.append(cells)
    return rows


def from_rows(
    rows: Sequence[Mapping[str, Any]],
    classes: Sequence[str],
    where: str,
    listed: Lists | None = None,
    decided: Lists | None = None,
    paths: Sequence[str] | None = None,
) -> Judgement:
    """Labels, proposals and doubts of such objects, in which text is text and what has names is an object.

    Args:
        rows: As `to_rows` makes them; all but the id may be missing.
        classes: Those that have an order; any others that are named follow.
        listed: Given labels where no object has any.
        decided: What people made of the given labels; it takes the place of proposals.
    """
    given, offered = ([row.get(part) or {} for row in rows] for part in ("given", "proposed"))
    named = [name for part in (given, offered) for cells in part for name in cells]
    classes = columns_of([*classes, *named], {name for lists in listed or () for one in lists for name in one}, where)
    values = from_names(given, classes, where) if any(given) else from_lists(listed or [[]] * len(rows), classes)
    patients = [row.get("patient") for row in rows]
    labels = LabelTable(
        _texts([row["id"] for row in rows]),
        classes,
        values,
        paths=None if paths is None else _texts(paths),
        patients=_texts(patients) if all(isinstance(name, str) for name in patients) else None,
    )
    proposed, doubts = None, None
    if any(given) and decided is not None:
        better = from_lists(decided, classes, np.isnan(values))
        proposed = None if np.isnan(better).all() else labels.replace(better)
    elif any(offered):
        proposed = labels.replace(from_names(offered, classes, where))
    if all(isinstance(row.get("flag"), bool) for row in rows):
        wrong = [amounts([(row.get("wrong") or {}).get(name) for name in classes]) for row in rows]
        expected = amounts([row.get("expected") for row in rows], most=1e30)
        doubts = Doubts(labels.ids, np.asarray([row["flag"] for row in rows]), expected, np.stack(wrong))
    return Judgement(labels, proposed, doubts)


def columns_of(first: Iterable[str], rest: Iterable[str], where: object) -> tuple[str, ...]:
    """The classes of a file: those that have an order in it, then the others by name, "No Finding" last."""
    known = dict.fromkeys(first)
    columns = (*known, *sorted(set(rest) - set(known), key=lambda name: (name == NO_FINDING, name)))
    if not columns:
        raise InputError(f"{where} names no class; {CLASSES}.")
    return columns


def parts_of(record: Mapping[str, Any], where: str) -> dict[str, dict[str, Any]]:
    """What somebody else's object says of classes, by their names; a part that it does not have is empty."""
    parts = {part: checked(record.get(part) or {}, dict, where) for part in ("given", "proposed", "wrong")}
    for name in (name for cells in parts.values() for name in cells):
        checked(name, str, where)
    return parts


def names_below(root: Path, paths: Iterable[Any], purpose: str) -> list[str]:
    """Files as they are called from a folder; the purpose says in an error what the folder is there for."""
    try:
        return [Path(str(path)).absolute().relative_to(root.absolute()).as_posix() for path in paths]
    except ValueError as error:
        raise InputError(f"An image is not below {root}, {purpose}: {error}.") from None


def _by_name(values: Sequence[Any] | np.ndarray[Any, Any], classes: Sequence[str]) -> dict[str, float | None]:
    return {name: number(value) for name, value in zip(classes, values, strict=True)}


def _texts(cells: Sequence[Any]) -> Text:
    return np.asarray(cells, dtype=np.str_)
