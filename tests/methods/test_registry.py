"""Methods by name: what is said without importing them is true, and one from outside is like any other."""

from __future__ import annotations

import inspect
import subprocess
import sys
import typing
from pathlib import Path

import pytest

from bomd import outside, runs, sources
from bomd.config import parse
from bomd.errors import InputError
from bomd.experiments.experiment import make_method
from bomd.experiments.identity import own_settings
from bomd.experiments.plan import configure
from bomd.methods import METHODS
from bomd.methods.describe import describe, tables_of

OWN = """
from bomd.methods.bomd import BomdPaper
from bomd.methods.base import Method, masked_cross_entropy


class Gentle(Method):
    \"\"\"Cross-entropy, but less of it.

    Paper: none.
    Differs: nothing known.
    Cost: 1.
    \"\"\"

    def __init__(self, share: float = 0.5) -> None:
        self.share = share

    def loss(self, logits, targets, index):
        return self.share * masked_cross_entropy(logits, targets)


class Variant(BomdPaper):
    \"\"\"A variant.\"\"\"


class NoMethod:
    pass
"""
NAME = "own_methods_of_a_test:Gentle"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a file of methods, and a path that does not name it, as a command has."""
    (tmp_path / "own_slip_of_a_test.py").write_text("class (Method):\n")
    (tmp_path / "own_methods_of_a_test.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place != ""])
    monkeypatch.delitem(sys.modules, "own_methods_of_a_test", raising=False)
    return tmp_path


@pytest.mark.parametrize("name", METHODS)
def test_an_outline_is_what_the_class_is(name: str) -> None:
    kind, outline = METHODS[name], METHODS.outline(name)
    assert outline is not kind, "it cannot be read without importing it: use types that need no import"
    assert inspect.signature(outline) == inspect.signature(kind)
    assert typing.get_type_hints(outline.__init__) == typing.get_type_hints(kind.__init__)
    assert (outline.__doc__, outline.__init__.__doc__) == (kind.__doc__, kind.__init__.__doc__)
    assert outline.variant_of == kind.variant_of


def test_a_method_from_outside_is_like_any_other(here: Path) -> None:
    assert NAME in METHODS
    assert NAME not in list(METHODS)
    config = configure("demo", NAME, overrides=[f"{NAME}.share=0.25"])
    assert make_method(config).share == 0.25
    assert parse(config.to_dict(), METHODS) == config
    assert describe(NAME).line == "Cross-entropy, but less of it."
    assert ":" not in str(runs.locate(here, config).directory.relative_to(here))
    with pytest.raises(InputError, match="unknown key 'shar'"):
        configure("demo", NAME, overrides=[f"{NAME}.shar=0.25"])
    variant = NAME.replace("Gentle", "Variant")
    assert tables_of(variant) == ("bomd", variant)
    assert make_method(configure("demo", variant, overrides=["bomd.neighbours=7"])).neighbours == 7


def test_a_recipe_has_a_table_for_it(here: Path) -> None:
    (here / "mine.toml").write_text(f'method = "{NAME}"\n["{NAME}"]\nshare = 0.75\n')
    assert make_method(configure("mine.toml")).share == 0.75


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere.at_all:Gentle", "Cannot import method 'nowhere.at_all:Gentle'"),
        ("own_methods_of_a_test:Gone", "no attribute 'Gone'"),
        ("own_methods_of_a_test:NoMethod", "is no method"),
        ("own_methods_of_a_test", "unknown method"),
        ("own_slip_of_a_test:Gentle", r"invalid syntax \(own_slip_of_a_test.py, line 1\)"),
    ],
)
def test_a_wrong_name_is_one_clear_line(here: Path, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_method(configure("demo", name))


def test_editing_it_makes_its_stages_new_and_those_of_no_other(here: Path) -> None:
    sources._read.cache_clear()
    before, others = (sources.code_of(METHODS.module(name)) for name in (NAME, "bce"))
    (here / "own_methods_of_a_test.py").write_text(OWN.replace("0.5", "0.6"))
    sources._read.cache_clear()
    assert sources.code_of(METHODS.module(NAME)) != before != others
    assert sources.code_of(METHODS.module("bce")) == others
    assert outside.file_of("nowhere.at_all") is None


def test_of_a_package_the_file_counts_that_the_class_is_in(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that hands on a class changes when the file of the class does, and not its `__init__.py` alone."""
    package = here / "own_package_of_a_test"
    package.mkdir()
    (package / "__init__.py").write_text("from own_package_of_a_test.core import Gentle\n")
    (package / "core.py").write_text(OWN)
    for module in ("", ".core"):
        monkeypatch.delitem(sys.modules, f"{package.name}{module}", raising=False)
    name = f"{package.name}:Gentle"
    assert METHODS.module(name) == "own_package_of_a_test.core"
    sources._read.cache_clear()
    before = sources.code_of(METHODS.module(name))
    (package / "core.py").write_text(OWN.replace("0.5", "0.6"))
    sources._read.cache_clear()
    assert sources.code_of(METHODS.module(name)) != before


