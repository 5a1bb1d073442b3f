"""Every test keeps its starts in a folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BOMD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "starts"
