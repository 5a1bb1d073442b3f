"""Which class is taken for which, where an image has one: accuracy and a table of counts."""

from __future__ import annotations

from typing import Any

from bomd.experiments.grid import Group
from bomd.reports.figures import Look


def confusion(group: Group, look: Look, test: str) -> dict[str, Any] | None:
    """Accuracy over seeds, and the first run's images by true and likeliest class; None where images have several."""
    first = group.first.result.tests[test]
    if not first.confusion:
        return None
    lines = [
        {
            "name": item.name,
            "cells": [{"count": count, "right": place == column} for column, count in enumerate(row)],
        }
        for place, (item, row) in enumerate(zip(first.classes, first.confusion, strict=True))
    ]
    return {"look": look, "accuracy": group.score(test, "accuracy"), "seed": group.first.seed, "lines": lines}
