"""Reasons in reviewers' own words: kept with the decision, from the page to the log that is signed."""

from __future__ import annotations

import csv
import html
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from bomd.cli import app
from bomd.data.datasets.corrected import DETAILS
from bomd.review.decisions import FILE, FORMAT, Event, Journal, current, read_events
from bomd.review.evidence import Evidence
from bomd.review.export import as_details, merge, read_reviewed
from bomd.review.guard import LONGEST_REASON
from bomd.review.queue import plain_labels

OLD_FILE = """
CREATE TABLE events (event INTEGER PRIMARY KEY AUTOINCREMENT, time TEXT NOT NULL, reviewer TEXT NOT NULL,
    image TEXT NOT NULL, action TEXT NOT NULL, undoes INTEGER REFERENCES events);
CREATE TABLE decisions (image TEXT NOT NULL, class TEXT NOT NULL, reviewer TEXT NOT NULL,
    event INTEGER NOT NULL REFERENCES events, value INTEGER CHECK (value IN (0, 1)),
    PRIMARY KEY (image, class, reviewer, event)) WITHOUT ROWID;
CREATE TRIGGER events_UPDATE BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'append only'); END;
CREATE TRIGGER events_DELETE BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'append only'); END;
PRAGMA user_version = 1;
"""


def old_file(path: Path, evidence: Evidence, row: int, time: str = "2026-01-01T00:00:00+00:00") -> str:
    """A file of decisions as the version before reasons wrote it: Ada kept one image; its name."""
    image = str(evidence.record.given.ids[row])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(OLD_FILE)
        connection.execute("INSERT INTO events VALUES (1, ?, 'Ada', ?, 'keep', NULL)", (time, image))
        pairs = zip(evidence.classes, plain_labels(evidence.given[row]), strict=True)
        rows = [(image, name, "Ada", 1, value) for name, value in pairs]
        connection.executemany("INSERT INTO decisions VALUES (?, ?, ?, ?, ?)", rows)
    return image


def said(run: Path, evidence: Evidence, name: str, row: int, reason: str, time: str = "") -> None:
    image, labels = str(evidence.record.given.ids[row]), plain_labels(evidence.proposed[row])
    with closing(Journal(run / FILE, evidence.classes)) as journal:
        journal.submit(Event(name, image, "accept", labels, time=time, reason=reason)).result(timeout=20)


def call(*words: str) -> str:
    done = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return str(done.output)


def lines_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_a_reason_is_saved_taken_back_and_found_again(run: Path, evidence: Evidence, client: Any, decide: Any) -> None:
    def own(page: Any, row: int = 4) -> Any:
        return page.get(f"/api/image/{row}?reviewer=Ada").json()["decision"]

    with client(run) as page:
        decide(page, evidence, 4, "keep", reason="  nothing there\n")
        decide(page, evidence, 4, "accept", reason="a shadow after all")
        decide(page, evidence, 5, "skip", reason="ask Grace")
    with client(run) as page:  # another day
        assert own(page)["reason"] == "a shadow after all"
        assert own(page, 5) == {"action": "skip", "labels": None, "reason": "ask Grace"}
        undone = [page.post("/api/undo", json={"reviewer": "Ada"}).json()["reason"] for _ in range(2)]
        assert undone == ["ask Grace", "a shadow after all"]  # the page offers the words again
        assert own(page) == {**own(page), "action": "keep", "reason": "nothing there"}
        decide(page, evidence, 4, "keep")
        assert own(page)["reason"] == ""  # nobody has to write one
    reasons = [event.reason for event in read_events(run / FILE, evidence.classes)]
    assert reasons == ["nothing there", "a shadow after all", "ask Grace", "", "", ""]


def test_a_reason_is_one_line_of_limited_length(
    page: Any, evidence: Evidence, run: Path, decide: Any, refused: Any
) -> None:
    for wrong in ("x" * (LONGEST_REASON + 1), 7, ["why"], {}, False):
        answer = decide(page, evidence, 4, "keep", reason=wrong)
        refused(answer, 400)
        assert answer.text == f"'reason' must be a text of at most {LONGEST_REASON} characters.\n"
    assert read_events(run / FILE, evidence.classes) == []
    assert f'id="reason" maxlength="{LONGEST_REASON}"' in page.get("/").text  # so that nobody meets that line
    pasted = " a\tb\r\nc\u00a0d \u202ee\u00ad\x00\ud800 می\u200cخواهم "
    for sent in ("é" * LONGEST_REASON, None, pasted):
        assert decide(page, evidence, 4, "keep", reason=sent).status_code == 200
    kept = [event.reason for event in read_events(run / FILE, evidence.classes)]
    assert kept == ["é" * LONGEST_REASON, "", "a b c d e می\u200cخواهم"]


