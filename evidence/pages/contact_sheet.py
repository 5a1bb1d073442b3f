"""Write a labelled sheet of phantoms: one row per finding, from obvious to subtle, for each hospital.

python -m evidence.pages.contact_sheet docs/images/phantom.webp
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from bomd.data.datasets import phantom
from bomd.data.datasets.classes import NIH
from bomd.data.datasets.phantom import drawing
from bomd.files import replacing

HOSPITALS = ("north", "south")  # "varied" has every look, and no finding as obvious as the first column
SEVERITIES = (0.9, 0.7, 0.5, 0.2)
TYPE = 18  # points: can still be read where a phone shows the sheet in 400 pixels


def main(path: Path) -> None:
    with replacing(path) as temporary:
        sheet().savefig(temporary, dpi=110, pil_kwargs={"quality": 67, "method": 6})  # a PNG is ten times as large


def sheet(size: int = 128) -> Figure:
    columns = [(hospital, strength) for hospital in HOSPITALS for strength in SEVERITIES]
    figure: Figure
    figure, axes = plt.subplots(
        len(NIH), len(columns), figsize=(1.25 * len(columns) + 2.1, 1.27 * len(NIH)), squeeze=False
    )
    for row, name in enumerate(NIH):
        for column, (hospital, strength) in enumerate(columns):
            cell = axes[row, column]
            cell.imshow(_example(hospital, row, strength, size), cmap="gray", vmin=0, vmax=255)
            cell.set(xticks=[], yticks=[])
            if row == 0:
                cell.set_title(f"{hospital}\n{strength}", fontsize=TYPE)
            if column == 0:
                words = name.replace("_", "\n").replace("No ", "No\n")
                cell.set_ylabel(words, fontsize=TYPE, rotation="horizontal", ha="right", va="center")
    axes[0, 0].annotate(
        "hospital\nseverity", (-0.05, 1), (0, 6), "axes fraction", "offset points", fontsize=TYPE, ha="right"
    )
    figure.subplots_adjust(left=0.167, right=0.995, top=0.965, bottom=0.005, wspace=0.04, hspace=0.04)
    return figure


def _example(hospital: str, finding: int, strength: float, size: int) -> NDArray[np.uint8]:
    """(size, size) a patient with this finding only, about as severe as asked for."""
    ids = phantom.read(hospital=hospital, split="test", count=300, seed=finding).ids
    values = np.zeros((len(ids), len(NIH)), dtype=np.float32)
    values[:, finding] = 1
    if NIH[finding] == "No Finding":
        chosen = [int(100 * strength)]
    else:
        chosen = [int(np.abs(drawing.severity(ids, values)[:, finding] - strength).argmin())]
    return np.asarray(drawing.render_with(ids[chosen], values[chosen], size)[0])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m evidence.pages.contact_sheet OUTPUT.webp")
    main(Path(sys.argv[1]))
