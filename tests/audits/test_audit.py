"""From a table and a folder to labels_clean.csv, report and run directory, by features and by training."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from bomd.audits import untrained
from bomd.audits.arrays import read_rates
from bomd.audits.audit import audit
from bomd.audits.columns import names
from bomd.audits.example import write_example
from bomd.audits.found import Audit, doubtful_labels
from bomd.audits.plan import complete, plan
from bomd.cli import main
from bomd.data.cells import harmless, original
from bomd.errors import InputError
from bomd.review.evidence import open_evidence
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
    """A set with three classes of 40 images each, of which twelve have the label of one of the other two."""
    root = tmp_path_factory.mktemp("planted")
    rng = np.random.default_rng(1)
    truth = np.repeat(np.arange(3), 40)
    wrong = np.arange(120) % 10 == 3
    labels = np.where(wrong, (truth + 1 + np.arange(120) % 20 // 10) % 3, truth)
    ids = [f"i{number:03}" for number in range(120)]
    pictures(root / "images", ids)
    with (root / "labels.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["id", *HOSTILE, "remark"])
        for name, label in zip(ids, labels, strict=True):
            writer.writerow([name, *(int(label == number) for number in range(3)), "=1+1"])
    np.save(root / "features.npy", np.eye(3)[truth] + 0.05 * rng.standard_normal((120, 3)))
    return root, wrong, truth


@pytest.fixture(scope="module")
def found(planted: tuple[Path, np.ndarray, np.ndarray]) -> Audit:
    root = planted[0]
    return audit(
        root / "labels.csv", root / "images", output=root / "out", features=root / "features.npy", per_image="multi"
    )


def test_the_table_is_described_once_and_progress_is_shown(
    planted: tuple[Path, np.ndarray, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From Python; the run of the audit reads a table of its own, of which there is nothing new to say."""
    root = planted[0]
    found = audit(
        root / "labels.csv", root / "images", output=tmp_path / "out", features=root / "features.npy", per_image="multi"
    )
    said = capsys.readouterr().err
    assert said.count("120 rows of") == 1
    assert said.count("classes, one column each") == 1
    assert "Packing images: 120 in" in said
    assert repr(found).startswith("Audit: 12 of 120 images are flagged. About ")
    assert len(repr(found).splitlines()) == 2


