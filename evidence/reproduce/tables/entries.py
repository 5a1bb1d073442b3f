"""What the tables share: the runs of an entry as one cell, the test sets, and how sure a difference is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bomd.config import Config
from bomd.experiments.plan import configure, grid
from bomd.experiments.recorded import Record
from bomd.measure.result import HELD_OUT
from bomd.measure.significance import Sample, welch_test, z_test
from bomd.reports.sheet import Cell, Mean
from evidence.reproduce.artefact import Material, Setting

Entry = Sequence[Config]  # the runs of one place in a table, a seed each
TESTS = ["difference", "z-test p", "Welch p"]
HOW_TESTED = (
    "p is one-sided: how often so large a lead of BoMD would be seen if it were no better. The z-test is the paper's: "
    "it divides by the other's standard deviation over seeds and ignores BoMD's own and the number of seeds. Welch's "
    "t-test takes both into account. Neither is corrected for the number of comparisons."
)
LEAST = 1e-300
HELD_OUT_NOTE = "Held-out patients are of the training set, judged by their labels before noise was added."


def as_given(setting: Setting, methods: Sequence[str]) -> list[Config]:
    """Methods with the noise of the recipe, if it adds any."""
    return grid([setting.recipe], methods, setting.seeds, overrides=setting.overrides)


def entry(material: Material, method: str) -> list[Config]:
    """The planned runs of a method."""
    return [config for config in material.planned if config.method == method]


def tests_of(setting: Setting) -> list[str]:
    """The recipe's test sets, and the patients that it holds out of the training set."""
    config = configure(setting.recipe, overrides=setting.overrides)
    return [*config.test, *([HELD_OUT] if config.validation else [])]


def recorded(material: Material, configs: Entry) -> list[Record]:
    return [record for config in configs if (record := material.record(config)) is not None]


def mean(material: Material, configs: Entry, value: Callable[[Record], float | None]) -> Mean:
    """One number of these runs over seeds."""
    records = recorded(material, configs)
    sample = Sample.of(value(record) for record in records)
    return Mean(sample, len(records), len(configs))


def mean_auc(material: Material, configs: Entry, test: str) -> Mean:
    return mean(material, configs, lambda record: record.result.auc(test))


def known(rows: Sequence[Sequence[Cell]], place: int) -> list[Sequence[Cell]]:
    """The rows of a comparison whose difference, at this place, could be computed."""
    return [row for row in rows if row[place] is not None]


def compared(one: Mean, other: Mean) -> list[Cell]:
    """Difference of the means and both p-values of `one` against `other`; None where they cannot be computed."""
    if one.sample is None or other.sample is None:
        return [None, None, None]
    p_values = (z_test(one.sample, other.sample), welch_test(one.sample, other.sample))
    return [round(one.sample.mean - other.sample.mean, 4), *(significant(p) for p in p_values)]


def significant(p: float | None) -> float | str | None:
    """Three digits of a p-value; one too small for the computer is not 0."""
    return f"< {LEAST:g}" if p == 0 else None if p is None else float(f"{p:.3g}")
