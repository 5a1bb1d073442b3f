"""Retraining finds what it needs, also for a small set."""

from __future__ import annotations

from bomd.config import Config
from bomd.review.retrain import _with_fewer_neighbours


def test_nobody_has_more_neighbours_than_there_are_images() -> None:
    config = Config(method="bomd", settings={"bomd": {"neighbours": 10, "epochs": 3}})
    assert _with_fewer_neighbours(config, 20) is config
    assert _with_fewer_neighbours(config, 8).settings == {"bomd": {"neighbours": 8, "epochs": 3}}
    assert _with_fewer_neighbours(config, -1).settings["bomd"]["neighbours"] == 1