class TestFeatures:
    def test_the_wrong_ones_come_first_and_are_put_right(
        self, found: Audit, planted: tuple[Path, np.ndarray, np.ndarray]
    ) -> None:
        _, wrong, truth = planted
        assert set(np.flatnonzero(found.opinion.rank <= 12)) == set(np.flatnonzero(wrong))
        np.testing.assert_array_equal(found.flags.noisy, wrong)
        np.testing.assert_array_equal(found.labels.values[:, :3], np.eye(3)[truth])
        table = found.table()
        assert table["rank"].tolist() == list(range(1, 121))
        first = table.iloc[0]
        right = truth[int(first["id"][1:])]
        assert [first[f"{name} proposed"] for name in HOSTILE] == [int(c == right) for c in range(3)]
        assert first[f"{NO_FINDING} proposed"] == 0
        assert first[f"{HOSTILE[right]} wrong"] > 0.5
        assert first["expected wrong"] == pytest.approx(sum(first[f"{name} wrong"] for name in HOSTILE), abs=1e-3)

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
        assert sorted(int(row["rank"]) for row in clean) == list(range(1, 121))

    def test_neighbours_are_ids(self, found: Audit) -> None:
        row = read_csv(found.directory / "labels_clean.csv")[3]
        assert len(row["neighbours"].split("|")) == 10
        assert set(row["neighbours"].split("|")) <= set(found.record.given.ids)

    def test_of_many_images_only_the_first_to_look_at_have_neighbours(
        self,
        found: Audit,
        planted: tuple[Path, np.ndarray, np.ndarray],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Those that they have among more are the same, and nothing else of the audit changes."""
        monkeypatch.setattr(untrained, "LOOKED_AT", 5)
        root, out = planted[0], tmp_path / "out"
        some = audit(
            root / "labels.csv", root / "images", output=out, features=root / "features.npy", per_image="multi"
        )
        near, all_near, first = some.record.neighbours, found.record.neighbours, found.opinion.rank <= 5
        assert near is not None
        assert all_near is not None
        np.testing.assert_array_equal(near, np.where(first[:, None], all_near, -1))
        np.testing.assert_array_equal(some.opinion.rank, found.opinion.rank)
        cells = {row["id"]: row["neighbours"] for row in read_csv(out / "labels_clean.csv")}
        assert sum(map(bool, cells.values())) == 5
        evidence = open_evidence(some.run.directory)
        assert len(evidence.rows) == 12
        assert [len(evidence.neighbours(row)) > 0 for row in evidence.rows] == first[evidence.rows].tolist()

    def test_the_run_can_be_reported_and_reviewed(self, found: Audit) -> None:
        assert Run(found.run.directory).result()["flagged"] == {"images": 12, "of": 120}
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
        total = found.opinion.expected.sum()
        assert lines[0].startswith(f"12 of 120 images are flagged. About {total:.0f} labels of findings are expected")
        assert lines[0].endswith("; 24 are proposed to change.")
        assert len(lines) == 4

    def test_the_same_again_is_there_already(self, found: Audit, planted: tuple[Path, np.ndarray, np.ndarray]) -> None:
        root = planted[0]
        before = (found.run.directory / "result.json").stat().st_mtime_ns
        again = audit(
            root / "labels.csv", root / "images", output=root / "out", features=root / "features.npy", per_image="multi"
        )
        assert again.run.directory == found.run.directory
        assert (found.run.directory / "result.json").stat().st_mtime_ns == before

    def test_features_by_id_give_the_same(self, found: Audit, planted: tuple[Path, np.ndarray, np.ndarray]) -> None:
        root = planted[0]
        order = np.random.default_rng(0).permutation(120)
        values = np.load(root / "features.npy")[order]
        np.savez(root / "named.npz", ids=found.record.given.ids[order], features=values)
        other = audit(
            root / "labels.csv", root / "images", output=root / "named", features=root / "named.npz", per_image="multi"
        )
        np.testing.assert_array_equal(other.opinion.wrong, found.opinion.wrong)

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            (np.zeros((59, 3)), "59 rows of features for 120 rows of labels"),
            (np.zeros(120), "expected numbers"),
            (np.full((120, 2), np.nan), "Features of image 'i000' .* not finite"),
            (np.full((120, 2), "x"), "expected numbers"),
            (np.array([{}] * 120, dtype=object), "Cannot read features"),
        ],
    )
    def test_bad_features_are_refused(
        self, planted: tuple[Path, np.ndarray, np.ndarray], tmp_path: Path, values: np.ndarray, message: str
    ) -> None:
        np.save(tmp_path / "bad.npy", values)
        with pytest.raises(InputError, match=message):
            plan(planted[0] / "labels.csv", planted[0] / "images", features=tmp_path / "bad.npy", output=tmp_path / "o")
        assert not (tmp_path / "o").exists()


@pytest.fixture(scope="module")
def guessed(planted: tuple[Path, np.ndarray, np.ndarray]) -> np.ndarray:
    truth, rng = planted[2], np.random.default_rng(5)
    return np.clip(0.1 + 0.8 * np.eye(3)[truth] + 0.05 * rng.standard_normal((120, 3)), 0, 1)


class TestProbabilities:
    """Any model's out-of-fold probabilities judge, as they do for cleanlab."""

    def test_they_judge_in_any_order_of_classes_and_rows(
        self, planted: tuple[Path, np.ndarray, np.ndarray], guessed: np.ndarray, tmp_path: Path
    ) -> None:
        root, wrong, _ = planted
        np.save(tmp_path / "p.npy", guessed)
        ids = np.asarray([f"i{number:03}" for number in range(120)])
        turned = {
            "ids": ids[::-1],
            "probabilities": guessed[::-1, [2, 0, 1]],
            "classes": [HOSTILE[c] for c in (2, 0, 1)],
        }
        np.savez(tmp_path / "p.npz", **turned)
        one, other = (
            audit(root / "labels.csv", root / "images", output=tmp_path / kind, probabilities=tmp_path / f"p.{kind}")
            for kind in ("npy", "npz")
        )
        assert set(np.flatnonzero(one.opinion.rank <= 12)) == set(np.flatnonzero(wrong))
        changed = (one.record.removed | one.record.added).any(axis=1)
        assert changed.sum() > 3
        assert not changed[~wrong].any()
        np.testing.assert_array_equal(one.opinion.wrong, other.opinion.wrong)
        assert one.record.neighbours is None
        assert "Probabilities that were given" in (tmp_path / "npy" / "report.html").read_text(encoding="utf-8")

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            (np.zeros((120, 2)), "2 columns of probabilities for 3 classes"),
            (np.full((120, 3), 1.5), "from 0 to 1, not 1.5"),
            (np.zeros((119, 3)), "119 rows of probabilities for 120"),
        ],
    )
    def test_bad_ones_are_refused(
        self, planted: tuple[Path, np.ndarray, np.ndarray], tmp_path: Path, values: np.ndarray, message: str
    ) -> None:
        np.save(tmp_path / "p.npy", values)
        root = planted[0]
        with pytest.raises(InputError, match=message):
            plan(root / "labels.csv", root / "images", probabilities=tmp_path / "p.npy", output=tmp_path / "o")
        with pytest.raises(InputError, match="pass one"):
            plan(root / "labels.csv", root / "images", probabilities="p.npy", features="f.npy", output=tmp_path / "o")

    def test_a_class_without_a_column_is_refused(
        self, planted: tuple[Path, np.ndarray, np.ndarray], guessed: np.ndarray, tmp_path: Path
    ) -> None:
        ids = np.asarray([f"i{number:03}" for number in range(120)])
        np.savez(tmp_path / "p.npz", ids=ids, probabilities=guessed, classes=["a", *HOSTILE[1:]])
        with pytest.raises(InputError, match=r"no probabilities of .=cmd"):
            plan(planted[0] / "labels.csv", planted[0] / "images", probabilities=tmp_path / "p.npz")


