"""Decisions in SQLite: only ever appended, on disk before they are acknowledged, written by one server at a time."""

from __future__ import annotations

import json
import os
import queue
import shutil
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from filelock import FileLock, Timeout

from bomd.errors import InputError
from bomd.files import reading, write_json

FORMAT, WITHOUT_REASONS = 2, 1  # the one of new files, and an older one that is read as well
FILE, LOCK, SERVER = "review.sqlite", "review.lock", "review.json"
RESCUED = "review-rescued.sqlite"
JUDGEMENTS = ("accept", "keep", "edit")  # what gives an image labels
ACTIONS = (*JUDGEMENTS, "skip", "undo")

_TABLES = """
CREATE TABLE events (
    event INTEGER PRIMARY KEY AUTOINCREMENT,
    time TEXT NOT NULL,
    reviewer TEXT NOT NULL,
    image TEXT NOT NULL,
    action TEXT NOT NULL,
    undoes INTEGER REFERENCES events
);
CREATE TABLE decisions (
    image TEXT NOT NULL,
    class TEXT NOT NULL,
    reviewer TEXT NOT NULL,
    event INTEGER NOT NULL REFERENCES events,
    value INTEGER CHECK (value IN (0, 1)),
    PRIMARY KEY (image, class, reviewer, event)
) WITHOUT ROWID;
"""
_REASONS = "ALTER TABLE events ADD COLUMN reason TEXT NOT NULL DEFAULT '';"
_APPEND_ONLY = "CREATE TRIGGER {table}_{verb} BEFORE {verb} ON {table} BEGIN SELECT RAISE(ABORT, 'append only'); END;"


@dataclass(frozen=True)
class Event:
    """One thing a reviewer did."""

    reviewer: str
    image: str
    action: str
    labels: tuple[int | None, ...] | None = None  # 1, 0 or None for unknown, for each class; None for a skip or an undo
    undoes: int | None = None  # the number of the event that an undo takes back
    number: int = 0  # its place in the journal; 0 until it is saved
    time: str = ""
    reason: str = ""  # in the reviewer's own words


