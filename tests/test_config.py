"""Recipes: read, overridden, refused with the nearest valid name, and saved whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bomd.config import Config, load, parse
from bomd.errors import InputError

METHODS = ("bce", "bomd")


def recipe(folder: Path, text: str) -> Path:
    path = folder / "recipe.toml"
    path.write_text(text)
    return path


def test_recipe_and_overrides(tmp_path: Path) -> None:
    path = recipe(
        tmp_path, 'method = "bomd"\n[train]\ndataset = "phantom"\n[fit]\nepochs = 3\n[bomd]\nneighbours = 5\n'
    )
    config = load(path, METHODS, ["fit.epochs=7", "method=bce", "bomd.language=random", "test.here.count=4"])
    assert config.fit.epochs == 7
    assert config.method == "bce"
    assert config.settings == {"bomd": {"neighbours": 5, "language": "random"}}
    assert config.test == {"here": {"count": 4}}


def test_saved_settings_repeat_the_run() -> None:
    """A config that went through JSON, as in config.json, is the same config with the same key."""
    config = parse({"method": "bomd", "fit": {"betas": [0.5, 0.9]}, "bomd": {"beta": 0.2}}, METHODS)
    again = parse(json.loads(json.dumps(config.to_dict())), METHODS)
    assert again == config
    assert again.key == config.key


@pytest.mark.parametrize("change", [{"seed": 1}, {"fit": {"rate": 0.06}}, {"bomd": {"beta": 0.1}}])
def test_any_changed_setting_changes_the_key(change: dict[str, object]) -> None:
    assert parse(change, METHODS).key != Config().key


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[fit]\nepoch = 3", "unknown key 'epoch'. Did you mean 'epochs'?"),
        ("sede = 3", "unknown key 'sede'. Did you mean 'seed'?"),
        ('method = "bmod"', "unknown method 'bmod'. Did you mean 'bomd'?"),
        ("seed = 1.5", "seed: expected int, got 1.5"),
        ("validation = 1.0", "validation must be at least 0 and below 1"),
        ("[fit]\nbatch = 1", "batch must be at least 2"),
        ("[images]\nsize = 0", "size must be at least 8"),
        ("seed = ", "Cannot read recipe"),
    ],
)
def test_mistakes_get_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        load(recipe(tmp_path, text), METHODS)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_recipe_and_bad_override(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No recipe at"):
        load(tmp_path / "none.toml", METHODS)
    with pytest.raises(InputError, match="write it as key=value"):
        load(recipe(tmp_path, ""), METHODS, ["seed"])
    with pytest.raises(InputError, match="'seed' is a value, not a table"):
        load(recipe(tmp_path, "seed = 1"), METHODS, ["seed.more=2"])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("settings=x", "settings: expected a table"),
        ("settings.bomd=1", "settings.bomd: expected a table"),
        ("fit.rate=nan", "rate: expected a finite number"),
        ("fit.clip=inf", "clip: expected a finite number"),
        ("fit.betas=[2.0, 0.9]", "betas must be"),
        ("fit.rate=-1", "rate must be at least 0"),
        ("fit.clip=-1", "clip must be at least 0"),
        ("fit.eps=-1", "eps must be at least 0"),
        ("fit.decay=-1", "decay must be at least 0"),
        ("seed=-5", "seed must be at least 0"),
        ("minimum_positives=0", "minimum_positives must be at least 1"),
        ("images.size=100000", "size must be at most 8192"),
        ("validation=nan", "validation: expected a finite number"),
    ],
)
def test_impossible_values_are_refused_before_anything_starts(tmp_path: Path, setting: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(recipe(tmp_path, "[train]\n"), METHODS, [setting])


@pytest.mark.parametrize("name", ["../../esc", "a/b", "..", ".", "", "a\\b", "/tmp/x", "a\nb", "x" * 300])
def test_a_name_that_leads_out_of_the_runs_folder_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="cannot be the name of a folder"):
        parse({"name": name}, METHODS)
