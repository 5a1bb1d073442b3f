"""A generated set to try an audit on: chest phantoms as PNG files, and a CSV with mistakes that are known."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from PIL import Image

from bomd.audits.columns import chosen
from bomd.data.datasets import phantom
from bomd.data.noise import symmetric
from bomd.errors import InputError
from bomd.files import replacing, write_text


def write_example(folder: Path, count: int = 600, size: int = 64, seed: int = 0) -> Path:
    """Write `images/*.png`, `labels.csv` with wrong labels in one row of five, and `truth.csv` without.

    Another seed gives other patients and other mistakes. Returns the path of `labels.csv`.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is not empty: pass a new folder for the example.")
    clean = phantom.read(count=count, seed=seed)
    given = symmetric(clean, rows=0.2, labels=0.2, seed=seed).noisy
    for name, pixels in zip(clean.ids.tolist(), phantom.render(clean.ids, size).numpy(), strict=True):
        with replacing(folder / "images" / f"{name}.png") as temporary:
            Image.fromarray(pixels).save(temporary, format="png")
    for file, table in (("labels.csv", given), ("truth.csv", clean)):
        listed = ["|".join(chosen(table, row)) for row in table.values]
        columns = {"image": [f"{name}.png" for name in table.ids], "patient": table.patients, "labels": listed}
        write_text(folder / file, pd.DataFrame(columns).to_csv(index=False, lineterminator="\n"))
    return folder / "labels.csv"