class Journal:
    """The one writer of a run's decisions: a thread of its own that commits what waits in one transaction."""

    def __init__(self, path: Path, classes: Sequence[str]) -> None:
        self.path, self.classes = path, tuple(classes)
        self._connection = _connect(path)
        with _readable(path):
            _prepare(self._connection, path)
        self._files: dict[Path, tuple[int, int]] = {}  # which files the connection has open
        self._check_files()
        self._saved: int = self._connection.execute("SELECT count(*) FROM events").fetchone()[0]
        self._waiting: queue.SimpleQueue[tuple[Event, Future[Event]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="decisions", daemon=True)
        self._thread.start()

    def events(self) -> list[Event]:
        """All that was saved so far, in order."""
        return read_events(self.path, self.classes)

    def submit(self, event: Event) -> Future[Event]:
        """Save an event; the future has it with its number once it is on disk, or the reason why it is not."""
        saved: Future[Event] = Future()
        saved.set_running_or_notify_cancel()  # whoever waits may go away, but what is under way is saved
        self._waiting.put((event, saved))
        return saved

    def close(self) -> None:
        """Save what waits, then let the file go."""
        self._waiting.put(None)
        self._thread.join()
        self._connection.close()

    def _work(self) -> None:
        while True:
            batch = [self._waiting.get()]
            while not self._waiting.empty():  # one flush to disk for all that came in meanwhile
                batch.append(self._waiting.get())
            entries = [entry for entry in batch if entry is not None]
            try:
                self._check_files()
                saved = self._append([event for event, _ in entries])
                self._check_files()  # what went into a file without a name is lost when we stop
            except (sqlite3.Error, ValueError, OSError) as error:
                for _, future in entries:
                    future.set_exception(InputError(f"Not saved in {self.path}: {str(error).rstrip('.')}."))
            else:
                for (_, future), event in zip(entries, saved, strict=True):
                    future.set_result(event)
            if None in batch:
                return

    def _check_files(self) -> None:
        """Refuse to go on when a file was removed or replaced: the system keeps what is open, but nobody finds it.

        New decisions would go where none is ever read again, so that none is acknowledged from then on. What was
        decided before is put into a file of its own, where it can still be had.
        """
        for path in (self.path, self.path.with_name(f"{self.path.name}-wal")):
            try:
                found = path.stat()
            except FileNotFoundError:
                if path == self.path or path in self._files:
                    raise OSError(f"{path.name} was removed during the review; {self._rescue()}") from None
                continue  # SQLite makes it with the first transaction
            if self._files.setdefault(path, (found.st_dev, found.st_ino)) != (found.st_dev, found.st_ino):
                raise OSError(f"{path.name} was replaced during the review; {self._rescue()}")

    def _rescue(self) -> str:
        """Save what the connection still holds, and say what to do."""
        rescued = self.path.with_name(RESCUED)
        try:
            with closing(_connect(rescued)) as copy:
                self._connection.backup(copy)
                whole = copy.execute("SELECT count(*) FROM events").fetchone()[0] >= self._saved
        except (sqlite3.Error, InputError):
            whole = False  # whoever put another file there has also emptied the log that both have by name
        if not whole:
            rescued.unlink(missing_ok=True)
            return "stop the server, restore the file from a copy, and start it anew"
        return f"stop the server and put {RESCUED}, which has all earlier decisions, in its place"

    def _append(self, events: Sequence[Event]) -> list[Event]:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        saved = []
        with self._connection:  # commits, or rolls all of them back
            self._connection.execute("BEGIN IMMEDIATE")
            for event in events:
                time = event.time or now  # what was decided on a copy of the run keeps its own
                cursor = self._connection.execute(
                    "INSERT INTO events (time, reviewer, image, action, undoes, reason) VALUES (?, ?, ?, ?, ?, ?)",
                    (time, event.reviewer, event.image, event.action, event.undoes, event.reason),
                )
                number = int(cursor.lastrowid or 0)
                if event.labels is not None:
                    pairs = zip(self.classes, event.labels, strict=True)
                    rows = [(event.image, name, event.reviewer, number, value) for name, value in pairs]
                    self._connection.executemany("INSERT INTO decisions VALUES (?, ?, ?, ?, ?)", rows)
                saved.append(replace(event, number=number, time=time))
        self._saved += len(saved)
        return saved


def read_events(path: Path, classes: Sequence[str]) -> list[Event]:
    """The events of a file of decisions in order, whether a server is at work on it or not; none without a file."""
    if not path.exists():
        return []
    places = {name: place for place, name in enumerate(classes)}
    labels: dict[int, list[int | None]] = {}
    with _opened(path) as connection:
        if _is_new(connection):  # a review that was killed as it began
            return []
        _check_format(connection, path)
        connection.execute("BEGIN")  # both tables as they are at one moment
        for number, name, value in connection.execute("SELECT event, class, value FROM decisions"):
            if name not in places:
                raise InputError(f"{path} holds decisions on a class {name!r} that the run does not have.")
            labels.setdefault(number, [None] * len(places))[places[name]] = value
        rows = connection.execute("SELECT * FROM events ORDER BY event")  # of an older file, without reasons
        return [
            Event(name, image, action, tuple(labels[number]) if number in labels else None, undoes, number, time, *why)
            for number, time, name, image, action, undoes, *why in rows
        ]


def current(events: Sequence[Event]) -> dict[str, dict[str, Event]]:
    """What stands now, by reviewer and image: the last event on an image that was not undone."""
    undone = {event.undoes for event in events if event.action == "undo"}
    standing: dict[str, dict[str, Event]] = {}
    for event in events:
        if event.action != "undo" and event.number not in undone:
            standing.setdefault(event.reviewer, {})[event.image] = event
    return standing


def anybody_decided(path: Path) -> bool:
    """Whether a judgement stands in a file of decisions; a review makes the file before anybody has decided.

    No file that cannot be read says so.
    """
    try:
        with _opened(path) as connection:
            classes = [name for (name,) in connection.execute("SELECT DISTINCT class FROM decisions")]
        standing = current(read_events(path, classes))
    except InputError:
        return False
    return any(event.action in JUDGEMENTS for said in standing.values() for event in said.values())


@contextmanager
def only_server(directory: Path, address: str) -> Iterator[None]:
    """Hold a run's lock, which the system lets go of when its holder dies; a second server is told who has it."""
    lock = FileLock(directory / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise InputError(
            f"{directory} is under review already ({_holder(directory)}). Use that page, or stop it first."
        ) from error
    except OSError as error:
        raise InputError(f"Cannot write {directory / LOCK}: {error.strerror or error}.") from error
    try:
        write_json(directory / SERVER, {"process": os.getpid(), "address": address})
        yield
    finally:
        (directory / SERVER).unlink(missing_ok=True)
        lock.release()


def _holder(directory: Path) -> str:
    try:
        facts = json.loads((directory / SERVER).read_text(encoding="utf-8"))
        return f"process {int(facts['process'])} at {facts['address']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "by another process"


def _connect(path: Path) -> sqlite3.Connection:
    _refuse_link(path)
    try:
        if not path.exists():  # SQLite would let others read it; the files beside it get the same mode
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        connection = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
    except (sqlite3.Error, OSError) as error:
        raise InputError(f"Cannot open {path}: {error}.") from error
    return connection


def _refuse_link(path: Path) -> None:
    if path.is_symlink():  # a run from somebody else must not make us write to a file of ours
        raise InputError(f"{path} is a link: decisions are kept in the run itself. Remove the link.")


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A file of decisions to read, or a copy of it where nothing can be written: SQLite writes beside what it reads."""
    _refuse_link(path)
    with ExitStack() as stack:
        found = path
        if _takes_no_file_beside(path):
            found = Path(stack.enter_context(TemporaryDirectory(prefix="bomd-"))) / FILE
            with reading(path):
                for ending in ("", "-wal"):  # what was committed last is in the second until the first is closed
                    if (own := path.with_name(f"{path.name}{ending}")).exists():
                        shutil.copyfile(own, f"{found}{ending}")
        with _readable(path), closing(_connect(found)) as connection:
            yield connection


def _takes_no_file_beside(path: Path) -> bool:
    """Whether SQLite cannot read a file where it is, damaged or not: in a read-only folder, or on a full disk."""
    try:
        with closing(sqlite3.connect(path, timeout=10)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.Error as error:
        return _reason(error) in (
            sqlite3.SQLITE_CANTOPEN,
            sqlite3.SQLITE_FULL,
            sqlite3.SQLITE_IOERR,
            sqlite3.SQLITE_READONLY,
        )
    return False


def _reason(error: sqlite3.Error) -> int | None:
    code: int | None = getattr(error, "sqlite_errorcode", None)  # which only SQLite's own errors have
    return None if code is None else code & 0xFF  # the rest says more about it


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Make the tables of a new file, or what an older one lacks; every commit waits until the disk has it."""
    new = _is_new(connection)
    found = 0 if new else _check_format(connection, path)  # first, since this may be a file of another program
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    if found < FORMAT:
        kinds = product(("events", "decisions"), ("UPDATE", "DELETE"))
        triggers = "".join(_APPEND_ONLY.format(table=table, verb=verb) for table, verb in kinds)
        tables = f"{_TABLES}{triggers}" if new else ""
        connection.executescript(f"BEGIN;{tables}{_REASONS}PRAGMA user_version = {FORMAT}; COMMIT;")


def _is_new(connection: sqlite3.Connection) -> bool:
    """Whether a file has no tables yet."""
    return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0)


def _check_format(connection: sqlite3.Connection, path: Path) -> int:
    found = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if found not in (WITHOUT_REASONS, FORMAT):
        raise InputError(f"{path} holds decisions of another version (format {found}, this one reads {FORMAT}).")
    return found


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        sound = _reason(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
        remedy = "" if sound else " Restore it from a copy."
        raise InputError(f"{path} cannot be used as a file of decisions: {error}.{remedy}") from error
