"""Decisions are on disk before they count, are never changed, and survive whatever happens to the process."""

from __future__ import annotations

import errno
import http.client
import json
import os
import shutil
import signal
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bomd.errors import InputError
from bomd.review.decisions import (
    FILE,
    RESCUED,
    Event,
    Journal,
    anybody_decided,
    current,
    only_server,
    read_events,
)

CLASSES = ("Mass", "Edema")


def save(journal: Journal, *events: Event) -> list[Event]:
    return [future.result(timeout=20) for future in [journal.submit(event) for event in events]]


def test_events_read_back_as_they_were_saved(tmp_path: Path) -> None:
    journal = Journal(tmp_path / FILE, CLASSES)
    saved = save(
        journal,
        Event("Ada", "a", "edit", (1, None)),
        Event("Grace", "a", "skip"),
        Event("Ada", "a", "undo", undoes=1),
    )
    assert [event.number for event in saved] == [1, 2, 3]
    assert read_events(tmp_path / FILE, CLASSES) == saved  # while the journal is open
    assert journal.events() == saved
    journal.close()
    assert Journal(tmp_path / FILE, CLASSES).events() == saved
    assert read_events(tmp_path / FILE, CLASSES[::-1])[0].labels == (None, 1)  # classes go by name, not by place


def test_what_stands_is_the_last_that_was_not_undone() -> None:
    events = [
        Event("Ada", "a", "accept", (1, 0), number=1),
        Event("Ada", "a", "keep", (0, 0), number=2),
        Event("Ada", "b", "skip", number=3),
        Event("Ada", "b", "undo", undoes=3, number=4),
        Event("Grace", "a", "keep", (0, 0), number=5),
        Event("Ada", "a", "undo", undoes=2, number=6),
    ]
    assert current(events) == {"Ada": {"a": events[0]}, "Grace": {"a": events[4]}}


def test_nothing_is_ever_changed_or_deleted(tmp_path: Path) -> None:
    journal = Journal(tmp_path / FILE, CLASSES)
    save(journal, Event("Ada", "a", "accept", (1, 0)))
    with sqlite3.connect(tmp_path / FILE) as other:
        for table in ("events", "decisions"):
            for command in (f"UPDATE {table} SET image = 'b'", f"DELETE FROM {table}"):
                with pytest.raises(sqlite3.DatabaseError, match="append only"):
                    other.execute(command)
    journal.close()


def test_every_commit_waits_for_the_disk(tmp_path: Path) -> None:
    journal = Journal(tmp_path / FILE, CLASSES)
    assert journal._connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    assert journal._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    journal.close()