def test_a_file_from_before_reasons_is_read_as_it_is_and_goes_on_with_them(
    run: Path, evidence: Evidence, client: Any, decide: Any
) -> None:
    image = old_file(run / FILE, evidence, 4)
    before = (run / FILE).read_bytes()
    assert "Ada: 1 image\n" in call("decisions", str(run))
    assert (run / FILE).read_bytes() == before
    with client(run) as page:
        assert page.get("/api/image/4?reviewer=Ada").json()["decision"]["reason"] == ""
        decide(page, evidence, 5, "keep", reason="as given")
    first, second = read_events(run / FILE, evidence.classes)
    assert (first.image, first.labels, first.reason) == (image, plain_labels(evidence.given[4]), "")
    assert second.reason == "as given"
    with closing(sqlite3.connect(run / FILE)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (FORMAT,)
    with closing(Journal(run / FILE, evidence.classes)) as journal:  # a second time there is nothing to add
        assert journal.events() == [first, second]


def test_the_command_says_who_gave_reasons_and_the_log_has_them(run: Path, evidence: Evidence, tmp_path: Path) -> None:
    """Ada alone on one image, with a formula; Ada and Bob on another, with markup and the sign between cells."""
    one, both = (int(row) for row in evidence.rows[:2])
    hostile, formula = "<script>x</script> | \"&amp;'", '=HYPERLINK("x")'
    said(run, evidence, "Ada", one, formula)
    said(run, evidence, "Ada", both, hostile)
    said(run, evidence, "Bob", both, "I agree")
    said(run, evidence, "Eve", both, "")
    log = tmp_path / "changes.csv"
    told = call("decisions", str(run), "-o", str(tmp_path / "mine.csv"), "--log", str(log))
    assert [line for line in told.splitlines() if line.startswith(("Ada:", "Bob:", "Eve:"))] == [
        "Ada: 2 images, 2 with a reason",
        "Bob: 1 image, 1 with a reason",
        "Eve: 1 image",
    ]
    several = "Ada: " + hostile.replace("|", "\\|") + "|Bob: I agree"
    wanted = {str(evidence.record.given.ids[one]): f"'{formula}", str(evidence.record.given.ids[both]): several}
    assert {line["image"]: line["reason"] for line in lines_of(log)} == wanted
    assert {line["id"]: line["reason"] for line in lines_of(tmp_path / "mine-details.csv")} == wanted
    page = log.with_suffix(".html").read_text(encoding="utf-8")
    assert "<script" not in page
    for words in (formula, hostile, "I agree"):
        assert words in html.unescape(page)


def test_reasons_come_along_from_copies_with_the_decisions_that_count(
    run: Path, evidence: Evidence, tmp_path: Path
) -> None:
    """Of two decisions by one name the later counts, and so does its reason, be it empty."""
    earlier, middle, later = (f"2026-02-0{day}T00:00:00+00:00" for day in (1, 2, 3))
    new, old = (Path(shutil.copytree(run, tmp_path / name)) for name in ("new", "old"))
    for row in (4, 5, 6):
        said(run, evidence, "Ada", row, f"here {row}", middle)
    said(new, evidence, "Ada", 4, "too early", earlier)
    said(new, evidence, "Ada", 5, "later", later)
    said(new, evidence, "Grace", 4, "hers")
    old_file(old / FILE, evidence, 6, later)
    for _ in range(2):
        call("decisions", str(run), "--with", str(new), "--with", str(old), "-o", str(tmp_path / "mine.csv"))
        standing = current(read_events(run / FILE, evidence.classes))
        found = {name: [event.reason for event in events.values()] for name, events in standing.items()}
        assert found == {"Ada": ["here 4", "later", ""], "Grace": ["hers"]}


def test_details_of_an_earlier_review_keep_their_reasons_or_have_none(
    run: Path, evidence: Evidence, tmp_path: Path
) -> None:
    given = evidence.record.given
    confirmed = evidence.given == 7
    confirmed[4, :2] = True
    before = replace(given, confirmed=confirmed)
    earlier = tmp_path / "mine-details.csv"
    line = f"{given.ids[4]},{given.classes[0]},0,1,Ada,2026-01-01,0"
    for heading, cell, wanted in (((), "", ""), (("reason",), ",'=seen", "'=seen")):
        earlier.write_text(f"{','.join((*DETAILS, *heading))}\n{line}{cell}\n", encoding="utf-8")
        written = as_details(merge(before, read_reviewed(run).standing), earlier).splitlines()
        assert written[0] == ",".join((*DETAILS, "reason"))
        assert written[1] == f"{line},{wanted}"
        assert written[2].endswith(",,,0,")
        assert len(written) == 3
