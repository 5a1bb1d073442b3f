"""Several people at once, the small way; evidence/studies/review_load.py does the same with twenty on a large run."""

from __future__ import annotations

from pathlib import Path

import pytest

from evidence.studies import review_load


@pytest.mark.slow
def test_every_acknowledged_decision_of_several_people_is_found(tmp_path: Path) -> None:
    review_load.build(tmp_path, 5_000)
    lines = review_load.measure(tmp_path, reviewers=6, seconds=2, pause=0.05)
    assert [line["request"] for line in lines] == ["queue", "image", "picture", "decide", "undo"]
    assert all(line["answers"] > 0 for line in lines)
    assert lines[0]["acknowledged"] == lines[3]["answers"] + lines[4]["answers"]
    assert lines[0]["found"] == lines[0]["acknowledged"]
    assert review_load.to_csv(lines).count("\n") == 6
