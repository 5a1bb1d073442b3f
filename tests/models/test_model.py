"""A model folder gives back the network that was saved, of whatever form, and refuses what it cannot open."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from bomd.config import parse
from bomd.errors import InputError
from bomd.learn.engine import prepare
from bomd.measure.metrics import Classification, ClassScore
from bomd.methods import METHODS
from bomd.models import blocks, card, model
from bomd.models.blocks import predict_blocks
from bomd.networks.architectures import ARCHITECTURES, make
from bomd.networks.backbone import Network, build

CLASSES = ("Mass", "Edema", "No Finding")


def pixels(count: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, 32, 32), dtype=np.uint8)


def probabilities(network: Network) -> torch.Tensor:
    images = prepare(torch.as_tensor(pixels()).float(), network.channels)
    with torch.no_grad():
        return network.eval()(images).sigmoid()


def rewrite(folder: Path, **changes: Any) -> None:
    path = folder / "model.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("name", ["plain", *ARCHITECTURES])
def test_every_architecture_opens_as_it_was_saved(name: str, tmp_path: Path) -> None:
    network = make(name, "small", 3, seed=1)
    network.train().features(torch.randn(4, 1, 32, 32))  # running statistics are part of it
    model.save(tmp_path, [network], CLASSES, 32, method="test")
    opened = model.load(tmp_path, "cpu")
    assert opened.classes == CLASSES
    assert opened.size == 32
    assert torch.equal(opened.probabilities(pixels()), probabilities(network))


def test_arguments_of_an_architecture_are_kept(tmp_path: Path) -> None:
    network = make("hermoza", "small", 3, seed=1, width=8, hidden=4)
    model.save(tmp_path, [network], CLASSES, 32)
    assert torch.equal(model.load(tmp_path, "cpu").probabilities(pixels()), probabilities(network))


def test_several_networks_are_averaged(tmp_path: Path) -> None:
    networks = [build("small", 3, seed=seed) for seed in (1, 2)]
    model.save(tmp_path / "model", networks, CLASSES, 32)
    found = model.load(tmp_path, "cpu").probabilities(pixels())
    torch.testing.assert_close(found, (probabilities(networks[0]) + probabilities(networks[1])) / 2)


@pytest.mark.parametrize("worth", [0, blocks.WORTH_PROCESSES])
def test_files_are_predicted_by_name(tmp_path: Path, worth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few are decoded here, many by several processes: the same numbers in the same order."""
    monkeypatch.setattr(blocks, "WORTH_PROCESSES", worth)
    count = 11
    model.save(tmp_path, [build("small", 3, seed=1)], CLASSES, 32)
    files = [tmp_path / f"{number}.png" for number in range(count)]
    for file, image in zip(files, pixels(count), strict=True):
        Image.fromarray(image).save(file)
    opened = model.load(tmp_path, "cpu")
    table = opened.predict(files[::-1], batch=4)
    assert table.ids.tolist() == [str(file) for file in files[::-1]]
    np.testing.assert_allclose(table.values, opened.probabilities(pixels(count)[::-1].copy()), atol=1e-6)