class TestRates:
    def test_known_rates_are_used_and_recorded(
        self, found: Audit, planted: tuple[Path, np.ndarray, np.ndarray], tmp_path: Path
    ) -> None:
        """Where false alarms and misses never happen, nothing can be wrong; a blank stays an estimate."""
        root, file = planted[0], tmp_path / "rates.csv"
        with file.open("w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows(
                [["class", "miss", "false_alarm"], [HOSTILE[0], "0", "0"], [HOSTILE[1], "", 0]]
            )
        images, features = root / "images", root / "features.npy"
        other = audit(
            root / "labels.csv", images, output=tmp_path / "out", features=features, rates=file, per_image="multi"
        )
        assert (other.opinion.wrong[:, 0] == 0).all()
        given = other.record.given.values[:, 1]
        assert (other.opinion.wrong[given == 1, 1] == 0).all()
        assert (other.opinion.wrong[given == 0, 1] > 0).all()
        assert (found.opinion.wrong[:, 0] > 0).all()
        measured = {HOSTILE[0]: {"miss": 0.0, "false_alarm": 0.0}, HOSTILE[1]: {"false_alarm": 0.0}}
        assert other.run.config()["rates"] == measured
        assert json.loads((tmp_path / "out" / "audit.json").read_text())["rates"] == measured
        assert "rates" not in found.run.config()

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("class,miss\nMass,1\n", "it needs class, miss, false_alarm"),
            ("class,miss,false_alarm\nMass,x,\n", "a rate of 'Mass' is not a number"),
            ("class,miss,false_alarm\nGoitre,0.1,\n", "'Goitre'; the classes are 'Mass', 'Edema'"),
            ("class,miss,false_alarm\nMass,0.1,\nMass,0.2,\n", "two rows for 'Mass'"),
            ("class,miss,false_alarm\nMass,1.5,\n", "miss is 1.5"),
            ("class,miss,false_alarm\nMass,0.5,0.5\n", "together are above"),
            ("class,miss,false_alarm\nMass,nan,\n", "miss is nan"),
            ("class,miss,false_alarm\nMass,,\n", "holds no rates"),
            ("", "is empty"),
        ],
    )
    def test_bad_rates_are_one_line(self, tmp_path: Path, text: str, message: str) -> None:
        (tmp_path / "rates.csv").write_text(text)
        with pytest.raises(InputError, match=message) as caught:
            read_rates(tmp_path / "rates.csv", ["Mass", "Edema"])
        assert "\n" not in str(caught.value)


