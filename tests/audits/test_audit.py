"""From a table and a folder to labels_clean.csv, report and run directory, by features and by training."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from bomd.audits.audit import Audit, audit, complete, plan
from bomd.audits.columns import names
from bomd.audits.example import write_example
from bomd.cli import main
from bomd.data.cells import harmless, original
from bomd.errors import InputError
from bomd.runs import Run
from bomd.tables import NO_FINDING, LabelTable

FORMULA = "=cmd|'/C calc'!A0"
HOSTILE = [FORMULA, "Mass, left\nlower", "<script>alert(1)</script>"]


def bomd(*words: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    return int(stop.value.code or 0)


def read_csv(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def pictures(folder: Path, ids: list[str], size: int = 32) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for name in ids:
        Image.fromarray(rng.integers(0, 256, (size, size), dtype=np.uint8)).save(folder / f"{name}.png")
    return folder


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray, np.ndarray]:
    """A set with three classes of 20 images each, of which six have the label of another class."""
    root = tmp_path_factory.mktemp("planted")
    rng = np.random.default_rng(1)
    truth = np.repeat(np.arange(3), 20)
    wrong = np.zeros(60, dtype=bool)
    wrong[[3, 11, 22, 37, 41, 58]] = True
    labels = np.where(wrong, (truth + 1) % 3, truth)
    ids = [f"i{number:02}" for number in range(60)]
    pictures(root / "images", ids)
    with (root / "labels.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["id", *HOSTILE, "remark"])
        for name, label in zip(ids, labels, strict=True):
            writer.writerow([name, *(int(label == number) for number in range(3)), "=1+1"])
    np.save(root / "features.npy", np.eye(3)[truth] + 0.05 * rng.standard_normal((60, 3)))
    return root, wrong, truth


@pytest.fixture(scope="module")
def found(planted: tuple[Path, np.ndarray, np.ndarray]) -> Audit:
    root = planted[0]
    return audit(root / "labels.csv", root / "images", output=root / "out", features=root / "features.npy")


def test_the_table_is_described_once_and_progress_is_shown(
    planted: tuple[Path, np.ndarray, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From Python; the run of the audit reads a table of its own, of which there is nothing new to say."""
    root = planted[0]
    found = audit(root / "labels.csv", root / "images", output=tmp_path / "out", features=root / "features.npy")
    said = capsys.readouterr().err
    assert said.count("60 rows of") == 1
    assert said.count("classes, one column each") == 1
    assert "Packing images: 60 in" in said
    assert repr(found).startswith("Audit: 6 of 60 images are flagged. Everything is in ")
    assert len(repr(found).splitlines()) == 2