def test_no_file_and_a_damaged_file_are_named(tmp_path: Path) -> None:
    model.save(tmp_path, [build("small", 3, seed=1)], CLASSES, 32)
    opened = model.load(tmp_path, "cpu")
    with pytest.raises(InputError, match="No image to predict"):
        opened.predict([])
    files = [tmp_path / f"{number}.png" for number in range(9)]
    for file in files:
        Image.fromarray(pixels(1)[0]).save(file)
    files[7].write_bytes(files[7].read_bytes()[:60])
    for some in (files, files[6:9]):
        with pytest.raises(InputError, match=r"7\.png"):
            opened.predict(some)
        (block,) = predict_blocks(opened, some)
        assert block.files == [str(file) for file in some if file != files[7]]
        assert len(block.values) == len(block.files)
        assert list(block.broken) == [str(files[7])]
        assert "7.png" in block.broken[str(files[7])]
    (block,) = predict_blocks(opened, [files[7]])
    assert (block.values.shape, len(block.broken)) == ((0, 3), 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 1}, "another version (format 1)"),
        ({"format": 99}, "another version (format 99)"),
        ({"architecture": {"name": "unet", "arguments": {}}}, "No architecture 'unet'"),
        ({"architecture": {"name": "can", "arguments": {"depth": 3}}}, "depth"),
        ({"architecture": {"name": "can", "arguments": {"width": 512}}}, "they belong to another network"),
        ({"architecture": {"name": "can", "arguments": {"width": -1}}}, "no such 'can' network"),
        ({"architecture": "plain"}, "'architecture' is missing or of the wrong kind"),
        ({"backbone": "resnet"}, "resnet"),
        ({"classes": ["Mass"], "thresholds": {}}, "'head.bias' has shape (3,), expected (1,)"),
        ({"classes": ["Mass", "Mass", "Edema"]}, "different names"),
        ({"classes": ["Mass", " ", "Edema"]}, "different names"),
        ({"classes": []}, "different names"),
        ({"networks": 2}, "network1.safetensors"),
        ({"networks": 10**9}, "'networks' is 1000000000"),
        ({"networks": True}, "'networks' is missing or of the wrong kind"),
        ({"thresholds": {"Mass": True}}, "the threshold of 'Mass' is True"),
        ({"preprocessing": {}}, "a size of None"),
        ({"preprocessing": {"size": 10**6}}, "a size of 1000000"),
        ({"preprocessing": {"size": 32, "mean": [0.4]}}, "the model's mean is not what this version of bomd does"),
        ({"preprocessing": {"size": 32, "resizing": "crop"}}, "the model's resizing is not"),
        ({"thresholds": {"Mass": 1.5}}, "the threshold of 'Mass' is 1.5"),
        ({"thresholds": {"Mass": "0.5"}}, "the threshold of 'Mass' is '0.5'"),
        ({"thresholds": {"Hernia": 0.5}}, "threshold for 'Hernia'"),
        ({"metrics": []}, "'metrics' is missing or of the wrong kind"),
        ({"checksums": {}}, "not the file that was saved"),
    ],
)
def test_a_folder_that_does_not_fit_gets_one_line(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    model.save(tmp_path, [build("small", 3, seed=1)], CLASSES, 32)
    rewrite(tmp_path, **changes)
    with pytest.raises(InputError) as caught:
        model.load(tmp_path, "cpu")
    assert message in str(caught.value)
    assert str(tmp_path) in str(caught.value) or re.match("No (architecture|backbone)", str(caught.value))
    assert "\n" not in str(caught.value)


def test_damaged_weights_get_one_line(tmp_path: Path) -> None:
    model.save(tmp_path, [build("small", 3, seed=1)], CLASSES, 32)
    path = tmp_path / "network0.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(InputError, match="Cannot read") as caught:
        model.load(tmp_path, "cpu")
    assert "\n" not in str(caught.value)


def test_weights_of_another_run_and_a_flipped_bit_are_noticed(tmp_path: Path) -> None:
    for seed in (1, 2):
        model.save(tmp_path / str(seed), [build("small", 3, seed=seed)], CLASSES, 32)
    path = tmp_path / "1" / "network0.safetensors"
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    for other in ((tmp_path / "2" / path.name).read_bytes(), bytes(content)):
        path.write_bytes(other)
        with pytest.raises(InputError, match="not the file that was saved"):
            model.load(tmp_path / "1", "cpu")


def test_weights_that_are_not_numbers_are_refused(tmp_path: Path) -> None:
    network = build("small", 3, seed=1)
    with torch.no_grad():
        network.head.weight[0, 0] = torch.nan
    model.save(tmp_path, [network], CLASSES, 32)
    with pytest.raises(InputError, match=r"tensor 'head\.weight' is not finite"):
        model.load(tmp_path, "cpu")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_damage_to_the_description_gets_one_line_or_does_no_harm(tmp_path: Path, data: st.DataObject) -> None:
    if not (tmp_path / "model.json").exists():
        model.save(tmp_path, [build("small", 3, seed=1)], CLASSES, 32, thresholds={"Mass": 0.25})
        (tmp_path / "kept").write_bytes((tmp_path / "model.json").read_bytes())
    content = bytearray((tmp_path / "kept").read_bytes())
    if data.draw(st.booleans()):  # bytes, or a value of the wrong kind
        for _ in range(data.draw(st.integers(1, 3))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    else:
        whole = json.loads(content)
        wrong = st.one_of(st.none(), st.booleans(), st.integers(), st.text(), st.lists(st.integers()), st.floats())
        whole[data.draw(st.sampled_from(sorted(whole)))] = data.draw(wrong)
        content = bytearray(json.dumps(whole).encode())
    (tmp_path / "model.json").write_bytes(content)
    complaint = ""
    try:
        assert model.load(tmp_path, "cpu").probabilities(pixels()).shape == (3, 3)
    except InputError as error:
        complaint = str(error)
    assert "\n" not in complaint


SCORES = Classification((ClassScore("Mass", auc=0.71239), ClassScore("Edema")), ("Mass",), {}, 0, 0.71239, 0.6, 0.8)


def test_thresholds_metrics_and_facts_come_back_and_are_on_the_card(tmp_path: Path) -> None:
    config = parse(
        {
            "name": "own",
            "method": "bomd",
            "seed": 7,
            "train": {"dataset": "folder", "root": "/home/jane/data", "labels": "/home/jane/labels.csv"},
            "noise": {"kind": "symmetric", "rows": 0.4, "labels": 0.2},
            "bomd": {"neighbours": 5},
        },
        METHODS,
    )
    facts = card.facts_of(config, {"train": 3593, "south": 2000})
    metrics = {"south": SCORES.brief()}
    assert metrics["south"] == {
        "mean_auc": 0.7124, "low": 0.6, "high": 0.8, "findings": 1, "auc": {"Mass": 0.7124, "Edema": None}
    }  # fmt: skip
    thresholds = {"Mass": 0.31, "Edema": None, "No Finding": 0.5}
    networks = [build("small", 3, seed=1)]
    model.save(tmp_path, networks, CLASSES, 32, thresholds=thresholds, metrics=metrics, **facts)
    opened = model.load(tmp_path, "cpu")
    assert (opened.thresholds, opened.metrics, opened.facts) == (thresholds, metrics, facts)
    text = (tmp_path / "README.md").read_text()
    for part in (
        "# own: small trained with bomd",
        "folder, 3,593 images (labels labels.csv)",
        "added on purpose: symmetric (rows 0.4, labels 0.2)",
        "bomd (neighbours 5)",
        "32 x 32 pixels",
        "| south | 2,000 | 1 | 0.712 (0.600 to 0.800) |",
        "| Mass | 0.310 | 0.712 |",
        "| Edema | – | – |",
        "Youden's J",
    ):
        assert part in text
    assert text.count("not a medical device") == 1
    assert "jane" not in text + (tmp_path / "model.json").read_text()


def test_a_card_without_facts_claims_nothing_and_names_cannot_break_it(tmp_path: Path) -> None:
    hostile = ("a|b\n# c", "<script>alert(1)</script>", "[x](javascript:y)")
    model.save(tmp_path, [build("small", 3, seed=1)], hostile, 32)
    text = (tmp_path / "README.md").read_text()
    assert model.load(tmp_path, "cpu").classes == hostile
    for part in ("Not recorded.", "Not measured.", "No threshold was chosen", r"| a\|b \# c | – |"):
        assert part in text
    assert "<script" not in text
    assert "[x](" not in text
    assert "\n# c" not in text


def test_a_card_says_why_there_is_no_threshold_and_leaves_out_how_a_file_was_laid_out(tmp_path: Path) -> None:
    source = {"dataset": "folder", "labels": "a.csv", "classes": list(CLASSES), "id_column": "audit id"}
    source["handed"] = "c4a123f3d2fe"  # by which an audit knows its labels again
    for images, reason in (({"train": 9}, "nobody was held out"), ({"train": 9, "validation": 2}, "too few held-out")):
        model.save(tmp_path, [build("small", 3, seed=1)], CLASSES, 32, train=source, images=images)
        text = (tmp_path / "README.md").read_text()
        assert f"No threshold was chosen: {reason}" in text
        assert "- Data: folder, 9 images (labels a.csv)." in text
        assert "- Label noise: none was added on purpose" in text


def test_a_card_says_how_many_labels_people_decided_on(tmp_path: Path) -> None:
    """Where nobody decided on any, or a model is of before that was written down, the set's own labels are meant."""
    config = parse({"name": "own", "method": "bce", "train": {"dataset": "folder"}}, METHODS)
    none = {"labels": 0, "images": 0}
    metrics: dict[str, Any] = {"validation": SCORES.brief()}
    held_out = "*validation* are patients held out of the training set, with "

    def written(decided: dict[str, dict[str, int]] | None) -> str:
        facts = card.facts_of(config, {"train": 9, "validation": 4}, decided)
        if decided is None:
            del facts["decided"]
        model.save(tmp_path, [build("small", 3, seed=1)], CLASSES, 32, metrics=metrics, **facts)
        assert model.load(tmp_path, "cpu").facts == facts
        return (tmp_path / "README.md").read_text()

    for plain in (written(None), written({"train": none, "validation": none})):
        assert f"{held_out}the labels the set came with." in plain
        assert "people" not in plain
    both = written({"train": {"labels": 1200, "images": 300}, "validation": {"labels": 1, "images": 1}})
    assert "- Decided by people: 1,200 labels of 300 images, learnt in full." in both
    assert f"{held_out}the labels the set came with, except 1 label of 1 image as people decided." in both
    metrics["validation, before noise"] = SCORES.brief()
    assert f"{held_out}labels that have the added noise; *before noise* are the same" in written(None)


def test_no_noise_is_said_as_such() -> None:
    for noise in ({}, {"kind": "none"}, {"kind": "symmetric", "rows": 0.0, "labels": 0.4}):
        assert card._noise(noise) is None


def test_one_file_by_its_name_alone_and_no_file_twice(tmp_path: Path) -> None:
    opened = model.Model((build("small", 3, seed=1).eval(),), CLASSES, 32)
    name = str(tmp_path / "a.png")
    Image.new("L", (20, 20), 90).save(name)
    for file in (name, Path(name)):
        assert opened.predict(file).ids.tolist() == [name]
    with pytest.raises(InputError, match=r"a\.png is named 2 times"):
        opened.predict([name, name])


def test_no_model_in_the_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No model in"):
        model.load(tmp_path, "cpu")


def test_networks_of_two_architectures_are_not_one_model(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one architecture"):
        model.save(tmp_path, [build("small", 3, seed=1), make("hlc", "small", 3, seed=1)], CLASSES, 32)
    assert not list(tmp_path.iterdir())
