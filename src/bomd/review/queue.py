"""What to look at next: flagged images in the order of the run, raised or lowered by what was decided so far."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bomd.errors import InputError
from bomd.review.decisions import ACTIONS, JUDGEMENTS, Event
from bomd.review.evidence import UNKNOWN, Evidence, Labels, most_doubtful
from bomd.review.learning import EVERY, FIRST, Learnt

KINDS = ("any", "added", "removed", "both", "none")
ORDERS = ("image", "label")
BASES = ("decisions", "run")
STATES = ("open", "decided", "skipped", "all")
OPEN, SKIPPED = 0, 1 + ACTIONS.index("skip")
PRIOR = 2.0  # reviewed neighbours that it takes until they weigh half


@dataclass(frozen=True)
class Filter:
    """Which part of the queue is asked for: images where the proposal adds a label, removes one, does both or neither.

    With a class, what is added or removed is that class, "both" means that the image changes both ways and the class is
    part of it, and "none" that the class stays.
    """

    column: int | None = None
    kind: str = "any"
    text: str = ""  # that the id or patient contains, in any case
    state: str = "open"  # or what the reviewer has decided or skipped; skipped ones are open, too, and come last
    order: str = "image"  # all labels of an image together, or its most doubtful one, that of `column` if there is one
    basis: str = "decisions"  # the order that the reviewer's decisions lead to, or that of the run


class Queue:
    """The part of the order that all reviewers share; nothing in it changes."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence, self.rows = evidence, evidence.rows
        self.suspicion = evidence.suspicion[self.rows]
        self.queued = np.zeros(len(evidence), dtype=np.bool_)
        self.queued[self.rows] = True
        self.added, self.removed = evidence.record.added, evidence.record.removed
        given = evidence.record.given
        self._texts = np.char.lower(np.char.add(np.char.add(given.ids, "\n"), given.groups)[self.rows])
        self._links = _links(evidence.record.neighbours, len(evidence))
        self.doubts = functools.lru_cache(maxsize=256)(self._doubts)
        self.matching = functools.lru_cache(maxsize=256)(self._matching)

    def linked(self, row: int) -> NDArray[np.intp]:
        """Rows that are neighbours of this one, or that have it among theirs."""
        starts, ends = self._links
        return ends[starts[row] : starts[row + 1]]

    def _doubts(self, column: int | None) -> NDArray[np.float32]:
        """(Q) probability that the most doubtful label of an image is wrong, or that of one class."""
        record = self.evidence.record
        return most_doubtful(record.opinion.wrong[self.rows], record.given, column)

    def _matching(self, column: int | None, kind: str, text: str) -> NDArray[np.bool_]:
        """(N) rows that a filter lets through, whatever has been decided."""
        allowed = np.zeros(len(self.evidence), dtype=np.bool_)
        kept = np.ones(len(self.rows), dtype=np.bool_)
        added, removed = self.added[self.rows], self.removed[self.rows]
        both = added.any(axis=1) & removed.any(axis=1)
        if column is not None:
            added, removed = added[:, [column]], removed[:, [column]]
        adds, removes = added.any(axis=1), removed.any(axis=1)
        if kind != "any" or column is not None:
            changes = adds | removes
            kept &= {"any": changes, "added": adds, "removed": removes, "both": changes & both, "none": ~changes}[kind]
        if text:
            kept &= np.char.find(self._texts, text.lower()) >= 0
        allowed[self.rows[kept]] = True
        return allowed


