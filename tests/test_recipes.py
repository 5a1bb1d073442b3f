"""Every recipe that ships can be read, and so can every command that its comments tell the reader to type."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bomd import recipes
from bomd.config import Config, FitSettings, load
from bomd.data.datasets import DATASETS, MIXTURE
from bomd.data.datasets.classes import NIH
from bomd.errors import InputError
from bomd.experiments.experiment import make_method
from bomd.experiments.noise import plan_noise
from bomd.methods import METHODS
from bomd.tables import LabelTable
from bomd.typed import arguments

FOLDER = Path(recipes.__file__).parent
SHIPPED = sorted(file.stem for file in FOLDER.glob("*.toml"))
PAPER = ("chexpert", "nih", "nihxpdc")


def commands(recipe: str) -> list[list[str]]:
    """Words of every `bomd run` and `bomd benchmark` line among a recipe's comments, `...` left out."""
    text = re.sub(r" \\\n#\s*", " ", (FOLDER / f"{recipe}.toml").read_text())
    lines = re.findall(r"^# (bomd (?:run|benchmark) .*)$", text, flags=re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines]


def settings_of(words: list[str]) -> list[list[str]]:
    """What a command overrides, once for every cell."""
    pairs = list(pairwise(words))
    every = [value for option, value in pairs if option == "--set"]
    cells = [value.split() for option, value in pairs if option == "--cell"]
    return [[*every, *cell] for cell in cells or [[]]]


EVERY = [(recipe, overrides) for recipe in SHIPPED for words in commands(recipe) for overrides in settings_of(words)]


def check_source(source: dict[str, Any], where: str) -> None:
    """Refuse what the reader would refuse before it looks for a file."""
    options = dict(source)
    name = options.pop("dataset")
    if name == MIXTURE:
        assert options.keys() == {"base", "part"}
        for key, part in options.items():
            check_source(part, f"{where}.{key}")
        return
    arguments(DATASETS[name].read, options, where)


def check(config: Config) -> None:
    make_method(config)
    for name, source in {"train": config.train, **config.test}.items():
        check_source(source, name)
    values = np.eye(len(NIH), dtype=np.float32)[np.arange(60) % len(NIH)]
    origins = np.array(["base", "part"])[np.arange(60) % 2]
    ids = np.array([f"i{row}" for row in range(60)])
    plan_noise(config, LabelTable(ids, NIH, values, origins=origins))


@pytest.mark.parametrize("recipe", SHIPPED)
@pytest.mark.parametrize("method", METHODS)
def test_recipe_is_sound_with_every_method(recipe: str, method: str) -> None:
    check(load(recipes.find_recipe(recipe), METHODS, [f"method={method}"]))


@pytest.mark.parametrize(("recipe", "overrides"), EVERY, ids=str)
def test_commands_in_comments_are_sound_and_change_something(recipe: str, overrides: list[str]) -> None:
    config = load(recipes.find_recipe(recipe), METHODS, overrides)
    check(config)
    changed = config != load(recipes.find_recipe(recipe), METHODS)
    assert changed == bool(overrides)


@pytest.mark.parametrize("recipe", PAPER)
def test_commands_name_their_own_recipe(recipe: str) -> None:
    assert {words[2] for words in commands(recipe)} == {recipe}


@pytest.mark.parametrize("recipe", PAPER)
def test_settings_are_those_of_the_paper(recipe: str) -> None:
    """Section 4.1: MID with Adam 1e-4, cosine, batch 16, 20 epochs; the classifier's are the defaults of `fit`."""
    config = load(recipes.find_recipe(recipe), METHODS)
    stage = config.settings["bomd"]
    assert config.fit == FitSettings()
    assert config.images.size == (224 if recipe == "chexpert" else 512)
    assert (stage["epochs"], stage["batch"], stage["rate"], stage["schedule"]) == (20, 16, 1e-4, "cosine")
    assert (stage["descriptors"], stage["beta"], stage["neighbours"]) == (3, 0.3, 10)
    assert (stage["graph_weight"], stage["uniform"], stage["language"]) == (0.6, 0.25, "bluebert")
    header = (FOLDER / f"{recipe}.toml").read_text().split("\nname = ")[0]
    assert "Not yet run here" in header or "Run here" in header
    assert "BoMD" in header


def test_ablations_cover_the_values_of_the_paper() -> None:
    """Each value of the paper's tables but the one of the recipe itself, and each once."""
    tried: dict[str, list[str]] = {}
    for words in commands("nih")[1:]:
        (overrides,) = settings_of(words)
        tried.setdefault(overrides[0].split("=")[0], []).append(overrides[0].split("=")[1])
    assert tried == {
        "bomd.language": ["random", "glove", "clinicalbert", "biobert"],
        "bomd.descriptors": ["1", "5", "7", "9"],
        "bomd.neighbours": ["5", "20", "50", "100"],
        "bomd.graph_weight": ["0.2", "0.4", "0.8", "1.0"],
        "bomd.uniform": ["0.05", "0.15", "0.35", "0.45", "0.0"],
        "bomd.use_mask": ["false"],
        "bomd.stage": ["self-supervised", "nvum"],
        "coop.classifier": ["hermoza"],
        "bomd.use_graph": ["false"],
    }


def test_grid_of_nihxpdc_is_complete() -> None:
    cells = set()
    for words in commands("nihxpdc"):
        if words[1] == "benchmark":
            for overrides in settings_of(words):
                noise = load(recipes.find_recipe("nihxpdc"), METHODS, overrides).noise
                cells.add((noise.get("rows", 0), noise.get("labels", 0)))
    assert cells == {(0, 0)} | {(rows, labels) for rows in (0.2, 0.4, 0.6) for labels in (0.2, 0.4, 0.6)}


def test_noise_of_nihxpdc_falls_on_the_part_alone() -> None:
    config = load(recipes.find_recipe("nihxpdc"), METHODS)
    ids = np.array([f"i{row}" for row in range(200)])
    values = np.eye(len(NIH), dtype=np.float32)[np.arange(200) % len(NIH)]
    draw = plan_noise(config, LabelTable(ids, NIH, values, origins=np.repeat(["base", "part"], 100)))
    assert draw is not None
    changed = draw().changed.any(axis=1)
    assert not changed[:100].any()
    assert changed[100:].any()


def test_chexpert_is_tested_on_its_own_classes() -> None:
    config = load(recipes.find_recipe("chexpert"), METHODS)
    assert {test["classes"] for test in config.test.values()} == {"chexpert"}


def test_a_wrong_argument_of_a_reader_is_refused() -> None:
    config = load(recipes.find_recipe("nih"), METHODS, ["train.splitt=test"])
    with pytest.raises(InputError, match="Did you mean 'split'"):
        check(config)
