"""What the help shows: commands in groups, plain words for what an option takes, and one spelling of each."""

from __future__ import annotations

import re

import pytest
from typer.main import get_command

from bomd.cli import COMMANDS, app, main
from bomd.recipes import shipped_recipes
from bomd.version import VERSION

NAMES = [command.__name__ for commands in COMMANDS.values() for command in commands]


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 0
    return capsys.readouterr().out


def test_commands_are_grouped_and_audit_is_first(capsys: pytest.CaptureFixture[str]) -> None:
    page = shown(capsys, "--help")
    groups = re.findall(r"─ (\w+) ─", page)
    assert groups == ["Options", "Clean", "Train", "Benchmark", "Data"]
    listed = re.findall(r"^│ ([a-z]+) ", page, flags=re.MULTILINE)
    assert listed == NAMES
    assert listed[0] == "audit"


def test_the_version_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, "--version") == f"bomd {VERSION}\n"


@pytest.mark.parametrize("name", ["", *NAMES])
def test_types_are_plain_words(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = shown(capsys, *filter(None, [name]), "--help")
    assert "--help" in page
    assert not re.search(r"(?i)<\w+>|\bint\b|\bbool\b|\bstr\b|range|list\[|integer|boolean|\[\[|\.\.\.}", page)


def test_an_output_is_spelt_the_same_everywhere() -> None:
    commands = get_command(app)
    named = [one.opts for command in commands.commands.values() for one in command.params if one.name.startswith("out")]  # type: ignore[attr-defined]
    assert len(named) > 5
    assert {tuple(names) for names in named if names != ["output"]} == {("--output", "-o")}  # export takes a file


def test_run_lists_the_recipes(capsys: pytest.CaptureFixture[str]) -> None:
    page = " ".join(shown(capsys, "run", "--help").replace("│", " ").split())
    assert ", ".join(shipped_recipes()) in page
