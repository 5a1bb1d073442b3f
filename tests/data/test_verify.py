"""Verification: a sound set passes, and every planted fault is found by the right check and named."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from bomd.data import verify as module
from bomd.data.datasets import nih
from bomd.data.verify import SAMPLE, Check, Verification, verify, verify_tables
from bomd.errors import InputError
from bomd.tables import NO_FINDING, LabelTable

BOTH = ("train", "test")
read_native = partial(nih.read, classes="native")

REAL = Path(__file__).parents[2] / "../shared/data"
CLASSES = ("Mass", "Nodule", NO_FINDING)

Tables = dict[str, LabelTable]


def write_png(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (24, 20), dtype=np.uint8)).save(path)


@pytest.fixture
def sound(tmp_path: Path) -> Tables:
    """Six training images of four patients in one folder and four test images of two in another."""
    tables = {}
    for split, patients in {"train": "aabccd", "test": "eeff"}.items():
        ids = [f"{split}{row}.png" for row in range(len(patients))]
        for row, name in enumerate(ids):
            write_png(tmp_path / split / name, row + 100 * len(tables))
        values = np.eye(3)[np.arange(len(ids)) % 3]
        paths = [str(tmp_path / split / name) for name in ids]
        tables[split] = LabelTable(
            np.array(ids), CLASSES, values, paths=np.array(paths), patients=np.array(list(patients))
        )
    return tables


def found(verification: Verification, name: str) -> Check:
    """The check of this name, after making sure that it is the only one that failed."""
    failed = [check.name for check in verification.checks if not check.ok]
    assert failed == [name], verification.checks
    assert not verification.ok
    return next(check for check in verification.checks if check.name == name)


@pytest.mark.parametrize("deep", [False, True])
def test_sound_set_passes_and_is_counted(sound: Tables, deep: bool) -> None:
    """Labels take turns: of six rows two have each class, of four the first class has two."""
    declared = {
        "train": {"Mass": 2, "Nodule": 2, NO_FINDING: 2, "images": 6, "patients": 4},
        "test": {"Mass": 2, "images": 4, "patients": 2},
    }
    verification = verify_tables(sound, declared=declared, deep=deep)
    assert verification.ok, verification.checks
    assert verification.counts["train"] == {"Mass": 2, "Nodule": 2, NO_FINDING: 2}
    assert verification.counts["test"] == {"Mass": 2, "Nodule": 1, NO_FINDING: 1}


# Files


def test_missing_images_are_counted_and_named(sound: Tables) -> None:
    Path(sound["train"].paths[1]).unlink()
    paths = sound["test"].paths.copy()
    paths[2] = ""  # how a reader says that it found no file
    check = found(verify_tables({**sound, "test": replace(sound["test"], paths=paths)}), "images")
    assert check.message == "2 of 10 are missing: train1.png, test2.png"
    assert check.offenders == ("train1.png", "test2.png")


def test_a_folder_is_not_an_image(sound: Tables) -> None:
    path = Path(sound["train"].paths[0])
    path.unlink()
    path.mkdir()
    assert found(verify_tables(sound), "images").offenders == ("train0.png",)


def test_only_the_first_offenders_are_printed_but_all_are_kept(sound: Tables) -> None:
    for path in sound["train"].paths:
        Path(path).unlink()
    check = found(verify_tables(sound), "images")
    assert check.message.endswith("train0.png, train1.png, train2.png, ...")
    assert len(check.offenders) == 6


@pytest.mark.parametrize("deep", [False, True])
def test_empty_file_is_named(sound: Tables, deep: bool) -> None:
    Path(sound["test"].paths[3]).write_bytes(b"")
    check = found(verify_tables(sound, deep=deep), "empty")
    assert check.offenders == (sound["test"].paths[3],)


def test_image_that_lies_in_two_folders_is_named(sound: Tables, tmp_path: Path) -> None:
    shutil.copy(tmp_path / "train" / "train2.png", tmp_path / "test")
    check = found(verify_tables(sound), "file names")
    assert "train2.png" in check.message
    assert str(tmp_path / "train") in check.message
    assert str(tmp_path / "test") in check.message


def test_file_that_two_rows_name_is_named(sound: Tables) -> None:
    paths = sound["train"].paths.copy()
    paths[1] = paths[0]
    check = found(verify_tables({**sound, "train": replace(sound["train"], paths=paths)}), "file names")
    assert check.offenders == (f"{paths[0]} is named by 2 rows",)


def test_same_names_in_a_folder_per_study_are_no_fault(tmp_path: Path) -> None:
    paths = [tmp_path / f"patient{number}" / "view1.png" for number in range(4)]
    for seed, path in enumerate(paths):
        write_png(path, seed)
    names = np.array([str(path) for path in paths])
    assert verify_tables({"train": LabelTable(names, ("Mass",), np.ones((4, 1)), paths=names)}).ok


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("content", [b"<html>not found</html>", b"\x89PNG\r\n\x1a\n", bytes(4000)])
def test_file_that_is_no_image_is_named(sound: Tables, deep: bool, content: bytes) -> None:
    Path(sound["test"].paths[0]).write_bytes(content)
    check = found(verify_tables(sound, deep=deep), "readable")
    assert "test0.png" in check.message


def test_truncated_image_is_found_by_decoding_alone(sound: Tables) -> None:
    path = Path(sound["train"].paths[4])
    path.write_bytes(path.read_bytes()[:-60])
    quick = verify_tables(sound)
    assert quick.ok
    assert "headers of 10 of 10" in next(check for check in quick.checks if check.name == "readable").message
    check = found(verify_tables(sound, deep=True), "readable")
    assert len(check.offenders) == 1
    assert "train4.png" in check.offenders[0]


@pytest.mark.slow
def test_processes_find_what_one_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [f"many{row}.png" for row in range(100)]
    for row, name in enumerate(ids):
        write_png(tmp_path / "many" / name, 1000 + row)
    for name in ("many7.png", "many99.png"):
        path = tmp_path / "many" / name
        path.write_bytes(path.read_bytes()[:-60])
    paths = np.array([str(tmp_path / "many" / name) for name in ids])
    tables = {"train": LabelTable(np.array(ids), ("Mass",), np.ones((100, 1)), paths=paths)}
    monkeypatch.setattr(module, "cores", lambda: 1)
    alone = verify_tables(tables, deep=True)
    monkeypatch.setattr(module, "cores", lambda: 2)
    several = verify_tables(tables, deep=True)
    assert several == alone
    assert [name in several.checks[-2].message for name in ("many7.png", "many99.png")] == [True, True]


def test_the_sample_is_spread_from_first_to_last(tmp_path: Path) -> None:
    ids = [f"{row:04}.png" for row in range(2 * SAMPLE + 50)]
    write_png(tmp_path / ids[0], 0)
    for name in ids[1:]:
        (tmp_path / name).hardlink_to(tmp_path / ids[0])
    for name in (ids[0], ids[-1]):
        (tmp_path / name).unlink()
        (tmp_path / name).write_bytes(b"broken")
    paths = np.array([str(tmp_path / name) for name in ids])
    table = LabelTable(np.array(ids), ("Mass",), np.ones((len(ids), 1)), paths=paths)
    check = found(verify_tables({"train": table}), "readable")
    assert f"2 of {SAMPLE} sampled" in check.message
    assert [ids[0] in check.offenders[0], ids[-1] in check.offenders[1]] == [True, True]


@pytest.mark.parametrize("deep", [False, True])
def test_dicom_is_checked_too(sound: Tables, tmp_path: Path, deep: bool) -> None:
    pytest.importorskip("pydicom", reason="DICOM needs the extra bomd[dicom]")
    broken = tmp_path / "test" / "test1.dcm"
    broken.write_bytes(bytes(128) + b"DICM" + b"nonsense")
    paths = sound["test"].paths.copy().astype("U500")
    paths[1] = str(broken)
    (tmp_path / "test" / "test1.png").unlink()
    tables = {**sound, "test": replace(sound["test"], paths=paths)}
    assert "test1.dcm" in found(verify_tables(tables, deep=deep), "readable").message


# Copies


def copy(tables: Tables, source: tuple[str, int], target: tuple[str, int]) -> None:
    shutil.copy(tables[source[0]].paths[source[1]], tables[target[0]].paths[target[1]])


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (("train", 0), ("train", 3)),  # another patient, same label
        (("train", 0), ("test", 0)),  # another split
        (("train", 0), ("train", 1)),  # same patient, another label
    ],
)
def test_harmful_copy_is_named(sound: Tables, source: tuple[str, int], target: tuple[str, int]) -> None:
    copy(sound, source, target)
    assert verify_tables(sound).ok  # bytes are compared only when asked
    check = found(verify_tables(sound, deep=True), "copies")
    names = {str(sound[split].paths[row]) for split, row in (source, target)}
    assert set(check.offenders[0].split(" = ")) == names


def test_image_of_a_patient_that_was_filed_twice_is_counted_but_no_fault(sound: Tables) -> None:
    copy(sound, ("train", 3), ("train", 4))
    values = sound["train"].values.copy()
    values[4] = values[3]
    tables = {**sound, "train": sound["train"].replace(values)}
    verification = verify_tables(tables, deep=True)
    assert verification.ok
    assert "1 images of a patient" in verification.checks[-1].message


def test_same_picture_in_different_bytes_is_no_copy(sound: Tables, tmp_path: Path) -> None:
    """Same length, same pixels: a comment of the same length differs."""
    from PIL.PngImagePlugin import PngInfo

    for name, comment in (("train0.png", "one"), ("train3.png", "two")):
        info = PngInfo()
        info.add_text("Comment", comment)
        Image.fromarray(np.zeros((8, 8), dtype=np.uint8)).save(tmp_path / "train" / name, pnginfo=info)
    lengths = {(tmp_path / "train" / name).stat().st_size for name in ("train0.png", "train3.png")}
    assert len(lengths) == 1
    assert verify_tables(sound, deep=True).ok


# Labels


def test_id_in_two_splits_is_named(sound: Tables) -> None:
    ids = sound["test"].ids.copy().astype("U20")
    ids[1] = "train5.png"
    check = found(verify_tables({**sound, "test": replace(sound["test"], ids=ids)}), "ids")
    assert check.offenders == ("train5.png (train, test)",)


def test_patient_in_several_splits_is_named_once(sound: Tables) -> None:
    patients = np.array(list("eeca"))
    more = replace(sound["test"], ids=np.array(["v0", "v1", "v2", "v3"]), patients=np.array(list("cxyz")))
    tables = {
        **sound,
        "test": replace(sound["test"], patients=patients),
        "validation": replace(more, paths=None),
    }
    check = found(verify_tables(tables), "patients")
    assert sorted(check.offenders) == ["a (train, test)", "c (train, test, validation)"]


def test_unknown_patients_are_said_to_be_unknown(sound: Tables) -> None:
    verification = verify_tables({split: replace(table, patients=None) for split, table in sound.items()})
    assert verification.ok
    assert "not known" in next(check for check in verification.checks if check.name == "patients").message


def test_no_finding_beside_a_finding_is_named(sound: Tables) -> None:
    values = sound["test"].values.copy()
    values[3] = [1, np.nan, 1]
    check = found(verify_tables({**sound, "test": sound["test"].replace(values)}), NO_FINDING)
    assert check.offenders == ("test3.png",)


def test_no_finding_may_stand_beside_a_device() -> None:
    table = LabelTable(np.array(["a"]), ("Support Devices", NO_FINDING), np.array([[1, 1]]))
    assert verify_tables({"train": table}).ok


def test_unlabelled_row_is_named_and_a_negative_one_counted(sound: Tables) -> None:
    values = sound["train"].values.copy()
    values[2], values[3] = np.nan, 0
    check = found(verify_tables({**sound, "train": sound["train"].replace(values)}), "unlabelled")
    assert check.offenders == ("train2.png",)
    values[2] = 0
    fine = verify_tables({**sound, "train": sound["train"].replace(values)})
    assert fine.ok
    assert any("2 are negative for every class" in check.message for check in fine.checks)


@pytest.mark.parametrize(
    ("declared", "complaint"),
    [
        ({"train": {"Mass": 3}}, "train Mass 2 instead of 3"),
        ({"test": {"Mass": 2, "Hernia": 1}}, "test Hernia 0 instead of 1"),
        ({"train": {"images": 7}}, "train images 6 instead of 7"),
        ({"train": {"patients": 5}}, "train patients 4 instead of 5"),
        ({"validation": {"Mass": 1}}, "validation Mass 0 instead of 1"),
    ],
)
def test_count_that_differs_is_named(sound: Tables, declared: dict[str, Any], complaint: str) -> None:
    assert found(verify_tables(sound, declared=declared), "counts").offenders == (complaint,)


def test_nothing_and_an_empty_table_are_faults(sound: Tables) -> None:
    assert not verify_tables({}).ok
    assert found(
        verify_tables({"train": sound["train"], "test": sound["test"].take(np.zeros(4, dtype=bool))}), "labels"
    )


def test_labels_alone_are_enough(sound: Tables) -> None:
    for deep in (False, True):
        assert verify_tables({name: replace(table, paths=None) for name, table in sound.items()}, deep=deep).ok


# With a reader


def reader(tables: Tables) -> Callable[..., LabelTable]:
    """A reader that knows these splits and behaves as those of the datasets do."""

    def read(
        root: Path,
        split: Literal["train", "test", "all"] = "train",
        *,
        images: bool = True,
        missing: Literal["error", "drop"] = "error",
    ) -> LabelTable:
        table = tables[split]
        if not images:
            return replace(table, paths=None)
        present = np.array([Path(path).exists() for path in table.paths])
        if not present.any() or (missing == "error" and not present.all()):
            raise InputError(f"{(~present).sum()} images are not there.")
        return table.take(present)

    read.__annotations__ = {"split": Literal["train", "test", "all"]}
    return read


def test_reader_of_a_sound_set(sound: Tables, tmp_path: Path) -> None:
    verification = verify(reader(sound), tmp_path, splits=BOTH, declared={"test": {"images": 4}})
    assert verification.ok
    assert set(verification.counts) == {"train", "test"}
    assert set(verify(reader(sound), tmp_path, splits=["test"]).counts) == {"test"}


def test_images_that_a_reader_does_not_find_are_named(sound: Tables, tmp_path: Path) -> None:
    Path(sound["test"].paths[2]).unlink()
    assert found(verify(reader(sound), tmp_path, splits=BOTH), "images").offenders == ("test2.png",)


def test_split_without_any_image_is_still_checked_as_labels(sound: Tables, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "test")
    verification = verify(reader(sound), tmp_path, splits=BOTH)
    assert found(verification, "test images").message == "4 images are not there."
    assert any("train 6, test 4" in check.message for check in verification.checks)


def fake_nih(root: Path, rows: list[tuple[str, str, str]]) -> None:
    """ChestX-ray14 as downloaded; rows are image, findings and patient, even ones in the training list."""
    root.mkdir()
    with (root / "Data_Entry_2017_v2020.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["Image Index", "Finding Labels", "Follow-up #", "Patient ID", "View Position"])
        writer.writerows([image, findings, 0, patient, "PA"] for image, findings, patient in rows)
    for row, (image, _, _) in enumerate(rows):
        write_png(root / f"images_{row % 2 + 1:03}" / "images" / image, row)
    (root / "train_val_list.txt").write_text("\n".join(image for image, _, _ in rows[::2]))
    (root / "test_list.txt").write_text("\n".join(image for image, _, _ in rows[1::2]))


NIH_ROWS = [
    ("00000001_000.png", "Mass|Consolidation", "1"),
    ("00000002_000.png", "No Finding", "2"),
    ("00000003_000.png", "Hernia", "3"),
    ("00000004_000.png", "Edema|Mass", "4"),
]


def test_nih_as_downloaded_passes_with_its_own_columns(tmp_path: Path) -> None:
    fake_nih(tmp_path / "nih", NIH_ROWS)
    declared = {"train": {"Consolidation": 1, "Mass": 1, "images": 2}, "test": {"Edema": 1, NO_FINDING: 1}}
    for deep in (False, True):
        assert verify(read_native, tmp_path / "nih", splits=BOTH, declared=declared, deep=deep).ok
    narrowed = verify(read_native, tmp_path / "nih", splits=BOTH, classes="nih")
    assert "train 1, test 2" in narrowed.checks[0].message


@pytest.mark.parametrize(
    ("rows", "check", "named"),
    [
        ([*NIH_ROWS, NIH_ROWS[0]], "train labels", "00000001_000.png"),
        ([*NIH_ROWS, ("00000005_000.png", "No Finding|Hernia", "5")], NO_FINDING, "00000005_000.png"),
        ([*NIH_ROWS, ("00000005_000.png", "Hernia", "4")], "patients", "4 (train, test)"),
    ],
)
def test_faults_of_a_downloaded_set_are_named(tmp_path: Path, rows: list[Any], check: str, named: str) -> None:
    fake_nih(tmp_path / "nih", rows)
    assert named in found(verify(read_native, tmp_path / "nih", splits=BOTH), check).message


def test_image_unpacked_twice_and_one_missing_in_a_downloaded_set(tmp_path: Path) -> None:
    fake_nih(tmp_path / "nih", NIH_ROWS)
    folders = [tmp_path / "nih" / name / "images" for name in ("images_001", "images_002")]
    shutil.copy(folders[0] / "00000001_000.png", folders[1])
    assert "00000001_000.png" in found(verify(read_native, tmp_path / "nih", splits=BOTH), "file names").message
    (folders[1] / "00000001_000.png").unlink()
    (folders[1] / "00000004_000.png").unlink()
    assert found(verify(read_native, tmp_path / "nih", splits=BOTH), "images").offenders == ("00000004_000.png",)


def test_wrong_folder_is_one_line_per_split(tmp_path: Path) -> None:
    verification = verify(read_native, tmp_path, splits=BOTH)
    assert [check.name for check in verification.checks[:2]] == ["train labels", "test labels"]
    assert "Data_Entry_2017_v2020.csv" in verification.checks[0].message
    assert not verification.ok


# On the screen


def shown(verification: Verification, width: int = 100) -> list[str]:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(verification.render())
    return console.export_text().splitlines()


def test_screen_names_faults_and_counts(sound: Tables) -> None:
    Path(sound["train"].paths[1]).unlink()
    lines = shown(verify_tables(sound, declared={"train": {"Mass": 9}}))
    assert any(line.startswith("WRONG") and "train1.png" in line for line in lines)
    assert any("Mass" in line and "2, declared 9" in line for line in lines)
    assert lines[-1].startswith("2 of ")


def test_screen_is_not_confused_by_brackets_in_names(sound: Tables) -> None:
    ids = sound["train"].ids.copy().astype("U20")
    ids[0] = "[bold]a[/red].png"
    paths = sound["train"].paths.copy()
    paths[0] = ""
    tables = {**sound, "train": replace(sound["train"], ids=ids, paths=paths)}
    assert any("[bold]a[/red].png" in line for line in shown(verify_tables(tables)))


def test_many_classes_fit_one_screen() -> None:
    names = tuple(f"class {number}" for number in range(190))
    lines = shown(verify_tables({"train": LabelTable(np.array(["a"]), names, np.ones((1, 190)))}))
    assert len(lines) < 40
    assert any("and 170 more classes" in line for line in lines)


# Real files


@pytest.mark.skipif(not (REAL / "nih").is_dir(), reason="the real NIH images are not here")
def test_real_nih_images_are_sound() -> None:
    verification = verify(
        read_native, REAL / "nih", splits=["all"], declared={"all": {"images": 6952, "patients": 2822}}
    )
    assert verification.ok, verification.checks
    with (REAL / "nih" / "Data_Entry_2017_v2020.csv").open() as stream:
        findings = [row["Finding Labels"].split("|") for row in csv.DictReader(stream)]
    for name, positives in verification.counts["all"].items():
        assert positives == sum(name in labels for labels in findings)