class Desk:
    """One reviewer's decisions and the order that follows from them; nobody else's play a part."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        N = len(queue.evidence)
        self.state = np.zeros(N, dtype=np.int8)  # OPEN, or 1 + the place of the action in ACTIONS
        self.changed = np.zeros(N, dtype=np.int32)  # reviewed neighbours whose labels were changed
        self.kept = np.zeros(N, dtype=np.int32)  # and whose labels were confirmed
        self.decided = self.skipped = 0
        C = len(queue.evidence.classes)
        self.asked = np.zeros(C, dtype=np.int64)  # proposed changes in judged images
        self.accepted = np.zeros(C, dtype=np.int64)  # and how many of them the reviewer made
        self.judged = 0  # images, queued or not
        self.learnt: Learnt | None = None
        self.events = 0  # decisions made or taken back
        self._history: list[Event] = []
        self._on_image: dict[int, list[Event]] = defaultdict(list)
        self._orders: dict[tuple[str, int | None, str], NDArray[np.intp]] = {}

    def apply(self, event: Event) -> None:
        """Take a saved event into account; events must come in the order of the journal."""
        row = self.queue.evidence.numbers.get(event.image)
        if row is None:
            raise InputError(f"There is a decision on an image {event.image!r} that the run does not have.")
        before = self.decision(row)
        if event.action == "undo":
            # Here it is the last decision; on a copy of the run others may have come between.
            undone = next((own for own in reversed(self._history) if own.number == event.undoes), None)
            if undone is None or undone.image != event.image:
                raise InputError(f"Decision {event.number} undoes {event.undoes}, which does not stand.")
            self._history.remove(undone)
            self._on_image[row].remove(undone)
        else:
            self._history.append(event)
            self._on_image[row].append(event)
        after = self.decision(row)
        self._count(row, before, -1)
        self._count(row, after, +1)
        self.state[row] = OPEN if after is None else 1 + ACTIONS.index(after.action)
        self.events += 1
        if self.judged < FIRST:
            self.learnt = None
        self._orders.clear()

    @property
    def due(self) -> bool:
        """Whether there are enough new decisions to learn from."""
        return self.judged >= FIRST and (self.learnt is None or self.events - self.learnt.events >= EVERY)

    def learn(self, learnt: Learnt) -> None:
        """Order by what was learnt from now on, if there are still enough decisions."""
        if self.judged >= FIRST:
            self.learnt = learnt
            self._orders.clear()

    def lessons(self) -> dict[str, Any]:
        """How many proposed changes the reviewer made, and the rates of each class before and after."""
        evidence, learnt = self.queue.evidence, self.learnt
        findings = evidence.record.given.findings
        lines = []
        for column in findings.tolist():
            asked, accepted = int(self.asked[column]), int(self.accepted[column])
            line: dict[str, Any] = {"name": evidence.classes[column], "asked": asked, "accepted": accepted}
            if learnt is not None:
                for name in ("false_alarm", "miss"):
                    both = (getattr(rates, name)[column] for rates in (learnt.teacher.rates, learnt.rates))
                    line[name] = [round(float(rate), 5) for rate in both]
            lines.append(line)
        return {
            "judged": self.judged,
            "asked": int(self.asked[findings].sum()),
            "accepted": int(self.accepted[findings].sum()),
            "updated": None if learnt is None else {"judged": learnt.judged, "time": learnt.time},
            "classes": lines,
        }

    def decision(self, row: int) -> Event | None:
        """What the reviewer last decided about an image."""
        standing = self._on_image.get(row)
        return standing[-1] if standing else None

    def last(self) -> Event | None:
        """What an undo would take back."""
        return self._history[-1] if self._history else None

    def decisions(self) -> dict[int, Event]:
        """What stands now, by row."""
        return {row: events[-1] for row, events in self._on_image.items() if events}

    def lift(self) -> NDArray[np.float64]:
        """(Q) between -1 and 1: how reviewed neighbours move an image of the queue.

        With a neighbours changed and k confirmed it is (a - k) / (a + k + 2): one changed neighbour raises what is
        expected by a third, many at most double it; confirmed ones lower it towards nothing.
        """
        rows = self.queue.rows
        return np.asarray(_lift(self.changed[rows], self.kept[rows]))

    def order(self, by: str = "image", column: int | None = None, basis: str = "decisions") -> NDArray[np.intp]:
        """(Q) rows, the most suspicious first, skipped ones last; equals keep the order of the run."""
        key = (by, column if by == "label" else None, basis)
        if key not in self._orders:
            rows, queue = self.queue.rows, self.queue
            learnt = None if basis == "run" else self.learnt
            if by == "image":
                scores = queue.suspicion if learnt is None else queue.suspicion * learnt.factor[rows]
            else:
                scores = queue.doubts(column) if learnt is None else learnt.doubts(column)
            lift = 0 if basis == "run" else self.lift()
            self._orders[key] = in_order(scores * (1 + lift), self.state[rows] == SKIPPED, rows)
        return self._orders[key]

    def find(self, wanted: Filter) -> NDArray[np.intp]:
        """Rows of the queue that a filter lets through, in order."""
        order = self.order(wanted.order, wanted.column, wanted.basis)
        kept = self.queue.matching(wanted.column, wanted.kind, wanted.text)[order]
        state = self.state[order]
        if wanted.state == "skipped":
            kept = kept & (state == SKIPPED)
        elif wanted.state != "all":
            undecided = (state == OPEN) | (state == SKIPPED)
            kept = kept & (undecided if wanted.state == "open" else ~undecided)
        return order[kept]

    def progress(self) -> dict[str, int]:
        """How many images there are to review, and how many of them are decided and skipped."""
        return {"images": len(self.queue.rows), "decided": self.decided, "skipped": self.skipped}

    def item(self, row: int, basis: str = "decisions") -> dict[str, Any]:
        """A line of the queue as plain values."""
        queue, state = self.queue, int(self.state[row])
        added, removed = (np.flatnonzero(proposed[row]).tolist() for proposed in (queue.added, queue.removed))
        factor = 1.0 if self.learnt is None or basis == "run" else float(self.learnt.factor[row])
        return {
            "number": int(row),
            "id": str(queue.evidence.record.given.ids[row]),
            "patient": queue.evidence.patient(row),
            "expected": round(float(queue.evidence.record.opinion.expected[row]) * factor, 4),
            "lift": 0.0 if basis == "run" else round(float(_lift(self.changed[row], self.kept[row])), 2),
            "kind": ("both" if removed else "added") if added else "removed" if removed else "none",
            "added": added,
            "removed": removed,
            "action": None if state == OPEN else ACTIONS[state - 1],
        }

    def _count(self, row: int, event: Event | None, step: int) -> None:
        if event is None:
            return
        own = step if self.queue.queued[row] else 0  # an address may lead to an image that is not in the queue
        if event.action not in JUDGEMENTS:
            self.skipped += own
            return
        self.decided += own
        self.judged += step
        evidence = self.queue.evidence
        asked = self.queue.added[row] | self.queue.removed[row]
        agreed = np.asarray([UNKNOWN if label is None else label for label in event.labels or ()])
        self.asked += step * asked
        self.accepted += step * (asked & (agreed == evidence.proposed[row]))
        counts = self.kept if event.labels == plain_labels(evidence.given[row]) else self.changed
        counts[self.queue.linked(row)] += step


def _lift(changed: Any, kept: Any) -> Any:
    return (changed - kept) / (changed + kept + PRIOR)


def in_order(scores: NDArray[Any], later: NDArray[np.bool_], rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Rows by falling score, at least 0; those that come later at the end; equals by row.

    One whole number per row holds all three: whether it comes later, the bits of its score as float32, which for
    numbers above 0 grow with it, and the row. Sorting them takes a tenth of the time of sorting by several columns.
    """
    bits = np.ascontiguousarray(scores, dtype=np.float32).view(np.uint32).astype(np.uint64)
    keys = (later.astype(np.uint64) << np.uint64(63)) | ((np.uint64(0x7FFFFFFF) - bits) << np.uint64(32))
    return (np.sort(keys | rows.astype(np.uint64)) & np.uint64(0xFFFFFFFF)).astype(np.intp)


def plain_labels(values: Labels) -> tuple[int | None, ...]:
    """(C) labels of an image as a decision holds them."""
    return tuple(None if value == UNKNOWN else int(value) for value in values)


def replay(queue: Queue, events: Iterable[Event]) -> dict[str, Desk]:
    """The desks of all reviewers after these events."""
    desks: dict[str, Desk] = {}
    for event in events:
        desks.setdefault(event.reviewer, Desk(queue)).apply(event)
    return desks


def _links(neighbours: NDArray[np.int64] | None, N: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Who is linked to whom in either direction, once: (N + 1) starts and the rows between two of them."""
    if neighbours is None:
        return np.zeros(N + 1, dtype=np.intp), np.zeros(0, dtype=np.intp)
    one = np.repeat(np.arange(N), neighbours.shape[1])
    other = neighbours.ravel()
    real = (other >= 0) & (other != one)
    one, other = one[real], other[real]
    pairs = np.unique(np.concatenate([one * N + other, other * N + one]))
    starts = np.searchsorted(pairs, np.arange(N + 1) * N)
    return starts.astype(np.intp), (pairs % N).astype(np.intp)
