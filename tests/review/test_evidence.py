"""What a run says about an image, on four images whose answers are worked out by hand."""

from __future__ import annotations

import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bomd import runs
from bomd.config import Config
from bomd.data.store import pack
from bomd.errors import InputError
from bomd.experiments.records import LabelRecord
from bomd.files import write_json
from bomd.progress import shown
from bomd.review.decisions import FILE, Event, Journal
from bomd.review.evidence import UNKNOWN, only_run, open_evidence, png, tint
from bomd.review.export import as_details, as_table, read_reviewed
from bomd.review.pictures import Pictures
from bomd.tables import NO_FINDING, Flags, LabelTable, Opinion

GIVEN = np.asarray([[1, 0], [0, 1], [0, 1], [np.nan, 0]], dtype=np.float32)
SOFT = np.asarray([[0.55, 0.6], [0, 1], [0, 1], [np.nan, 0.7]], dtype=np.float32)
WRONG = np.asarray([[0.9, 0.8], [0.1, 0], [0, 0.2], [np.nan, 0.7]], dtype=np.float32)
HARD = np.asarray([[0, 1], [0, 1], [0, 1], [np.nan, 1]], dtype=np.float32)
OPINION = Opinion(
    np.asarray([*"abcd"]),
    WRONG,
    HARD,
    expected=np.asarray([1.7, 0.1, 0.2, 0.7], dtype=np.float32),
    rank=np.asarray([1, 4, 3, 2]),
    learnt=np.asarray([False, True]),
    reasons=("Because.",),
)
NEIGHBOURS = np.asarray([[1, 2], [0, 2], [1, -1], [1, 2]])


def four(directory: Path, **changes: object) -> Path:
    """Four images of two classes; the first and the last are flagged."""
    given = LabelTable(np.asarray(["a", "b", "c", "d"]), ("Mass", "Edema"), GIVEN, patients=np.asarray([*"xxyy"]))
    noisy = np.asarray([True, False, False, True])
    flags = Flags(given.ids, noisy, np.asarray([-0.5, 1, 1, -2], dtype=np.float32), np.zeros((4, 2), np.float32))
    parts = {"flags": flags, "neighbours": NEIGHBOURS, "targets": given.replace(SOFT), "opinion": OPINION, **changes}
    LabelRecord(given=given, **parts).save(directory / "labels.npz")  # type: ignore[arg-type]
    drawn = np.arange(4 * 16, dtype=np.uint8).reshape(4, 4, 4)
    pack(given, directory / "images", 4, render=lambda ids, _: drawn[["abcd".index(name) for name in ids]])
    write_json(directory / "images.json", {"store": "images", "size": 4})
    return directory


def test_the_opinion_proposes_and_orders(tmp_path: Path) -> None:
    """Image a: Mass is probably wrong, and so is that it lacks Edema. Image d: Mass stays unknown, Edema is added."""
    evidence = open_evidence(four(tmp_path))
    assert evidence.rows.tolist() == [0, 3]
    assert evidence.proposed.tolist() == [[0, 1], [0, 1], [0, 1], [UNKNOWN, 1]]
    assert evidence.record.removed.tolist() == [[True, False], *[[False, False]] * 3]
    assert evidence.record.added.tolist() == [[False, True], [False, False], [False, False], [False, True]]
    assert evidence.record.opinion.expected.tolist() == OPINION.expected.tolist()
    assert np.argsort(-evidence.suspicion).tolist() == [0, 3, 2, 1]


def test_suspicion_falls_strictly_along_the_order_of_the_run(tmp_path: Path) -> None:
    """Also where as much is expected of several images, or nothing of any."""
    for expected in ([0, 0, 0, 0], [1, 1, 1, 0], [0.5, 2, 2, 0]):
        changed = replace(OPINION, expected=np.asarray(expected, dtype=np.float32))
        suspicion = open_evidence(four(tmp_path, opinion=changed)).suspicion
        assert (np.diff(suspicion[np.argsort(OPINION.rank)]) < 0).all()
        assert suspicion.min() > 0
        np.testing.assert_allclose(np.sort(suspicion), np.sort(expected), atol=1e-5)


def test_votes_are_the_share_of_labelled_neighbours_that_have_the_class(tmp_path: Path) -> None:
    """Image c has one neighbour, b; Mass of d is not known, so that a neighbour d would not count."""
    neighbours = np.asarray([[1, 3], [0, 2], [1, -1], [-1, -1]])
    votes = open_evidence(four(tmp_path, neighbours=neighbours)).votes
    assert np.array_equal(votes, [[0, 0.5], [0.5, 0.5], [0, 1], [np.nan, np.nan]], equal_nan=True)  # type: ignore[arg-type]


