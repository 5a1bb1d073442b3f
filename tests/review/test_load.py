"""Several people at once, the small way; scripts/review_load.py does the same with twenty on a large run."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "review_load.py"


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("review_load", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_every_acknowledged_decision_of_several_people_is_found(tmp_path: Path) -> None:
    load = script()
    load.build(tmp_path, 5_000)
    lines = load.measure(tmp_path, reviewers=6, seconds=2, pause=0.05)
    assert [line["request"] for line in lines] == ["queue", "image", "picture", "decide", "undo"]
    assert all(line["answers"] > 0 for line in lines)
    assert lines[0]["acknowledged"] == lines[3]["answers"] + lines[4]["answers"]
    assert lines[0]["found"] == lines[0]["acknowledged"]
    assert load.to_csv(lines).count("\n") == 6
