"""The evidence lies beside the package: it uses `bomd`, and `bomd` works without it."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

from evidence import ROOT


def imported(path: Path) -> set[str]:
    """The first parts of all names that a file imports, wherever the import stands in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
        elif isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
    return names


def test_the_package_imports_nothing_that_is_not_installed_with_it() -> None:
    files = sorted((ROOT / "src").rglob("*.py"))
    assert files
    assert [file.name for file in files if imported(file) & {"evidence", "scripts", "tests"}] == []


def bomd_without_the_checkout(folder: Path, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command line of a copy of the package, as it lies in site-packages."""
    if not (folder / "bomd").exists():
        shutil.copytree(ROOT / "src" / "bomd", folder / "bomd", ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "bomd.cli", *words]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def test_reproduce_without_a_checkout_says_in_one_line_that_it_needs_one(tmp_path: Path) -> None:
    done = bomd_without_the_checkout(tmp_path / "installed", "reproduce", "--list", cwd=tmp_path)
    assert done.returncode == 2
    assert " ".join(done.stderr.split()).endswith(
        "bomd reproduce needs a checkout of the project: clone it, and give the same command in its folder."
    )
    assert "Traceback" not in done.stderr
    inside = bomd_without_the_checkout(tmp_path / "installed", "reproduce", "--list", cwd=ROOT)
    assert inside.returncode == 0, inside.stderr
    assert "noise-grid" in inside.stdout
