"""What holds for every form: given labels come back untouched, unknown stays unknown, and errors are one line."""

from __future__ import annotations

import csv
import functools
import ntpath
import tracemalloc
from dataclasses import replace
from pathlib import Path, PureWindowsPath
from types import SimpleNamespace

import numpy as np
import pytest

from bomd import exchange
from bomd.clean.opinion import form_opinion
from bomd.cli import main
from bomd.errors import InputError
from bomd.exchange import EXCHANGES, documents, table
from bomd.exchange import judgement as judgement_of
from bomd.exchange.judgement import Doubts, Judgement, from_lists, names_below, soundness
from bomd.exchange.label_studio import file_of
from bomd.experiments.records import LabelRecord
from bomd.files import write_json
from bomd.tables import LabelTable

FILES = {
    "table": "labels.csv",
    "parquet": "labels.parquet",
    "cleanlab": "issues.csv",
    "fiftyone": "dataset",
    "torchxrayvision": "xray.csv",
    "label-studio": "tasks.json",
    "cvat": "annotations.xml",
    "hugging-face": "dataset.parquet",
    "image-folder": "metadata.jsonl",
}
OTHER_CLASSES = ("torchxrayvision",)  # a list of its own
HARD = ("cleanlab", "cvat")  # a proposal is there or not
WHOLE = [name for name in FILES if name not in OTHER_CLASSES]

same = functools.partial(np.array_equal, equal_nan=True)


def bomd(*words: str | Path) -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return int(stop.value.code or 0)


def error(capsys: pytest.CaptureFixture[str]) -> str:
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("Error: ")
    return lines[0]


def test_every_form_that_can_be_written_is_tested() -> None:
    assert set(FILES) == {name for name, form in EXCHANGES.items() if form.write is not None}


@pytest.mark.parametrize("form", WHOLE)
def test_there_and_back(judgement: Judgement, form: str, tmp_path: Path) -> None:
    path = tmp_path / FILES[form]
    exchange.write(judgement, path, form)
    back = exchange.read(path, form)
    given, proposed, doubts = judgement.given, judgement.proposed, judgement.doubts
    assert proposed is not None
    assert doubts is not None
    assert back.proposed is not None
    assert back.doubts is not None
    assert back.given.ids.tolist() == given.ids.tolist()
    assert back.given.classes == given.classes
    assert same(back.given.values, given.values)
    expected = proposed.values
    if form in HARD:
        # cleanlab has no word for a proposal that is not known; a tag that is not there is a 0, unless it was unknown
        expected = np.where(np.isnan(expected) & (form == "cleanlab"), 0, np.where(expected >= 0.5, 1, expected * 0))
    assert same(back.proposed.values, expected)
    assert back.doubts.flagged.tolist() == doubts.flagged.tolist()
    assert same(back.doubts.expected, doubts.expected)
    assert same(back.doubts.wrong, doubts.wrong)


@pytest.mark.parametrize("form", ["label-studio", "fiftyone", "cvat", "image-folder"])
def test_what_is_written_is_never_whole_in_memory(form: str, tmp_path: Path) -> None:
    """Of thousands of images Python's objects would take several times the file; of a million, all that there is."""
    target, classes = tmp_path / FILES[form], tuple(f"finding {number}" for number in range(20))

    def judged(count: int) -> Judgement:
        names = np.asarray([f"{number}.png" for number in range(count)])
        paths = np.asarray([str(tmp_path / name) for name in names])
        given = LabelTable(names, classes, np.ones((count, 20)), paths=paths)
        chances = np.full((count, 20), 0.25, np.float32)
        return Judgement(given, given, Doubts(names, np.ones(count, bool), np.ones(count, np.float32), chances))

    exchange.write(judged(10), target, form)  # imports
    many = judged(3000)
    tracemalloc.start()
    try:
        exchange.write(many, target, form)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    written = max(file.stat().st_size for file in (target.iterdir() if target.is_dir() else [target]))
    assert written > 3e6
    assert peak < written / 2


