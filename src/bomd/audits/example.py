"""A generated set to try an audit on: chest phantoms as PNG files, and a CSV with mistakes that are known."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pandas as pd
from PIL import Image

from bomd.audits.columns import chosen
from bomd.data.datasets import phantom
from bomd.data.noise import symmetric
from bomd.errors import InputError
from bomd.files import replacing, write_text

IMAGES, TRUTH, LABELS = "images", "truth.csv", "labels.csv"


def write_example(folder: Path, count: int = 600, size: int = 64, seed: int = 0) -> Path:
    """Write `images/*.png`, `labels.csv` with wrong labels in one row of five, and `truth.csv` without.

    Another seed gives other patients and other mistakes. After an interruption the same call begins anew. Returns the
    path of `labels.csv`.
    """
    clean = phantom.read(count=count, seed=seed)
    if folder.exists() and not _is_begun(folder, {f"{name}.png" for name in clean.ids.tolist()}):
        raise InputError(f"{folder} is not empty: pass a new folder for the example.")
    given = symmetric(clean, rows=0.2, labels=0.2, seed=seed).noisy
    for name, pixels in zip(clean.ids.tolist(), phantom.render(clean.ids, size).numpy(), strict=True):
        with replacing(folder / IMAGES / f"{name}.png") as temporary:
            Image.fromarray(pixels).save(temporary, format="png")
    for file, table in ((TRUTH, clean), (LABELS, given)):  # in this order, so that labels say that all is there
        listed = ["|".join(chosen(table, row)) for row in table.values]
        columns = {"image": [f"{name}.png" for name in table.ids], "patient": table.patients, "labels": listed}
        write_text(folder / file, pd.DataFrame(columns).to_csv(index=False, lineterminator="\n"))
    return folder / LABELS


def _is_begun(folder: Path, pictures: set[str]) -> bool:
    """Whether a folder has nothing but what an interruption left of this very example."""
    left = {folder: {IMAGES, *_with_parts([TRUTH]), *_with_parts([LABELS]) - {LABELS}}}
    left |= {place: _with_parts(pictures) for place in (folder / IMAGES,) if place.exists()}
    return all(place.is_dir() and {file.name for file in place.iterdir()} <= names for place, names in left.items())


def _with_parts(names: Iterable[str]) -> set[str]:
    """Names of files, and what they are called while a process that may be killed writes them."""
    return {form for name in names for form in (name, f".{name}.part{Path(name).suffix}")}
