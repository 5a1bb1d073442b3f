"""The pictures of README and docs can be read on a phone: nothing is cut off, and no letter is too small."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from bomd.data.datasets import phantom
from bomd.experiments.records import LabelRecord
from bomd.tables import Opinion
from evidence.pages import contact_sheet, readme

PHONE, SMALLEST = 400, 8  # pixels: the width of a screen, and letters with what is above and below them


def flagged() -> Figure:
    """Of four images three are flagged: two have the added label that is doubted, the last is right as it is."""
    clean = phantom.read(split="test", count=400, seed=0)
    columns = [clean.classes.index("Pleural_Thickening"), clean.classes.index("Edema")]
    clean = clean.select(clean.ids[(clean.values[:, columns] == [0, 1]).all(axis=1)][:4])
    given, wrong = clean.values.copy(), np.zeros_like(clean.values)
    given[:2, columns[0]], wrong[:3, columns[0]] = 1, 0.9
    proposed = clean.values.copy()
    proposed[2, columns[0]] = 1
    learnt = np.ones(len(clean.classes), bool)
    opinion = Opinion(clean.ids, wrong, proposed, wrong.sum(axis=1), np.arange(1, 5), learnt)
    noisy = clean.replace(given)
    return readme.flagged(LabelRecord(noisy, noisy, opinion, clean, np.ones(4, bool)))


@pytest.mark.parametrize("draw", [flagged, lambda: contact_sheet.sheet(size=16)], ids=["flagged", "phantoms"])
def test_no_word_is_cut_off_or_too_small_for_a_phone(draw: object) -> None:
    assert callable(draw)
    figure: Figure = draw()
    figure.draw_without_rendering()
    words = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text()]  # type: ignore[attr-defined]
    assert len(words) > 10
    frame = figure.bbox
    for text in words:
        box = text.get_window_extent()
        inside = frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1
        assert inside, text.get_text()
        assert text.get_fontsize() / 72 * PHONE / figure.get_figwidth() >= SMALLEST, text.get_text()


def test_the_picture_of_flagged_images_says_which_they_are() -> None:
    titles = [axes.get_title(loc="right") for axes in flagged().axes[1::2]]
    assert titles == [
        "no. 1 of 4: first hit with few labels",
        "no. 2 of 4: second hit with few labels",
        "no. 3 of 4: first false alarm",
    ]
