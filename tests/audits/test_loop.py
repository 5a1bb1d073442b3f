"""Audit, review, decisions, and the next audit: the user's own table goes round, and what was decided is fixed."""

from __future__ import annotations

import csv
import hashlib
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bomd.audits import kept
from bomd.audits.audit import audit, carry_out
from bomd.audits.found import Audit
from bomd.audits.plan import plan
from bomd.cli import main
from bomd.errors import InputError
from bomd.experiments.records import LabelRecord
from bomd.review.change_log import write_log
from bomd.review.decisions import FILE, Event, Journal
from bomd.review.evidence import open_evidence
from bomd.review.export import read_reviewed, write_reviewed
from bomd.review.queue import plain_labels
from bomd.review.retrain import retrain
from bomd.tables import Opinion

ROWS = 120


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Two classes that features tell apart; images 0, 1, 12 and 13 have the label of the other."""
    (tmp_path / "images").mkdir()
    rng = np.random.default_rng(0)
    truth = np.arange(ROWS) % 24 // 12
    features = np.eye(2)[truth] + rng.normal(0, 0.05, (ROWS, 2))
    np.save(tmp_path / "features.npy", features.astype(np.float32))
    given = np.where(np.isin(np.arange(ROWS), (0, 1, 12, 13)), 1 - truth, truth)
    lines = ["file;age;findings;note"]
    for row, label in enumerate(given):
        Image.fromarray(rng.integers(0, 256, (32, 32), dtype=np.uint8)).save(tmp_path / "images" / f"i{row}.png")
        lines.append(f'i{row}.png;{20 + row};{("Mass", "Edema")[label]};"a; ""b"""')
    (tmp_path / "labels.csv").write_text("\r\n".join(lines) + "\r\n", encoding="utf-8", newline="")
    return tmp_path


def audited(place: Path, table: Path, name: str) -> Audit:
    rates = place / "rates.csv"
    rates.write_text("class,miss,false_alarm\nMass,0.1,0.1\nEdema,0.1,0.1\n")
    features = place / "features.npy"
    return audit(table, place / "images", output=place / name, features=features, rates=rates, per_image="multi")


def decide(found: Audit, image: str, action: str, person: str = "Ada") -> None:
    evidence = open_evidence(found.run.directory)
    row = evidence.numbers[image]
    journal = Journal(found.run.directory / FILE, evidence.classes)
    labels = plain_labels((evidence.proposed if action == "accept" else evidence.given)[row])
    journal.submit(Event(person, image, action, labels)).result(timeout=20)
    journal.close()


def test_the_table_comes_back_as_it_was_and_decided_labels_stay(place: Path) -> None:
    first = audited(place, place / "labels.csv", "first")
    assert set(np.flatnonzero(first.flags.noisy)) >= {0, 1, 12, 13}
    decide(first, "i0.png", "accept")
    decide(first, "i12.png", "keep")  # wrong, but somebody said so
    _, reviewed = write_reviewed(first.run.directory, place / "reviewed.csv")
    before, after = ((place / name).read_bytes() for name in ("labels.csv", "reviewed.csv"))
    assert after == before.replace(b"i0.png;20;Edema", b"i0.png;20;Mass")

    second = audited(place, reviewed, "second")
    assert second.record.given.classes == first.record.given.classes  # no column of ours is taken for a class
    assert not second.flags.noisy[[0, 12]].any()
    assert second.flags.noisy[[1, 13]].all()
    assert np.array_equal(second.labels.values[12], second.record.given.values[12])
    assert second.opinion.rank[[0, 12]].min() > ROWS - 2
    assert any("labels of 2 images are as people decided" in note for note in second.notes)
    with (second.directory / "labels_clean.csv").open(newline="", encoding="utf-8") as stream:
        line = list(csv.DictReader(stream, delimiter=";"))[12]
    assert (line["flagged"], line["Mass wrong"], line["Mass proposed"]) == ("0", "0", "1")

    # A second review adds to the first: who decided what is not lost.
    decide(second, "i1.png", "accept", "Grace")
    write_reviewed(second.run.directory, place / "twice.csv")
    with (place / "twice-details.csv").open(newline="", encoding="utf-8") as stream:
        people = {line["id"]: line["reviewers"] for line in csv.DictReader(stream)}
    assert people == {"i0.png": "Ada", "i12.png": "Ada", "i1.png": "Grace"}
    third = audited(place, place / "twice.csv", "third")
    assert not third.flags.noisy[[0, 1, 12]].any()