def test_no_finding_follows_from_the_others(template: Path) -> None:
    """An image that loses its last finding gets "No Finding", and one that gains a finding loses it."""
    evidence = open_evidence(template)
    changed = (evidence.proposed != evidence.given).any(axis=1)
    nothing = evidence.classes.index(NO_FINDING)
    finding = np.delete(evidence.proposed[changed], nothing, axis=1).max(axis=1)
    assert changed.sum() > 10
    assert np.array_equal(evidence.proposed[changed, nothing], 1 - finding)


def test_patients_are_named_as_in_their_table(tmp_path: Path) -> None:
    """The folder of the table, which a run puts before them, is no business of reviewers."""
    run = four(tmp_path / "run")
    record = LabelRecord.load(run / "labels.npz")
    patients = np.asarray(["/home/ada/x-rays:7", "/home/ada/x-rays:a:b", "other:7", "8"])
    replace(record, given=replace(record.given, patients=patients)).save(run / "labels.npz")
    config = Config(train={"dataset": "folder", "root": "/home/ada/x-rays"})
    shutil.copy(runs.start(tmp_path / "runs", config).directory / "config.json", run)
    assert [open_evidence(run).facts(row)["patient"] for row in range(4)] == ["7", "a:b", "other:7", "8"]
    assert "/home/ada" not in as_table(read_reviewed(run), None) + as_details(read_reviewed(run))


def test_an_image_without_a_patient_has_none(tmp_path: Path) -> None:
    """A run counts each image as its own patient where none is named; that is nothing to show to people."""
    run = four(tmp_path / "run")
    record = LabelRecord.load(run / "labels.npz")
    unknown = replace(record.given, patients=np.asarray([f"/data:{name}" for name in record.given.ids]))
    replace(record, given=unknown).save(run / "labels.npz")
    config = Config(train={"dataset": "folder", "root": "/data"})
    shutil.copy(runs.start(tmp_path / "runs", config).directory / "config.json", run)
    evidence = open_evidence(run)
    assert evidence.patients is None
    assert evidence.facts(0)["patient"] is None
    assert as_table(read_reviewed(run), None).splitlines()[0] == "id,Mass,Edema"


def test_without_flags_the_images_with_half_a_wrong_label_are_queued(tmp_path: Path) -> None:
    evidence = open_evidence(four(tmp_path, neighbours=None, flags=None))
    assert evidence.rows.tolist() == [0, 3]
    assert evidence.votes is None


def test_an_image_with_a_proposal_is_queued_whatever_the_method_flags(tmp_path: Path) -> None:
    flags = Flags(np.asarray([*"abcd"]), np.asarray([False, True, False, False]), np.zeros(4, np.float32), GIVEN)
    assert open_evidence(four(tmp_path, flags=flags)).rows.tolist() == [0, 1, 3]


def test_facts_of_an_image(tmp_path: Path) -> None:
    facts = open_evidence(four(tmp_path)).facts(0)
    assert (facts["id"], facts["patient"], facts["place"]) == ("a", "x", 1)
    assert [label["wrong"] for label in facts["labels"]] == [0.9, 0.8]
    assert [label["learnt"] for label in facts["labels"]] == [False, True]
    assert [label["votes"] for label in facts["labels"]] == [0, 1]
    assert [label["classifier"] for label in facts["labels"]] == [None, None]
    assert [(other["id"], other["labels"], other["same_patient"]) for other in facts["neighbours"]] == [
        ("b", [1], True),
        ("c", [1], False),
    ]


def test_the_file_is_shown_as_long_as_it_is_what_the_run_judged(tmp_path: Path) -> None:
    run = four(tmp_path / "run")
    assert Pictures(open_evidence(run)).shown(1).pixels.tolist() == np.arange(16, 32).reshape(4, 4).tolist()
    with pytest.raises(InputError, match="names no image files"):
        open_evidence(run, originals=True)
    files = [tmp_path / f"wide{row}.png" for row in range(4)]
    for row, file in enumerate(files):
        Image.fromarray(np.full((30, 50), 7 + row, dtype=np.uint8)).save(file)
    record = LabelRecord.load(run / "labels.npz")
    given = replace(record.given, paths=np.asarray([str(file) for file in files]))
    replace(record, given=given).save(run / "labels.npz")
    store = pack(given, run / "packed", 4)
    write_json(run / "images.json", {"store": "packed", "size": 4, "fingerprint": store.fingerprint})
    Image.fromarray(np.full((30, 50), 99, dtype=np.uint8)).save(files[2])  # replaced since
    files[3].unlink()
    for asked in (None, True):
        shown = [Pictures(open_evidence(run, originals=asked)).shown(row) for row in range(4)]
        assert [picture.original for picture in shown] == [True, True, False, False]
        assert [picture.pixels.shape for picture in shown] == [(30, 50), (30, 50), (4, 4), (4, 4)]
        assert shown[2].pixels.tolist() == [[9] * 4] * 4, "the picture that was judged"
        assert "has changed since the run" in shown[2].why
        assert "not there any more" in shown[3].why
    packed = Pictures(open_evidence(run, originals=False)).shown(0)
    assert (packed.original, packed.why, packed.pixels.shape) == (False, "", (4, 4))
    write_json(run / "images.json", {"store": "packed", "size": 4, "fingerprint": "another"})
    with pytest.raises(InputError, match="other images than this run was made from"):
        open_evidence(run)


