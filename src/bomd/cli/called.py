"""How this command was called, so that the next one is shown as it can be typed."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path


def command() -> str:
    """`bomd`, or the path it was called by where a shell would not find it, as after `make`."""
    name = sys.argv[0] if sys.argv else ""
    return name if Path(name).stem == "bomd" and shutil.which("bomd") is None else "bomd"
