"""One judgement that is awkward in every way that files have trouble with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bomd.exchange.judgement import Doubts, Judgement
from bomd.tables import LabelTable

IDS = ["a.png", "deep/b.png", "=cmd|' /C calc'!A0", 'c "quoted", <b>&amp;</b>', "Zoë ✓ 写真"]
CLASSES = ("Mass", "Edema, <pulmonary> & 'co'", "Hernia", "No Finding")
UNKNOWN = np.nan


@pytest.fixture
def judgement(tmp_path: Path) -> Judgement:
    """Five images, four classes; the third image is unknown throughout, the second in one class."""
    folder = tmp_path / "images"
    folder.mkdir()
    paths = []
    for number in range(len(IDS)):
        paths.append(folder / f"{number} ü.png")
        Image.new("L", (4, 4), number).save(paths[-1])
    given = LabelTable(
        np.asarray(IDS),
        CLASSES,
        np.asarray([[1, 0, 0, 0], [0, 1, UNKNOWN, 0], [UNKNOWN] * 4, [0, 0, 0, 1], [1, 1, 0, 0]]),
        paths=np.asarray([str(path) for path in paths]),
        patients=np.asarray(["p", "p", "q", "r", "s"]),
    )
    proposed = given.replace(
        np.asarray([[0.1, 0.7, 0, 0], [0, 1, UNKNOWN, 0], [UNKNOWN] * 4, [0, 0, 0, 1], [1, 0.3, 0, 0]])
    )
    expected = np.asarray([1.25, 0.1, np.nan, 0, 3.00012345], dtype=np.float32)
    wrong = np.arange(20, dtype=np.float32).reshape(5, 4) / 19
    wrong[2] = np.nan
    flagged = np.asarray([True, False, False, False, True])
    return Judgement(given, proposed, Doubts(given.ids, flagged, expected, wrong))