def test_heat_is_a_layer_that_is_clear_where_it_is_cold() -> None:
    layer = tint(np.asarray([[0, 1], [np.nan, 2]]))
    assert layer[..., 3].tolist() == [[0, 170], [0, 170]]
    assert png(layer).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("missing", "line"),
    [("labels.npz", "No run to review"), ("images.json", "does not say where"), ("images/store.json", "pack them")],
)
def test_a_run_without_its_files_is_refused(run: Path, missing: str, line: str) -> None:
    (run / missing).unlink()
    with pytest.raises(InputError, match=line):
        open_evidence(run)


def test_a_run_without_anything_to_review_is_refused(tmp_path: Path) -> None:
    content = replace(OPINION, proposed=GIVEN, expected=np.zeros(4, dtype=np.float32))
    with pytest.raises(InputError, match="Nothing to review"):
        open_evidence(four(tmp_path, neighbours=None, flags=None, opinion=content))


def decide(path: Path, *events: Event) -> None:
    with closing(Journal(path, ("Mass", "Edema"))) as journal:
        for event in events:
            journal.submit(event).result(timeout=20)


ADA = Event("Ada", "a", "keep", (1, 0))


@pytest.mark.parametrize(
    ("events", "decided"),
    [
        ([], False),  # a page that was opened and closed
        ([ADA, Event("Ada", "a", "undo", undoes=1)], False),
        ([Event("Ada", "a", "skip")], False),
        ([ADA, Event("Ada", "a", "skip")], False),
        ([ADA, Event("Grace", "a", "skip")], True),
        ([ADA, ADA, Event("Ada", "a", "undo", undoes=2)], True),
    ],
)
def test_an_earlier_audit_is_named_only_where_a_decision_stands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], events: list[Event], decided: bool
) -> None:
    earlier, latest = (tmp_path / "runs" / name for name in ("one", "two"))
    for place in (earlier, latest):
        place.mkdir(parents=True)
        four(place)
    write_json(tmp_path / "audit.json", {"run": "runs/two"})
    decide(earlier / FILE, *events)
    with shown():
        assert only_run(tmp_path) == latest
    assert ("People decided on an earlier audit" in "".join(capsys.readouterr())) is decided


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + bytes(200)])
def test_a_damaged_file_of_decisions_of_an_earlier_audit_stops_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    for name in ("one", "two"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        four(tmp_path / "runs" / name)
    write_json(tmp_path / "audit.json", {"run": "runs/two"})
    (tmp_path / "runs" / "one" / FILE).write_bytes(content)
    capsys.readouterr()
    with shown():
        assert only_run(tmp_path) == tmp_path / "runs" / "two"
    assert "".join(capsys.readouterr()) == ""
    assert (tmp_path / "runs" / "one" / FILE).read_bytes() == content


@pytest.mark.parametrize("store", [3, None, ["images"]])
def test_a_damaged_place_of_images_is_refused(run: Path, store: object) -> None:
    write_json(run / "images.json", {"store": store})
    with pytest.raises(InputError, match=r"images\.json"):
        open_evidence(run)


def test_a_folder_with_one_run_stands_for_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "two"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    first = four(tmp_path / "runs" / "one")
    write_json(first / "result.json", {})
    assert only_run(first) == only_run(tmp_path) == first
    write_json(four(tmp_path / "runs" / "two") / "result.json", {})
    with pytest.raises(InputError, match="2 runs are in"):
        only_run(tmp_path)
    # An audit that was repeated with other options names the run of the last; it cannot lead elsewhere.
    write_json(tmp_path / "audit.json", {"run": "runs/two"})
    assert only_run(tmp_path) == tmp_path / "runs" / "two"
    # Where people had decided on the one before, their work is not lost from sight.
    decide(first / FILE, ADA)
    with shown():
        assert only_run(tmp_path) == tmp_path / "runs" / "two"
    assert f"which stays in {first}: " in "".join(capsys.readouterr())
    decide(tmp_path / "runs" / "two" / FILE, ADA)
    with shown():
        only_run(tmp_path)
    assert "earlier" not in "".join(capsys.readouterr())
    write_json(tmp_path / "runs" / "audit.json", {"run": "../runs/../../outside"})
    four(tmp_path.parent / "outside")
    with pytest.raises(InputError, match="2 runs are in"):
        only_run(tmp_path / "runs")
    assert only_run(tmp_path / "nothing") == tmp_path / "nothing"
