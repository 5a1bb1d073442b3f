"""What holds for every dataset in `DATASETS`, on tiny fakes in the real layout; a new entry is covered at once."""

from __future__ import annotations

import csv
import importlib.util
import inspect
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from PIL import Image

from bomd.data import datasets
from bomd.data.chosen import Chosen, choose, count_labels
from bomd.data.datasets import DATASETS
from bomd.data.datasets.classes import CHEXPERT, NIH
from bomd.data.datasets.declared import DECLARED
from bomd.errors import InputError
from bomd.tables import LabelTable
from evidence.pages import datasets as datasets_page
from evidence.pages.comparisons import COMPARISONS
from evidence.studies import torchxrayvision_labels

LABELS = Path(__file__).parents[3] / "../shared/data/labels"
PROJECT = Path(__file__).parents[3]
PUBLISHED = sorted(DECLARED)
OPTIONS: dict[str, dict[str, Any]] = {"phantom": {"count": 20}}
# Classes of the paper's lists that a set does not label, and that must be NaN rather than negative.
UNLABELLED = {
    ("nih", "nih"): set(),
    ("nih", "chexpert"): {"Fracture"},
    ("chexpert", "chexpert"): set(),
    ("chexpert", "nih"): set(NIH) - set(CHEXPERT),
    ("openi", "nih"): set(),
    ("openi", "chexpert"): set(),
    ("padchest", "nih"): set(),
    ("padchest", "chexpert"): set(),
    ("nih-google", "nih"): set(NIH) - {"Pneumothorax"},
    ("nih-google", "chexpert"): set(CHEXPERT) - {"Pneumothorax", "Fracture"},
}


