"""The paper's own numbers, with the setting that they were made in; beside ours only where that is the same."""

from __future__ import annotations

import csv
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bomd.errors import InputError
from bomd.experiments.plan import configure
from bomd.measure.significance import Sample
from bomd.recipes import find_recipe
from bomd.reports.sheet import Cell, Mean
from evidence.reproduce.artefact import Setting, Sheet, key_of

FILE = Path(__file__).with_name("paper.csv")
RUNS = 3  # behind each mean with a spread; a number without one is taken for a single run
TRAINED_ON = {
    "nih": "NIH ChestX-ray14 as given, 83,672 images at 512 px",
    "chexpert": "CheXpert as given, at 224 px",
    "nihxpdc": "NIH as given with PadChest, noise added to PadChest alone, at 512 px",
}
SINGLE = (
    "Most likely one run each: the full method has 89.52 and 86.50 here, and 89.57 and 86.45 as a mean of three runs."
)
SLIPS = {
    "tab:noise_auc": "Its text has 3.8 points lost for each 20 % of rows; its table has (89.76 - 82.23) / 3 = 2.51.",
    "tab:ablation_pretrain": SINGLE,
    "tab:ablation_mixup": SINGLE,
    "tab:ablation": SINGLE,
}


@dataclass(frozen=True)
class Number:
    """One number of the paper.

    Attributes:
        table: Its label.
        setting: The recipe that is the same setting.
        row: Method, variant or finding; where a table has several columns for a test set, `column` says which.
        value: As printed, in percent; likewise `std`.
        note: What is wrong with it, if anything.
    """

    table: str
    setting: str
    row: str
    column: str
    test: str
    value: float
    std: float | None
    note: str

    @property
    def cell(self) -> Mean:
        """As a fraction, as AUC is written elsewhere here."""
        std = None if self.std is None else self.std / 100
        runs = 1 if std is None else RUNS
        return Mean(Sample(self.value / 100, std, runs), runs, runs, digits=4)


@functools.cache
def numbers() -> tuple[Number, ...]:
    with FILE.open(encoding="utf-8", newline="") as stream:
        return tuple(
            Number(
                **{key: row[key] for key in ("table", "setting", "row", "column", "test", "note")},
                value=float(row["value"]),
                std=float(row["std"]) if row["std"] else None,
            )
            for row in csv.DictReader(stream)
        )


def same_setting(setting: Setting) -> str | None:
    """Which setting of the paper these runs are made in: a shipped recipe with nothing changed but folders."""
    if setting.recipe not in TRAINED_ON or find_recipe(setting.recipe).parent != find_recipe("nih").parent:
        return None
    try:
        same = key_of(configure(setting.recipe, overrides=setting.overrides)) == key_of(configure(setting.recipe))
    except InputError:
        return None
    return setting.recipe if same else None


def find(table: str, row: str, column: str = "", test: str = "", setting: str | None = None) -> Number | None:
    """The number in one place of the paper's tables, if it has one there."""
    for number in numbers():
        if (number.table, number.row, number.column, number.test) == (table, row, column, test):
            return number if setting in (None, number.setting) else None
    return None


def beside(setting: Setting, tables: Sequence[str]) -> dict[tuple[str, str, str], Mean]:
    """The paper's numbers from the same setting, by row, column and test set; nothing where it is another."""
    same = same_setting(setting)
    return {
        (number.row, number.column, number.test): number.cell
        for number in numbers()
        if number.table in tables and number.setting == same
    }


def sheets(
    setting: Setting, tables: Sequence[str], head: str, chosen: Callable[[Number], bool] = lambda _: True
) -> list[Sheet]:
    """The paper's numbers on sheets of their own, where its setting is not that of these runs.

    Args:
        head: Of the first column.
        chosen: Whether a number belongs here, where a table of the paper is several here.
    """
    found = [number for number in numbers() if number.table in tables and chosen(number)]
    if any(number.setting == same_setting(setting) for number in found):
        return []
    made = []
    for trained in dict.fromkeys(number.setting for number in found):
        here = [number for number in found if number.setting == trained]
        # With several columns for each test set, one sheet for each test set stays readable.
        tests = list(dict.fromkeys(number.test for number in here))
        for group in [[test] for test in tests] if any(number.column for number in here) else [tests]:
            kept = [number for number in here if number.test in group]
            name = trained if group == tests else f"{trained}-{group[0]}"
            made.append(_sheet(setting, trained, kept, head, name))
    return made


def _sheet(setting: Setting, trained: str, found: Sequence[Number], head: str, name: str) -> Sheet:
    columns = list(dict.fromkeys((number.test, number.column) for number in found))
    by_place = {(number.row, number.test, number.column): number for number in found}
    rows: list[list[Cell]] = []
    for row in dict.fromkeys(number.row for number in found):
        places = [by_place.get((row, *column)) for column in columns]
        rows.append([row, *(None if number is None else number.cell for number in places)])
    tests = ", ".join(dict.fromkeys(number.test for number in found))
    tables = list(dict.fromkeys(number.table for number in found))
    notes = [f"{one.row} on {one.test}: printed as {one.value:.2f}, {one.note}." for one in found if one.note]
    return Sheet(
        f"paper-{name}",
        f"The paper's, another setting: {', '.join(tables)}. Trained on {TRAINED_ON[trained]}; tested on {tests}. Not "
        f"comparable with the runs of recipe {setting.recipe}.",
        [head, *(column or test for test, column in columns)],
        rows,
        [
            "Copied from the paper, percent divided by 100; no run of this project is in it.",
            *notes,
            *(SLIPS[table] for table in tables if table in SLIPS),
        ],
        ours=False,
    )
