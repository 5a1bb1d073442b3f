"""Retraining finds what it needs, also for a small set or an audit that was moved."""

from __future__ import annotations

from pathlib import Path

from bomd.config import Config
from bomd.review.retrain import _found_again, _with_fewer_neighbours


def test_an_audit_that_was_moved_is_found_again(tmp_path: Path) -> None:
    tables = tmp_path / "audit" / "runs" / "tables"
    run = tmp_path / "audit" / "runs" / "audit" / "bomd" / "seed0-abc"
    run.mkdir(parents=True)
    tables.mkdir()
    (tables / "abc.csv").write_text("id,Mass\n")
    before = {"dataset": "folder", "root": "/nowhere/audit/runs/tables", "labels": "abc.csv", "images": "x"}
    assert _found_again(before, run) == {**before, "root": str(tables)}
    there = {**before, "root": str(tables)}
    assert _found_again(there, run) is there
    other = {"dataset": "phantom"}
    assert _found_again(other, run) is other


def test_nobody_has_more_neighbours_than_there_are_images() -> None:
    config = Config(method="bomd", settings={"bomd": {"neighbours": 10, "epochs": 3}})
    assert _with_fewer_neighbours(config, 20) is config
    assert _with_fewer_neighbours(config, 8).settings == {"bomd": {"neighbours": 8, "epochs": 3}}
    assert _with_fewer_neighbours(config, -1).settings["bomd"]["neighbours"] == 1
