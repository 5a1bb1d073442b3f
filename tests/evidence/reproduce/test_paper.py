"""The paper's numbers are copied right, and stand beside ours only where the setting is the same."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from bomd.reports.sheet import Mean
from evidence.reproduce import ARTEFACTS, paper
from evidence.reproduce.artefact import Material, Setting


def value(table: str, row: str, column: str, test: str) -> float:
    found = paper.find(table, row, column, test)
    assert found is not None
    return found.value


def test_corners_of_the_tables() -> None:
    """Read from the paper one by one: first and last entries, and those that its text quotes."""
    assert value("tab:nih_result", "hermoza", "", "openi") == 85.54
    assert value("tab:nih_result", "bomd", "", "padchest") == 86.45
    assert value("tab:cxp_result", "gls", "", "padchest") == 78.80
    assert value("tab:nih_google", "xue", "Pneumothorax", "nih-google") == 89.1
    assert value("tab:nih_google", "bomd", "Nodule or mass", "nih-google") == 87.9
    assert value("tab:noise_auc", "bce", "no noise", "openi") == 85.65
    assert value("tab:noise_auc", "nvum", "(0.6, 0.6)", "openi") == 76.91
    assert value("tab:noise_auc", "bomd", "(0.4, 0.6)", "openi") == 78.68
    assert value("tab:ablation_mixup", "neighbours, mask", "", "padchest") == 86.27
    assert value("tab:ablation", "neighbours=100", "", "padchest") == 85.48
    assert value("tab:ablation", "uniform=0.15", "", "openi") == 87.87
    assert value("tab:nih_result_2", "Hernia", "bomd", "openi") == 98.57
    assert value("tab:cxp_result_1", "Cardiomegaly", "hermoza", "openi") == 86.12


def test_findings_average_to_the_means_that_are_printed() -> None:
    """528 numbers at once: a wrong digit would shift a mean of 13 or 7 findings; rounding shifts it by 0.005."""
    columns: dict[tuple[str, str, str], dict[str, float]] = {}
    for number in paper.numbers():
        if number.table.endswith(("_1", "_2")):
            columns.setdefault((number.setting, number.column, number.test), {})[number.row] = number.value
    assert len(columns) == 48
    for (setting, method, test), found in columns.items():
        mean = found.pop("mean")
        assert len(found) == {"nih": 13, "chexpert": 7}[setting]
        assert statistics.fmean(found.values()) == pytest.approx(mean, abs=0.0101), (setting, method, test)
        main = {"nih": "tab:nih_result", "chexpert": "tab:cxp_result"}[setting]
        assert value(main, method, "", test) == mean


def test_the_best_values_of_the_ablations_are_one_method() -> None:
    full = {"openi": 89.52, "padchest": 86.50}
    for row in ("graph_weight=0.6", "uniform=0.25", "descriptors=3", "neighbours=10"):
        assert {test: value("tab:ablation", row, "", test) for test in full} == full
    slip = paper.find("tab:ablation_pretrain", "stage descriptors M=3", "", "padchest")
    assert slip is not None
    assert (slip.value, slip.note) == (87.50, "86.50 in the same table and in others")
    assert [number for number in paper.numbers() if number.note] == [slip]


def test_a_setting_is_the_same_only_if_nothing_but_folders_is_changed(tmp_path: Path) -> None:
    assert paper.same_setting(Setting("nih")) == "nih"
    assert paper.same_setting(Setting("nih", overrides=["train.root=/data/nih", "device.accelerator=cpu"])) == "nih"
    assert paper.same_setting(Setting("nih", overrides=["images.size=224"])) is None
    assert paper.same_setting(Setting("nih", overrides=["train.missing=drop"])) is None
    assert paper.same_setting(Setting("phantom")) is None
    other = tmp_path / "nih.toml"
    other.write_text('name = "nih"\n[train]\ndataset = "phantom"\n')
    assert paper.same_setting(Setting(str(other))) is None


def sheets_of(name: str, setting: Setting) -> dict[str, list[str]]:
    artefact = ARTEFACTS[name]
    made = artefact.make(Material(setting, artefact.plan(setting), {}))
    return {one.name: list(one.heads) for one in made}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "recipe", "head"),
    [
        ("main-results", "nih", "padchest, the paper's"),
        ("main-results", "chexpert", "openi, the paper's"),
        ("noise-grid", "nihxpdc", "nvum, the paper's"),
        ("nih-google", "nih", "Nodule or mass, the paper's"),
        ("hyper-parameters", "nih", "openi, the paper's"),
    ],
)
def test_the_paper_stands_beside_ours_in_its_own_setting(name: str, recipe: str, head: str) -> None:
    found = sheets_of(name, Setting(recipe, seeds=(0,)))
    assert any(head in heads for heads in found.values())
    assert not any(sheet.startswith("paper") for sheet in found)


@pytest.mark.parametrize("name", ["main-results", "noise-grid", "per-finding", "relabelling-terms"])
def test_elsewhere_it_has_a_sheet_of_its_own(name: str) -> None:
    found = sheets_of(name, Setting("phantom", seeds=(0,)))
    assert any(sheet.startswith("paper") for sheet in found)
    assert not any("the paper's" in head for heads in found.values() for head in heads)


def test_a_sheet_of_the_paper_says_so() -> None:
    (sheet,) = paper.sheets(Setting("phantom"), ["tab:noise_auc"], "method")
    assert sheet.title.startswith("The paper's, another setting: ")
    assert "phantom" in sheet.title
    assert not sheet.ours
    assert [str(cell) for cell in sheet.rows[2][1:3]] == ["0.8976", "0.8800"]
    (main, _) = paper.sheets(Setting("phantom"), ["tab:nih_result", "tab:cxp_result"], "method")
    cell = dict(zip(main.heads, main.rows[-1], strict=True))["openi"]
    assert isinstance(cell, Mean)
    assert str(cell) == "0.8957 ± 0.0022"