def test_doubtful_labels_one_by_one(found: Audit) -> None:
    """Every finding whose label is wrong with probability 0.2 or more, the most doubtful first."""
    table, opinion = found.doubtful(), found.opinion
    findings = opinion.wrong[:, :3]  # the fourth is "No Finding"
    assert len(table) == (findings >= 0.2).sum() >= 24
    assert (np.diff(table["wrong"]) <= 0).all()
    assert table["label rank"].tolist() == list(range(1, len(table) + 1))
    rows = {name: row for row, name in enumerate(found.record.given.ids.tolist())}
    for line in table.to_dict("records"):
        row, column = rows[line["image"]], found.record.given.classes.index(line["class"])
        assert line["wrong"] == opinion.wrong[row, column]
        assert line["given"] == found.record.given.values[row, column]
        assert line["proposed"] == opinion.proposed[row, column]
        assert line["image rank"] == opinion.rank[row]
    assert "patient" not in table  # nobody said who the images show
    written = read_csv(found.directory / "doubtful_labels.csv")
    assert [line["image"] for line in written] == table["image"].tolist()
    assert [float(line["wrong"]) for line in written] == pytest.approx(table["wrong"].tolist(), abs=1e-4)
    assert {line["class"] for line in written} <= {f"'{FORMULA}", *HOSTILE[1:]}


