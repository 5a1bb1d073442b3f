"""A stage's key changes with the code that its result comes from, and with no other."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bomd import sources
from bomd.describe import contrast, descriptors
from bomd.methods import METHODS, nvum
from bomd.methods.fitted import made_by
from bomd.sources import code_of

SOURCE = Path(sources.__file__).parent
IMAGES, FOLDS, PLAIN = "bomd.data.images", "bomd.methods.crossfit", "bomd.methods.base"
Edit = Callable[[str, str, str], Path]


@pytest.fixture
def edited(tmp_path: Path) -> Edit:
    """A copy of the package in which one text of one file is another; a file that is not there is made."""

    def edit(name: str, before: str, after: str) -> Path:
        copy = tmp_path / f"copy{len(list(tmp_path.iterdir()))}" / "bomd"
        shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__", "reproduce", "templates", "*.npz"))
        file = copy / name
        text = file.read_text() if file.exists() else ""
        assert before in text
        file.write_text(text.replace(before, after, 1) if before else text + after)
        return copy

    return edit


def keys(package: Path = SOURCE) -> dict[str, str]:
    """The key of every method, and of what several of them share."""
    named = {name: METHODS.module(name) for name in METHODS} | {"pixels": IMAGES, "folds": FOLDS, "plain": PLAIN}
    return {name: code_of(module, package=package) for name, module in named.items()}


def changed(package: Path) -> set[str]:
    now, before = keys(package), keys()
    return {name for name in now if now[name] != before[name]}


def test_a_copy_has_the_same_keys(edited: Edit) -> None:
    assert changed(edited("seeds.py", "", "")) == set()


def test_adding_a_method_leaves_the_keys_of_all_others(edited: Edit) -> None:
    copy = edited("methods/gentle.py", "", "from bomd.methods.base import Method\n\nclass Gentle(Method):\n    pass\n")
    listed = copy / "methods" / "__init__.py"
    listed.write_text(
        listed.read_text().replace('"ls": "ls:Ls",', '"ls": "ls:Ls",\n        "gentle": "gentle:Gentle",')
    )
    assert listed.read_text() != (SOURCE / "methods" / "__init__.py").read_text()
    assert changed(copy) == set()
    assert code_of("bomd.methods.gentle", package=copy) not in keys(copy).values()


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("methods/elr.py", "import torch", "import torch  # the library"),
        ("learn/engine.py", '"""', '"""Other words. '),
        (
            "methods/base.py",
            '        """Everything before the classifier',
            '        """Whatever comes before the classifier',
        ),
        ("data/images.py", "    if size < 1:", "    # nothing to show\n    if size < 1:"),
        ("models/card.py", "", "EXTRA = 1\n"),
        ("methods/describe.py", "", "EXTRA = 1\n"),
        ("learn/logs.py", "", "EXTRA = 1\n"),
        ("measure/metrics.py", "", "EXTRA = 1\n"),
        ("clean/heads.py", "", "EXTRA = 1\n"),  # used by audits alone
    ],
)
def test_what_decides_nothing_changes_no_key(edited: Edit, name: str, before: str, after: str) -> None:
    assert changed(edited(name, before, after)) == set()


def test_a_function_that_is_only_described_keeps_a_body(edited: Edit) -> None:
    """Without its docstring there would be nothing left of it."""
    before = code_of("bomd.methods.own", package=edited("methods/own.py", "", 'def f() -> None:\n    """One."""\n'))
    after = code_of("bomd.methods.own", package=edited("methods/own.py", "", 'def f() -> None:\n    """Two."""\n'))
    other = code_of("bomd.methods.own", package=edited("methods/own.py", "", "def f() -> None:\n    return 1\n"))
    assert before == after != other


def test_a_method_changes_its_own_key_and_those_of_its_dependents(edited: Edit) -> None:
    assert changed(edited("methods/elr.py", "", "EXTRA = 1\n")) == {"elr"}
    importers = {name for name in METHODS if "methods.nvum" in (SOURCE / "methods" / f"{file_of(name)}.py").read_text()}
    assert importers == {"bomd", "bomd-paper"}
    assert changed(edited("methods/nvum.py", "", "EXTRA = 1\n")) == {"nvum"} | importers


def test_cleaning_concerns_those_who_clean(edited: Edit) -> None:
    """Networks that only gather evidence, or learn plainly, survive another way to clean labels."""
    found = changed(edited("clean/opinion.py", "", "EXTRA = 1\n"))
    assert "bomd-plus" in found
    assert not found & {"bce", "elr", "folds", "plain", "pixels"}
    assert "bomd" in changed(edited("clean/relabel.py", "", "EXTRA = 1\n"))


STAGES = {
    "descriptors": made_by(descriptors.DescriptorLearner, descriptors.extract),
    "contrast": made_by(contrast.ContrastLearner, contrast.keep_features),
    "nvum": made_by(nvum.Nvum, nvum.keep_features),
}


@pytest.mark.parametrize(
    ("name", "trained_anew"),
    [
        ("clean/relabel.py", set()),
        ("clean/detect.py", set()),
        ("methods/bomd.py", set()),
        ("describe/ranking.py", {"descriptors"}),
        ("describe/contrast.py", {"contrast"}),
        ("methods/nvum.py", {"nvum"}),
        ("methods/fitted.py", set(STAGES)),
        ("learn/engine.py", set(STAGES)),
    ],
)
def test_networks_that_describe_are_trained_anew_for_their_own_code_alone(
    edited: Edit, name: str, trained_anew: set[str]
) -> None:
    copy = edited(name, "", "EXTRA = 1\n")
    assert {stage for stage, by in STAGES.items() if code_of(*by, package=copy) != code_of(*by)} == trained_anew


@pytest.mark.parametrize("name", ["learn/engine.py", "networks/dense.py", "data/augment.py", "seeds.py"])
def test_what_all_are_trained_by_changes_all(edited: Edit, name: str) -> None:
    assert changed(edited(name, "", "EXTRA = 1\n")) == set(keys()) - {"pixels"}


@pytest.mark.parametrize("name", ["data/images.py", "data/dicom.py", "data/compressed.py"])
def test_reading_and_resizing_change_the_pixels_alone(edited: Edit, name: str) -> None:
    """What learns from pixels knows them by their own fingerprint."""
    assert changed(edited(name, "", "EXTRA = 1\n")) == {"pixels"}


def test_another_resizing_changes_the_pixels(edited: Edit) -> None:
    assert changed(edited("data/images.py", "Resampling.BILINEAR", "Resampling.BICUBIC")) == {"pixels"}


def test_every_import_within_the_rooms_is_followed() -> None:
    """By an independent look: what is loaded with a method, without what stands for pixels, is what counts."""
    _, imported = sources._read("bomd.methods.bomd", SOURCE)
    text = (SOURCE / "methods" / "bomd.py").read_text()
    own = {node.module for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)}
    plain = {name for name in own if name and name.count(".") > 1}
    assert plain <= set(imported)
    assert "bomd.describe.descriptors" in imported  # by `from bomd.describe import descriptors`
    assert "bomd.kernels.on_gpu" in sources._read("bomd.kernels.columns", SOURCE)[1]  # by import_module


def test_code_without_a_file_counts_as_what_it_stands_on() -> None:
    assert code_of("__main__") != code_of("no.such_module")
    assert code_of("no.such_module") != code_of("bomd.methods.base")


def file_of(name: str) -> str:
    return METHODS.module(name).rpartition(".")[2]
