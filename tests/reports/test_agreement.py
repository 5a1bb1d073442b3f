"""The page and the tables of results call the same methods better, whichever method they are compared with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bomd.experiments.grid import arrange
from bomd.experiments.recorded import Record
from bomd.measure.significance import SURE
from bomd.reports.comparison import markdown
from bomd.reports.report import write_report
from tests.reports.test_report import LEVELS, Page, write_grid

SCORES = {"bce": [0.60, 0.70], "elr": [0.75, 0.705], "nvum": [0.50, 0.80]}


@pytest.mark.parametrize("reference", ["bce", "elr"])
def test_both_name_the_same_methods_from_the_same_runs(tmp_path: Path, reference: str) -> None:
    """Three seeds 0.01 apart, so that 0.05 is beyond doubt by Welch's test and 0.005 is not."""
    runs = write_grid(tmp_path / "runs", SCORES, LEVELS[1:], seeds=3)
    (grid,) = arrange([Record.of(run) for run in runs], reference=reference)
    lines = re.findall(rf"- ((?:Better|Worse) than {reference} over seeds, .*)", markdown(grid))
    assert len(lines) == 2 * len(grid.judged)
    text = write_report(runs, tmp_path / "report.html", reference).read_text(encoding="utf-8")
    for line in lines[:2]:
        assert line in Page(text).text
    expected = {"up": 0, "down": 0}
    for level in range(2):
        for scores in SCORES.values():
            gap = scores[level] - SCORES[reference][level]
            expected["up"] += gap > 0.02
            expected["down"] += gap < -0.02
    table = text[text.index("<h3>On south</h3>") :]
    table = table[: table.index("</table>")]
    assert {"up": table.count("surely ahead"), "down": table.count("surely behind")} == expected
    assert f"Welch's p < {SURE:g}" in Page(text).text
    assert f"Colour shows the distance from {reference} on the same data" in Page(text).text
