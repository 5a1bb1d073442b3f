"""Runs on images that have one label each: all sets of that kind, and nothing that makes no sense for it."""

from __future__ import annotations

from collections.abc import Mapping

from bomd.clean.opinion import ONE_LABEL_RATES
from bomd.config import Config
from bomd.data.datasets import Dataset
from bomd.data.one_label import like_training, with_kind
from bomd.errors import InputError
from bomd.methods.base import Method
from bomd.tables import LabelTable

ONE_LABEL = "Every image has one label, so that classes exclude each other."
HANDED = "handed"  # in `train`, what labels were that nobody can read again: they were handed over, see `run_on`
_WAY_OUT = 'or say labels = "multi"'

Tables = Mapping[str, tuple[LabelTable, Dataset]]


def of_one_kind(config: Config, tables: Tables) -> dict[str, tuple[LabelTable, Dataset]]:
    """All sets with one label per image or with several, as the recipe says or the training labels look."""
    train = with_kind(tables["train"][0], config.labels, "train")
    tests = {name: pair for name, pair in tables.items() if name != "train"}
    found = {name: (like_training(table, train, name), dataset) for name, (table, dataset) in tests.items()}
    return {"train": (train, tables["train"][1]), **found}


def check_one_label(config: Config, method: Method, train: LabelTable) -> None:
    """Refuse what makes no sense where an image has one label."""
    if not train.exclusive:
        return
    if not method.one_label:
        raise InputError(
            f"{config.method} learns several labels per image, and here every image has one: use bce, ls, bomd, "
            f"bomd-plus or cleanlab, {_WAY_OUT}."
        )
    if config.rates:
        raise InputError(ONE_LABEL_RATES)
    if config.fit.abnormality:
        problem = "fit.abnormality is for several labels per image, and here every image has one"
        raise InputError(f"{problem}: leave it out, {_WAY_OUT}.")


def one_label_note(config: Config, method: Method) -> list[str]:
    """What a reader should know; whoever hands labels over has said so already."""
    if HANDED in config.train:
        return []
    return [f'{ONE_LABEL} labels = "multi" says otherwise.'] if method.exclusive else []
