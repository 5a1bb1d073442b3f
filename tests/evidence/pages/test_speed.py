"""The page about speed compares what ran side by side, and gives no time of a CPU."""

from __future__ import annotations

from bomd.files import read_text
from evidence.pages import speed


def a_row(**changes: str) -> speed.Row:
    row = {"item": "training", "unit": "s", "ours": "2", "alternative": "6", "alternative_is": "one by one"}
    return row | {"ratio": "3", "share_of_floor": "", "memory_mb": "", "remark": ""} | changes


def test_what_a_paper_printed_for_another_card_has_no_ratio() -> None:
    assert "| training | 2 s | 6 s: one by one | 3 x |" in speed.table([a_row()], absolute=True)
    printed = speed.table([a_row(alternative_is="the paper on an RTX 3090")], absolute=True)
    assert "| training | 2 s | 6 s: the paper on an RTX 3090 |  |" in printed


def test_times_in_the_notes_of_a_cpu_are_ratios_to_the_first() -> None:
    told = "log-log; 1,000: 0.5 s, 4 MB, 2,000: 1.75 s, 7 MB"
    assert speed.relative(told) == "log-log; 1,000: 1 x, 4 MB, 2,000: 3.5 x, 7 MB"
    assert speed.relative("batches of 64 stored images") == "batches of 64 stored images"


def test_the_page_gives_no_seconds_of_a_cpu() -> None:
    text = read_text(speed.PAGE).partition("\n## CPU")[2].partition(speed.WAYS)[0]
    assert "growth of the search" in text
    assert not speed.SECONDS.search(text)
