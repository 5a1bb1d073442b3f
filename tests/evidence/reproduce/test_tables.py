"""Tables from hand-made records: what is planned in which order, what is computed, and what is called missing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bomd import runs
from bomd.config import Config
from bomd.errors import InputError
from bomd.experiments.plan import configure
from bomd.experiments.recorded import Record
from bomd.experiments.records import load_predictions, save_predictions
from bomd.measure.paired import over_seeds
from bomd.reports.sheet import Mean
from bomd.tables import LabelTable
from evidence.reproduce import ARTEFACTS
from evidence.reproduce.artefact import Material, Setting, Sheet, UnsuitableError, key_of
from evidence.reproduce.claims import claims
from evidence.reproduce.figures.gather import noise_of
from evidence.reproduce.tables.bootstrap import Bootstraps
from evidence.reproduce.tables.noise_grid import cell

RECIPE = (Path(__file__).parent / "tiny.toml").read_text(encoding="utf-8")


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    path = tmp_path / "tiny.toml"
    path.write_text(RECIPE)
    return str(path)


def record_of(config: Config, auc: float | None, **result: Any) -> Record:
    """A record as `benchmark.record_of` makes it, with as little in it as tables need."""
    mass = {"name": "Mass", "auc": auc, "positives": 4}
    scores = {"mean_auc": auc, "averaged": ["Mass"], "left_out": [], "classes": [mass]}
    written = {
        "run": f"seed{config.seed}-abc",
        "config": config.to_dict(),
        "result": {
            "images": {"train": 60, "here": 40},
            "tests": {"here": scores},
            "seconds": 2.0,
            "detection": None,
            "labels": None,
            **result,
        },
        "environment": {"device": "cpu, 1 threads", "versions": {"torch": "2"}, "commit": "0123456789"},
    }
    return Record(written, "made up")


def material(name: str, setting: Setting, auc: Callable[[Config], float | None]) -> Material:
    """Everything planned and recorded, but for the runs that `auc` says None of."""
    planned = ARTEFACTS[name].plan(setting)
    scores = {key_of(config): auc(config) for config in planned}
    records = {
        key_of(config): record_of(config, score) for config in planned if (score := scores[key_of(config)]) is not None
    }
    return Material(setting, planned, records)


def sheets(name: str, found: Material) -> dict[str, Sheet]:
    return {sheet.name: sheet for sheet in ARTEFACTS[name].make(found) if isinstance(sheet, Sheet)}


class TestKeys:
    def test_a_record_has_the_key_of_its_plan(self, recipe: str) -> None:
        """Wherever the data lay, whatever was written out that is the default, and however no noise was asked for."""
        config = configure(recipe, "bomd", 1)
        key = key_of(config)
        same = ["bomd.graph_weight=0.6", "bomd.uniform=0.25", "device.accelerator=cpu", "train.root=/data/here"]
        assert key_of(configure(recipe, "bomd", 1, same)) == key
        stored = record_of(config, 0.5)
        del stored.written["config"]["device"]["kernels"]  # as in records of an older version
        assert stored.identity == key
        nothing = [key_of(configure(recipe, "bomd", 1, [text])) for text in ("noise.rows=0.0", "noise={}")]
        assert nothing[0] == nothing[1] != key

    def test_what_decides_about_numbers_makes_another_key(self, recipe: str) -> None:
        changes = ["seed=2", "bomd.uniform=0.3", "fit.epochs=2", "noise.rows=0.2", "train.count=61", "noise.share=0.5"]
        keys = {key_of(configure(recipe, "bomd", None, [text])) for text in changes}
        assert len({*keys, key_of(configure(recipe, "bomd"))}) == len(changes) + 1
        assert key_of(configure(recipe, "bce", 0, ["bomd.uniform=0.3"])) == key_of(configure(recipe, "bce", 0))

    def test_a_record_of_unknown_settings_is_like_no_plan(self, recipe: str) -> None:
        stored = record_of(configure(recipe, "bomd"), 0.5)
        stored.written["config"]["magic"] = True
        assert stored.identity != key_of(configure(recipe, "bomd"))


class TestPlans:
    def test_the_grid_in_the_order_of_importance(self, recipe: str) -> None:
        planned = ARTEFACTS["noise-grid"].plan(Setting(recipe, seeds=(0, 1)))
        assert len(planned) == 10 * 3 * 2
        order = list(dict.fromkeys((noise_of(config), config.method) for config in planned))
        assert [noise for noise, method in order if method == "bce"][:4] == [(0, 0), (0.2, 0.2), (0.4, 0.4), (0.6, 0.6)]
        assert [method for _, method in order[:3]] == ["bce", "bomd", "nvum"]
        assert len({noise for noise, _ in order}) == 10

    def test_a_recipe_without_noise_gets_it_added_or_left_out(self) -> None:
        planned = ARTEFACTS["noise-grid"].plan(Setting("nih-small", seeds=(0,)))
        assert planned[0].noise == {}
        assert planned[3].noise == {"kind": "symmetric", "rows": 0.2, "labels": 0.2}
        assert ARTEFACTS["noise-grid"].plan(Setting("nihxpdc", seeds=(0,)))[3].noise["only"] == "part"

    def test_ablations_share_the_run_that_changes_nothing(self, recipe: str) -> None:
        setting = Setting(recipe, seeds=(0,))
        grid = {key_of(config) for config in ARTEFACTS["noise-grid"].plan(setting)}
        counts = {"language-models": 2, "stage-one": 4, "relabelling-terms": 4, "hyper-parameters": 17}
        for name, count in counts.items():
            keys = [key_of(config) for config in ARTEFACTS[name].plan(setting)]
            # K = 5 is this recipe's own, so that K = 10 is another run and lambda, gamma and M share one
            assert (len(keys), len(set(keys)), len(grid & set(keys))) == (count, count, 1), name

    def test_ablations_of_the_papers_recipes_are_on_labels_as_given(self) -> None:
        planned = ARTEFACTS["hyper-parameters"].plan(Setting("nih", seeds=(0,)))
        assert {str(config.noise) for config in planned} == {"{}"}

    def test_language_models_within_reach(self, recipe: str) -> None:
        def languages(setting: Setting) -> list[str]:
            plans = ARTEFACTS["language-models"].plan(setting)
            return [config.settings["bomd"].get("language", "the recipe's") for config in plans]

        assert languages(Setting(recipe, (0,))) == ["the recipe's", "random"]
        given = Setting(recipe, (0,), ["bomd.vectors=glove.txt"])
        assert languages(given) == ["the recipe's", "random", "glove"]
        plans = ARTEFACTS["language-models"].plan(given)
        assert [config.settings["bomd"].get("vectors") for config in plans] == [None, None, "glove.txt"]
        paper = languages(Setting("nih", (0,)))
        assert paper == ["bluebert", "random", "minilm", "biobert", "clinicalbert"]

    def test_nih_google_needs_its_test_set(self, recipe: str) -> None:
        with pytest.raises(UnsuitableError, match="does not test on NIH-Google"):
            ARTEFACTS["nih-google"].plan(Setting(recipe))
        assert len(ARTEFACTS["nih-google"].plan(Setting("nih-small"))) == 27


class TestNoiseGrid:
    def found(self, recipe: str) -> Material:
        """NVUM is missing at (0.6, 0.6) with seed 1; BoMD is better by 0.1 at (0.2, 0.2) alone."""

        def auc(config: Config) -> float | None:
            if config.method == "nvum" and noise_of(config) == (0.6, 0.6) and config.seed == 1:
                return None
            bonus = 0.1 if config.method == "bomd" and noise_of(config) == (0.2, 0.2) else 0.0
            return 0.7 + 0.02 * config.seed + bonus

        return material("noise-grid", Setting(recipe, seeds=(0, 1)), auc)

    def test_means_and_missing_runs(self, recipe: str) -> None:
        """0.70 and 0.72: mean 0.71, sample standard deviation 0.0141."""
        sheet = sheets("noise-grid", self.found(recipe))["here"]
        rows = {row[0]: [str(item) for item in row[1:]] for row in sheet.rows}
        assert sheet.heads == ["noise", "bce", "bomd", "nvum"]
        assert rows["(0.2, 0.2)"] == ["0.710 ± 0.014", "0.810 ± 0.014", "0.710 ± 0.014"]
        assert rows["(0.6, 0.6)"][2] == "0.700 (1 of 2 runs)"
        assert list(rows)[:3] == ["no noise", "(0.2, 0.2)", "(0.2, 0.4)"]

    def test_differences_with_both_tests(self, recipe: str) -> None:
        """At (0.2, 0.2): z = 0.1 / 0.014142 = 7.071, p = 7.7e-13; Welch t = 0.1 / 0.014142 = 7.071 with 2 degrees
        of freedom, p = (1 - 7.071 / sqrt(2 + 50)) / 2 = 0.0097."""
        sheet = sheets("noise-grid", self.found(recipe))["tests"]
        rows = {(row[1], row[2]): row[3:] for row in sheet.rows}
        assert len(rows) == 20
        difference, z, welch, *bootstrap = rows["bce", "(0.2, 0.2)"]
        assert difference == 0.1
        assert z == pytest.approx(7.7e-13, rel=0.01)
        assert welch == pytest.approx(0.0097, abs=1e-4)
        assert bootstrap == [None, None, None]
        assert rows["nvum", "(0.6, 0.6)"][1:3] == [None, None]  # one run has no spread

    def test_claims_count_what_the_table_shows(self, recipe: str) -> None:
        against_bce, against_nvum, *_ = claims(self.found(recipe))
        assert (
            against_bce.paper
            == "BoMD has a higher AUC than bce in 10 of 10 cells of the noise grid (by 1.72 to 5.09 points)."
        )

        assert against_nvum.paper.endswith(
            "in 9 of 10 cells of the noise grid (by 0.02 to 3.74 points), and loses at (0.6, 0.6), by 2.8 points."
        )
        (sentence,) = against_bce.here
        assert (
            "BoMD above bce in 1 of 10; significantly above in 1: (0.2, 0.2); significantly below in none." in sentence
        )
        assert "At (0.6, 0.6), BoMD minus nvum is +0.010." in against_nvum.here[0]

    def test_claims_without_any_run_say_so(self, recipe: str) -> None:
        setting = Setting(recipe, seeds=(0, 1))
        for claim in claims(Material(setting, ARTEFACTS["noise-grid"].plan(setting), {})):
            assert claim.here
            assert all("No run here can tell." in sentence for sentence in claim.here)


def test_main_results_and_findings_show_what_is_there(recipe: str) -> None:
    found = material(
        "main-results", Setting(recipe, seeds=(0, 1)), lambda config: 0.8 if config.method in ("bce", "bomd") else None
    )
    main = sheets("main-results", found)
    assert [str(row[1]) for row in main["main-results"].rows][:3] == ["0.800 ± 0.000", "0.800 ± 0.000", "missing"]
    assert len(main["main-results"].rows) == 13
    assert [row[1] for row in main["tests"].rows] == ["bce"]
    finding = sheets("per-finding", found)["here"]
    assert finding.heads == ["finding", "positives", "bce", "bomd"]
    assert [str(item) for item in finding.rows[0]] == ["Mass", "4", "0.800 ± 0.000", "0.800 ± 0.000"]


def test_an_ablation_is_compared_with_the_recipes_own(recipe: str) -> None:
    """0.80 and 0.82 against 0.75 and 0.77: 0.05 apart, t = 0.05 / 0.014142 = 3.536, p = 0.0358."""

    def auc(config: Config) -> float:
        return (0.75 if config.settings["bomd"].get("language") == "random" else 0.8) + 0.02 * config.seed

    made = sheets("language-models", material("language-models", Setting(recipe, seeds=(0, 1)), auc))
    assert [str(row[1]) for row in made["language-models"].rows] == ["0.810 ± 0.014", "0.760 ± 0.014"]
    ((test, label, difference, _, welch),) = made["tests"].rows
    assert (test, label, difference) == ("here", "random", 0.05)
    assert welch == pytest.approx(0.0358, abs=1e-4)


def predictions(directory: Path, config: Config, strength: float) -> runs.Run:
    """A run that scores 30 patients, the better the higher `strength`."""
    generator = np.random.default_rng(0)
    truth = LabelTable(
        np.asarray([f"i{row}" for row in range(60)]),
        ("Mass", "Hernia"),
        (generator.random((60, 2)) < 0.4).astype(np.float32),
        patients=np.asarray([f"p{row // 2}" for row in range(60)]),
    )
    noise = np.random.default_rng([config.seed, len(config.method)]).random((60, 2))
    scores = truth.replace(np.clip(strength * truth.values + noise, 0, 2).astype(np.float32) / 2)
    run = runs.Run(directory / config.method / f"seed{config.seed}")
    save_predictions(run.directory / "predictions.npz", {"here": truth}, {"here": scores})
    return run


def test_the_bootstrap_is_that_of_the_runs_and_outlives_them(recipe: str, tmp_path: Path) -> None:
    setting = Setting(recipe, seeds=(0, 1))
    base = material("noise-grid", setting, lambda config: 0.8)
    noise = (0.2, 0.2)
    ones, others = cell(base, "bomd", noise), cell(base, "bce", noise)
    places = {
        key_of(config): predictions(tmp_path / "runs", config, 0.6 if config.method == "bomd" else 0.1)
        for config in (*ones, *others)
    }
    here = Material(setting, base.planned, base.records, places, tmp_path)
    found = Bootstraps(here, draws=100).compare(ones, others, "here")
    assert found is not None
    tables = {key: load_predictions(run.directory / "predictions.npz")["here"] for key, run in places.items()}
    truth = tables[key_of(ones[0])][0]
    sides = [[tables[key_of(config)][1] for config in side] for side in (ones, others)]
    expected = over_seeds(truth, *sides, draws=100)
    assert expected is not None
    assert found.difference == pytest.approx(expected.difference, abs=1e-6)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-6)
    assert 0 < found.low < found.difference < found.high

    shutil.rmtree(tmp_path / "runs")
    gone = Material(setting, base.planned, base.records, {}, tmp_path)
    assert Bootstraps(gone, draws=100).compare(ones, others, "here") == found
    assert Bootstraps(gone, draws=200).compare(ones, others, "here") is None
    changed = material("noise-grid", setting, lambda config: 0.9)
    other_runs = Material(setting, changed.planned, changed.records, {}, tmp_path)
    assert Bootstraps(other_runs, draws=100).compare(ones, others, "here") is None


def test_other_patients_are_not_compared(recipe: str, tmp_path: Path) -> None:
    setting = Setting(recipe, seeds=(0,))
    base = material("noise-grid", setting, lambda config: 0.8)
    ones, others = cell(base, "bomd", (0.2, 0.2)), cell(base, "bce", (0.2, 0.2))
    places = {key_of(config): predictions(tmp_path / "runs", config, 0.5) for config in (*ones, *others)}
    path = places[key_of(others[0])].directory / "predictions.npz"
    truth, scores = load_predictions(path)["here"]
    save_predictions(path, {"here": truth.take(np.arange(50))}, {"here": scores.take(np.arange(50))})
    here = Material(setting, base.planned, base.records, places)
    assert Bootstraps(here, draws=50).compare(ones, others, "here") is None
    assert Bootstraps(here, draws=50).compare(ones, others, "held-out patients") is None


def test_a_damaged_store_of_bootstraps_is_one_line(recipe: str, tmp_path: Path) -> None:
    (tmp_path / "bootstrap.json").write_text("{")
    base = material("noise-grid", Setting(recipe, seeds=(0,)), lambda config: 0.8)
    with pytest.raises(InputError, match="Cannot read"):
        Bootstraps(Material(base.setting, base.planned, base.records, {}, tmp_path))


def test_a_mean_says_how_much_of_it_is_there() -> None:
    assert str(Mean(None, 0, 3)) == "missing"
    assert str(Mean(None, 1, 3)) == "–"