HELPERS = {
    "__init__.py": "SHARE = 1.0\n",
    "losses/__init__.py": "from .focal import focal\n",
    "losses/focal.py": "def focal():\n    from ..deep import depth\n    return depth\n",
    "deep.py": "depth = 0.5\n",
    "unused.py": "depth = 0.5\n",
    "../own_beside_of_a_test.py": "import torch\nexponent = 0.5\n",
}
IMPORTS = """
import own_beside_of_a_test as beside
from own_helped_of_a_test import losses
from bomd.methods.base import Method


class Gentle(Method):
    pass
"""


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("losses/focal.py", True),  # through a package that hands it on
        ("deep.py", True),  # imported where it is used, from the package above
        ("../own_beside_of_a_test.py", True),  # another file of the working directory
        ("unused.py", False),
    ],
)
def test_what_it_imports_of_one_s_own_counts(
    here: Path, monkeypatch: pytest.MonkeyPatch, name: str, counts: bool
) -> None:
    """A loss in a file of its own was edited, and the networks that had learnt by the old one were found again."""
    package = here / "own_helped_of_a_test"
    for file, text in {**HELPERS, "core.py": IMPORTS}.items():
        (package / file).parent.mkdir(parents=True, exist_ok=True)
        (package / file).write_text(text)
    for module in ("", ".core", ".losses", ".losses.focal", ".deep"):
        monkeypatch.delitem(sys.modules, f"{package.name}{module}", raising=False)
    monkeypatch.delitem(sys.modules, "own_beside_of_a_test", raising=False)
    module = METHODS.module(f"{package.name}.core:Gentle")
    sources._read.cache_clear()
    before = sources.code_of(module)
    (package / name).write_text(HELPERS[name] + "# a remark\n")
    sources._read.cache_clear()
    assert sources.code_of(module) == before
    (package / name).write_text(HELPERS[name].replace("0.5", "0.6").replace("return depth", "return 2 * depth"))
    sources._read.cache_clear()
    assert (sources.code_of(module) != before) is counts


def test_what_is_installed_does_not_count(here: Path) -> None:
    """Another version of a library has its own name in the record; to read all of it would take minutes."""
    assert outside.is_own("own_methods_of_a_test", "own_slip_of_a_test")
    assert not any(outside.is_own(name, "own_slip_of_a_test") for name in ("torch", "json", "bomd.seeds", "nowhere"))
    assert outside.is_own("torch.nn", "torch.optim"), "a method that is installed counts with its own package"


def test_its_records_can_be_read_where_it_is_not() -> None:
    """Its own settings and its base's count; nothing is imported to find that out."""
    settings = {"bomd": {"epochs": 3}, "gone.away:Method": {"share": 1}}
    assert own_settings({"method": "gone.away:Method", "settings": settings}) == {"epochs": 3, "share": 1}
    assert own_settings({"method": "bce", "settings": settings}) == {}


@pytest.mark.slow
def test_workers_run_it_too(here: Path) -> None:
    sets = ["images.size=32", "train.count=60", "test.south.count=40", "fit.epochs=1", "fit.batch=16"]
    words = ["benchmark", "demo", "--methods", f"bce,{NAME}", "--seeds", "0", "--no-report", "--runs", "runs"]
    words += ["--reference", NAME, "--results", "own.jsonl", *(word for one in sets for word in ("--set", one))]
    program = "import sys; sys.path.remove(''); from bomd.cli import main; main(sys.argv[1:])"
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"One-sided p that {NAME} is no better" in (here / "own-comparison.md").read_text()
    assert len(list(here.glob("runs/demo/*/*/result.json"))) == 2