@pytest.mark.parametrize("form", WHOLE)
def test_nothing_but_its_like_is_written_over(judgement: Judgement, form: str, tmp_path: Path) -> None:
    """Nor is anything written before all that is there was looked at."""
    path = tmp_path / FILES[form]
    exchange.write(judgement, path, form)
    exchange.write(judgement, path, form)
    written = [path] if path.is_file() else list(path.iterdir())
    written += [file for file in tmp_path.iterdir() if file.is_file() and file != path]
    assert len(written) == {"label-studio": 2, "cvat": 2, "fiftyone": 2}.get(form, 1)
    for own in written:
        theirs = b'[{"id": 1, "annotations": [{"id": 2}]}]' if own.suffix == ".json" else b"id,image,remark\na,b,c\n"
        before = {file: file.read_bytes() for file in written} | {own: theirs}
        own.write_bytes(theirs)
        with pytest.raises(InputError, match=rf"{own.name} is there and holds something else"):
            exchange.write(judgement, path, form)
        assert {file: file.read_bytes() for file in written} == before
        own.unlink()
        exchange.write(judgement, path, form)


def test_what_is_read_is_not_written_over(
    judgement: Judgement, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also not by another name, nor the labels beside what is read, nor where columns are left out."""
    table, link, issues = (tmp_path / name for name in ("labels.csv", "link.csv", "issues.csv"))
    exchange.write(Judgement(judgement.given), table)
    exchange.write(judgement, issues, "cleanlab")
    link.symlink_to(table)
    before = table.read_bytes()
    for words in (
        ["convert", table, "-o", table, "--set", "classes=['Mass']"],
        ["convert", table, "-o", link],
        ["convert", issues, "--from", "cleanlab", "--set", f"labels={table}", "-o", table],
    ):
        assert bomd(*map(str, words)) == 2
        assert "is what is read" in error(capsys)
        assert table.read_bytes() == before


def test_annotations_stay_where_a_set_up_gets_their_name(
    judgement: Judgement, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """CVAT's annotations.xml beside annotations.json, whose set-up is called so; and tasks that are called .xml."""
    annotations = tmp_path / "annotations.xml"
    exchange.write(judgement, annotations)
    before = annotations.read_bytes()
    assert bomd("convert", annotations, "--to", "label-studio", "-o", tmp_path / "annotations.json") == 2
    assert "annotations.xml is there and holds something else" in error(capsys)
    assert bomd("convert", annotations, "--to", "label-studio", "-o", tmp_path / "tasks.xml") == 2
    assert "name a .json file" in error(capsys)
    assert annotations.read_bytes() == before
    assert sorted(file.name for file in tmp_path.iterdir() if file.is_file()) == [
        "annotations.labels.json", "annotations.xml"
    ]  # fmt: skip


@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="this system has no such file")
@pytest.mark.parametrize("form", ["label-studio", "cvat"])
def test_two_files_do_not_go_into_a_stream(judgement: Judgement, form: str) -> None:
    with pytest.raises(InputError, match="name a file"):
        exchange.write(judgement, Path("/dev/stdout"), form)
    assert not [*Path("/dev").glob("stdout.*")]


@pytest.mark.parametrize("form", WHOLE)
def test_labels_alone_come_back_alone(judgement: Judgement, form: str, tmp_path: Path) -> None:
    path = tmp_path / FILES[form]
    exchange.write(Judgement(judgement.given), path, form)
    back = exchange.read(path, form)
    assert same(back.given.values, judgement.given.values)
    if form not in ("cleanlab", "cvat"):  # whose files always say something about an image
        assert back.proposed is None
        assert back.doubts is None


@pytest.mark.parametrize("form", [name for name in FILES if name not in ("fiftyone", "image-folder")])
def test_generated_images_need_no_files(judgement: Judgement, form: str, tmp_path: Path) -> None:
    bare = Judgement(replace(judgement.given, paths=None), judgement.proposed, judgement.doubts)
    exchange.write(bare, tmp_path / FILES[form], form)
    assert exchange.read(tmp_path / FILES[form], form).given.ids.tolist() == judgement.given.ids.tolist()


@pytest.mark.parametrize("form", ["fiftyone", "image-folder"])
def test_forms_that_show_files_refuse_images_without(judgement: Judgement, form: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="these images have none"):
        exchange.write(Judgement(replace(judgement.given, paths=None)), tmp_path / FILES[form], form)


def test_soft_given_labels_are_kept_or_refused(judgement: Judgement, tmp_path: Path) -> None:
    soft = Judgement(judgement.given.replace(np.full((5, 4), 0.3)))
    for form in WHOLE:
        if form == "cleanlab":
            with pytest.raises(InputError, match=r"0, 1 or unknown: image 'a.png'"):
                exchange.write(soft, tmp_path / FILES[form], form)
        else:
            exchange.write(soft, tmp_path / FILES[form], form)
            assert same(exchange.read(tmp_path / FILES[form], form).given.values, soft.given.values), form