class TestFeatures:
    def test_the_wrong_ones_come_first_and_are_put_right(
        self, found: Audit, planted: tuple[Path, np.ndarray, np.ndarray]
    ) -> None:
        _, wrong, truth = planted
        assert set(np.flatnonzero(found.suspicion.rank <= 6)) == set(np.flatnonzero(wrong))
        np.testing.assert_array_equal(found.flags.noisy, wrong)
        table = found.table()
        assert table["rank"].tolist() == list(range(1, 61))
        first = table.iloc[0]
        right = truth[int(first["id"][1:])]
        assert [first[f"{name} proposed"] for name in HOSTILE] == [int(c == right) for c in range(3)]
        assert first[f"{NO_FINDING} proposed"] == 0
        assert first[f"{HOSTILE[right]} suspicion"] > 0.5

    def test_the_given_columns_are_untouched_and_ours_are_harmless(self, found: Audit) -> None:
        given = (found.directory.parent / "labels.csv").read_text(encoding="utf-8")
        clean = read_csv(found.directory / "labels_clean.csv")
        for old, new in zip(read_csv(found.directory.parent / "labels.csv"), clean, strict=True):
            assert list(map(original, new))[: len(old)] == list(old)
            assert {name: original(new[harmless(name)]) for name in old} == old
        added = list(clean[0])[len(HOSTILE) + 2 :]
        assert added == [f"'{name}" if name.startswith("=") else name for name in names([*HOSTILE, NO_FINDING])]
        assert not any(cell.startswith(("=", "+", "@")) for row in clean for cell in (*row, *row.values()))
        assert (found.directory.parent / "labels.csv").read_text(encoding="utf-8") == given
        assert sorted(int(row["rank"]) for row in clean) == list(range(1, 61))

    def test_neighbours_are_ids(self, found: Audit) -> None:
        row = read_csv(found.directory / "labels_clean.csv")[3]
        assert len(row["neighbours"].split("|")) == 10
        assert set(row["neighbours"].split("|")) <= set(found.record.given.ids)

    def test_the_run_can_be_reported_and_reviewed(self, found: Audit) -> None:
        assert Run(found.run.directory).result()["flagged"] == {"images": 6, "of": 60}
        page = (found.directory / "report.html").read_text(encoding="utf-8")
        assert "&lt;script&gt;" in page
        assert "<script>alert" not in page
        assert found.store().size == 128
        assert json.loads((found.directory / "audit.json").read_text())["run"].startswith("runs/audit/features/")

    def test_a_notebook_shows_pictures_with_escaped_names(self, found: Audit) -> None:
        html = found._repr_html_()
        assert html.count("<img") == 10
        assert "<script>" not in html
        shown = found.show(3)
        assert shown._repr_html_().count("data:image/png;base64,") == 3
        lines = repr(shown).splitlines()
        assert lines[0] == "6 of 60 images are flagged."
        assert len(lines) == 4

    def test_the_same_again_is_there_already(self, found: Audit, planted: tuple[Path, np.ndarray, np.ndarray]) -> None:
        root = planted[0]
        before = (found.run.directory / "result.json").stat().st_mtime_ns
        again = audit(root / "labels.csv", root / "images", output=root / "out", features=root / "features.npy")
        assert again.run.directory == found.run.directory
        assert (found.run.directory / "result.json").stat().st_mtime_ns == before

    def test_features_by_id_give_the_same(self, found: Audit, planted: tuple[Path, np.ndarray, np.ndarray]) -> None:
        root = planted[0]
        order = np.random.default_rng(0).permutation(60)
        values = np.load(root / "features.npy")[order]
        np.savez(root / "named.npz", ids=found.record.given.ids[order], features=values)
        other = audit(root / "labels.csv", root / "images", output=root / "named", features=root / "named.npz")
        np.testing.assert_array_equal(other.suspicion.rank, found.suspicion.rank)

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            (np.zeros((59, 3)), "59 rows of features for 60 rows of labels"),
            (np.zeros(60), "expected numbers"),
            (np.full((60, 2), np.nan), "Features of image 'i00' .* not finite"),
            (np.full((60, 2), "x"), "expected numbers"),
            (np.array([{}] * 60, dtype=object), "Cannot read features"),
        ],
    )
    def test_bad_features_are_refused(
        self, planted: tuple[Path, np.ndarray, np.ndarray], tmp_path: Path, values: np.ndarray, message: str
    ) -> None:
        np.save(tmp_path / "bad.npy", values)
        with pytest.raises(InputError, match=message):
            plan(planted[0] / "labels.csv", planted[0] / "images", features=tmp_path / "bad.npy", output=tmp_path / "o")
        assert not (tmp_path / "o").exists()


class TestOutput:
    def test_a_folder_with_other_files_is_refused(self, tmp_path: Path) -> None:
        pictures(tmp_path, ["a", "b"])
        (tmp_path / "labels.csv").write_text("id,Mass,Effusion\na,1,0\nb,0,1\n")
        with pytest.raises(InputError, match="holds files that are not of an audit"):
            audit(tmp_path / "labels.csv", tmp_path, output=tmp_path)
        with pytest.raises(InputError, match="is a file"):
            audit(tmp_path / "labels.csv", tmp_path, output=tmp_path / "a.png")

    def test_the_result_of_an_audit_is_never_audited_over(self, found: Audit) -> None:
        with pytest.raises(InputError, match="would be overwritten"):
            audit(found.directory / "labels_clean.csv", found.directory.parent / "images", output=found.directory)
        with pytest.raises(InputError, match="column 'flagged', which an audit adds"):
            audit(found.directory / "labels_clean.csv", found.directory.parent / "images")


