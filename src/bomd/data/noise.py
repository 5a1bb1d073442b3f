"""Known label noise: drawn once from a seed, saved with the clean labels that it was added to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bomd.errors import InputError
from bomd.files import read_arrays, write_arrays
from bomd.tables import NO_FINDING, Floats, LabelTable

# Measured against radiologists: how often a finding that is there is reported, and one that is not.
# NIH labels for pneumothorax and for nodule or mass, the CheXpert labeller for the others.
MEASURED = {
    "Pneumothorax": (0.46, 0.03),
    "Nodule or mass": (0.42, 0.05),
    "Effusion": (0.68, 0.19),
    "Edema": (0.40, 0.14),
    "Cardiomegaly": (0.28, 0.07),
    "Atelectasis": (0.19, 0.11),
}
SAME_AS = {"Nodule": "Nodule or mass", "Mass": "Nodule or mass", "Pleural Effusion": "Effusion"}
NEIGHBOURING = (
    ("Pneumonia", "Infiltration"),
    ("Mass", "Nodule"),
    ("Effusion", "Pleural_Thickening"),
    ("Atelectasis", "Infiltration"),
    ("Edema", "Infiltration"),
)
CONFUSED_SHARE = 0.15  # of a finding's misses, reported as one given neighbour; an assumption, not a measurement


@dataclass(frozen=True, eq=False)
class NoisyLabels:
    """Labels with known noise, beside the labels before it."""

    noisy: LabelTable  # what a method gets to see
    clean: LabelTable  # the same images and classes without the noise
    exposed: NDArray[np.bool_]  # (N) rows on which noise could fall

    @property
    def changed(self) -> NDArray[np.bool_]:
        """(N, C) labels that the noise changed."""
        return np.asarray(~np.isnan(self.clean.values) & (self.noisy.values != self.clean.values))

    def save(self, path: Path) -> None:
        columns: dict[str, NDArray[Any]] = {
            "ids": self.clean.ids,
            "classes": np.asarray(self.clean.classes, dtype=np.str_),
            "noisy": self.noisy.values,
            "clean": self.clean.values,
            "exposed": self.exposed,
        }
        write_arrays(path, columns | self.clean.extras() | self.clean.marks())

    @classmethod
    def load(cls, path: Path) -> NoisyLabels:
        columns: dict[str, Any] = dict(read_arrays(path))
        try:
            noisy, exposed = columns.pop("noisy"), columns.pop("exposed")
            clean = LabelTable(values=columns.pop("clean"), **columns)
        except (KeyError, TypeError) as error:
            raise InputError(f"{path} is not a file of noisy labels: {error}.") from error
        return cls(clean.replace(noisy), clean, exposed)


def symmetric(table: LabelTable, rows: float, labels: float | None = None, seed: int = 0) -> NoisyLabels:
    """Flip every label of some rows with the same probability, keeping "No Finding" consistent.

    Where an image has one label, it moves to any other class instead, all alike.

    Of the rows with and without "No Finding", int(rows * count) each are drawn. In a drawn row each label
    flips with probability `labels`; then "No Finding" becomes 0 if it was 1 before, findings become 0 if it
    is 1 now, and it becomes 1 if nothing is left. Without such a class labels just flip. NaN stays NaN.

    What happens to a row depends only on the seed and on places in the table; with the same seed, a larger
    share of rows contains the rows of a smaller one.

    Args:
        table: clean labels, 0, 1 or NaN.
        rows: share of the rows that get noise; p_s in the paper.
        labels: probability that a label of such a row flips; p_l in the paper. Needed but for images with one label,
            where it is that of the move, and 1 unless given.
        seed: of the draw.
    """
    _check_hard(table)
    _check_rate(rows, "rows")
    check_fits("symmetric", table, labels)
    labels = 1.0 if labels is None else labels
    _check_rate(labels, "labels")
    if table.exclusive:
        steps = 1 + (_draw(seed, "class", len(table)) * (len(table.classes) - 1)).astype(np.intp)
        drawn = _some_rows(table, rows, seed) & (_draw(seed, "moves", len(table)) < labels)
        return _move(table, drawn, steps)
    order = _draw(seed, "rows", len(table))
    chance = _draw(seed, "labels", table.values.shape)

    values = table.values.copy()
    nothing = _no_finding(table)
    healthy = np.zeros(len(table), dtype=np.bool_) if nothing is None else values[:, nothing] == 1
    drawn = np.zeros(len(table), dtype=np.bool_)
    for group in (healthy, ~healthy):
        members = np.flatnonzero(group)
        drawn[members[np.argsort(order[members])][: int(rows * len(members))]] = True
    flip = drawn[:, None] & (chance < labels) & ~np.isnan(values)
    values[flip] = 1 - values[flip]
    if nothing is not None:
        values[drawn & healthy, nothing] = 0
        findings = np.arange(len(table.classes)) != nothing
        values[(drawn & (values[:, nothing] == 1))[:, None] & findings & (values == 1)] = 0
        empty = drawn & ~(values == 1).any(axis=1) & ~np.isnan(values[:, nothing])
        values[empty, nothing] = 1
    return _everywhere(table, values)


def pairflip(table: LabelTable, seed: int, rows: float = 0.2) -> NoisyLabels:
    """Move the one label of some rows to the next class, that of the last class to the first.

    Args:
        table: clean labels of images that have one each.
        seed: of the draw, in which a row's part depends only on its place in the table.
        rows: share of the rows whose label moves.
    """
    check_fits("pairflip", table)
    _check_rate(rows, "rows")
    return _move(table, _some_rows(table, rows, seed), steps=1)


def check_fits(kind: str, table: LabelTable, labels: float | None = None) -> None:
    """Refuse a kind of noise that does not suit the number of labels of an image; `labels` as for `symmetric`."""
    if kind == "symmetric" and labels is None and not table.exclusive:
        raise InputError("noise: 'labels' is needed, the probability that a label of such a row flips.")
    if kind == "pairflip" and not table.exclusive:
        raise InputError(
            "Noise 'pairflip' moves the one label of an image, and here images have several or none: use symmetric, "
            'or say labels = "single".'
        )
    if kind in ("report_mining", "sparse") and table.exclusive:
        raise InputError(
            f"Noise {kind!r} is for several labels per image, and here every image has one: use symmetric or pairflip, "
            'or say labels = "multi".'
        )


def _some_rows(table: LabelTable, share: float, seed: int) -> NDArray[np.bool_]:
    """(N) the first rows of a random order, this share of them."""
    drawn = np.zeros(len(table), dtype=np.bool_)
    drawn[np.argsort(_draw(seed, "rows", len(table)), kind="stable")[: int(share * len(table))]] = True
    return drawn


def _move(table: LabelTable, drawn: NDArray[np.bool_], steps: NDArray[np.intp] | int) -> NoisyLabels:
    """Labels moved by so many classes in the drawn rows that have one."""
    positive = table.values == 1
    drawn = drawn & positive.any(axis=1)
    values = table.values.copy()
    to = (positive.argmax(axis=1) + steps) % len(table.classes)
    values[drawn] = np.eye(len(table.classes), dtype=np.float32)[to[drawn]]
    return _everywhere(table, values)


def report_mining(
    table: LabelTable,
    seed: int,
    *,
    miss: Mapping[str, float] | None = None,
    false_alarm: Mapping[str, float] | None = None,
    confusion: Mapping[str, Mapping[str, float]] | None = None,
    strength: float = 1.0,
) -> NoisyLabels:
    """Make the mistakes of labels mined from reports: misses, false alarms and confusions, class by class.

    A confusion is a miss that raises a false alarm for a neighbouring finding. `miss` and `false_alarm` are
    the totals, confusions included; where confusions alone raise more false alarms than asked for, no others
    are added. "No Finding" is 1 afterwards exactly where no finding is. NaN stays NaN.

    Args:
        table: clean labels, 0, 1 or NaN.
        seed: of the draw, in which a row's part depends only on its place in the table.
        miss: probability that a finding which is there is not reported, by class; classes not named keep the
            measured rates, or their median where none was measured.
        false_alarm: probability that a finding which is not there is reported, by class; likewise.
        confusion: for a finding that is there, the probability of each finding that is reported in its place,
            at most its miss rate in all. By default neighbouring findings share 15 % of each other's misses.
        strength: factor on the measured rates, such as 0.5 for labels that are half as bad.
    """
    check_fits("report_mining", table)
    _check_hard(table)
    _check_rate(strength, "strength")
    names = [name for name in table.classes if name != NO_FINDING]
    missed = _rates(names, miss, "miss", {name: strength * (1 - hit) for name, (hit, _) in MEASURED.items()})
    alarms = {name: strength * alarm for name, (_, alarm) in MEASURED.items()}
    alarmed = _rates(names, false_alarm, "false_alarm", alarms)
    confused = _confusions(names, confusion, missed)
    miss_chance = _draw(seed, "miss", table.values.shape)
    alarm_chance = _draw(seed, "false_alarm", table.values.shape)

    column = {name: place for place, name in enumerate(table.classes)}
    clean, values = table.values, table.values.copy()
    mistaken = np.zeros(clean.shape, dtype=np.bool_)  # reported in place of another finding
    expected = np.zeros(clean.shape)  # the probability of that
    for name in names:
        there, chance = clean[:, column[name]] == 1, miss_chance[:, column[name]]
        values[there & (chance < missed[name]), column[name]] = 0
        start = 0.0
        for other, rate in confused[name].items():
            mistaken[:, column[other]] |= there & (start <= chance) & (chance < start + rate)
            expected[:, column[other]] = 1 - (1 - expected[:, column[other]]) * (1 - rate * there)
            start += rate
    for name in names:
        place = column[name]
        absent = clean[:, place] == 0
        confused_rate = float(expected[absent, place].mean()) if absent.any() else 0.0
        rest = (alarmed[name] - confused_rate) / (1 - confused_rate) if confused_rate < alarmed[name] else 0.0
        values[absent & (mistaken[:, place] | (alarm_chance[:, place] < rest)), place] = 1
    return _everywhere(table, _consistent(table, values, np.ones(len(table), dtype=np.bool_)))


def sparse(table: LabelTable, seed: int, rows: float = 0.2) -> NoisyLabels:
    """Make one mistake in each of some rows: add a finding, drop one, or swap one for another.

    In an affected row each mistake that is possible there is equally likely: without a finding one can only be added.
    "No Finding" is 1 afterwards exactly where no finding is. NaN stays NaN, and is neither added nor dropped.

    Args:
        table: clean labels, 0, 1 or NaN.
        seed: of the draw, in which a row's part depends only on its place in the table.
        rows: share of the rows with a mistake.
    """
    check_fits("sparse", table)
    _check_hard(table)
    _check_rate(rows, "rows")
    findings = table.findings
    there, absent = table.values[:, findings] == 1, table.values[:, findings] == 0
    options = np.stack([absent.any(axis=1), there.any(axis=1), there.any(axis=1) & absent.any(axis=1)], axis=1)
    affected = _some_rows(table, rows, seed) & options.any(axis=1)
    # Of several candidates the one with the largest random number is drawn.
    kind = np.where(options, _draw(seed, "kind", (len(table), 3)), -1).argmax(axis=1)
    chance = _draw(seed, "finding", there.shape)
    added, dropped = (np.where(mask, chance, -1).argmax(axis=1) for mask in (absent, there))
    values = table.values.copy()
    place = np.arange(len(table))
    add, drop = affected & (kind != 1), affected & (kind != 0)
    values[place[drop], findings[dropped[drop]]] = 0
    values[place[add], findings[added[add]]] = 1
    return _everywhere(table, _consistent(table, values, affected))


def within(exposed: NDArray[np.bool_], table: LabelTable, draw: Callable[[LabelTable], NoisyLabels]) -> NoisyLabels:
    """Let noise fall on (N) exposed rows only; the others keep their labels, whose truth then counts as unknown."""
    if exposed.dtype != np.bool_ or exposed.shape != (len(table),):
        raise InputError(f"exposed must be {len(table)} booleans, got {exposed.dtype} {exposed.shape}.")
    part = draw(table.take(exposed))
    values = table.values.copy()
    values[exposed] = part.noisy.values
    return NoisyLabels(table.replace(values), table, exposed)


NOISES: dict[str, Callable[..., NoisyLabels]] = {
    "symmetric": symmetric,
    "pairflip": pairflip,
    "report_mining": report_mining,
    "sparse": sparse,
}


def _rates(
    names: list[str], given: Mapping[str, float] | None, what: str, measured: Mapping[str, float]
) -> dict[str, float]:
    given = given or {}
    _check_names(given, names, what)
    for name, rate in given.items():
        _check_rate(rate, f"{what} of {name!r}")
    usual = median(measured.values())
    return {name: float(given.get(name, measured.get(SAME_AS.get(name, name), usual))) for name in names}


def _confusions(
    names: list[str], given: Mapping[str, Mapping[str, float]] | None, missed: Mapping[str, float]
) -> dict[str, dict[str, float]]:
    confused: dict[str, dict[str, float]] = {name: {} for name in names}
    if given is None:
        for first, second in NEIGHBOURING:
            if first in confused and second in confused:
                confused[first][second] = CONFUSED_SHARE * missed[first]
                confused[second][first] = CONFUSED_SHARE * missed[second]
        return confused
    _check_names(given, names, "confusion")
    for name, others in given.items():
        _check_names(others, [other for other in names if other != name], f"confusion of {name!r}")
        for other, rate in others.items():
            _check_rate(rate, f"confusion of {name!r} with {other!r}")
        total = sum(others.values())
        if total > missed[name] + 1e-9:
            raise InputError(f"confusion of {name!r} adds up to {total:g}, more than its miss rate {missed[name]:g}.")
        confused[name] = dict(others)
    return confused


def _draw(seed: int, what: str, shape: int | tuple[int, ...]) -> NDArray[np.float64]:
    """Uniform numbers from a stream of their own: a row's numbers do not depend on how many rows follow."""
    return np.random.default_rng([seed, *what.encode()]).random(shape)


