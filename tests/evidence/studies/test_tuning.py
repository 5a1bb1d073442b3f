"""Every method has the same budget of tuning, on data that no page reports, and the recipe has what was chosen."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from bomd.config import load
from bomd.errors import InputError
from bomd.experiments.experiment import make_method
from bomd.methods import METHODS
from bomd.methods.describe import describe
from evidence.studies import tuning


def rows(**scores: dict[str, float]) -> list[dict[str, Any]]:
    """Runs of one method, by setting and level of noise."""
    return [
        {
            "method": "fine",
            "setting": setting.replace("_", "="),
            "noise": noise,
            "auc": auc,
            "images": 3593,
            "epochs": 12,
            "commit": "0123456",
            "device": "cpu",
        }
        for setting, by_noise in scores.items()
        for noise, auc in by_noise.items()
    ]


def test_every_method_with_settings_may_try_three() -> None:
    assert {*tuning.CANDIDATES} <= {*METHODS}
    for name in METHODS:
        found = describe(name)
        tried = {*tuning.CANDIDATES.get(name, ())}
        assert len(tried) == (2 if found.settings and found.base is None else 0), name


def test_all_that_is_tried_can_be_run_and_differs() -> None:
    planned = tuning.plan(list(METHODS))
    assert len({config.key for config in planned.values()}) == len(planned)
    for (method, _, _), config in planned.items():
        assert config.method == method
        make_method(config)


def test_nothing_is_tried_on_what_pages_report() -> None:
    reported = load(tuning.RECIPE, METHODS)
    for config in tuning.plan(["bce", "fine"]).values():
        for one, other in ((config.train, reported.train), (config.test["south"], reported.test["south"])):
            assert one.get("seed", 0) != other.get("seed", 0)
            assert {**one, "seed": 0} == {**other, "seed": 0}
        assert config.fit == reported.fit


def test_the_best_mean_over_all_levels_is_chosen() -> None:
    """A setting that was not run at every level is not judged, and equal means leave things as they are."""
    found = rows(a_1={"no noise": 0.9, "x": 0.5}, b_2={"no noise": 0.7, "x": 0.8}, c_3={"no noise": 0.99})
    assert tuning.best(found) == {"fine": "b=2"}
    text = tuning.page(found)
    assert "| fine | `b=2` | 0.700 | 0.800 | 0.750 | yes |" in text
    assert "| fine | `c=3` | 0.990 | missing | missing |  |" in text
    equal = [*rows(a_1={"x": 0.5}), *({**row, "setting": ""} for row in rows(b={"x": 0.5}))]
    assert tuning.best(equal) == {"fine": ""}


def test_the_recipe_is_the_demo_with_what_was_chosen() -> None:
    chosen = {"fine": "per_label=true", "cleanlab": 'action="flip"', "bomd": "neighbours=30", "bce": ""}
    found = tomllib.loads(tuning.recipe(chosen))
    wanted = tomllib.loads(tuning.DEMO.read_text())
    wanted["bomd"]["neighbours"] = 30
    wanted |= {"name": "methods-demo", "fine": {"per_label": True}, "cleanlab": {"action": "flip"}}
    assert found == wanted


def test_what_is_in_the_repository_is_what_was_chosen() -> None:
    """Before anything was tried, the recipe has no choices."""
    found = tuning.read(tuning.TABLE) if tuning.TABLE.exists() else []
    assert tuning.RECIPE.read_text() == tuning.recipe(tuning.best(found))
    if found:
        assert tuning.TABLE.with_suffix(".md").read_text() == tuning.page(found)


@pytest.mark.slow
def test_a_trial_on_a_few_images_writes_a_table_and_goes_on(tmp_path: Path) -> None:
    words = ["--methods", "bce", "--runs", str(tmp_path / "runs"), "--table", str(tmp_path / "tuning.csv")]
    words += ["--recipe", str(tmp_path / "recipe.toml"), "--set", "train.count=60", "--set", "test.south.count=60"]
    words += ["--set", "fit.epochs=1", "--set", "images.size=16", "--set", "minimum_positives=1"]
    tuning.main(words)
    found = tuning.read(tmp_path / "tuning.csv")
    assert [row["noise"] for row in found] == ["no noise", "(0.2, 0.2)", "(0.4, 0.4)", "(0.6, 0.6)"]
    assert all(0 <= row["auc"] <= 1 for row in found)
    before = (tmp_path / "tuning.csv").read_text()
    tuning.main(words)  # nothing is left to do
    tuning.main([*words, "--choose"])
    assert (tmp_path / "tuning.csv").read_text() == before
    assert "| bce | as it is |" in (tmp_path / "tuning.md").read_text()


def test_what_cannot_be_done_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No method 'nothing'"):
        tuning.plan(["nothing"])
    with pytest.raises(SystemExit, match="No runs yet at"):
        tuning.main(["--choose", "--table", str(tmp_path / "none.csv")])