def test_many_threads_lose_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path / FILE, CLASSES)
    numbers: list[int] = []

    def work(name: str) -> None:
        for image in range(25):
            numbers.append(save(journal, Event(name, str(image), "keep", (0, 1)))[0].number)

    threads = [threading.Thread(target=work, args=(f"r{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    journal.close()
    assert sorted(numbers) == list(range(1, 201))
    standing = current(read_events(tmp_path / FILE, CLASSES))
    assert {name: len(images) for name, images in standing.items()} == {f"r{number}": 25 for number in range(8)}


def test_what_cannot_be_saved_is_said_and_leaves_nothing_behind(tmp_path: Path) -> None:
    journal = Journal(tmp_path / FILE, CLASSES)
    with pytest.raises(InputError, match="Not saved"):
        save(journal, Event("Ada", "a", "edit", (1, 7)))  # the table takes 0 and 1 alone
    assert save(journal, Event("Ada", "b", "skip"))[0].image == "b"  # the writer lives on
    journal.close()
    assert [event.image for event in read_events(tmp_path / FILE, CLASSES)] == ["b"]


@pytest.mark.parametrize("content", [b"not a database, but long enough" * 40, b"SQLite format 3\0"])
def test_a_damaged_file_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    for attempt in (lambda: Journal(tmp_path / FILE, CLASSES), lambda: read_events(tmp_path / FILE, CLASSES)):
        with pytest.raises(InputError) as caught:
            attempt()
        assert "\n" not in str(caught.value)


class Refusing:
    """SQLite where it can write nothing beside a file, as in a read-only folder or on a full disk."""

    def __init__(self, folder: Path, code: int) -> None:
        self.folder, self.code, self.connect = folder, code, sqlite3.connect

    def __call__(self, path: Path, **rest: Any) -> sqlite3.Connection:
        if self.folder in Path(path).parents:
            error = sqlite3.OperationalError("SQLite's own words")
            error.sqlite_errorcode = self.code
            raise error
        return self.connect(path, **rest)


@pytest.mark.parametrize(
    "code", [sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMOPEN]
)
def test_decisions_are_read_where_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A copy of a run on a read-only medium, made while the server was running."""
    running, copy = tmp_path / "running", tmp_path / "copy"
    running.mkdir()
    copy.mkdir()
    journal = Journal(running / FILE, CLASSES)
    saved = save(journal, Event("Ada", "a", "accept", (1, 0), reason="seen"), Event("Ada", "b", "skip"))
    assert (running / f"{FILE}-wal").stat().st_size  # where all of it still is
    for ending in ("", "-wal"):
        shutil.copy(running / f"{FILE}{ending}", copy)
    journal.close()
    monkeypatch.setattr(sqlite3, "connect", Refusing(copy, code))
    copy.chmod(0o500)
    try:
        assert read_events(copy / FILE, CLASSES) == saved
        assert anybody_decided(copy / FILE)
        assert sorted(file.name for file in copy.iterdir()) == [FILE, f"{FILE}-wal"]
    finally:
        copy.chmod(0o700)
    (copy / f"{FILE}-wal").unlink()
    (copy / FILE).write_bytes(b"no database" * 100)
    with pytest.raises(InputError, match=rf"copy/{FILE} cannot be used .* Restore it"):  # by its own name
        read_events(copy / FILE, CLASSES)


def test_decisions_that_somebody_else_made_private_are_said_to_be_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sound file is not to be restored from a copy because it cannot be read."""
    Journal(tmp_path / FILE, CLASSES).close()

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(sqlite3, "connect", Refusing(tmp_path, sqlite3.SQLITE_CANTOPEN))
    monkeypatch.setattr(shutil, "copyfile", refuse)
    with pytest.raises(InputError, match=rf"Cannot read .*{FILE}: Permission denied\.$"):
        read_events(tmp_path / FILE, CLASSES)


def test_a_file_that_is_only_locked_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Journal(tmp_path / FILE, CLASSES).close()

    def locked(*_: object) -> int:
        error = sqlite3.OperationalError("database is locked")
        error.sqlite_errorcode = sqlite3.SQLITE_BUSY
        raise error

    monkeypatch.setattr("bomd.review.decisions._check_format", locked)
    with pytest.raises(InputError, match=r"database is locked\.$"):
        read_events(tmp_path / FILE, CLASSES)


def test_a_review_that_was_killed_as_it_began_has_no_decisions(tmp_path: Path) -> None:
    """The file is there before its tables; no version of ours has written anything into it."""
    (tmp_path / FILE).write_bytes(b"")
    assert read_events(tmp_path / FILE, CLASSES) == []
    assert not anybody_decided(tmp_path / FILE)
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    assert (tmp_path / FILE).stat().st_size
    assert read_events(tmp_path / FILE, CLASSES) == []
    journal = Journal(tmp_path / FILE, CLASSES)
    saved = save(journal, Event("Ada", "a", "skip"))
    journal.close()
    assert read_events(tmp_path / FILE, CLASSES) == saved


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """A run that somebody sent may hold a link to a file of ours."""
    ours = tmp_path / "ours"
    ours.write_bytes(b"")
    (tmp_path / FILE).symlink_to(ours)
    with pytest.raises(InputError, match="is a link"):
        Journal(tmp_path / FILE, ("Mass",))
    with pytest.raises(InputError, match="is a link"):
        read_events(tmp_path / FILE, ("Mass",))
    assert ours.read_bytes() == b""


def test_a_file_of_another_program_is_left_as_it_is(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        connection.execute("CREATE TABLE bookmarks (address TEXT)")
        connection.commit()
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(InputError, match="another version"):
        Journal(tmp_path / FILE, ("Mass",))
    assert (tmp_path / FILE).read_bytes() == before


def test_somebody_who_no_longer_waits_stops_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path / FILE, ("Mass",))
    assert not any(journal.submit(Event("Ada", str(image), "keep", (1,))).cancel() for image in range(20))
    assert journal.submit(Event("Ada", "last", "keep", (1,))).result(timeout=20).number == 21
    journal.close()


def test_decisions_of_another_version_or_about_other_classes_are_refused(tmp_path: Path) -> None:
    journal = Journal(tmp_path / FILE, CLASSES)
    save(journal, Event("Ada", "a", "accept", (1, 0)))
    journal.close()
    with pytest.raises(InputError, match="'Edema'"):
        read_events(tmp_path / FILE, ("Mass", "Nodule"))
    with sqlite3.connect(tmp_path / FILE) as other:
        other.execute("PRAGMA user_version = 9")
    with pytest.raises(InputError, match="format 9"):
        Journal(tmp_path / FILE, CLASSES)


def test_a_second_server_is_told_about_the_first(tmp_path: Path) -> None:
    with (
        only_server(tmp_path, "http://127.0.0.1:1234/"),
        pytest.raises(InputError, match=rf"process {os.getpid()} at http://127.0.0.1:1234/"),
        only_server(tmp_path, "http://127.0.0.1:99/"),
    ):
        pass
    with only_server(tmp_path, "http://127.0.0.1:99/"):  # free again
        pass


def post(served: Any, path: str, body: dict[str, Any]) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=20)
    headers = {
        "cookie": served.cookie,
        "origin": f"http://127.0.0.1:{served.port}",
        "content-type": "application/json",
    }
    try:
        connection.request("POST", served.room + path.removeprefix("/"), json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.slow
def test_a_killed_server_has_lost_nothing_it_acknowledged(run: Path, serve: Callable[[Path], Any]) -> None:
    """Four people decide as fast as they can; the process is killed in the middle of it, by a signal it cannot see."""
    from bomd.review.evidence import open_evidence

    served = serve(run)
    ids = open_evidence(run).record.given.ids.tolist()
    acknowledged: list[tuple[int, str, str]] = []

    def decide(name: str) -> None:
        for turn in range(10_000):
            number = turn % len(ids)
            body = {"reviewer": name, "number": number, "id": ids[number], "action": "keep"}
            try:
                status, content = post(served, "/api/decide", body)
            except (OSError, http.client.HTTPException):
                return
            assert status == 200, content
            acknowledged.append((json.loads(content)["event"], name, ids[number]))
            if len(acknowledged) == 60:
                os.kill(served.process.pid, signal.SIGKILL)

    people = [threading.Thread(target=decide, args=(f"r{number}",)) for number in range(4)]
    for person in people:
        person.start()
    for person in people:
        person.join()
    served.process.wait(timeout=20)
    classes = open_evidence(run).classes
    found = {(event.number, event.reviewer, event.image) for event in read_events(run / FILE, classes)}
    assert len(acknowledged) >= 60
    assert set(acknowledged) <= found
    again = serve(run)  # the lock of the dead is free
    status, _ = post(again, "/api/undo", {"reviewer": "r0"})
    assert status == 200


@pytest.mark.slow
def test_a_second_command_on_the_same_run_says_so(run: Path, serve: Callable[[Path], Any]) -> None:
    from bomd.cli.review import review

    served = serve(run)
    with pytest.raises(InputError, match=f"under review already .process {served.process.pid} at {served.address}"):
        review(run)
    assert served.process.poll() is None


@pytest.mark.parametrize("harm", ["removed", "replaced", "log"])
def test_a_file_that_goes_away_under_the_server_takes_no_decision_with_it(tmp_path: Path, harm: str) -> None:
    """What would go into a file without a name is not acknowledged, and what was there before is rescued."""
    path = tmp_path / FILE
    journal = Journal(path, CLASSES)
    journal.submit(Event("Ada", "a", "keep", (1, 0))).result(timeout=20)
    if harm == "log":
        path.with_name(f"{FILE}-wal").unlink()
    else:
        path.unlink()
    if harm == "replaced":
        Journal(path, CLASSES).close()
    for _ in range(2):
        with pytest.raises(InputError, match=rf"Not saved .* {'replaced' if harm == 'replaced' else 'removed'}"):
            journal.submit(Event("Ada", "b", "keep", (1, 0))).result(timeout=20)
    journal.close()
    if harm != "replaced":
        assert [event.image for event in read_events(tmp_path / RESCUED, CLASSES)] == ["a"]


def test_nobody_else_may_read_decisions(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        journal = Journal(tmp_path / FILE, ("A",))
        journal.submit(Event("Ada", "x", "accept", (1,))).result(timeout=10)
    finally:
        os.umask(before)
    modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.glob(f"{FILE}*")}
    journal.close()
    assert modes[FILE] == 0o600
    assert set(modes.values()) == {0o600}, "the log beside it holds decisions, too"
