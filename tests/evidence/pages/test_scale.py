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
        | {"peak_gpu_mb": 0}
        for images, spent in ((1000, 2.0), (2000, 3.0))
    ]
    rows = to_rows(lines, "cpu")
    assert [row["time_ratio"] for row in rows] == ["1.00", "1.50"]
    assert {row["seconds"] for row in rows} == {""}
    assert to_rows(lines, "some GPU")[1]["seconds"] == 9.0
    table = scale.slopes([{name: str(value) for name, value in row.items()} for row in rows])
    assert "| pack | 0.58 | 1.50 x | 300 MB | 300 MB | 0.0 kB |" in table
