"""The commands that look at a dataset: verify, prepare and labels, through the front door."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bomd.cli import main
from bomd.config import parse
from bomd.data.datasets import DATASETS
from bomd.data.store import open_store
from bomd.experiments.experiment import read_labels
from bomd.experiments.packing import pack_images
from bomd.methods import METHODS
from bomd.runs import Stages

LABELS = Path(__file__).parents[2] / "../shared/data/labels"
NO_COUNTS = ("--set", "drop=columns")  # a tiny fake cannot have the published counts


def bomd(*words: str | Path) -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return int(stop.value.code or 0)


def make(name: str, root: Path) -> Path:
    """A tiny set in the real layout; returns the folder that a user would name."""
    path = Path(__file__).parents[1] / "data" / name.replace("-", "_") / "make.py"
    spec = importlib.util.spec_from_file_location(f"make_{path.parent.name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder: Path = module.make(root / name)
    return folder


@pytest.fixture
def nih(tmp_path: Path) -> Path:
    return make("nih", tmp_path)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Four images of three patients; "m" is in both parts in the second version of the labels."""
    root = tmp_path / "own"
    (root / "images").mkdir(parents=True)
    for number, name in enumerate("abcd"):
        pixels = np.random.default_rng(number).integers(0, 256, (20, 30), dtype=np.uint8)
        Image.fromarray(pixels).save(root / "images" / f"{name}.png")
    write_labels(root, "mmno")
    return root


def write_labels(root: Path, patients: str) -> None:
    rows = [f"{name},{who},{'train' if name < 'c' else 'test'}" for name, who in zip("abcd", patients, strict=True)]
    labels = ("1,0", ",1", "0,0", "1,1")
    lines = ["image,patient,split,Mass,Edema", *(f"{row},{cells}" for row, cells in zip(rows, labels, strict=True))]
    (root / "labels.csv").write_text("\n".join(lines) + "\n")


def error(capsys: pytest.CaptureFixture[str]) -> str:
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Error: ")]
    assert len(lines) == 1
    return lines[0]


def cells(output: str, name: str) -> list[str]:
    """Cells of the first row of a printed table that starts with a name."""
    line = next(line for line in output.splitlines() if re.match(rf"\W*{re.escape(name)}\b", line))
    return [cell.strip() for cell in re.split("[│|]", line) if cell.strip()]


