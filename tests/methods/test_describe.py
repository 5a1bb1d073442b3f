"""What the listing of methods shows is what their docstrings and signatures say."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from rich.console import Console

from bomd.errors import InputError
from bomd.methods import METHODS
from bomd.methods.base import Method
from bomd.methods.describe import describe, in_full, in_use, overview, tables_of
from bomd.typed import arguments


class Toy(Method):
    """Learn by tossing
    a coin.

    Paper: A and B, Coins,
    2020.
    Differs: nothing known.
    Cost: 8 to 12 times the clean share.

    Not: part of it; a sentence with 3 numbers.
    """

    variant_of = "bce"

    def __init__(self, rate: float = 0.5, side: Literal["heads", "tails"] = "heads", table: Path | None = None) -> None:
        """Take the settings.

        Args:
            rate: How often,
                on average.
            side: Which one; `table` belongs to it.

        Raises:
            Nothing: ever.
        """


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "toy", Toy)


def test_docstring_and_signature_are_read() -> None:
    found = describe("toy")
    assert found.line == "Learn by tossing a coin."
    assert found.sections["Paper"] == "A and B, Coins, 2020."
    assert found.sections["Differs"] == "nothing known."
    assert found.cost == 10
    assert [(one.name, one.kind, one.default, one.meaning) for one in found.settings] == [
        ("rate", "float", 0.5, "How often, on average."),
        ("side", "'heads' | 'tails'", "heads", "Which one; `table` belongs to it."),
        ("table", "Path | None", None, ""),
    ]
    assert found.base == "bce"


def test_a_class_says_what_its_settings_mean_and_so_for_its_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    class Coin(Method):
        """Toss.

        Args:
            side: Of the coin,
                if any.
            rate: How often.
        """

        def __init__(self, side: str = "heads", rate: float = 0.5) -> None:
            pass

    class Variant(Coin):
        """Toss again.

        Args:
            rate: More often.
        """

    monkeypatch.setitem(METHODS, "variant", Variant)
    assert [one.meaning for one in describe("variant").settings] == ["Of the coin, if any.", "More often."]


def test_a_setting_without_a_default_says_that_it_must_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    class Strict(Method):
        """Toss."""

        def __init__(self, share: float, *sides: str, rate: float = 0.5, **others: object) -> None:
            pass

    monkeypatch.setitem(METHODS, "strict", Strict)
    assert [(one.name, one.shown) for one in describe("strict").settings] == [
        ("share", "(must be given)"),
        ("rate", "0.5"),
    ]
    assert list(arguments(Strict, {"share": 0.1}, "strict")) == ["share"]
    with pytest.raises(InputError, match="unknown key 'others'"):
        arguments(Strict, {"share": 0.1, "others": 1}, "strict")


def test_settings_in_use_are_those_given_and_the_defaults_of_the_others() -> None:
    found = in_use("bomd-paper", {"bomd": {"neighbours": 20, "epochs": 7}, "bomd-paper": {"epochs": 8}, "ls": {}})
    assert found["neighbours"] == 20
    assert found["epochs"] == 8
    assert found["graph_weight"] == 0.6
    assert in_use("bce", {}) == {}


@pytest.mark.parametrize(
    ("text", "cost"),
    [("1.", 1), ("1.33.", 1.33), ("2 + 3 per refresh.", 2), ("about 2.4.", 2.4), ("5-6.", 5.5), ("unknown.", None)],
)
def test_cost_is_the_first_number(text: str, cost: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Toy, "__doc__", f"A toy.\n\nCost: {text}")
    assert describe("toy").cost == cost


def test_the_tables_of_a_recipe_that_a_method_reads() -> None:
    assert tables_of("toy") == ("bce", "toy")
    assert tables_of("bce") == ("bce",)
    assert tables_of("of another time") == ("of another time",)


def test_everything_is_printed() -> None:
    console = Console(width=100)
    with console.capture() as captured:
        console.print(overview([describe(name) for name in METHODS]))
        console.print(in_full(describe("toy")))
    text = captured.get()
    for name in METHODS:
        assert f" {name} " in text
    for part in ("rate=0.5, side=heads, table=None", "How often, on average.", "--set toy.KEY=VALUE"):
        assert part in text


def test_unknown_names_get_a_hint() -> None:
    with pytest.raises(InputError, match="Did you mean 'toy'"):
        describe("toyy")