def test_no_finding_is_added_where_it_is_missing() -> None:
    labels = LabelTable(np.array(["a", "b", "c"]), ("Mass",), np.array([[1], [0], [np.nan]], np.float32))
    full, notes = complete(labels)
    assert full.classes == ("Mass", NO_FINDING)
    np.testing.assert_array_equal(full.values[:, 1], np.array([0, 1, np.nan], np.float32))
    assert len(notes) == 1
    assert complete(full) == (full, [])


def test_one_image_is_too_few(tmp_path: Path) -> None:
    pictures(tmp_path / "images", ["a"])
    (tmp_path / "labels.csv").write_text("id,Mass\na,1\n")
    with pytest.raises(InputError, match="at least 2"):
        audit(tmp_path / "labels.csv", output=tmp_path / "out")


@pytest.mark.slow
class TestTraining:
    def test_from_the_command_line_with_a_damaged_image(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        labels = write_example(tmp_path / "set", count=48, size=32)
        broken = sorted((tmp_path / "set" / "images").iterdir())[5]
        broken.write_bytes(b"no picture")
        words = [
            "audit",
            str(labels),
            "--images",
            str(tmp_path / "set" / "images"),
            "--minutes",
            "0.01",
            "--size",
            "32",
        ]
        assert bomd(*words, "--plan") == 0
        said = capsys.readouterr()
        assert "Training will take about" in said.err
        assert not (tmp_path / "labels-audit").exists()
        assert bomd(*words) == 0
        said = capsys.readouterr().out
        assert "of 47 images are flagged; 1 could not be judged." in said
        assert broken.name in said
        assert " -> " in said
        assert "bomd review" in said
        out = tmp_path / "labels-audit"
        clean = {row["image"]: row for row in read_csv(out / "labels_clean.csv")}
        assert len(clean) == 48
        assert clean[broken.name]["flagged"] == clean[broken.name]["rank"] == ""
        assert {row["flagged"] for row in clean.values()} == {"0", "1", ""}
        assert (out / "report.html").stat().st_size > 10_000
        assert json.loads((out / "audit.json").read_text())["left_out"].keys() == {broken.name}
        results = list(out.glob("runs/audit/bomd/*/result.json"))
        written = results[0].stat().st_mtime_ns
        assert bomd(*words) == 0  # continues with what was chosen, and finds all of it done
        assert list(out.glob("runs/audit/bomd/*/result.json")) == results
        assert results[0].stat().st_mtime_ns == written

    @pytest.mark.parametrize("rows", ["id,Mass\na,1\nb,0\n", "id,Mass,Effusion\na,0,0\nb,0,0\n"])
    def test_two_images_one_class_or_no_positive(self, tmp_path: Path, rows: str) -> None:
        pictures(tmp_path / "images", ["a", "b"])
        (tmp_path / "labels.csv").write_text(rows)
        found = audit(pd.read_csv(tmp_path / "labels.csv"), tmp_path / "images", output=tmp_path / "out", minutes=0.001)
        assert len(found.table()) == 2
        assert found.labels.classes[-1] == NO_FINDING


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gone.csv"], "No label file"),
        (["labels.csv", "--images", "nowhere"], "There is no folder"),
        (["labels.csv", "--set", "id_column=nothing"], "has no column 'nothing'"),
        (["labels.csv", "--set", "split=train"], "takes all rows"),
        (["labels.csv", "--set", "colour=red"], "unknown key 'colour'"),
        (["labels.csv", "--features", "gone.npy"], "Cannot read features"),
        (["labels.csv", "--size", "4"], "at least 32 and at most 8192"),
        (["labels.csv", "--size", "100000"], "at least 32 and at most 8192"),
        (["labels.csv", "--minutes", "nan"], "must be a number above 0"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    pictures(tmp_path / "images", ["a", "b"])
    (tmp_path / "labels.csv").write_text("id,Mass,Effusion\na,1,0\nb,0,1\n")
    assert bomd("audit", *words) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1
    assert message in errors[0]
