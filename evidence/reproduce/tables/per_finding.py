"""AUC of every finding, for each method that has runs."""

from __future__ import annotations

from bomd.measure.result import HELD_OUT
from bomd.reports.sheet import Cell, Mean
from evidence.reproduce import paper
from evidence.reproduce.artefact import Artefact, Material, Sheet
from evidence.reproduce.tables.entries import entry, mean, recorded, tests_of
from evidence.reproduce.tables.main_results import of, plan_main

TABLE = ("tab:nih_result_1", "tab:nih_result_2", "tab:cxp_result_1", "tab:cxp_result_2")


def make(material: Material) -> list[Sheet]:
    """A sheet for each test set: findings from top to bottom, methods from left to right."""
    sheets = [_sheet(material, test) for test in tests_of(material.setting) if test != HELD_OUT]
    return [*sheets, *paper.sheets(material.setting, TABLE, "finding")]


def _sheet(material: Material, test: str) -> Sheet:
    setting, theirs = material.setting, paper.beside(material.setting, TABLE)
    methods = dict.fromkeys(config.method for config in material.planned)
    shown = [method for method in methods if recorded(material, entry(material, method))]
    printed = [method for method in shown if any((method, test) == (column, place) for _, column, place in theirs)]
    heads = ["finding", "positives"]
    for method in shown:
        heads += [method, *([f"{method}, the paper's"] if method in printed else [])]
    scores = [record.result.tests[test] for record in material.done if test in record.result.tests]
    left_out = dict.fromkeys(name for score in scores for name in score.left_out)
    positives = {item.name: item.positives for score in scores for item in score.classes}
    rows: list[list[Cell]] = []
    for finding, count in positives.items():
        row: list[Cell] = [finding, count]
        for method in shown:
            row.append(_auc(material, method, test, finding))
            row += [theirs.get((finding, method, test))] if method in printed else []
        rows.append(row)
    title = f"AUC of each finding on {test}, models trained by recipe {setting.recipe}; mean and sample std over seeds."
    notes = [f"Not in the mean over findings, for want of positives: {', '.join(left_out)}."] if left_out else []
    return Sheet(test, title, heads, rows, notes)


def _auc(material: Material, method: str, test: str, finding: str) -> Mean:
    return mean(material, entry(material, method), lambda record: of(record, test, finding))


TABLES = [
    Artefact(
        "per-finding",
        "table",
        ", ".join(TABLE),
        "AUC of every finding on every test set, with the noise that the recipe says.",
        plan_main,
        make,
    )
]
