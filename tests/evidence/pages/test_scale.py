"""The page about large sets says what was measured."""

from __future__ import annotations

import pytest

from evidence.pages import scale
from evidence.studies.scale import to_rows


def test_the_page_is_what_the_record_says() -> None:
    assert scale.PAGE.read_text() == scale.page(scale.read()), "run: python -m evidence.pages.scale"


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_the_exponent_is_that_of_a_power(power: float) -> None:
    images = [1000, 2000, 4000, 8000]
    assert scale.exponent(images, [0.3 * count**power for count in images]) == pytest.approx(power)


def test_times_of_a_cpu_are_ratios_to_those_of_the_fewest_images() -> None:
    lines = [
        {"images": images, "size": 32, "step": "pack", "seconds": 9.0, "processor_seconds": spent, "peak_mb": 300}
        | {"peak_gpu_mb": 0, "parts": {}, "resumed": False}
        for images, spent in ((1000, 2.0), (2000, 3.0))
    ]
    rows = to_rows(lines, "cpu")
    assert [row["time_ratio"] for row in rows] == ["1.00", "1.50"]
    assert {row["seconds"] for row in rows} == {""}
    assert to_rows(lines, "some GPU")[1]["seconds"] == 9.0
    table = scale.slopes([{name: str(value) for name, value in row.items()} for row in rows])
    assert "| pack | 0.58 | 1.50 x | 300 MB | 300 MB | 0.0 kB |" in table


def a_row(images: int, seconds: float, **changes: str) -> dict[str, str]:
    row = {"device": "a GPU", "cores": "16", "size": "64", "seed": "0", "step": "train", "images": str(images)}
    row |= {
        "time_ratio": "",
        "seconds": str(seconds),
        "peak_mb": "300",
        "peak_gpu_mb": "2000",
        "parts": "",
        "resumed": "",
    }
    return row | changes


def test_of_a_gpu_times_of_the_most_images_and_slopes_of_all_are_shown() -> None:
    """Four times the images took four times as long, which is twice as long for twice as many."""
    rows = [a_row(1000, 4.0), a_row(4000, 16.0, parts="learn descriptors 9.0; Nearest images 2.0")]
    text = scale.page(rows)
    assert "| train | 16 | 250 | 300 MB | 2,000 MB |" in text
    assert "| train | 4 |" not in text
    assert "- train, seconds of its parts: learn descriptors 9.0, Nearest images 2.0." in text
    assert "| train | 1.00 | 2.00 x | 300 MB | 300 MB | 0.0 kB |" in text


def test_a_step_that_was_interrupted_counts_for_no_slope() -> None:
    rows = [a_row(1000, 4.0), a_row(2000, 8.0), a_row(4000, 1.0, resumed="yes", peak_mb="2345")]
    text = scale.page(rows)
    assert "train went on after an interruption" in text
    assert "| train | 1.00 | 2.00 x |" in text
    (said,) = [line for line in scale.slopes(rows).splitlines() if not line.startswith("|") and line]
    assert "row of train leaves out 4,000 images" in said
    assert "It held 2,345 MB at least" in said
    assert "leaves out" not in scale.slopes(rows[:2])


def test_images_of_another_size_have_a_table_of_their_own() -> None:
    rows = [a_row(1000, 4.0), a_row(2000, 8.0), a_row(1000, 1.0, size="24"), a_row(4000, 16.0, size="24")]
    text = scale.page(rows)
    assert "1,000 and 2,000 phantoms at 64 px" in text
    assert "1,000 and 4,000 phantoms at 24 px" in text
    assert "| train | 1.00 | 2.00 x |" in text
    assert "| train | 2.00 | 4.00 x |" in text


def test_what_was_run_with_a_million_is_told_from_what_was_not() -> None:
    assert "no run of a million has been made" in scale.page([a_row(250_000, 4.0)])
    text = scale.page([a_row(1_000_000, 4.0, step="predict"), a_row(1_000_000, 4.0, step="draw"), a_row(9, 4.0)])
    assert "Run with a million images: draw, predict. Not run with so many: files, pack, train, audit." in text
