"""Find label files and images in a folder as it was downloaded, or say in one line what was looked for."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from bomd.data.cells import numbers_of
from bomd.data.image_files import IMAGE_SUFFIXES
from bomd.data.label_files import encoding_of
from bomd.data.records import opened_text, read_separated
from bomd.errors import InputError
from bomd.files import reading
from bomd.progress import say
from bomd.tables import LabelTable, Text
from bomd.typed import convert

Missing = Literal["error", "drop"]
ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz")


def check_folder(root: Path) -> Path:
    """`root` where it is a folder; else an error that says what it is."""
    root = Path(root).expanduser()
    if root.is_file() and root.name.lower().endswith(ARCHIVES):
        raise InputError(f"{root} is an archive: unpack it and pass the folder.")
    if root.is_file():
        raise InputError(f"{root} is a file: pass the folder that holds the dataset.")
    if not root.is_dir():
        raise InputError(f"There is no folder {root}: pass the folder that holds the dataset.")
    return root


def seen_from(root: Path, path: Path) -> Path:
    """The path under the root if it exists there, else as it is."""
    with reading(repr(str(path)[:80])):  # a name may be longer than any file's
        return root / path if (root / path).exists() else Path(path)


def find_file(folders: Sequence[Path], names: Sequence[str], remedy: str) -> Path:
    """The first of these files that exists, as it is or with `.gz`; the remedy says what to do if there is none."""
    candidates = (folder / f"{name}{packed}" for folder in folders for name in names for packed in ("", ".gz"))
    found = next((path for path in candidates if path.is_file()), None)
    if found is not None:
        return found
    places = " or ".join(str(folder) for folder in folders)
    raise InputError(f"No {' or '.join(names)} (or .gz) in {places}{_archives_in(folders[0])}. {remedy}")


def read_csv(path: Path, text: Sequence[str], numbers: Sequence[str] = ()) -> pd.DataFrame:
    """These columns of a CSV file, compressed or not: text with empty cells as "", and float32 with those as NaN."""
    wanted = [*text, *numbers]
    frame, _ = read_separated(path, ",", encoding_of(path), columns=wanted)
    absent = [name for name in wanted if name not in frame]
    if absent:
        with opened_text(path, encoding_of(path)) as stream:
            start = ", ".join(map(repr, next(csv.reader(stream), [])[:6]))
        problem = f"has no column {', '.join(map(repr, absent))}; its header starts with {start}"
        raise InputError(f"{path} {problem}. Is it the right file?")
    found = {}
    for name in numbers:
        found[name], wrong = numbers_of(frame[name])
        if wrong.any():
            cell = str(frame[name].to_numpy()[wrong][0])[:80]
            raise InputError(f"Cannot read {path}: {cell!r} in column {name!r} is not a number.")
    return pd.DataFrame({name: frame[name].astype(str) for name in text} | found)


def texts(frame: pd.DataFrame, *columns: str) -> list[Text]:
    """These columns as arrays."""
    return [frame[name].to_numpy(dtype=np.str_) for name in columns]


def index_images(folders: Iterable[Path]) -> dict[str, str]:
    """Path of every image file directly in these folders, by file name."""
    found: dict[str, str] = {}
    for folder in folders:
        with os.scandir(folder) as entries:
            found.update({e.name: e.path for e in entries if e.name.lower().endswith(IMAGE_SUFFIXES)})
    return found


def with_paths(
    table: LabelTable, names: Sequence[str], found: Mapping[str, str], where: str, missing: Missing, root: Path
) -> LabelTable:
    """The table with the path of every image.

    Args:
        names: (N) what each image is called in `found`, which has the path of each that is there.
        where: the places that were searched, for the error.
        root: folder of the set, searched for archives that were never unpacked.
    """
    paths = [found.get(name, "") for name in names]
    absent = [name for name, path in zip(names, paths, strict=True) if not path]
    if absent and len(absent) == len(names):
        raise InputError(
            f"None of the {len(names)} images is in {where}, for example {absent[0]}{_archives_in(root)}. "
            "Unpack the images there, or pass images=False to read labels alone."
        )
    if absent and convert(missing, Missing, "missing") == "error":
        examples = ", ".join(absent[:5]) + (" ..." if len(absent) > 5 else "")
        raise InputError(
            f"{len(absent)} of {len(names)} images are not in {where}: {examples}{_archives_in(root)}. "
            f'Complete the download, or pass missing="drop" to use the other {len(names) - len(absent)}.'
        )
    if absent:
        say(f"{len(absent)} of {len(names)} images are not in {where} and are left out.")
    complete = replace(table, paths=np.asarray(paths, dtype=np.str_))
    return complete.take([row for row, path in enumerate(paths) if path]) if absent else complete


def _archives_in(folder: Path) -> str:
    if not folder.is_dir():
        return ""
    archives = (entry.name for entry in folder.iterdir() if entry.name.lower().endswith(ARCHIVES))
    names = sorted(name for name in archives if "report" not in name)  # reports are read from their archive
    if not names:
        return ""
    return f" (found the archive {names[0]}{f' and {len(names) - 1} more' if names[1:] else ''}: unpack it)"
