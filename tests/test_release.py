"""A release: one version, extras that are extra, and an installed package that works far from the repository."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import site
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from bomd import runs
from bomd.data import store
from bomd.models import card, model
from bomd.review import decisions
from bomd.version import VERSION

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "bomd"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
# Modules that are loaded when what they need is there, and never because a module that all need is loaded.
DICOM = dict.fromkeys(("data/dicom.py", "data/compressed.py"), "pydicom")
KERNELS = ("on_gpu", "tiles", "norms", "pools", "products", "squares")
OPTIONAL = {**DICOM, **{f"kernels/{name}.py": "triton" for name in KERNELS}}


@pytest.mark.slow
def test_what_is_built_installs_and_works_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "release_check.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_version_is_written_once() -> None:
    assert "version" not in PROJECT
    assert PROJECT["dynamic"] == ["version"]
    assert importlib.metadata.version("bomd") == VERSION, "run: make .venv/.dev"
    assert not re.search(r"^version:", (ROOT / "CITATION.cff").read_text("utf-8"), flags=re.MULTILINE)


def test_the_change_log_begins_with_this_version() -> None:
    first = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), flags=re.MULTILINE)
    assert first is not None
    assert first[1] == VERSION


def test_the_page_about_versions_says_which_formats_there_are() -> None:
    page = (ROOT / "docs" / "versioning.md").read_text("utf-8")
    listed = dict(re.findall(r"^\| [^|]+ \| `([\w.]+)`[^|]* \| (\d+) \|", page, flags=re.MULTILINE))
    known = {"config.json": runs.FORMAT, "model.json": model.FORMAT, decisions.FILE: decisions.FORMAT}
    assert listed == {name: str(number) for name, number in (known | {"store.json": store.FORMAT}).items()}
    assert f"{card.ONE_CLASS}, for one class per image" in page


def test_source_that_nobody_installed_knows_its_version(tmp_path: Path) -> None:
    """All packages of this environment but this one, which is found by its source alone, as on a borrowed machine."""
    packages = tmp_path / "packages"
    packages.mkdir()
    for place in map(Path, site.getsitepackages()):
        for path in place.iterdir() if place.is_dir() else ():
            if "bomd" not in path.name:
                (packages / path.name).symlink_to(path)
    script = """
import importlib.metadata, time
try:
    raise SystemExit("installed as " + importlib.metadata.version("bomd"))
except importlib.metadata.PackageNotFoundError:
    pass
import bomd
from bomd.cli import main
from bomd.runs import environment
print(bomd.__version__, environment("cpu", time.time())["versions"]["bomd"], flush=True)
main(["--version"])
"""
    paths = os.pathsep.join([str(SOURCE.parent), str(packages)])
    done = subprocess.run(
        [sys.executable, "-S", "-c", script],
        env=os.environ | {"PYTHONPATH": paths},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"{VERSION} {VERSION}\nbomd {VERSION}\n", done.stderr


def loaded_with(tree: ast.Module) -> set[str]:
    """What a module imports when it is loaded: not inside functions, and not for the type checker alone."""
    found: set[str] = set()
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not (
            isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        ):
            left += ast.iter_child_nodes(node)
    return found


def test_modules_load_without_any_extra() -> None:
    """Distribution names differ from module names in a few cases only."""
    modules = {"scikit-learn": "sklearn", "pillow": "PIL", "faiss-cpu": "faiss"}
    required = {re.split(r"[\[<>=;~! ]", line)[0] for line in PROJECT["dependencies"]}
    known = {modules.get(name, name) for name in required} | sys.stdlib_module_names | {"bomd", "markupsafe"}
    optional = {f"bomd.{place.removesuffix('.py').replace('/', '.')}" for place in OPTIONAL}
    for path in SOURCE.rglob("*.py"):
        name, found = path.relative_to(SOURCE).as_posix(), loaded_with(ast.parse(path.read_text("utf-8")))
        others = {one.split(".")[0] for one in found} - known
        assert others <= {OPTIONAL.get(name)}, f"{name} needs {others} as soon as it is loaded"
        assert name in OPTIONAL or not found & optional, f"{name} loads {found & optional}, which needs an extra"
