"""Two sets as one: rows and patients are kept apart, and noise falls where the recipe says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bomd.config import Config, parse
from bomd.data import datasets
from bomd.data.datasets import mixture, phantom
from bomd.data.datasets.classes import NIH
from bomd.errors import InputError
from bomd.experiments.experiment import read_labels
from bomd.experiments.noise import add_noise
from bomd.methods import METHODS
from bomd.runs import Stages
from bomd.tables import LabelTable

NORTH: dict[str, Any] = {"dataset": "phantom", "hospital": "north", "count": 120}
SOUTH: dict[str, Any] = {"dataset": "phantom", "hospital": "south", "count": 80}
SOURCE: dict[str, Any] = {"dataset": "mixture", "base": NORTH, "part": SOUTH}
NOISE: dict[str, Any] = {"kind": "symmetric", "rows": 0.5, "labels": 0.5, "only": "part"}


def config(**values: Any) -> Config:
    return parse({"train": SOURCE, "noise": NOISE, **values}, METHODS)


def small(classes: tuple[str, ...], values: list[list[float]], **columns: Any) -> LabelTable:
    ids = np.array([f"{classes[0]}{row}" for row in range(len(values))])
    return LabelTable(ids, classes, np.array(values, dtype=np.float32), **columns)


class TestTable:
    def test_rows_of_both_in_order(self) -> None:
        table, dataset = datasets.read(SOURCE, "train")
        north, south = phantom.read(hospital="north", count=120), phantom.read(hospital="south", count=80)
        np.testing.assert_array_equal(table.ids, np.concatenate([north.ids, south.ids]))
        np.testing.assert_array_equal(table.values, np.concatenate([north.values, south.values]))
        assert table.origins is not None
        assert table.origins.tolist() == ["base"] * 120 + ["part"] * 80
        assert table.classes == NIH
        assert dataset.render is not None
        drawn = dataset.render(table.ids[[0, 150]], 16)
        np.testing.assert_array_equal(drawn, phantom.render([north.ids[0], south.ids[30]], 16))

    def test_patients_of_the_same_name_stay_apart(self, tmp_path: Path) -> None:
        """Two folders that both have a patient "1"."""
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "labels.csv").write_text(f"id,patient,Mass,Edema\n{name}.png,1,1,0\n")
            Image.fromarray(np.zeros((8, 8), dtype=np.uint8)).save(tmp_path / name / f"{name}.png")
        sources = {key: {"dataset": "folder", "root": str(tmp_path / key)} for key in ("one", "two")}
        table, _ = datasets.read({"dataset": "mixture", "base": sources["one"], "part": sources["two"]}, "train")
        assert len(set(table.groups)) == 2
        same, _ = datasets.read(sources["one"], "test")
        assert set(same.groups) < set(table.groups)

    def test_without_patients_every_image_is_its_own(self) -> None:
        table = mixture.read(small(("Mass", "Edema"), [[1, 0], [0, 1]]), small(("Edema", "Mass"), [[1, 0]]))
        assert len(set(table.groups)) == 3

    def test_columns_match_by_name_and_what_the_part_lacks_is_not_labelled(self) -> None:
        base = small(("Mass", "Edema", "Hernia"), [[1, 0, 1]])
        part = small(("Fracture", "Edema", "Mass"), [[1, 1, 0]])
        table = mixture.read(base, part)
        assert table.classes == ("Mass", "Edema", "Hernia")
        np.testing.assert_array_equal(table.values, [[1, 0, 1], [0, 1, np.nan]])

    def test_files_of_both(self) -> None:
        base = small(("Mass", "Edema"), [[1, 0]], paths=np.array(["a.png"]), views=np.array(["PA"]))
        part = small(("Edema", "Mass"), [[1, 0]], paths=np.array(["much/longer/b.png"]))
        table = mixture.read(base, part)
        assert table.paths is not None
        assert table.paths.tolist() == ["a.png", "much/longer/b.png"]
        assert table.views is None  # known for one set alone


class TestNoise:
    def test_falls_on_the_part_alone(self, tmp_path: Path) -> None:
        """Half of the 80 rows of the part are drawn, of each of two groups; nearly all of them change."""
        given = config()
        table = read_labels(given)["train"][0]
        noise = add_noise(given, table, Stages(tmp_path))
        assert noise is not None
        changed = noise.changed.any(axis=1)
        assert not changed[:120].any()
        assert 30 <= changed[120:].sum() <= 40
        np.testing.assert_array_equal(noise.exposed, table.origins == "part")
        np.testing.assert_array_equal(noise.clean.values, table.values)
        np.testing.assert_array_equal(noise.noisy.origins, table.origins)

    def test_rows_of_the_base_do_not_matter(self, tmp_path: Path) -> None:
        """The part alone, with the same noise over all rows, is corrupted in the same places."""
        both = add_noise(config(), read_labels(config())["train"][0], Stages(tmp_path))
        alone = config(train=SOUTH, noise={key: NOISE[key] for key in ("kind", "rows", "labels")})
        part = add_noise(alone, read_labels(alone)["train"][0], Stages(tmp_path))
        assert both is not None
        assert part is not None
        np.testing.assert_array_equal(both.noisy.values[120:], part.noisy.values)

    def test_can_fall_on_the_base_instead_or_everywhere(self, tmp_path: Path) -> None:
        for noise, where in (({**NOISE, "only": "base"}, [True, False]), ({**NOISE, "only": None}, [True, True])):
            given = config(noise={key: value for key, value in noise.items() if value is not None})
            drawn = add_noise(given, read_labels(given)["train"][0], Stages(tmp_path))
            assert drawn is not None
            changed = drawn.changed.any(axis=1)
            assert [bool(changed[:120].any()), bool(changed[120:].any())] == where

    def test_is_drawn_once_for_each_seed(self, tmp_path: Path) -> None:
        table = read_labels(config())["train"][0]
        first, again, other = (add_noise(config(seed=seed), table, Stages(tmp_path)) for seed in (0, 0, 1))
        assert first is not None
        assert again is not None
        assert other is not None
        np.testing.assert_array_equal(first.noisy.values, again.noisy.values)
        assert (first.noisy.values != other.noisy.values).any()
        assert len(list(tmp_path.glob("noise-*"))) == 2

    def test_leaves_what_is_not_labelled(self, tmp_path: Path) -> None:
        table = read_labels(config())["train"][0]
        values = table.values.copy()
        values[120:, NIH.index("Hernia")] = np.nan
        noise = add_noise(config(), table.replace(values), Stages(tmp_path))
        assert noise is not None
        np.testing.assert_array_equal(np.isnan(noise.noisy.values), np.isnan(values))


class TestMistakes:
    @pytest.mark.parametrize(
        ("source", "message"),
        [
            ({"dataset": "mixture", "base": NORTH}, "'part' is needed"),
            ({"dataset": "mixture", "part": SOUTH}, "'base' is needed"),
            ({**SOURCE, "parts": SOUTH}, "unknown key 'parts'. Did you mean 'part'"),
            ({**SOURCE, "part": "south"}, r"train\.part: expected a table"),
            ({**SOURCE, "part": {"hospital": "south"}}, r"train\.part: 'dataset' is needed"),
            ({**SOURCE, "part": {**SOUTH, "hospitl": "south"}}, r"train\.part: unknown key 'hospitl'"),
            ({**SOURCE, "part": {**SOUTH, "dataset": "phantm"}}, r"train\.part: unknown dataset 'phantm'"),
            ({**SOURCE, "part": NORTH}, "Duplicate id"),
        ],
    )
    def test_one_line_that_names_the_place(self, source: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError, match=message) as caught:
            datasets.read(source, "train")
        assert "\n" not in str(caught.value)

    def test_no_class_in_common(self) -> None:
        with pytest.raises(InputError, match="share no class"):
            mixture.read(small(("Mass",), [[1]]), small(("Edema",), [[1]]))

    def test_files_and_generated_images(self) -> None:
        base = small(("Mass", "Edema"), [[1, 0]])
        with pytest.raises(InputError, match="two sets of files, or two of generated images"):
            mixture.read(base, replace(base, ids=np.array(["b"]), paths=np.array(["b.png"])))

    def test_noise_on_an_origin_that_does_not_exist(self, tmp_path: Path) -> None:
        given = config(noise={**NOISE, "only": "padchest"})
        with pytest.raises(InputError, match=r"noise\.only: no training image comes from 'padchest'.*base.*part"):
            add_noise(given, read_labels(given)["train"][0], Stages(tmp_path))
        alone = config(train=NORTH)
        with pytest.raises(InputError, match=r"noise\.only"):
            add_noise(alone, read_labels(alone)["train"][0], Stages(tmp_path))