def load_script(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def make_folder(root: Path) -> Path:
    """Six images of three patients in two parts; one label is not known."""
    (root / "images").mkdir(parents=True)
    lines = ["image,patient,split,Mass,Edema", "a,1,train,1,0", "b,1,train,,1", "c,2,train,0,0"]
    lines += ["d,3,test,1,1", "e,3,test,0,1", "f,3,test,1,0"]
    (root / "labels.csv").write_text("\n".join(lines) + "\n")
    for number, name in enumerate("abcdef"):
        Image.fromarray(np.full((16, 16), 20 * number, dtype=np.uint8)).save(root / "images" / f"{name}.png")
    return root


@pytest.fixture(scope="module")
def fakes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("fakes")
    for name in PUBLISHED:
        script = Path(__file__).parents[1] / name.replace("-", "_") / "make.py"
        load_script(script).make(root / name)
    make_folder(root / "folder")
    return root


@pytest.fixture
def select(fakes: Path) -> Callable[..., Chosen]:
    def chosen(name: str, **options: Any) -> Chosen:
        return choose(name, None if name == "phantom" else fakes / name, {**OPTIONS.get(name, {}), **options})

    return chosen


def same(one: LabelTable, other: LabelTable) -> None:
    assert one.classes == other.classes
    np.testing.assert_array_equal(one.ids, other.ids)
    np.testing.assert_array_equal(one.values, other.values)
    assert one.extras().keys() == other.extras().keys()
    for name, column in one.extras().items():
        np.testing.assert_array_equal(column, other.extras()[name])


@pytest.mark.parametrize("name", DATASETS)
class TestEveryDataset:
    def test_tables_are_sound(self, name: str, select: Callable[..., Chosen]) -> None:
        tables = select(name).tables().values()
        assert sum(len(table) for table in tables) > 1
        for table in tables:
            assert len(np.unique(table.ids)) == len(table)
            assert (np.isnan(table.values) | np.isin(table.values, (0, 1))).all()
            assert table.patients is not None
            assert (table.patients != "").all()
            assert (table.paths is None) == (DATASETS[name].render is not None)
            for path in () if table.paths is None else table.paths:
                with Image.open(path) as image:
                    assert image.size == (16, 16)

    def test_no_patient_is_in_two_splits(self, name: str, select: Callable[..., Chosen]) -> None:
        tables = list(select(name).tables().values())
        everyone = np.concatenate([np.unique(table.groups) for table in tables])
        assert len(np.unique(everyone)) == len(everyone)

    def test_reading_twice_gives_the_same(self, name: str, select: Callable[..., Chosen]) -> None:
        first, second = select(name).tables(), select(name).tables()
        assert list(first) == list(second)
        for split, table in first.items():
            same(table, second[split])

    def test_arguments_are_explained(self, name: str, select: Callable[..., Chosen]) -> None:
        """Users see arguments only through the docstring, and the documentation is made from it."""
        text = str(inspect.getdoc(DATASETS[name].read))
        parameters = list(inspect.signature(DATASETS[name].read).parameters)
        assert parameters[:2] == ["root", "split"]
        assert (
            re.findall(r"^    (\w+): ", text.partition("Args:\n")[2].partition("\n\n")[0], re.MULTILINE) == parameters
        )

    def test_unknown_argument_and_wrong_type_are_refused(self, name: str, select: Callable[..., Chosen]) -> None:
        with pytest.raises(InputError, match="Did you mean 'split'"):
            select(name, splitt="test")
        with pytest.raises(InputError, match=name):
            select(name, split=3)

    def test_counts_add_up(self, name: str, select: Callable[..., Chosen]) -> None:
        for table in select(name).tables().values():
            for column, (class_name, *counts) in enumerate(count_labels(table)):
                values = table.values[:, column].tolist()
                expected = [values.count(1), values.count(0), sum(value != value for value in values)]
                assert (class_name, counts) == (table.classes[column], expected)

    def test_a_recipe_reads_the_same(self, name: str, select: Callable[..., Chosen]) -> None:
        chosen = select(name)
        split = chosen.splits[0]
        source = {key: str(value) if isinstance(value, Path) else value for key, value in chosen.options.items()}
        table, dataset = datasets.read({"dataset": name, "split": split, **source}, "train")
        assert dataset is DATASETS[name]
        alone = next(iter(chosen.tables().values()))
        people = dataset.people or source["root"]
        same(table, replace(alone, patients=np.char.add(f"{people}:", alone.groups)))


@pytest.mark.parametrize("name", PUBLISHED)
class TestPublishedSets:
    def test_labels_load_without_images(
        self, name: str, select: Callable[..., Chosen], tmp_path: Path, fakes: Path
    ) -> None:
        labels = tmp_path / "labels alone"
        images = shutil.ignore_patterns("*.png", "*.jpg")
        shutil.copytree(fakes / name, labels, ignore=images)
        alone = choose(name, labels).tables(images=False)
        for split, table in select(name).tables().items():
            same(replace(table, paths=None), alone[split])
        with pytest.raises(InputError, match="images"):
            choose(name, labels).tables()

    @pytest.mark.parametrize("listed", ["nih", "chexpert"])
    def test_class_lists_of_the_paper(self, name: str, listed: str, select: Callable[..., Chosen]) -> None:
        """What a set does not label is NaN in every row, and what it does label never is."""
        for table in select(name, classes=listed).tables().values():
            assert table.classes == (NIH if listed == "nih" else CHEXPERT)
            unknown = {row[0] for row in count_labels(table) if row[3] == len(table)}
            assert len(table) == 0 or unknown == UNLABELLED[name, listed]
            assert not np.isnan(table.values[:, [c not in unknown for c in table.classes]]).any()

    def test_wrong_root_is_one_line(self, name: str, tmp_path: Path, select: Callable[..., Chosen]) -> None:
        (tmp_path / "empty").mkdir()
        (tmp_path / "set.zip").write_bytes(b"PK")
        for place, message in (("empty", "empty"), ("nowhere", "nowhere"), ("set.zip", "unpack")):
            with pytest.raises(InputError, match=message) as caught:
                choose(name, tmp_path / place).tables()
            assert "\n" not in str(caught.value)

    def test_declared_splits_and_classes_are_the_readers(self, name: str, select: Callable[..., Chosen]) -> None:
        hint = get_type_hints(DATASETS[name].read)["split"]
        assert get_origin(hint) is not None
        assert set(DECLARED[name]) == set(get_args(hint)) - {"all"}
        for split, table in select(name, classes="native").tables().items():
            assert list(DECLARED[name][split]) == ["images", "patients", *table.classes]


class TestChosen:
    def test_terms_and_what_sounds_like_them(self, select: Callable[..., Chosen]) -> None:
        """Of the fake's frontal images one has a pericardial effusion; the one with a pleural one shows Opacity too."""
        assert select("openi").terms_behind("Effusion", "test") == [("pericardial effusion", 1, False)]
        native = select("openi", classes="native").terms_behind("Effusion", "test")
        assert native == [("pleural effusion", 1, True), ("pericardial effusion", 1, False)]
        assert select("chexpert").terms_behind("Effusion", "train") == [
            ("Pleural Effusion", select("chexpert").tables()["train"].values[:, CHEXPERT.index("Effusion")].sum(), True)
        ]

    def test_terms_of_a_set_without_terms_are_its_columns(self, select: Callable[..., Chosen]) -> None:
        assert select("folder").terms_behind("Edema", "train") == [("Edema", 1, True)]
        with pytest.raises(InputError, match=r"No class 'Hernia'\. Known: Mass, Edema"):
            select("folder").terms_behind("Hernia", "train")

    def test_splits(self, select: Callable[..., Chosen]) -> None:
        assert select("nih").splits == ("train", "test")
        assert select("nih", split="all").splits == ("all",)
        assert select("folder").splits == ("test", "train")
        assert list(select("phantom").tables()) == ["train"]

    def test_counts_are_compared_only_where_they_can_be_expected(self, select: Callable[..., Chosen]) -> None:
        assert select("nih").incomparable is None
        assert select("nih", classes="native", drop="rows", images=False).incomparable is None
        assert select("nih", drop="columns").incomparable == "drop=columns"
        assert select("openi", views="all").incomparable is None
        assert select("openi", views="frontal").incomparable == "views=frontal"
        assert select("folder").incomparable is None

        def compared(chosen: Chosen) -> list[str]:
            return [check.name for check in chosen.verify().checks if check.name == "counts"]

        assert compared(select("nih")) == ["counts"]
        assert compared(select("nih", drop="columns")) == []
        assert compared(select("folder")) == []

    def test_every_argument_of_the_reader_can_be_set(self, tmp_path: Path) -> None:
        root = make_folder(tmp_path)
        assert choose("folder", root, {"seed": 1, "drop_duplicates": True}).splits == choose("folder", root).splits

    def test_a_root_is_needed_where_something_is_on_disk(self) -> None:
        with pytest.raises(InputError, match="--root DIR"):
            choose("nih")
        with pytest.raises(InputError, match="Did you mean 'padchest'"):
            choose("padchst")


class TestDocumentation:
    """The page follows from the counts and the readers; `python -m evidence.pages.datasets` makes it again."""

    @pytest.fixture
    def rows(self) -> list[dict[str, str]]:
        with (PROJECT / "results" / "dataset_counts.csv").open() as stream:
            return list(csv.DictReader(stream))

    def test_page_is_made_from_the_counts_and_the_readers(self, rows: list[dict[str, str]]) -> None:
        beside = datasets_page.rows_of(PROJECT / "results" / "dataset_torchxrayvision.csv")
        assert datasets_page.page(rows, beside) == (PROJECT / "docs" / "datasets.md").read_text()

    def test_counts_are_the_declared_ones(self, rows: list[dict[str, str]]) -> None:
        for name, splits in DECLARED.items():
            options = "views=all" if name == "openi" else ""
            for split, declared in splits.items():
                of = (name, "labels", split, "native", options)
                found = [r for r in rows if (r["dataset"], r["folder"], r["split"], r["classes"], r["options"]) == of]
                counted = {row["class"]: int(row["positive"]) for row in found}
                assert {"images": int(found[0]["images"]), "patients": int(found[0]["patients"]), **counted} == declared

    def test_every_comparison_is_on_the_page(self) -> None:
        page = (PROJECT / "docs" / "datasets.md").read_text()
        for row in COMPARISONS:
            assert f"| {row.images:,} | {row.paper:,} |" in page

    @pytest.mark.slow
    @pytest.mark.skipif(not LABELS.is_dir(), reason="needs the label files in ../shared/data/labels")
    def test_the_comparison_with_torchxrayvision_is_of_these_readers(self) -> None:
        with torchxrayvision_labels.FILE.open() as stream:
            recorded = [row for row in csv.DictReader(stream) if row["dataset"] == "openi"]
        assert torchxrayvision_labels.compare_openi(LABELS) == recorded