def _no_finding(table: LabelTable) -> int | None:
    return table.classes.index(NO_FINDING) if NO_FINDING in table.classes else None


def _everywhere(table: LabelTable, values: Floats) -> NoisyLabels:
    return NoisyLabels(table.replace(values), table, np.ones(len(table), dtype=np.bool_))


def _consistent(table: LabelTable, values: Floats, rows: NDArray[np.bool_]) -> Floats:
    """The values with "No Finding", where it is known, exactly where no finding is, in these rows."""
    nothing = _no_finding(table)
    if nothing is not None:
        known = rows & ~np.isnan(values[:, nothing])
        values[known, nothing] = ~(values[:, table.findings] == 1).any(axis=1)[known]
    return values


def _check_hard(table: LabelTable) -> None:
    soft = ~(np.isnan(table.values) | np.isin(table.values, (0, 1)))
    if soft.any():
        row, column = np.argwhere(soft)[0]
        raise InputError(
            f"Noise needs labels of 0, 1 or NaN, but image {str(table.ids[row])!r} has "
            f"{table.values[row, column]:g} for {table.classes[column]!r}."
        )


def _check_rate(rate: float, what: str) -> None:
    if not 0 <= rate <= 1:
        raise InputError(f"Noise: {what} is {rate:g}, but must lie in [0, 1].")


def _check_names(given: Mapping[str, Any], names: list[str], what: str) -> None:
    for name in given:
        if name not in names:
            raise InputError(f"Noise: {what} names {name!r}, which is none of {', '.join(names)}.")
