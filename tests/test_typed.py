"""Settings are checked against type hints, and errors say where and what."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from bomd.errors import InputError
from bomd.typed import arguments, convert


@dataclass(frozen=True)
class Engine:
    power: float
    fuel: Literal["wood", "oil"] = "wood"


def build(engine: Engine, wheels: int = 4, name: str | None = None, path: Path | None = None) -> None:
    """Something with settings."""


def test_where_nothing_can_be_set_that_is_said() -> None:
    with pytest.raises(InputError, match=r"^stone: unknown key 'wheels'\. Known: none\.$"):
        arguments(lambda: None, {"wheels": 4}, "stone")


def test_values_become_what_the_hints_ask_for() -> None:
    given = {"engine": {"power": 3}, "wheels": 6, "name": None, "path": "a/b"}
    assert arguments(build, given, "car") == {
        "engine": Engine(3.0),
        "wheels": 6,
        "name": None,
        "path": Path("a/b"),
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"engine": {"power": 1}, "wheel": 3}, "car: unknown key 'wheel'. Did you mean 'wheels'?"),
        ({}, "car: 'engine' is needed."),
        ({"engine": {}}, "car.engine: 'power' is needed."),
        ({"engine": {"power": "much"}}, "car.engine: power: expected float, got 'much'."),
        ({"engine": {"power": 1, "fuel": "oli"}}, "'oli' is not one of 'wood', 'oil'."),
        ({"engine": 3}, "car.engine: expected a table of settings, got 3."),
        ({"engine": {"power": 1}, "wheels": 2.5}, "car.wheels: expected int, got 2.5."),
        ({"engine": {"power": float("nan")}}, "car.engine: power: expected a finite number, got nan."),
        ({"engine": {"power": float("-inf")}}, "car.engine: power: expected a finite number, got -inf."),
        ({"engine": {"power": 10**400}}, "car.engine: power: expected a finite number, got inf."),
        ({"engine": {"power": 1}, "wheels": True}, "car.wheels: expected int, got True."),
    ],
)
def test_errors_name_the_place_and_what_fits(given: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        arguments(build, given, "car")
    assert message in str(caught.value)


def test_sequences_keep_their_kind_and_length() -> None:
    assert convert([1, 2], tuple[float, float], "pair") == (1.0, 2.0)
    assert convert(["a"], list[str], "names") == ["a"]
    with pytest.raises(InputError, match="expected 2 values, got 3"):
        convert([1, 2, 3], tuple[float, float], "pair")
