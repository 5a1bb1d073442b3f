"""Comparisons over seeds in words: how often one side is above the other, by how much, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass

from bomd.experiments.recorded import Record
from bomd.measure.significance import Sample, welch_test
from bomd.reports.sheet import Mean
from evidence.reproduce.artefact import Material
from evidence.reproduce.figures.gather import NOISES, show_noise
from evidence.reproduce.tables.entries import mean
from evidence.reproduce.tables.noise_grid import cell

LEVEL = 0.05
HOLDS, PARTLY, FAILS, UNTESTED = VERDICTS = ("holds", "partly", "fails", "untested")
RULE = (
    f"A claim **{HOLDS}** if every comparison that it is about comes out as the paper says, at least half of those "
    f"that a test can judge significantly. It **{FAILS}** if fewer than half come out so, or if more are significantly "
    f"against it than for it. Otherwise it holds **{PARTLY}**; without any run it is **{UNTESTED}**."
)
NO_RUNS = "No run here can tell."


@dataclass(frozen=True)
class Tally:
    """How many of the comparisons that a claim is about came out as the paper says.

    Attributes:
        as_claimed: Comparisons whose difference has the sign that the paper gives it.
        tested: Comparisons over seeds, which a test can judge.
        sure: Those that are significantly as claimed.
        against: Those that are significantly the other way round.
    """

    comparisons: int = 0
    as_claimed: int = 0
    tested: int = 0
    sure: int = 0
    against: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(one + two for one, two in zip(astuple(self), astuple(other), strict=True)))

    @property
    def verdict(self) -> str:
        """One word; see `RULE`."""
        if not self.comparisons:
            return UNTESTED
        if self.as_claimed == self.comparisons and self.sure * 2 >= self.tested:
            return HOLDS
        return FAILS if self.as_claimed * 2 < self.comparisons or self.against > self.sure else PARTLY


@dataclass(frozen=True)
class Claim:
    """One statement of the paper, sentences on what is found here, and the count behind one word for it.

    Attributes:
        tally: None for what the paper does not claim and a reader should know all the same.
    """

    paper: str
    here: tuple[str, ...]
    tally: Tally | None = Tally()


def tally(scores: Mapping[str, Sequence[Mean]]) -> Tally:
    """Counts in how many places the first mean is above the second, as the paper has it."""
    pairs = [(one.sample, other.sample) for one, other in scores.values()]
    known = [(one, other) for one, other in pairs if one and other]
    return Tally(
        len(known),
        sum(one.mean > other.mean for one, other in known),
        len(known),
        sum(surely_above(one, other) for one, other in known),
        sum(surely_above(other, one) for one, other in known),
    )


def seen(signs: Iterable[bool]) -> Tally:
    """Counts what was seen to be as claimed, where nothing is tested."""
    found = list(signs)
    return Tally(len(found), sum(found))


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