@pytest.mark.parametrize("form", ["table", "cleanlab", "torchxrayvision"])
def test_no_cell_of_a_csv_is_a_formula_and_names_come_back(judgement: Judgement, form: str, tmp_path: Path) -> None:
    """One id is `=cmd|' /C calc'!A0`, a patient and a class are formulas, too."""
    classes = ("Mass", "@SUM(A1)", "Hernia", "No Finding")
    patients = np.asarray(["+1+1", "-p", "'=q", "-2", "s\rt"])
    given = replace(judgement.given, classes=classes, patients=patients)
    exchange.write(Judgement(given, None, judgement.doubts), tmp_path / "out.csv", form)
    with (tmp_path / "out.csv").open(newline="") as stream:
        cells = [cell for line in csv.reader(stream) for cell in line]
    assert "'=cmd|' /C calc'!A0" in cells
    dangerous = [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r")) and not _is_number(cell)]
    assert dangerous == []
    back = exchange.read(tmp_path / "out.csv", form).given
    assert set(back.ids) == set(given.ids)
    if form != "torchxrayvision":  # which has its own classes
        assert set(back.classes) == set(classes)
    if form == "table":
        assert back.patients is not None
        assert back.patients.tolist() == patients.tolist()


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def test_an_excel_workbook_is_read_and_never_written(judgement: Judgement, tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    given = replace(judgement.given, ids=np.asarray(["a", "b", "c", "0004", "Zoë ✓"]))  # as a formula one would be lost
    table.to_frame(Judgement(given)).to_excel(tmp_path / "labels.xlsx", index=False)
    back = exchange.read(tmp_path / "labels.xlsx")
    assert back.given.ids.tolist() == given.ids.tolist()
    assert np.array_equal(back.given.values, judgement.given.values, equal_nan=True)
    with pytest.raises(InputError, match=r"'new\.xlsx' does not say how to write it"):
        exchange.write(judgement, tmp_path / "new.xlsx")


def test_the_table_is_an_ordinary_label_file(judgement: Judgement, tmp_path: Path) -> None:
    """Labels that came from elsewhere are written so that the dataset `folder` reads them."""
    from bomd.data.datasets import folder

    names = np.asarray([Path(str(path)).name for path in judgement.given.paths])  # type: ignore[union-attr]
    table = replace(judgement.given, ids=names)
    exchange.write(Judgement(table), tmp_path / "labels.csv")
    read = folder.read(tmp_path, images=Path("images"))
    assert read.classes == table.classes
    assert same(read.values, table.values)
    again = exchange.read(tmp_path / "labels.csv", images=tmp_path / "images").given
    assert again.paths.tolist() == table.paths.tolist()  # type: ignore[union-attr]
    assert exchange.read(tmp_path / "labels.csv", classes=["Hernia"]).given.classes == ("Hernia",)


def test_a_label_file_of_what_was_decided(judgement: Judgement, tmp_path: Path) -> None:
    """Where nobody decided, the given label stands."""
    decided = judgement.given.replace(np.asarray([[0, 1, 0, 0], *[[np.nan] * 4] * 4]))
    exchange.write(Judgement(judgement.given, decided, judgement.doubts), tmp_path / "x.csv", keep="proposed")
    read = exchange.read(tmp_path / "x.csv")
    assert read.proposed is None
    assert read.doubts is None
    assert read.given.values[0].tolist() == [0, 1, 0, 0]
    assert same(read.given.values[1:], judgement.given.values[1:])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("blank.csv", "id,Mass\n,1\n", "column 'id' is blank in row 1"),
        ("noid.csv", "x,Mass\na,1\n", "no column 'id'"),
        ("nolabel.csv", "id,path\na,b\n", "no column with labels"),
        ("age.csv", "id,Mass,age\na,1,old\n", "'old' in column 'age', row 1 is no label"),
        ("big.csv", "id,Mass\na,7\n", "outside"),
        ("huge.csv", "id,Mass\na,1e999\n", "is no label"),
        ("flag.csv", "id,Mass,flag\na,1,perhaps\n", "neither true nor false"),
        ("twice.csv", "id,Mass\na,1\na,0\n", "Duplicate id"),
    ],
)
def test_bad_tables_name_the_place(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        exchange.read(tmp_path / name)


@pytest.mark.parametrize("name", ["id", "flag", "expected", "proposed: Mass", "wrong: Mass", " Mass"])
def test_a_class_must_not_be_called_like_a_column(name: str, tmp_path: Path) -> None:
    table = LabelTable(np.asarray(["a"]), (name,), np.ones((1, 1)))
    with pytest.raises(InputError, match="called like another column"):
        exchange.write(Judgement(table), tmp_path / "labels.csv")


def test_parquet_keeps_types_and_writes_null_for_unknown(judgement: Judgement, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow.parquet")
    exchange.write(judgement, tmp_path / "labels.parquet")
    table = pyarrow.read_table(tmp_path / "labels.parquet")
    kinds = {name: str(table.schema.field(name).type) for name in ("Mass", "proposed: Mass", "flag", "expected")}
    assert kinds == {"Mass": "float", "proposed: Mass": "float", "flag": "bool", "expected": "float"}
    assert table["Mass"].to_pylist() == [1, 0, None, 0, 1]
    assert table["expected"].null_count == 1


class TestLists:
    """Two people look at an image: a value is the share of them who named the class."""

    def test_share_of_people(self) -> None:
        found = from_lists([[["a"], ["a", "b"]], [], [[]]], ("a", "b"))
        assert same(found, np.asarray([[1, 0.5], [np.nan, np.nan], [0, 0]], dtype=np.float32))

    def test_silence_says_nothing_where_there_is_a_class_for_nothing(self) -> None:
        found = from_lists([[[]], [["No Finding"]], [[], ["a"]]], ("a", "No Finding"))
        assert same(found, np.asarray([[np.nan, np.nan], [0, 1], [1, 0]], dtype=np.float32))

    def test_what_was_unknown_is_not_made_0_by_silence(self) -> None:
        unknown = np.asarray([[True, False, True]])
        assert same(from_lists([[["c"]]], ("a", "b", "c"), unknown), np.asarray([[np.nan, 0, 1]], dtype=np.float32))


def test_scores_turn_the_order_of_review_round() -> None:
    """The most suspect has the lowest score; nothing expected to be wrong is a score of 1."""
    scores = soundness(np.asarray([0, 1e-7, 1, 1.0000001, 30, np.nan], dtype=np.float32))
    assert (np.diff(scores[:5]) < 0).all()
    assert scores[0] == 1
    assert np.isnan(scores[5])


def test_files_of_earlier_versions_lose_their_margins_alone(tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_text("id,Mass,proposed: Mass,flag,margin,margin: Mass\na,1,0.2,true,-0.5,-0.5\n")
    back = exchange.read(tmp_path / "old.csv")
    assert back.given.classes == ("Mass",)
    assert back.doubts is not None
    assert back.doubts.flagged.tolist() == [True]
    assert np.isnan(back.doubts.expected).all()
    assert np.isnan(back.doubts.wrong).all()


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("/data/local-files/?d=x/y%20z.png", "x/y z.png"),
        ("https://example.org/a/b%2Bc.png?token=1", "b+c.png"),
        ("plain/path.png", "plain/path.png"),
    ],
)
def test_files_in_addresses(address: str, name: str) -> None:
    assert file_of(address) == name


class TestDocuments:
    def test_entities_are_refused_in_any_encoding(self, tmp_path: Path) -> None:
        bomb = '<!DOCTYPE a [<!ENTITY x "ha"><!ENTITY y "&x;&x;">]><a>&y;</a>'
        (tmp_path / "8.xml").write_text(bomb)
        (tmp_path / "16.xml").write_bytes(bomb.encode("utf-16"))
        for name in ("8.xml", "16.xml"):
            with pytest.raises(InputError, match="document type"):
                documents.read_xml(tmp_path / name)

    def test_depth_is_limited(self, tmp_path: Path) -> None:
        (tmp_path / "deep.xml").write_text("<a>" * 10_000 + "</a>" * 10_000)
        (tmp_path / "deep.json").write_text("[" * 100_000)
        with pytest.raises(InputError, match="inside one another"):
            documents.read_xml(tmp_path / "deep.xml")
        with pytest.raises(InputError, match="nested too deeply"):
            documents.read_json(tmp_path / "deep.json")

    @pytest.mark.parametrize("text", ["", "  ", "{", '{"a": ' + "9" * 5000 + "}", "<a>", "\x00"])
    def test_one_line_for_what_is_neither(self, text: str, tmp_path: Path) -> None:
        (tmp_path / "file").write_text(text)
        for read in (documents.read_json, documents.read_xml):
            with pytest.raises(InputError) as caught:
                read(tmp_path / "file")
            assert "\n" not in str(caught.value)

    def test_half_a_character_is_refused(self) -> None:
        with pytest.raises(InputError, match="half a character"):
            documents.checked("a\ud800", str, "here")


class TestCommand:
    @pytest.fixture
    def run(self, judgement: Judgement, tmp_path: Path) -> Path:
        folder = tmp_path / "run"
        assert judgement.proposed is not None
        write_json(folder / "config.json", {"format": 1, "config": {}})
        opinion = form_opinion(np.arange(20.0).reshape(5, 4), judgement.given)[0]
        LabelRecord(judgement.given, judgement.proposed, opinion).save(folder / "labels.npz")
        return folder

    def test_a_run_to_label_studio_and_back(
        self, run: Path, judgement: Judgement, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        tasks, table = tmp_path / "tasks.json", tmp_path / "reviewed.csv"
        assert bomd("convert", run, "--to", "label-studio", "-o", tasks, "--set", f"root={tmp_path}") == 0
        assert "5 images, 4 classes, proposals, 0 flagged" in capsys.readouterr().out
        assert bomd("convert", tasks, "--from", "label-studio", "-o", table) == 0
        back = exchange.read(table).given.select(judgement.given.ids)  # rows come in the order of review
        assert same(back.values, judgement.given.values)

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (("missing", "-o", "x.csv"), "No file or folder missing"),
            (("RUN", "-o", "x.json"), "does not say how to write it: pass one of table, parquet"),
            ((".", "-o", "x.csv"), "No finished run in"),
            (("RUN", "-o", "x.csv", "--to", "cvart"), "Did you mean 'cvat'?"),
            (("RUN", "-o", "x", "--to", "run"), "only read"),
            (("RUN", "-o", "x.csv", "--set", "rot=3"), "unknown key 'rot'"),
            (("RUN", "-o", "x.csv", "--from", "label-studio"), "Cannot read"),
        ],
    )
    def test_mistakes_are_one_line(
        self, words: tuple[str, ...], message: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "empty").mkdir()
        places = {
            "RUN": run,
            ".": tmp_path / "empty",
            "x.csv": tmp_path / "x.csv",
            "x.json": tmp_path / "x.json",
            "x": tmp_path / "x",
        }
        assert bomd("convert", *(places.get(word, word) for word in words)) == 2
        assert message in error(capsys)
        assert not (tmp_path / "x.csv").exists()

    def test_the_folder_of_an_audit_and_patients_without_the_folder_of_their_table(
        self, run: Path, judgement: Judgement, tmp_path: Path
    ) -> None:
        """A run tells patients of several tables apart by their folder, which is nobody else's business."""
        assert judgement.given.patients is not None
        assert judgement.proposed is not None
        longer = replace(judgement.given, patients=np.char.add("/home/jane/tables:", judgement.given.patients))
        formed = form_opinion(np.arange(20.0).reshape(5, 4), longer)[0]
        opinion = replace(formed, rank=np.arange(1, 6))  # in the order of the table
        LabelRecord(longer, judgement.proposed, opinion).save(run / "labels.npz")
        settings = {"train": {"dataset": "folder", "root": "/home/jane/tables"}}
        write_json(run / "config.json", {"format": 1, "config": settings})
        write_json(run / "result.json", {})
        assert bomd("convert", tmp_path, "-o", tmp_path / "x.csv") == 0
        back = exchange.read(tmp_path / "x.csv").given.select(judgement.given.ids)  # written in the order of review
        assert back.patients is not None
        assert back.patients.tolist() == judgement.given.patients.tolist()

    def test_an_unfinished_run_says_so(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "labels.npz").write_bytes(b"PK")
        assert bomd("convert", tmp_path, "-o", tmp_path / "x.csv") == 2
        assert "config.json" in error(capsys)


def test_judgements_must_be_about_the_same_images(judgement: Judgement) -> None:
    other = judgement.given.take([1, 0, 2, 3, 4])
    with pytest.raises(InputError, match="other ids"):
        Judgement(judgement.given, other)
    with pytest.raises(InputError, match="other classes"):
        Judgement(judgement.given, judgement.given.align(("a",)))


def test_images_on_another_drive_of_windows_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """No relative path leads from C: to D:, about which Windows' `os.path.relpath` raises an error of its own."""
    monkeypatch.setattr(judgement_of, "Path", PureWindowsPath)
    monkeypatch.setattr(judgement_of, "os", SimpleNamespace(path=ntpath))
    root, files = PureWindowsPath(r"C:\out"), [r"C:\out\a.png", r"c:\OUT\deep\b.png"]
    assert names_below(root, files, "as said") == ["a.png", "deep/b.png"]  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"^2 of 4 images are not below C:\\out, as said\.$"):
        names_below(root, [*files, r"D:\out\a.png", r"C:\other\c.png"], "as said")  # type: ignore[arg-type]
