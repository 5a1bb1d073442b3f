"""The order of the queue: worked out by hand, and against a slow version that starts from the events."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bomd.errors import InputError
from bomd.review.decisions import Event, current
from bomd.review.evidence import Evidence, open_evidence
from bomd.review.queue import KINDS, Desk, Filter, Queue, in_order, plain_labels, replay

WAYS = ("accept", "keep", "skip", "undo")


class Six(SimpleNamespace):
    """Evidence, as far as the queue needs it."""

    def __len__(self) -> int:
        return 6


def six() -> Any:
    """Six images of two classes, all queued; 0-1-2 are a chain of neighbours, 3 and 4 a pair, 5 is alone."""
    table = SimpleNamespace(ids=np.asarray([*"abcdef"]), groups=np.asarray(["P1", "P1", "P2", "P2", "P3", "P3"]))
    before = np.asarray([[0, 0], [1, 0], [0, 1], [1, 1], [0, 0], [1, 0]], dtype=np.int8)
    after = np.asarray([[1, 0], [0, 0], [1, 0], [1, 1], [1, 1], [0, 1]], dtype=np.int8)
    return Six(
        record=SimpleNamespace(
            given=table,
            neighbours=np.asarray([[1, -1], [2, -1], [1, -1], [4, 3], [-1, -1], [-1, -1]]),
            added=(after == 1) & (before == 0),
            removed=(after == 0) & (before == 1),
            opinion=SimpleNamespace(expected=np.zeros(6, dtype=np.float32)),
        ),
        given=before,
        proposed=after,
        rows=np.arange(6),
        suspicion=np.asarray([1, 3, 2.5, 3, 2, 0.5], dtype=np.float32),
        numbers={name: row for row, name in enumerate("abcdef")},
        classes=("Mass", "Edema"),
        patient=lambda row: str(table.groups[row]),
    )


def event(
    number: int, image: str, action: str, labels: tuple[int, ...] | None = None, undoes: int | None = None
) -> Event:
    return Event("Ada", image, action, labels, undoes, number)


def names(desk: Desk, **wanted: Any) -> str:
    return "".join("abcdef"[row] for row in desk.find(Filter(**wanted)))


def test_by_single_labels() -> None:
    """The most doubtful label of any class, or of one; skipped images come last in every order."""
    evidence = six()
    wrong = np.asarray([[0.9, 0.1], [0.2, 0.8], [0.5, 0.7], [np.nan, 0.3], [0, 0], [0.6, 0.6]], dtype=np.float32)
    evidence.record.opinion, evidence.record.given.findings = SimpleNamespace(wrong=wrong), [0, 1]
    desk = Desk(Queue(evidence))
    assert names(desk, order="label") == "abcfde"
    assert desk.order("label", 1).tolist() == [1, 2, 5, 3, 0, 4]
    assert names(desk, order="label", column=0) == "afcbe"  # of the images where the class would change
    assert names(desk) == "bdceaf"
    desk.apply(event(1, "a", "skip"))
    assert names(desk, order="label") == "bcfdea"


def test_most_suspicious_first_and_equals_in_the_order_of_the_run() -> None:
    assert names(Desk(Queue(six()))) == "bdceaf"


def test_decisions_move_neighbours() -> None:
    """c is changed: its only neighbour b rises from 3 by a third to 4. d is kept: e falls from 2 by a third."""
    queue = Queue(six())
    desk = Desk(queue)
    assert [queue.linked(row).tolist() for row in range(6)] == [[1], [0, 2], [1], [4], [3], []]
    desk.apply(event(1, "c", "accept", (1, 0)))
    desk.apply(event(2, "d", "keep", (1, 1)))
    assert desk.lift() == pytest.approx([0, 1 / 3, 0, 0, -1 / 3, 0])
    assert names(desk) == "beaf"
    assert desk.item(1)["lift"] == 0.33
    desk.apply(event(3, "a", "edit", (0, 1)))  # a second changed neighbour of b: (2 - 0) / (2 + 2)
    assert desk.lift()[1] == 0.5
    desk.apply(event(4, "a", "undo", undoes=3))
    assert desk.lift()[1] == pytest.approx(1 / 3)
    assert desk.state[0] == 0


def test_accepting_a_proposal_that_changes_nothing_confirms() -> None:
    desk = Desk(Queue(six()))
    desk.apply(event(1, "d", "accept", (1, 1)))
    assert desk.lift()[4] == pytest.approx(-1 / 3)


def test_skipped_images_come_last_and_move_nothing() -> None:
    desk = Desk(Queue(six()))
    desk.apply(event(1, "b", "skip"))
    assert names(desk) == "dceafb"
    assert names(desk, state="skipped") == "b"
    assert not desk.lift().any()
    assert desk.progress() == {"images": 6, "decided": 0, "skipped": 1}
    desk.apply(event(2, "b", "keep", (1, 0)))
    assert desk.progress() == {"images": 6, "decided": 1, "skipped": 0}
    desk.apply(event(3, "b", "undo", undoes=2))  # the earlier skip stands again
    assert names(desk, state="skipped") == "b"


def test_filters() -> None:
    desk = Desk(Queue(six()))
    assert {kind: names(desk, kind=kind) for kind in KINDS} == {
        "any": "bdceaf",
        "added": "ceaf",
        "removed": "bcf",
        "both": "cf",
        "none": "d",
    }
    assert names(desk, column=0) == "bceaf"
    assert names(desk, column=1) == "cef"
    # By label: what is added or removed is the class that was asked for, whatever else changes on the image.
    assert {kind: names(desk, column=1, kind=kind) for kind in KINDS} == {
        "any": "cef",
        "added": "ef",
        "removed": "c",
        "both": "cf",
        "none": "bda",
    }
    assert names(desk, column=0, kind="added") == "cea"
    assert names(desk, text="p2") == "dc"
    assert names(desk, text="F") == "f"
    assert names(desk, text="nobody") == ""
    assert names(desk, column=1, kind="both", text="p3") == "f"
    desk.apply(event(1, "c", "accept", (1, 0)))
    assert names(desk, state="decided") == "c"
    assert names(desk, state="all") == "bdceaf"
    assert names(desk, column=1) == "ef"


@given(st.lists(st.tuples(st.sampled_from([0, 1e-30, 0.5, 1, 3e8]), st.booleans()), max_size=20))
def test_sorting_by_one_number_is_sorting_by_three(pairs: list[tuple[float, bool]]) -> None:
    scores, later = np.asarray([pair[0] for pair in pairs]), np.asarray([pair[1] for pair in pairs], dtype=np.bool_)
    rows = np.arange(len(pairs))[::-1] * 1000
    wanted = sorted(range(len(pairs)), key=lambda at: (later[at], -scores[at], rows[at]))
    assert in_order(scores, later, rows).tolist() == rows[wanted].tolist()


def test_an_undo_takes_back_what_stands_and_nothing_else() -> None:
    """On a copy of the run it was the last decision; here others may have come between."""
    desk = Desk(Queue(six()))
    desk.apply(event(1, "a", "keep", (0, 0)))
    desk.apply(event(2, "c", "accept", (1, 0)))
    for number, image in ((7, "a"), (2, "a")):
        with pytest.raises(InputError, match=f"undoes {number}, which does not stand"):
            desk.apply(event(3, image, "undo", undoes=number))
    desk.apply(event(3, "a", "undo", undoes=1))
    assert names(desk, state="decided") == "c"
    last = desk.last()
    assert last is not None
    assert last.number == 2
    with pytest.raises(InputError, match="does not stand"):
        desk.apply(event(4, "a", "undo", undoes=1))
    with pytest.raises(InputError, match="'z'"):
        desk.apply(event(3, "z", "skip"))


@pytest.fixture(scope="module")
def evidence(template: Path) -> Evidence:
    return open_evidence(template)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("RS"), st.integers(0, 59), st.sampled_from(["accept", "keep", "skip", "undo"])))
)
def test_the_order_is_that_of_a_slow_count_over_what_stands(
    evidence: Evidence, steps: list[tuple[str, int, str]]
) -> None:
    """Whatever happened before, state, lift and order follow from the standing decisions alone."""
    events: list[Event] = []
    for reviewer, row, action in steps:
        number, image = len(events) + 1, str(evidence.record.given.ids[row])
        if action == "undo":
            undone = {one.undoes for one in events}
            live = [e for e in events if e.reviewer == reviewer and e.action != "undo" and e.number not in undone]
            if not live:
                continue
            events.append(Event(reviewer, live[-1].image, "undo", undoes=live[-1].number, number=number))
        else:
            values = evidence.proposed if action == "accept" else evidence.given
            labels = None if action == "skip" else plain_labels(values[row])
            events.append(Event(reviewer, image, action, labels, number=number))
    desks = replay(Queue(evidence), events)
    for reviewer, standing in current(events).items():
        scores = {}
        for row in evidence.rows:
            a = k = 0
            for image, one in standing.items():
                other = evidence.numbers[image]
                near = other in evidence.record.neighbours[row] or row in evidence.record.neighbours[other]
                if near and other != row and one.labels is not None:
                    differs = one.labels != tuple(int(value) for value in evidence.given[other])
                    a, k = a + differs, k + (not differs)
            scores[int(row)] = float(evidence.suspicion[row]) * (1 + (a - k) / (a + k + 2))
        skipped = {evidence.numbers[image] for image, one in standing.items() if one.action == "skip"}
        wanted = sorted(scores, key=lambda row: (row in skipped, -np.float32(scores[row]), row))
        assert desks[reviewer].order().tolist() == wanted
        assert desks[reviewer].decisions() == {evidence.numbers[image]: one for image, one in standing.items()}


def test_looking_first_where_labels_are_wrong_pays(evidence: Evidence) -> None:
    """On planted errors, the first ten of the queue hold at least twice as many as ten images do on average."""
    record = evidence.record
    assert record.clean is not None
    wrong = ((record.given.values >= 0.5) != (record.clean.values >= 0.5)).sum(axis=1)
    first = Desk(Queue(evidence)).order()[:10]
    assert wrong[first].sum() >= 2 * 10 * wrong.mean()