def test_doubtful_labels_are_cut_and_name_patients(found: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bomd.audits.found.MOST", 5)
    given = found.record.given
    people = np.asarray([f"p{row // 2}" for row in range(len(given))])
    table = doubtful_labels(replace(found.record, given=replace(given, patients=people)))
    assert len(table) == 5
    rows = {name: row for row, name in enumerate(given.ids.tolist())}
    assert table["patient"].tolist() == [people[rows[name]] for name in table["image"]]


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


def test_what_nobody_looked_for_is_no_reason_to_call_an_image_healthy() -> None:
    labels = LabelTable(np.array(["a", "b"]), ("Mass",), np.array([[1], [0]], np.float32))
    full, notes = complete(labels, ("Edema", "Hernia"))
    np.testing.assert_array_equal(full.values[:, 1], np.array([0, np.nan], np.float32))
    assert notes == [
        'Edema, Hernia are blank in every row: whether an image without a positive label has "No Finding" is not known.'
    ]


def test_few_patients_are_too_few(tmp_path: Path) -> None:
    pictures(tmp_path / "images", ["a", "b", "c", "d"])
    (tmp_path / "labels.csv").write_text("id,Mass,patient\na,1,x\nb,0,x\nc,0,y\nd,1,z\n")
    with pytest.raises(InputError, match=r"shows 3 patients: .* so 4 are needed"):
        audit(tmp_path / "labels.csv", output=tmp_path / "out", patient_column="patient")


@pytest.mark.parametrize(
    "rows",
    [
        "id,class\na,Mass\nb,Mass\nc,Mass\nd,Mass\n",  # one class, which all have
        "id,Mass,Effusion\na,1,\nb,,1\nc,1,1\nd,,1\n",  # blank where 0 was meant
        "id,Mass,Effusion\na,0,0\nb,0,0\nc,0,\nd,0,0\n",  # nobody has anything
    ],
)
def test_labels_of_which_none_can_be_compared_are_refused_before_any_training(tmp_path: Path, rows: str) -> None:
    pictures(tmp_path / "images", ["a", "b", "c", "d"])
    (tmp_path / "labels.csv").write_text(rows)
    with pytest.raises(InputError, match=r"no class has both 1 and 0, .*blank means unknown"):
        audit(tmp_path / "labels.csv", tmp_path / "images", output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_review_is_offered_where_there_is_something_to_review(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`bomd review` refuses an audit that flagged nothing, so that it is no next command then."""
    monkeypatch.chdir(tmp_path)
    ids = [f"i{row}" for row in range(40)]
    pictures(tmp_path / "images", ids)
    truth = np.arange(40) % 2
    np.save("features.npy", np.column_stack([truth, 1 - truth]).astype(np.float32) * 9)
    for wrong in (0, 1):
        given = [str(value) for value in np.concatenate([abs(truth[:2] - wrong), truth[2:]])]
        Path("labels.csv").write_text("id,Mass\n" + "".join(map("{},{}\n".format, ids, given)))
        assert bomd("audit", "labels.csv", "--images", "images", "--features", "features.npy") == 0
        said = capsys.readouterr().out
        assert ("0 of 40 images are flagged" in said) == (not wrong)
        assert ("bomd review" in said) == bool(wrong)


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
        assert "of 47 images are flagged; 1 could not be judged. About" in said
        assert "Errors seem to" in said
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
        results = list(out.glob("runs/audit/bomd-plus/*/result.json"))
        written = results[0].stat().st_mtime_ns
        assert bomd(*words) == 0  # continues with what was chosen, and finds all of it done
        assert list(out.glob("runs/audit/bomd-plus/*/result.json")) == results
        assert results[0].stat().st_mtime_ns == written

    def test_four_images_one_class(self, tmp_path: Path) -> None:
        pictures(tmp_path / "images", ["a", "b", "c", "d"])
        (tmp_path / "labels.csv").write_text("id,Mass\na,1\nb,0\nc,0\nd,1\n")
        found = audit(pd.read_csv(tmp_path / "labels.csv"), tmp_path / "images", output=tmp_path / "out", minutes=0.001)
        assert len(found.table()) == 4
        assert found.labels.classes[-1] == NO_FINDING


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gone.csv"], "No label file"),
        (["gone.csv", "--weights", "phantm"], "--weights is 'phantm': use none, imagenet"),  # before anything is read
        (["labels.csv", "--images", "nowhere"], "There is no folder"),
        (["labels.csv", "--set", "id_column=nothing"], "has no column 'nothing'"),
        (["labels.csv", "--set", "split=train"], "takes all rows"),
        (["labels.csv", "--set", "colour=red"], "unknown key 'colour'"),
        (["labels.csv", "--features", "gone.npy"], "Cannot read features"),
        (["labels.csv", "--size", "4"], "at least 32 and at most 8192"),
        (["labels.csv", "--size", "100000"], "at least 32 and at most 8192"),
        (["labels.csv", "--minutes", "nan"], "must be a number above 0"),
        (["labels.csv", "--probabilities", "gone.npy"], "Cannot read probabilities"),
        (["labels.csv", "--rates", "gone.csv"], "Cannot read gone.csv"),
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
    pictures(tmp_path / "images", ["a", "b", "c", "d"])
    (tmp_path / "labels.csv").write_text("id,Mass,Effusion\na,1,0\nb,0,1\nc,0,0\nd,0,1\n")
    assert bomd("audit", *words) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1
    assert message in errors[0]
