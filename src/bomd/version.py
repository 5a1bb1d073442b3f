"""The version of this package, also where it runs from its source without being installed."""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path


def _find() -> str:
    try:
        return metadata.version("bomd")
    except metadata.PackageNotFoundError:
        project = Path(__file__).parents[2] / "pyproject.toml"
        return str(tomllib.loads(project.read_text("utf-8"))["project"]["version"]) if project.is_file() else "unknown"


VERSION = _find()
