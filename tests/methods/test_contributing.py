"""The example in CONTRIBUTING.md is a method like any other: one file, one line, and the whole contract holds."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from bomd.experiments.experiment import make_method
from bomd.experiments.plan import configure
from bomd.methods import METHODS
from bomd.methods.base import Context
from bomd.tables import LabelTable

ROOT = Path(__file__).parents[2]


def load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


contract = load("contract_over_methods", Path(__file__).with_name("test_methods.py"))
FIT = contract.FIT


def blocks() -> tuple[str, str]:
    """The file and the line that the guide shows."""
    section = (ROOT / "CONTRIBUTING.md").read_text().partition("## Adding a method")[2].partition("\n## ")[0]
    file, line = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    return file, line


@pytest.fixture(scope="module")
def case(train: tuple[LabelTable, Context]) -> Iterator[Any]:
    table, context = train
    folder = context.stages.root.parent
    file, line = blocks()
    (folder / "ensembled.py").write_text(file)
    module = load("bomd_methods_ensembled", folder / "ensembled.py")
    ((name, place),) = eval(f"{{{line}}}").items()
    file_name, _, kind = place.partition(":")
    assert file_name == "ensembled"  # as the guide calls the file
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(METHODS, name, getattr(module, kind))
        yield contract.Case(name, (table, context.images, folder))


def checks() -> list[Any]:
    """Every test of the contract, once for each of its epochs where it has several."""
    found = []
    for name, check in inspect.getmembers(contract.TestEveryMethod, inspect.isfunction):
        epochs = (1, 2) if "epochs" in inspect.signature(check).parameters else (None,)
        found += [pytest.param(check, number, id=f"{name}-{number}") for number in epochs if name.startswith("test_")]
    return found


@pytest.mark.parametrize(("check", "epochs"), checks())
def test_the_example_keeps_the_contract(check: Any, epochs: int | None, case: Any, tmp_path: Path) -> None:
    given = {"case": case, "epochs": epochs, "tmp_path": tmp_path}
    wanted = {key: value for key, value in given.items() if key in inspect.signature(check).parameters}
    check(contract.TestEveryMethod(), **wanted)


def test_the_example_is_short_and_can_be_set_from_the_command_line(case: Any) -> None:
    assert len(list(filter(str.strip, blocks()[0].splitlines()))) <= 40
    method = make_method(configure("demo", case.name, overrides=[f"{case.name}.share=0.5"]))
    assert method.share == 0.5  # type: ignore[attr-defined]


def test_the_example_learns_in_double_precision_too(case: Any) -> None:
    """`device.precision = "64-true"`: logits are float64, while targets and memory are not."""
    started = case.start()
    targets = torch.as_tensor(started.prepared.targets[:8])
    logits = torch.zeros(targets.shape, dtype=torch.float64, requires_grad=True)
    started.method.loss(logits, targets, torch.arange(8)).backward()
    assert logits.grad is not None
    assert logits.grad.abs().sum() > 0
