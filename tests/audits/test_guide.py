"""What the guide and the notebook tell people to type is typed here, with fewer images and less time."""

from __future__ import annotations

import csv
import json
import re
import runpy
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

import bomd
from bomd.audits import audit as room
from bomd.audits import choose
from bomd.cli import main
from bomd.methods import nearest

DOCS = Path(__file__).parents[2] / "docs"
NOTEBOOK = DOCS / "notebooks" / "clean_your_dataset.ipynb"


@pytest.mark.parametrize("page", [DOCS / "ten-minutes.md", DOCS.parent / "CHANGELOG.md"])
def test_the_number_of_images_with_neighbours_is_that_of_the_code(page: Path) -> None:
    (line,) = re.findall(r"(?:of|images of) the first ([\d,]+) (?:to look at|in the order of review)", page.read_text())
    assert line == f"{nearest.LOOKED_AT:,}"


@pytest.mark.slow
def test_the_commands_of_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(choose.MINUTES, "cpu", 0.01)
    guide = (DOCS / "ten-minutes.md").read_text(encoding="utf-8")
    commands = [line for block in re.findall(r"```console\n(.*?)```", guide, re.DOTALL) for line in block.splitlines()]
    assert len(commands) == 3
    for command in commands:
        words = shlex.split(command.replace("--images 600", "--images 60"))
        if words[:2] == ["python", "-m"]:
            monkeypatch.setattr(sys, "argv", words[2:])
            runpy.run_module(words[2], run_name="__main__")
        else:
            assert words[0] == "bomd"
            with pytest.raises(SystemExit) as stop:
                main(words[1:])
            assert not stop.value.code
    for file in re.findall(r"^\| `(.*?)/?` \|", guide.split("file in")[1].split("| column")[0], re.MULTILINE):
        assert (tmp_path / "labels-audit" / file).exists(), file
    with (tmp_path / "labels-audit" / "labels_clean.csv").open(newline="", encoding="utf-8") as stream:
        written = next(csv.reader(stream))
    told = re.findall(r"^\| `(.*?)` \|", guide.split("| column")[1], re.MULTILINE)
    assert {"flagged", "rank", "Mass target"} <= set(told) <= set(written)


@pytest.mark.slow
def test_the_cells_of_the_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bomd, "audit", room.audit, raising=False)
    values: dict[str, Any] = {}
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            source = (
                "".join(cell["source"])
                .replace("images = 300", "images = 40")
                .replace("minutes = 3 ", "minutes = 0.01 ")
            )
            exec(compile(source, str(NOTEBOOK), "exec"), values)
    assert len(values["table"]) == 40
    assert 0 < values["share"]["all"] < 0.3
    assert values["found"].show(5)._repr_html_().count("<img") == 5


def test_the_notebook_keeps_no_output() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells if cell["cell_type"] == "code")