class TestVerify:
    def test_a_sound_set_passes_and_is_shown_on_one_screen(self, nih: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert bomd("verify", "nih", "--root", nih, *NO_COUNTS) == 0
        shown = capsys.readouterr().out
        assert "Nothing is wrong." in shown
        assert "drop=columns" in shown
        assert len(shown.splitlines()) < 40

    def test_counts_of_the_published_files_are_expected(self, nih: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert bomd("verify", "nih", "--root", nih, "--set", "split=test") == 1
        shown = capsys.readouterr().out
        assert "test images 1 instead of 25,596" in " ".join(shown.split())
        assert "train" not in shown

    @pytest.mark.parametrize("deep", [False, True])
    def test_what_is_wrong_is_named_and_the_exit_code_is_1(
        self, deep: bool, nih: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (nih / "images" / "00000001_000.png").unlink()
        file = nih / "images" / "00000002_000.png"
        file.write_bytes(file.read_bytes()[:60])
        assert bomd("verify", "nih", "--root", nih, *NO_COUNTS, *(["--deep"] if deep else [])) == 1
        shown = capsys.readouterr().out
        assert "WRONG" in shown
        assert "00000001_000.png" in shown
        assert ("1 cannot be read" in shown) == deep  # cut off after a sound header: only decoding tells
        assert "Traceback" not in shown

    def test_labels_alone(self, nih: Path, capsys: pytest.CaptureFixture[str]) -> None:
        for file in (nih / "images").iterdir():
            file.unlink()
        assert bomd("verify", "nih", "--root", nih, *NO_COUNTS) == 1
        assert bomd("verify", "nih", "--root", nih, *NO_COUNTS, "--set", "images=false") == 0
        assert "labels alone" in capsys.readouterr().out

    def test_own_data_with_a_split_column(self, own: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert bomd("verify", "folder", "--root", own) == 0
        assert "test 2, train 2" in capsys.readouterr().out
        write_labels(own, "mnmo")
        assert bomd("verify", "folder", "--root", own, "--deep") == 1
        assert "1 are in more than one split: m" in capsys.readouterr().out

    def test_own_data_without_splits(self, own: Path, capsys: pytest.CaptureFixture[str]) -> None:
        text = (own / "labels.csv").read_text()
        (own / "labels.csv").write_text(re.sub("split,|train,|test,", "", text))
        assert bomd("verify", "folder", "--root", own) == 0
        assert "images labelled: all 4" in capsys.readouterr().out

    def test_an_image_that_own_data_lacks_is_one_line(self, own: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (own / "images" / "c.png").unlink()
        assert bomd("verify", "folder", "--root", own) == 2
        assert "'c'" in error(capsys)

    def test_mistakes_are_one_line_and_exit_code_2(self, nih: Path, capsys: pytest.CaptureFixture[str]) -> None:
        for words, message in (
            (("verify", "nhi", "--root", nih), "Did you mean 'nih'"),
            (("verify", "nih"), "--root DIR"),
            (("verify", "nih", "--root", nih / "nowhere"), "nowhere"),
            (("verify", "nih", "--root", nih, "--set", "dorp=rows"), "Did you mean 'drop'"),
            (("verify", "nih", "--root", nih, "--set", "drop=some"), "'rows', 'columns'"),
            (("verify", "nih", "--root", nih, "--set", "split=trian"), "'train', 'test'"),
            (("verify", "nih", "--root", nih, "--set", "missing=drop"), "'missing' cannot be set"),
            (("verify", "nih", "--root", nih, "--set", "drop"), "key=value"),
            (("labels", "nih", "--root", nih, "--class", "Efusion"), "No class 'Efusion'"),
            (("prepare", "nih", "--root", nih, "--size", "4"), "size"),
        ):
            assert bomd(*words) == 2, words
            assert message in error(capsys), words

    @pytest.mark.slow
    @pytest.mark.skipif(not LABELS.is_dir(), reason="needs the label files in ../shared/data/labels")
    @pytest.mark.parametrize("name", ["nih", "chexpert", "openi", "padchest", "nih-google"])
    def test_real_label_files_are_as_declared(self, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert bomd("verify", name, "--root", LABELS, "--set", "images=false") == 0
        assert "as declared" in capsys.readouterr().out


class TestPrepare:
    def test_packs_every_split_and_finds_it_again(
        self, nih: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        command = ("prepare", "nih", "--root", nih, "--size", "12", "--output", tmp_path / "packed")
        assert bomd(*command) == 0
        shown = capsys.readouterr().out.splitlines()
        assert [re.sub(" in .*", "", line) for line in shown] == [
            "train: 2 images at 12 x 12",
            "test: 1 images at 12 x 12",
        ]
        stores = [open_store(Path(line.split(" in ")[1]), deep=True) for line in shown]
        assert stores[0].ids.tolist() == ["00000001_000.png", "00000002_000.png"]
        assert stores[0].images.shape == (2, 12, 12)
        before = {file: file.stat().st_mtime_ns for file in (tmp_path / "packed").rglob("*.u8")}
        assert bomd(*command) == 0
        assert {file: file.stat().st_mtime_ns for file in (tmp_path / "packed").rglob("*.u8")} == before

    def test_a_run_uses_what_was_prepared(self, nih: Path, tmp_path: Path) -> None:
        stages = tmp_path / "runs" / "stages"
        assert bomd("prepare", "nih", "--root", nih, "--size", "12", "--set", "split=train", "-o", stages) == 0
        assert len(list(stages.iterdir())) == 1
        recipe = {"images": {"size": 12}, "train": {"dataset": "nih", "root": str(nih)}}
        config = parse(recipe, METHODS)
        packed = pack_images(*read_labels(config)["train"], config, Stages(stages), torch.device("cpu"))
        assert [packed.store.directory] == list(stages.iterdir())

    def test_unreadable_images_stop_it_or_are_listed(
        self, own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (own / "images" / "b.png").write_bytes(b"nothing")
        command = (
            "prepare",
            "folder",
            "--root",
            own,
            "--size",
            "16",
            "-o",
            tmp_path / "packed",
            "--set",
            "split=train",
        )
        assert bomd(*command) == 2
        assert "b.png" in error(capsys)
        assert bomd(*command, "--skip-broken") == 0
        shown = capsys.readouterr().out
        assert "train: 1 images" in shown
        assert "1 unreadable image was left out, such as b" in shown

    def test_generated_images_need_no_folder(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert bomd("prepare", "phantom", "--size", "16", "--set", "count=5", "-o", tmp_path) == 0
        assert "train: 5 images at 16 x 16" in capsys.readouterr().out


class TestLabels:
    def test_counts_of_every_class_and_split(self, nih: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """The training list has one Cardiomegaly and one No Finding without Consolidation."""
        assert bomd("labels", "nih", "--root", nih) == 0
        train, test = capsys.readouterr().out.split("nih, test: 1 images")
        assert "nih, train: 2 images" in train
        assert cells(train, "Cardiomegaly") == ["Cardiomegaly", "1", "1", "0"]
        assert cells(test, "Hernia") == ["Hernia", "1", "0", "0"]

    def test_what_is_not_labelled_is_counted_apart(
        self, nih: Path, own: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert bomd("labels", "nih", "--root", nih, "--set", "classes=chexpert", "--set", "split=train") == 0
        assert cells(capsys.readouterr().out, "Fracture") == ["Fracture", "0", "0", "2"]
        assert bomd("labels", "folder", "--root", own, "--set", "split=train") == 0
        assert cells(capsys.readouterr().out, "Mass") == ["Mass", "1", "0", "1"]

    def test_needs_no_images(self, nih: Path) -> None:
        for file in (nih / "images").iterdir():
            file.unlink()
        assert bomd("labels", "nih", "--root", nih, "--class", "Hernia") == 0

    def test_terms_behind_a_class_and_those_that_do_not_count(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        padchest, openi = make("padchest", tmp_path), make("openi", tmp_path)
        assert bomd("labels", "padchest", "--root", padchest, "--class", "Atelectasis") == 0
        shown = capsys.readouterr().out
        assert "1 with Atelectasis" in shown
        assert cells(shown, "laminar atelectasis") == ["laminar atelectasis", "1", "yes"]
        assert bomd("labels", "padchest", "--root", padchest, "--class", "Nodule", "--set", "classes=native") == 0
        shown = capsys.readouterr().out
        assert cells(shown, "nodule") == ["nodule", "1", "yes"]
        assert cells(shown, "pseudonodule") == ["pseudonodule", "1", "no"]
        assert bomd("labels", "openi", "--root", openi, "--class", "Effusion", "--set", "classes=native") == 0
        assert cells(capsys.readouterr().out, "pericardial effusion") == ["pericardial effusion", "1", "no"]

    def test_own_columns(self, own: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert bomd("labels", "folder", "--root", own, "--class", "Edema", "--set", "split=test") == 0
        assert cells(capsys.readouterr().out, "Edema") == ["Edema", "1", "yes"]


@pytest.mark.parametrize("command", ["verify", "prepare", "labels"])
def test_help_names_every_dataset_and_shows_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert bomd(command, "--help") == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert all(name in shown for name in DATASETS)
    assert f"bomd {command} " in shown.split("Arguments")[0].replace(f"Usage: bomd {command}", "")
