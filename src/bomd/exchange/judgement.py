"""What is exchanged: the given labels, and beside them what is proposed and how far they are doubted."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bomd.clean.opinion import rank_by
from bomd.data.datasets.folder import CLASSES
from bomd.errors import InputError
from bomd.exchange.documents import checked, short
from bomd.experiments.records import load_record
from bomd.review.evidence import only_run
from bomd.runs import Run
from bomd.tables import NO_FINDING, Floats, LabelTable, Text

Cell = float | None
Lists = Sequence[Sequence[Iterable[str]]]  # for each image the classes that each of some people listed


@dataclass(frozen=True, eq=False)
class Doubts:
    """How far given labels are doubted."""

    ids: Text
    flagged: NDArray[np.bool_]  # (N) images worth a look
    expected: Floats  # (N) how many labels are expected to be wrong; NaN where unknown
    wrong: Floats  # (N, C) probability that the given label is wrong; NaN where unknown
    rank: NDArray[np.int64] | None = None  # (N) place in the order of review, from 1, where a run says so

    @property
    def places(self) -> NDArray[np.int64]:
        """(N) place in the order of review: the run's, or by what is expected; unknown ones come last."""
        return rank_by(np.nan_to_num(self.expected, nan=-1.0)) if self.rank is None else self.rank


@dataclass(frozen=True, eq=False)
class Judgement:
    """Labels with an opinion about them; the opinion never takes the place of what was given."""

    given: LabelTable
    proposed: LabelTable | None = None  # better ones, of the same images and classes: by a run, or by people who looked
    doubts: Doubts | None = None

    def __post_init__(self) -> None:
        proposed, doubts = self.proposed, self.doubts
        if proposed is not None and proposed.classes != self.given.classes:
            raise InputError("Given and proposed labels have other classes.")
        for other in (proposed, doubts):
            if other is not None and not np.array_equal(other.ids, self.given.ids):
                raise InputError("Given labels and what is said about them have other ids.")
        if doubts is not None and doubts.wrong.shape != self.given.values.shape:
            raise InputError(f"Doubts about labels have shape {doubts.wrong.shape}, not {self.given.values.shape}.")

    def __len__(self) -> int:
        return len(self.given)

    @property
    def best(self) -> LabelTable:
        """What a reviewer starts from: the proposed labels, or the given ones where nothing is proposed."""
        return self.given if self.proposed is None else self.proposed


def read_run(path: Path) -> Judgement:
    """What a finished run found out about its training labels; the folder of an audit stands for its run."""
    path = only_run(path)
    if not (path / "labels.npz").exists():
        raise InputError(f"No finished run in {path}: expected a folder with labels.npz.")
    Run(path).config()  # refuses what this program did not write
    record = load_record(path)
    opinion = record.opinion
    order = np.argsort(opinion.rank)  # so that rows are in the order of review in every form
    given = record.given.take(order)
    flagged, expected, wrong = record.flagged[order], opinion.expected[order], opinion.wrong[order]
    doubts = Doubts(given.ids, flagged, expected, wrong, opinion.rank[order])
    return Judgement(given, given.replace(opinion.proposed[order]), doubts)


def number(value: Any) -> Cell:
    """A value as JSON holds it: the shortest number that is the same in 32 bits, None for NaN."""
    return None if np.isnan(value) else int(value) if value in (0, 1) else float(str(np.float32(value)))


def from_names(rows: Sequence[Mapping[str, Cell]], classes: Sequence[str], where: str) -> Floats:
    """(N, C) values of rows with the name of the class at each value; a class that a row does not name is unknown."""
    values = np.full((len(rows), len(classes)), np.nan, dtype=np.float32)
    places = {name: place for place, name in enumerate(classes)}
    for row, cells in enumerate(rows):
        for name, value in cells.items():
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 1:
                raise InputError(f"{where}: label {short(value)} of {name!r} is not a number from 0 to 1, or null.")
            values[row, places[name]] = value
    return values


def from_lists(
    rows: Sequence[Sequence[Iterable[str]]], classes: Sequence[str], unknown: NDArray[np.bool_] | None = None
) -> Floats:
    """(N, C) labels of images for which one or several people have listed the classes.

    A value is the share of people who listed the class. An image that nobody looked at is unknown. An empty list
    means none of the classes, unless "No Finding" is a class, for then it means that nothing was said.

    Args:
        unknown: (N, C) labels that were unknown when people looked: nobody's silence makes them 0, and an empty list
            then says that nothing was found.
    """
    values = np.full((len(rows), len(classes)), np.nan, dtype=np.float32)
    places = {name: place for place, name in enumerate(classes)}
    silence_is_unknown = unknown is None and NO_FINDING in places
    for row, lists in enumerate(rows):
        spoken = [listed for listed in map(set, lists) if listed or not silence_is_unknown]
        if spoken:
            values[row] = 0
            for listed in spoken:
                values[row, [places[name] for name in listed]] += np.float32(1 / len(spoken))
    if unknown is not None:
        values[unknown & (values == 0)] = np.nan
    return values.clip(0, 1)


def soundness(expected: NDArray[Any]) -> NDArray[np.float64]:
    """(N) scores from 0 to 1, the lowest first in the order of review: exp(-x), about the chance that all are right."""
    return np.asarray(np.exp(-expected.astype(np.float64)))


def amounts(values: Sequence[Any], most: float = 1) -> Floats:
    """(C) how many labels, or how probably each, are wrong by somebody else's file; NaN for None."""
    for value in values:
        known = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most
        if value is not None and not known:
            raise InputError(f"{short(value)} does not say how many labels, or how probably one, are wrong.")
    return np.asarray([np.nan if value is None else value for value in values], dtype=np.float32)


def to_rows(judgement: Judgement) -> Iterator[dict[str, Any]]:
    """One object per image, the shape that tasks, tags, samples and lines of other tools have in common.

    They come one by one: those of a million images would take many times the memory of their labels.

    id, patient              text
    given, proposed          the value of every class by its name, null where unknown
    flag, expected, wrong    as `Doubts` has them; like all others, only if the judgement does
    """
    given, proposed, doubts = judgement.given, judgement.proposed, judgement.doubts
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
        yield cells


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


def image_names(given: LabelTable, root: Path | None, purpose: str) -> list[str]:
    """Files as they are called from a folder, or by their whole paths; ids where images are not files."""
    if given.paths is None:
        return [str(name) for name in given.ids]
    paths = [Path(str(path)) for path in given.paths]
    return [path.as_posix() for path in paths] if root is None else names_below(root, paths, purpose)


def names_below(root: Path, paths: Iterable[Any], purpose: str) -> list[str]:
    """Files as they are called from a folder; the purpose says in an error what the folder is there for."""
    called, outside = [str(path) for path in paths], 0
    for seen in (os.path.abspath, os.path.realpath):  # as they are called, /here/../photos/a.png too; else past links
        above, files = Path(seen(root)), [Path(seen(path)) for path in called]
        outside = sum(not file.is_relative_to(above) for file in files)  # on Windows also by being on another drive
        if not outside:
            return [file.relative_to(above).as_posix() for file in files]
    raise InputError(f"{outside} of {len(called)} images are not below {root}, {purpose}.")


def _by_name(values: Sequence[Any] | np.ndarray[Any, Any], classes: Sequence[str]) -> dict[str, float | None]:
    return {name: number(value) for name, value in zip(classes, values, strict=True)}


def _texts(cells: Sequence[Any]) -> Text:
    return np.asarray(cells, dtype=np.str_)
