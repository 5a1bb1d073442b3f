"""The systematic noise grid: three methods in ten cells, and how sure their distances from BoMD are."""

from __future__ import annotations

from collections.abc import Sequence

from bomd import progress
from bomd.config import Config
from bomd.measure.result import HELD_OUT
from bomd.reports.sheet import Cell
from evidence.reproduce import paper
from evidence.reproduce.artefact import Artefact, Material, Setting, Sheet
from evidence.reproduce.figures.gather import BY_IMPORTANCE, NO_NOISE, NOISES, Noise, noise_of, plan, show_noise
from evidence.reproduce.tables.bootstrap import DRAWS, Bootstraps
from evidence.reproduce.tables.entries import HELD_OUT_NOTE, HOW_TESTED, TESTS, compared, known, mean_auc, tests_of

TABLE = "tab:noise_auc"
METHODS = ("bce", "bomd", "nvum")  # in this order, should time run out
REFERENCE = "bomd"
CELLS: tuple[Noise, ...] = (NO_NOISE, *NOISES)  # as the paper's columns
IN_TURN: tuple[Noise, ...] = (NO_NOISE, *BY_IMPORTANCE)


def plan_grid(setting: Setting) -> list[Config]:
    """No noise first, then the diagonal, then the other cells."""
    return plan(setting, METHODS, IN_TURN)


def make(material: Material) -> list[Sheet]:
    tests = tests_of(material.setting)
    scores = [_scores(material, test) for test in tests]
    return [*scores, _differences(material, tests), *paper.sheets(material.setting, [TABLE], "method")]


def cell(material: Material, method: str, noise: Noise) -> list[Config]:
    """The planned runs of a method at one level of noise."""
    return [config for config in material.planned if config.method == method and noise_of(config) == noise]


def _scores(material: Material, test: str) -> Sheet:
    theirs = paper.beside(material.setting, [TABLE])
    printed = any(place == test for _, _, place in theirs)
    heads = ["noise"]
    for method in METHODS:
        heads += [method, *([f"{method}, the paper's"] if printed else [])]
    rows = []
    for noise in CELLS:
        row: list[Cell] = [show_noise(noise)]
        for method in METHODS:
            row.append(mean_auc(material, cell(material, method, noise), test))
            row += [theirs.get((method, show_noise(noise), test))] if printed else []
        rows.append(row)
    title = (
        f"Mean AUC over findings on {test} under noise (rows, labels): the share of training images that get noise, "
        f"and the chance that a label of theirs flips. Recipe {material.setting.recipe}; mean and std over seeds."
    )
    return Sheet(test, title, heads, rows, [HELD_OUT_NOTE] if test == HELD_OUT else [])


def _differences(material: Material, tests: list[str]) -> Sheet:
    bootstraps, rows = Bootstraps(material), list[Sequence[Cell]]()
    others = [method for method in METHODS if method != REFERENCE]
    places = [(test, other, noise) for test in tests for other in others for noise in CELLS]
    for test, other, noise in progress.track(places, "compare with BoMD"):
        ours, theirs = cell(material, REFERENCE, noise), cell(material, other, noise)
        row: list[Cell] = [test, other, show_noise(noise)]
        row += compared(mean_auc(material, ours, test), mean_auc(material, theirs, test))
        paired = bootstraps.compare(ours, theirs, test)
        row += [None, None, None] if paired is None else [round(paired.low, 4), round(paired.high, 4), paired.p]
        rows.append(row)
    rows = known(rows, 3)
    bootstrapped = sum(row[-1] is not None for row in rows)
    return Sheet(
        "tests",
        f"BoMD's mean AUC minus that of the others under noise (rows, labels), recipe {material.setting.recipe}.",
        ["test set", "against", "noise", *TESTS, "bootstrap low", "bootstrap high", "bootstrap p"],
        rows,
        [
            HOW_TESTED,
            f"The bootstrap draws whole test patients {DRAWS:,} times, the same for both methods, and compares the "
            "means over seeds: its interval of 95 % is about other patients, Welch's test about other seeds. It needs "
            f"the predictions of the runs, which were there for {bootstrapped} of {len(rows)} rows.",
        ],
    )


TABLES = [
    Artefact(
        "noise-grid",
        "table",
        TABLE,
        "BCE, NVUM and BoMD without noise and at rows and labels of 0.2, 0.4 and 0.6, with three tests.",
        plan_grid,
        make,
    )
]