def test_a_report_over_an_audit_shows_its_latest_run(place: Path) -> None:
    """Labels are part of an audit's settings: after a change of them an earlier run stays there under another name."""
    from bomd import runs

    first = audited(place, place / "labels.csv", "first").run.directory
    table = place / "labels.csv"
    table.write_bytes(table.read_bytes().replace(b"i5.png;25;Mass", b"i5.png;25;Edema"))
    second = audited(place, table, "first").run.directory
    assert first.parent == second.parent
    assert first != second
    for folder in (place / "first", place):
        assert [run.directory for run in runs.find([folder])] == [second]
    assert [run.directory for run in runs.find([first])] == [first]


def test_the_plan_says_that_features_judge(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (place / "labels.csv", "--images", place / "images", "--features", place / "features.npy", "--plan")
    assert command("audit", *words, "-o", place / "out") == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "Logistic heads on the 2 features of" in said
    assert "no network is trained" in said
    assert not (place / "out").exists()


def test_without_the_details_nothing_counts_as_decided(place: Path) -> None:
    first = audited(place, place / "labels.csv", "first")
    decide(first, "i12.png", "keep")
    _, reviewed = write_reviewed(first.run.directory, place / "reviewed.csv")
    (place / "reviewed-details.csv").unlink()
    second = audited(place, reviewed, "second")
    assert second.record.given.confirmed is None
    assert second.flags.noisy[12]


def test_a_run_of_a_recipe_gives_back_the_table_of_its_folder(place: Path) -> None:
    """Nothing is kept beside such a run: the recipe says where the table is."""
    from bomd import runs
    from bomd.config import Config

    train = {"dataset": "folder", "root": str(place), "labels": "labels.csv", "images": "images"}
    run = runs.start(place / "runs", Config(train=train)).directory
    own = kept.find(run)
    assert own is not None
    assert (own.form.id_column, own.form.label_column, own.suffix) == ("file", "findings", ".csv")
    assert "".join(own.records.lines()).encode() == (place / "labels.csv").read_bytes()
    (place / "labels.csv").rename(place / "gone.csv")
    assert kept.find(run) is None
    assert kept.find(runs.start(place / "runs", Config(train={"dataset": "phantom"})).directory) is None


def command(*words: object) -> int:
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    return int(left.value.code or 0)


def recorded(place: Path, **train: str) -> Path:
    """A run of a recipe that learnt from the table in this folder, as far as decisions need it."""
    from bomd import runs
    from bomd.config import Config
    from bomd.data.datasets import read

    source = {"dataset": "folder", "root": str(place), "labels": "labels.csv", "images": "images"} | train
    run = runs.start(place / "runs", Config(train=source)).directory
    given, _ = read(source, "train")
    count, classes = given.values.shape
    ranks, learnt = np.arange(1, count + 1), np.ones(classes, dtype=np.bool_)
    opinion = Opinion(given.ids, given.values, given.values, np.ones(count, np.float32), ranks, learnt, ())
    LabelRecord(given, given, opinion).save(run / "labels.npz")
    return run


def test_a_table_that_was_edited_since_the_run_is_refused(place: Path) -> None:
    """Else a change that nobody decided on would be in the reviewed labels, and in no log."""
    run, table = recorded(place), place / "labels.csv"
    before = table.read_bytes()
    assert write_reviewed(run, place / "reviewed.csv")[1].read_bytes() == before
    table.write_bytes(before.replace(b"i5.png;25;Mass", b"i5.png;25;Edema"))
    with pytest.raises(InputError, match=r"has been edited since .* 2 labels are others, such as 'Edema' of 'i5.png'"):
        write_reviewed(run, place / "reviewed.csv")
    lines = before.splitlines(keepends=True)
    table.write_bytes(b"".join(lines[:8] + lines[9:]))
    with pytest.raises(InputError, match=r"has been edited since .* It has no 'i7\.png' any more"):
        write_reviewed(run, place / "reviewed.csv")
    table.write_bytes(before.replace(b'; "', b'; x"') + b"\r\n")  # text beside labels may change
    write_reviewed(run, place / "reviewed.csv")


def test_what_an_earlier_review_decided_stands_in_the_table_too(place: Path) -> None:
    """The run learnt from reviewed labels; its recipe's own table is from before that review."""
    earlier = place / "earlier.csv"
    earlier.write_bytes((place / "labels.csv").read_bytes().replace(b"i0.png;20;Edema", b"i0.png;20;Mass"))
    (place / "earlier-details.csv").write_text(
        "id,class,given,decided,reviewers,time,unresolved\ni0.png,Mass,0,1,Ada,,0\ni0.png,Edema,1,0,Ada,,0\n"
    )
    run = recorded(place, labels_from=str(earlier))
    _, reviewed = write_reviewed(run, place / "reviewed.csv")
    assert reviewed.read_bytes() == earlier.read_bytes()


def test_a_model_is_not_put_over_files_of_the_users_own(place: Path) -> None:
    """Labels that an earlier review decided go beside the model, too, under the name that the given ones often have."""
    earlier = place / "earlier.csv"
    shutil.copyfile(place / "labels.csv", earlier)
    (place / "earlier-details.csv").write_text(
        "id,class,given,decided,reviewers,time,unresolved\ni2.png,Mass,1,1,Ada,,0\n"
    )
    run = recorded(place, labels_from=str(earlier))
    before = (place / "labels.csv").read_bytes()
    with pytest.raises(InputError, match=r"labels\.csv is the table of the given labels, never overwritten"):
        retrain(run, place)
    assert (place / "labels.csv").read_bytes() == before
    mine = place / "mine"
    (mine / "model").mkdir(parents=True)
    (mine / "model" / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match=r"model is there and holds something else: name another folder as --output"):
        retrain(run, mine)
    assert [file.name for file in mine.rglob("*")] == ["model", "thesis.txt"]
    other = place / "other"
    other.mkdir()
    (other / "report.html").write_text("<p>years of work</p>")
    with pytest.raises(InputError, match=r"report\.html is there and holds something else"):
        retrain(run, other)
    assert [file.name for file in other.rglob("*")] == ["report.html"]  # nothing was trained before


def test_a_list_says_no_finding_where_the_last_one_was_taken_away_and_so_does_the_log(place: Path) -> None:
    """Ada takes the only label away and leaves "No Finding" alone, Bob sets it: the list has no other word for both."""
    table = place / "labels.csv"
    table.write_bytes(table.read_bytes().replace(b"i7.png;27;Mass", b"i7.png;27;No Finding"))
    found = audited(place, table, "first")
    run, classes = found.run.directory, found.record.given.classes
    assert classes == ("Edema", "Mass", "No Finding")
    journal = Journal(run / FILE, classes)
    said = {"Ada": ("i5.png", (0, 0, 0)), "Bob": ("i5.png", (0, 0, 1)), "Eve": ("i8.png", (1, 0, 0))}
    for person, (image, labels) in said.items():
        journal.submit(Event(person, image, "edit", labels)).result(timeout=20)
    journal.close()
    assert command("decisions", run, "-o", place / "reviewed.csv", "--log", place / "log.csv") == 0
    assert b"i5.png;25;No Finding;" in (place / "reviewed.csv").read_bytes()
    with (place / "log.csv").open(newline="", encoding="utf-8") as stream:
        log = [
            (line["image"], line["finding"], line["from"], line["to"], line["note"]) for line in csv.DictReader(stream)
        ]
    word = "follows, since no other label is left: a blank cell would say that nobody looked"
    assert ("i5.png", "No Finding", "0", "1", word) in log
    assert {line[:4] for line in log} == {
        ("i5.png", "Mass", "1", "0"),
        ("i5.png", "No Finding", "0", "1"),
        ("i8.png", "Mass", "1", "0"),
        ("i8.png", "Edema", "0", "1"),
    }
    assert "<b>4</b> labels changed" in (place / "log.html").read_text(encoding="utf-8")
    assert "i5.png,No Finding,0,1,Ada|Bob," in (place / "reviewed-details.csv").read_text(encoding="utf-8")


def test_nothing_takes_the_place_of_anything_else(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = audited(place, place / "labels.csv", "first")
    run = found.run.directory

    def refused(*words: object) -> str:
        """What the command says, after which no file is another."""
        before = {file: file.read_bytes() for file in place.rglob("*") if file.is_file()}
        assert command("decisions", run, *words) == 2
        now = {file: file.read_bytes() for file in place.rglob("*") if file.is_file()}
        assert now == before
        return " ".join(capsys.readouterr().err.split())

    table = place / "labels.csv"
    assert "given labels, never overwritten: name another --output" in refused("-o", table)
    assert "never overwritten: name another --log" in refused("--log", table)
    shutil.copyfile(table, place / "same.csv")
    assert "never overwritten: name another --output" in refused("-o", place / "same.csv")
    both = place / "both.csv"
    assert "cannot be both --output and --log" in refused("-o", both, "--log", both)
    assert "cannot be both" in refused("-o", both, "--log", place / "both-details.csv")
    for file in (run / "labels.npz", run / "table.json", found.directory / "labels_clean.csv"):
        assert "is there and holds something else: name another --output, or remove it" in refused("-o", file)
    second = place / "second.csv"  # the user's own, with the columns of the given one: no details of a review beside it
    second.write_bytes(table.read_bytes().replace(b"i5.png;25;Mass", b"i5.png;25;Edema"))
    assert "second.csv is there and holds something else: name another --output" in refused("-o", second)
    assert "images is a folder: name a file in it as --output" in refused("-o", place / "images")
    assert "images is a folder: name a file in it as --log" in refused("--log", place / "images")
    assert "--output takes a file such as reviewed.csv, not /dev/null" in refused("-o", "/dev/null")
    assert "name another --log" in refused("--log", found.directory / "labels_clean.csv")
    assert "another place for the page of --log" in refused("--log", found.directory / "report.csv")
    for _ in range(2):  # what the command wrote itself is written anew, with other content
        assert command("decisions", run, "-o", both, "--log", place / "log.csv.gz") == 0
        assert command("decisions", run) == 0
        decide(found, "i0.png", "accept")


def test_the_page_to_sign_names_the_file_that_was_audited(place: Path) -> None:
    """The file as it came: its checksum is that of the user's own UTF-16, and not of the copy that is kept."""
    table = place / "wide.csv"
    table.write_bytes((place / "labels.csv").read_bytes().decode().encode("utf-16"))
    run = audited(place, table, "first").run.directory
    _, page = write_log(run, read_reviewed(run), place / "changes.csv")
    text = page.read_text(encoding="utf-8")
    for name, file in (("wide.csv", table), ("table.csv", run / "table.csv")):
        assert f"{name}, SHA-256 {hashlib.sha256(file.read_bytes()).hexdigest()}" in text
    assert "No Finding is not in the table that was given, and not counted here." in text


def test_a_table_that_is_edited_while_an_audit_trains_is_named_as_it_was_read(place: Path) -> None:
    """Its labels, its checksum and who decided on which of them are of one moment; nothing needs it after that."""
    table, details = place / "labels.csv", place / "labels-details.csv"
    decided = "id,class,given,decided,reviewers,time,unresolved\ni2.png,Mass,1,1,Ada,,0\n"
    details.write_text(decided)
    digest = hashlib.sha256(table.read_bytes()).hexdigest()
    planned = plan(table, place / "images", output=place / "first", features=place / "features.npy")
    table.write_bytes(table.read_bytes().replace(b"i5.png;25;Mass", b"i5.png;25;Edema"))
    details.unlink()
    found = kept.find(carry_out(planned).run.directory)
    assert found is not None
    assert found.source is not None
    assert found.source.digest == digest
    assert found.details.read_text() == decided
