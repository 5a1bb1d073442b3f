"""No number in a page is typed: pages and tables are what their scripts make of the records in results/."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from bomd.measure.benchmark import read_records, write_tables

ROOT = Path(__file__).parents[1]
RECORDS = sorted((ROOT / "results").glob("*.jsonl"))


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_are_what_the_records_say() -> None:
    pages = script("result_pages")
    assert (ROOT / "docs" / "demo.md").read_text() == pages.demo_page()
    assert (ROOT / "docs" / "nih-small.md").read_text() == pages.nih_page()


@pytest.mark.parametrize("records", RECORDS, ids=lambda path: path.stem)
def test_tables_are_what_the_records_say(records: Path, tmp_path: Path) -> None:
    write_tables(read_records(records), tmp_path / records.name)
    for suffix in (".csv", ".md"):
        assert (tmp_path / records.with_suffix(suffix).name).read_text() == records.with_suffix(suffix).read_text()


def test_readme_shows_the_recorded_demo() -> None:
    assert (ROOT / "results" / "demo.md").read_text() in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("page", sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]))
def test_links_and_pictures_exist(page: Path) -> None:
    import re

    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} points to {target}"


def test_commands_and_flags_in_the_readme_exist() -> None:
    import re

    from typer.main import get_command

    from bomd.cli import app

    known = set(get_command(app).commands)  # type: ignore[attr-defined]
    for page in (ROOT / "README.md", ROOT / "docs" / "datasets.md"):
        named = re.findall(r"^bomd (\w+)", page.read_text(), flags=re.MULTILINE)
        assert named
        assert set(named) <= known
