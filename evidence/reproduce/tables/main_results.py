"""The paper's main tables: every method on every test set, and NIH-Google."""

from __future__ import annotations

from functools import partial

from bomd.config import Config
from bomd.experiments.plan import configure
from bomd.experiments.recorded import Record
from bomd.reports.sheet import Cell
from evidence.reproduce import paper
from evidence.reproduce.artefact import Artefact, Material, Setting, Sheet, UnsuitableError
from evidence.reproduce.tables.entries import (
    HELD_OUT_NOTE,
    HOW_TESTED,
    TESTS,
    as_given,
    compared,
    entry,
    known,
    mean,
    mean_auc,
    tests_of,
)

REFERENCE = "bomd"
METHODS = ["bce", "bomd", "nvum", "elr", "hermoza", "can", "dividemix", "fine", "npc", "ncr", "ls", "ols", "gls"]
GOOGLE_METHODS = ["bce", "bomd", "nvum", "elr", "f-correction", "mentornet", "decoupling", "co-teaching", "xue"]
MAIN = ("tab:nih_result", "tab:cxp_result")
GOOGLE = "tab:nih_google"
GOOGLE_FINDINGS = ("Pneumothorax", "Nodule or mass")


def plan_main(setting: Setting) -> list[Config]:
    return as_given(setting, METHODS)


def make_main(material: Material) -> list[Sheet]:
    """Mean AUC of every method on every test set, then how sure its distance from BoMD is."""
    setting, methods = material.setting, list(dict.fromkeys(config.method for config in material.planned))
    tests, theirs = tests_of(setting), paper.beside(setting, MAIN)
    heads, rows, differences = ["method"], [], []
    for test in tests:
        printed = any(test == place for _, _, place in theirs)
        heads += [test, *([f"{test}, the paper's"] if printed else [])]
    for method in methods:
        row: list[Cell] = [method]
        for test in tests:
            ours = mean_auc(material, entry(material, method), test)
            row.append(ours)
            if f"{test}, the paper's" in heads:
                row.append(theirs.get((method, "", test)))
            if method != REFERENCE:
                reference = mean_auc(material, entry(material, REFERENCE), test)
                differences.append([test, method, *compared(reference, ours)])
        rows.append(row)
    title = f"Mean AUC over findings of models trained by recipe {setting.recipe}, mean and sample standard deviation."
    against = f"BoMD's mean AUC minus that of every other method, recipe {setting.recipe}."
    return [
        Sheet("main-results", title, heads, rows, [HELD_OUT_NOTE]),
        Sheet("tests", against, ["test set", "against", *TESTS], known(differences, 2), [HOW_TESTED]),
        *paper.sheets(setting, MAIN, "method"),
    ]


def google_test(setting: Setting) -> str:
    """The name that the recipe gives to NIH-Google."""
    config = configure(setting.recipe, overrides=setting.overrides)
    for name, place in config.test.items():
        if place.get("dataset") == "nih-google":
            return name
    raise UnsuitableError(f"Recipe {setting.recipe} does not test on NIH-Google: its test sets are {[*config.test]}.")


def plan_google(setting: Setting) -> list[Config]:
    google_test(setting)
    return as_given(setting, GOOGLE_METHODS)


def make_google(material: Material) -> list[Sheet]:
    """AUC of the two findings that radiologists adjudicated and the training set labels."""
    setting, test = material.setting, google_test(material.setting)
    theirs = paper.beside(setting, [GOOGLE])
    heads = ["method"]
    for finding in GOOGLE_FINDINGS:
        heads += [finding, *([f"{finding}, the paper's"] if theirs else [])]
    rows = []
    for method in dict.fromkeys(config.method for config in material.planned):
        row: list[Cell] = [method]
        for finding in GOOGLE_FINDINGS:
            row.append(mean(material, entry(material, method), partial(of, test=test, finding=finding)))
            row += [theirs.get((method, finding, "nih-google"))] if theirs else []
        rows.append(row)
    title = f"AUC on NIH-Google of models trained by recipe {setting.recipe}, mean and sample standard deviation."
    notes = [
        "The score of a nodule or mass is the mean of the scores of Mass and Nodule.",
        "In the paper the rows of other methods appear to be carried over from earlier work.",
    ]
    return [Sheet("nih-google", title, heads, rows, notes), *paper.sheets(setting, [GOOGLE], "method")]


def of(record: Record, test: str, finding: str) -> float | None:
    """AUC of one finding; None where the test set cannot say."""
    scores = record.result.tests.get(test)
    return next((item.auc for item in scores.classes if item.name == finding), None) if scores else None


TABLES = [
    Artefact(
        "main-results",
        "table",
        ", ".join(MAIN),
        "Every method of the paper on every test set, with the noise that the recipe says.",
        plan_main,
        make_main,
    ),
    Artefact(
        "nih-google",
        "table",
        GOOGLE,
        "Pneumothorax and nodule or mass on the images that radiologists adjudicated.",
        plan_google,
        make_google,
    ),
]
