"""What the site shows and the repository does not keep: files in build/, made anew where anything has changed."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib

from bomd.files import locked, write_text
from evidence import ROOT

CODE = ("evidence/**/*.py", "evidence/**/*.csv", "src/bomd/**/*.py", "src/bomd/**/*.toml")


def built(name: str, files: Sequence[Path], make: Callable[[Path], None]) -> Path:
    """The folder build/NAME, filled by a function.

    Args:
        files: What it is made of, beside the code; one that is not there counts as empty.
        make: Writes into the folder that it is given.
    """
    folder, now = ROOT / "build" / name, state(files)
    stamp = folder / "made-of.txt"
    with locked(folder):  # tests build the site while others look at the same files
        if not stamp.exists() or stamp.read_text(encoding="utf-8") != now:
            shutil.rmtree(folder, ignore_errors=True)
            make(folder)
            write_text(stamp, now)
    return folder


def state(files: Sequence[Path]) -> str:
    """A hash of all that a figure or table may depend on."""
    digest = hashlib.sha256(matplotlib.__version__.encode())
    for path in [path for pattern in CODE for path in sorted(ROOT.glob(pattern))] + list(files):
        if path.exists():
            digest.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return digest.hexdigest()
