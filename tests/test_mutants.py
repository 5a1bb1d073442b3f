"""The errors that are planted, and what CONTRIBUTING.md says became of them."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "scripts"))
        spec = importlib.util.spec_from_file_location("mutants", ROOT / "scripts" / "mutants.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["mutants"] = module
        spec.loader.exec_module(module)
        return module


def test_contributing_says_what_the_table_says(script: ModuleType) -> None:
    assert script.score_line(script.read(script.TABLE)) in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_all_three_rooms_were_tried(script: ModuleType) -> None:
    tried = [row["module"] for row in script.read(script.TABLE)]
    assert {name.partition("/")[0] for name in tried} == set(script.ROOMS)
    assert len(set(tried) & set(script.modules())) > 0.8 * len(script.modules())  # new ones wait for the next run


def test_every_planted_error_is_a_change_of_one_statement(script: ModuleType) -> None:
    text = "LIMIT = 0.5\n\n\ndef keep(n: int = 2) -> bool:\n    '''Words.'''\n    return not n < 3 and n + 1 != 0\n"
    found = script.mutants_of(text)
    assert {(one.line, one.after) for one in found} >= {
        (1, "LIMIT = 0.75"),
        (4, "def keep(n: int=3) -> bool:"),
        (6, "return not n < 3 or n + 1 != 0"),
        (6, "return not n <= 3 and n + 1 != 0"),
        (6, "return n < 3 and n + 1 != 0"),
        (6, "return not n < 3 and n - 1 != 0"),
        (6, "return not n < 3 and n + 1 == 0"),
    }
    whole = ast.unparse(ast.parse(text))
    assert all(ast.unparse(one.tree) != whole for one in found)
    assert [one.after for one in script.draw(text, 3, "x")] == [one.after for one in script.draw(text, 3, "x")]
    larger = {one.after for one in script.draw(text, 5, "x")}
    assert {one.after for one in script.draw(text, 3, "x")} <= larger


def test_what_nothing_can_notice_does_not_count(script: ModuleType) -> None:
    scores = script.scores([{"module": "clean/a.py", "outcome": kind} for kind in ("killed", "survived", "equivalent")])
    assert scores["clean"].share == 0.5
    assert scores["all"].same == 1
