"""Comparisons over seeds in words: how often one side is above the other, by how much, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bomd.experiments.recorded import Record
from bomd.measure.significance import Sample, welch_test
from bomd.reports.sheet import Mean
from evidence.reproduce.artefact import Material
from evidence.reproduce.figures.gather import NOISES, show_noise
from evidence.reproduce.tables.entries import mean
from evidence.reproduce.tables.noise_grid import cell

LEVEL = 0.05
NO_RUNS = "No run here can tell."


@dataclass(frozen=True)
class Claim:
    """One statement of the paper, and sentences on what is found here."""

    paper: str
    here: tuple[str, ...]


def count(scores: Mapping[str, Sequence[Mean]], one: str, other: str) -> str:
    """In how many places the first mean is above the second, and in how many that is significant."""
    pairs = {place: (ours.sample, theirs.sample) for place, (ours, theirs) in scores.items()}
    known = {place: (ours, theirs) for place, (ours, theirs) in pairs.items() if ours and theirs}
    if not known:
        return NO_RUNS
    above = [place for place, (ours, theirs) in known.items() if ours.mean > theirs.mean]
    better = [place for place, (ours, theirs) in known.items() if surely_above(ours, theirs)]
    worse = [place for place, (ours, theirs) in known.items() if surely_above(theirs, ours)]
    absent = len(scores) - len(known)
    return (
        f"{one} above {other} in {len(above)} of {len(known)}"
        + (f" ({absent} more have not been run)" if absent else "")
        + f"; significantly above in {_places(better, len(known))}; significantly below in "
        + f"{_places(worse, len(known))}."
    )


def surely_above(one: Sample, other: Sample) -> bool:
    """Whether Welch's test, one-sided, finds the first above the second."""
    p = welch_test(one, other)
    return p is not None and p < LEVEL


def gap(one: Mean, other: Mean) -> str:
    """A difference with its one-sided p; empty where it cannot be told."""
    if one.sample is None or other.sample is None:
        return ""
    p = welch_test(one.sample, other.sample)
    return f"{one.sample.mean - other.sample.mean:+.3f}" + (f" (p = {p:.2g})" if p is not None else "")


def measured(section: str, key: str) -> Callable[[Record], float | None]:
    """Finds a number in a section of a result."""
    return lambda record: getattr(getattr(record.result, section), key, None)


def over_grid(material: Material, *values: Callable[[Record], float | None]) -> dict[str, list[Mean]]:
    """Numbers of BoMD's runs in every cell of the grid with noise."""
    return {
        show_noise(noise): [mean(material, cell(material, "bomd", noise), value) for value in values]
        for noise in NOISES
    }


def sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"


def _places(places: Sequence[str], among: int) -> str:
    if len(places) == among > 1:
        return f"all {among}"
    return f"{len(places)}: {', '.join(places)}" if places else "none"
