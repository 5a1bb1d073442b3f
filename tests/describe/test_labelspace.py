"""Class names to unit vectors, against a loop over word pieces and the real BioBERT file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from bomd.describe.labelspace import ENCODERS, LabelSpace, embed, save_vectors
from bomd.errors import InputError

ROOT = Path(__file__).parents[2]
BIOBERT = ROOT / "../shared/data/embeddings/nih_chest_xray_biobert.npy"
BIOBERT_CLASSES = [
    "Atelectasis",
    "Cardiomegaly",
    "Effusion",
    "Infiltration",
    "Mass",
    "Nodule",
    "Pneumonia",
    "Pneumothorax",
    "Consolidation",
    "Edema",
    "Emphysema",
    "Fibrosis",
    "Pleural_Thickening",
    "Hernia",
]
NIH = [*(name for name in BIOBERT_CLASSES if name != "Consolidation"), "No Finding"]
CHEXPERT = [
    "Cardiomegaly",
    "Edema",
    "Pneumonia",
    "Atelectasis",
    "Pneumothorax",
    "Effusion",
    "Fracture",
    "No Finding",
]
PIECES = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "pleural",
    "thick",
    "##ening",
    "mass",
    "edema",
    "no",
    "finding",
]


def length(space: LabelSpace) -> np.ndarray:
    return np.linalg.norm(space.vectors, axis=1)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real BERT with two layers of 32 states, its vocabulary and random weights, saved in a folder."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("bert")
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(PIECES),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
    )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(5)
        transformers.BertModel(config).save_pretrained(folder)
    return folder


@pytest.mark.slow  # imports transformers
def test_a_text_model_gives_the_mean_of_the_word_pieces(bert: Path) -> None:
    """Pleural_Thickening is [CLS] pleural thick ##ening [SEP]; only the three in the middle count."""
    import transformers

    model = transformers.BertModel.from_pretrained(bert).eval()
    expected = []
    for pieces in (["pleural", "thick", "##ening"], ["mass"], ["no", "finding"]):
        tokens = [PIECES.index(piece) for piece in ("[CLS]", *pieces, "[SEP]")]
        with torch.no_grad():
            states = model(torch.tensor([tokens])).last_hidden_state[0]
        total = np.zeros(32)
        for place in range(1, len(tokens) - 1):
            total += states[place].numpy()
        expected.append(total / np.sqrt((total**2).sum()))

    state = torch.random.get_rng_state()
    space = embed(["Pleural_Thickening", "Mass", "No Finding"], str(bert))

    np.testing.assert_allclose(space.vectors, expected, atol=1e-6)
    assert space.vectors.dtype == np.float32
    assert space.notes == ()  # No Finding has words of its own here
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.slow  # imports transformers
def test_a_text_model_refuses_a_word_it_cannot_spell(bert: Path) -> None:
    with pytest.raises(InputError, match="no vector for class 'Hernia'"):
        embed(["Mass", "Hernia"], str(bert))


@pytest.mark.slow  # imports transformers
def test_weights_that_do_not_fill_the_model_are_refused(bert: Path, tmp_path: Path) -> None:
    """The library would draw the missing layer at random and only warn."""
    from safetensors.torch import load_file, save_file

    for file in bert.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    state = load_file(tmp_path / "model.safetensors")
    del state["encoder.layer.1.output.dense.weight"]
    save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"encoder\.layer\.1\.output\.dense\.weight"):
        embed(["Mass"], str(tmp_path))


@pytest.mark.slow  # imports transformers
def test_the_cache_spares_loading_until_the_model_changes(bert: Path, tmp_path: Path) -> None:
    model, cache = tmp_path / "model", tmp_path / "cache"
    model.mkdir()
    for file in bert.iterdir():
        (model / file.name).write_bytes(file.read_bytes())
    first = embed(["Mass", "Edema"], str(model), cache=cache)

    weights = model / "model.safetensors"
    before = weights.stat()
    weights.write_bytes(bytes(before.st_size))  # cannot be loaded any more
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    again = embed(["Mass", "Edema"], str(model), cache=cache)
    np.testing.assert_array_equal(again.vectors, first.vectors)
    with pytest.raises(InputError, match="Cannot load"):  # other names are another entry
        embed(["Edema", "Mass"], str(model), cache=cache)
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    with pytest.raises(InputError, match="Cannot load"):  # and so is another version of the file
        embed(["Mass", "Edema"], str(model), cache=cache)


def test_a_damaged_cache_is_named(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("edema 1 2\n")
    embed(["Edema"], "glove", vectors=words, cache=tmp_path)
    (kept,) = tmp_path.glob("labelspace-*.npz")
    kept.write_bytes(b"PK")
    with pytest.raises(InputError, match=f"delete {kept}"):
        embed(["Edema"], "glove", vectors=words, cache=tmp_path)


def test_the_shipped_vectors_know_every_paper_class() -> None:
    for classes in (NIH, CHEXPERT):
        space = embed(classes)
        assert space.vectors.shape == (len(classes), 384)
        assert space.classes == tuple(classes)
        assert space.notes == ()
        np.testing.assert_allclose(length(space), 1, atol=1e-6)
        apart = space.vectors @ space.vectors.T - 2 * np.eye(len(classes))
        assert apart.max() < 0.9  # no two classes share a direction


def test_the_shipped_vectors_carry_meaning() -> None:
    """Neighbours in the clinic lie closer than strangers."""
    names = ["Effusion", "Pleural Effusion", "Support Devices", "Granuloma", "Calcified Granuloma"]
    likeness = embed(names).vectors @ embed(names).vectors.T
    assert likeness[0, 1] > likeness[0, 2] + 0.2
    assert likeness[3, 4] > likeness[3, 2] + 0.2


def test_the_shipped_table_is_small_and_holds_nothing_to_unpickle() -> None:
    path = ROOT / "src/bomd/describe/minilm.npz"
    assert path.stat().st_size < 200_000
    with np.load(path, allow_pickle=False) as table:
        assert not any(table[name].dtype.hasobject for name in table.files)
        assert any("Apache-2.0" in line for line in table["about"])


def test_case_and_underscores_do_not_matter() -> None:
    np.testing.assert_array_equal(embed(["pleural_thickening"]).vectors, embed(["Pleural  Thickening"]).vectors)


def test_an_unknown_class_is_refused_with_the_nearest_names() -> None:
    with pytest.raises(InputError, match=r"'Edemma' \(nearest: edema") as raised:
        embed(["Edemma", "Mass"])
    assert "random" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_auto_takes_meaning_where_it_can_and_says_where_it_cannot() -> None:
    np.testing.assert_array_equal(embed(NIH, "auto").vectors, embed(NIH, "minilm").vectors)
    own = embed(["Rust", "Crack", "Edema"], "auto", seed=3, size=64)
    np.testing.assert_array_equal(own.vectors, embed(["Rust", "Crack", "Edema"], "random", seed=3, size=64).vectors)
    (note,) = own.notes
    assert "'Rust', 'Crack'" in note
    assert "'Edema'" not in note


def test_random_vectors_follow_the_seed_and_the_name() -> None:
    space = embed(NIH, "random", seed=1)
    assert space.vectors.shape == (14, 1024)
    np.testing.assert_allclose(length(space), 1, atol=1e-6)
    np.testing.assert_array_equal(embed(NIH, "random", seed=1).vectors, space.vectors)
    np.testing.assert_array_equal(embed(NIH[::-1], "random", seed=1).vectors, space.vectors[::-1])
    assert np.abs(embed(NIH, "random", seed=2).vectors - space.vectors).min(axis=0).max() > 0.01
    # Cosines of independent directions have a standard deviation of 1/32 in 1024 dimensions.
    assert np.abs(space.vectors @ space.vectors.T - np.eye(14)).max() < 5 / 32


@pytest.mark.skipif(not BIOBERT.exists(), reason="the real BioBERT vectors are not here")
def test_the_real_biobert_file_with_no_finding_derived() -> None:
    raw = np.load(BIOBERT).astype(np.float64)
    space = embed(NIH, str(BIOBERT), vector_classes=BIOBERT_CLASSES)
    assert space.vectors.shape == (14, 1024)
    total = np.zeros(1024)
    for place, name in enumerate(NIH[:-1]):
        row = raw[BIOBERT_CLASSES.index(name)]
        row = row / np.sqrt((row**2).sum())
        np.testing.assert_allclose(space.vectors[place], row, atol=1e-6)
        total += row / 13
    np.testing.assert_allclose(space.vectors[-1], -total / np.sqrt((total**2).sum()), atol=1e-6)
    (note,) = space.notes
    assert "No Finding" in note
    with pytest.raises(InputError, match="'Fracture'"):
        embed(CHEXPERT, str(BIOBERT), vector_classes=BIOBERT_CLASSES)


def test_no_finding_by_hand(tmp_path: Path) -> None:
    """Rows (3, 0) and (0, 4) become (1, 0) and (0, 1); minus their mean points to (-1, -1)."""
    path = tmp_path / "own.npy"
    np.save(path, np.array([[3.0, 0], [0, 4]]))
    (tmp_path / "own.classes.txt").write_text("Mass\nPleural_Thickening\n")
    space = embed(["no_finding", "Pleural thickening", "mass"], str(path))
    half = np.sqrt(0.5)
    np.testing.assert_allclose(space.vectors, [[-half, -half], [0, 1], [1, 0]], atol=1e-6)
    assert embed(["Mass"], str(path)).notes == ()
    with pytest.raises(InputError, match="no findings"):
        embed(["No Finding"], str(path))


def test_a_class_list_may_be_json_and_must_fit(tmp_path: Path) -> None:
    path, listed = tmp_path / "own.npy", tmp_path / "own.classes.json"
    np.save(path, np.eye(2, dtype=np.float32))
    with pytest.raises(InputError, match=r"own\.classes\.txt"):
        embed(["Mass"], str(path))
    listed.write_text(json.dumps(["Mass", "Hernia"]))
    np.testing.assert_array_equal(embed(["Hernia", "Mass"], str(path)).vectors, [[0, 1], [1, 0]])
    listed.write_text(json.dumps(["Mass"]))
    with pytest.raises(InputError, match="expected 1 rows"):
        embed(["Mass"], str(path))
    listed.write_text(json.dumps({"Mass": 0}))
    with pytest.raises(InputError, match="JSON list"):
        embed(["Mass"], str(path))


def test_saved_vectors_come_back(tmp_path: Path) -> None:
    space = embed(NIH)
    save_vectors(space, tmp_path / "nih.npy")
    again = embed(NIH[::-1], str(tmp_path / "nih.npy"))
    np.testing.assert_allclose(again.vectors[::-1], space.vectors, atol=1e-6)
    with pytest.raises(InputError, match=r"\.npy"):
        save_vectors(space, tmp_path / "nih.csv")


@pytest.mark.parametrize("row", [[0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0]])
def test_a_vector_without_direction_is_refused(tmp_path: Path, row: list[float]) -> None:
    np.save(tmp_path / "own.npy", np.array([row]))
    with pytest.raises(InputError, match="zero or not finite"):
        embed(["Mass"], str(tmp_path / "own.npy"), vector_classes=["Mass"])


def test_an_array_of_objects_is_not_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "own.npy", np.array([[object()]]), allow_pickle=True)
    with pytest.raises(InputError, match="Cannot read"):
        embed(["Mass"], str(tmp_path / "own.npy"), vector_classes=["Mass"])


def test_glove_averages_the_words(tmp_path: Path) -> None:
    """(3, 0) and (1, 4) average to (2, 2); the second line for a word does not count."""
    path = tmp_path / "words.txt"
    path.write_text("4 2\npleural 3 0\nthickening 1 4\npleural 9 9\nmass 0 -2\n")
    space = embed(["Pleural_Thickening", "Mass", "No Finding"], "glove", vectors=path)
    half = np.sqrt(0.5)
    mean = np.array([half, half - 1]) / 2
    np.testing.assert_allclose(space.vectors, [[half, half], [0, -1], -mean / np.linalg.norm(mean)], atol=1e-6)
    assert len(space.notes) == 1
    with pytest.raises(InputError, match="no vector for hernia, hiatal"):
        embed(["Hiatal Hernia"], "glove", vectors=path)
    path.write_text("mass 0 x\n")
    with pytest.raises(InputError, match="line 1"):
        embed(["Mass"], "glove", vectors=path)
    path.write_text("mass 0 1\nedema 1\n")
    with pytest.raises(InputError, match="differ in length"):
        embed(["Mass", "Edema"], "glove", vectors=path)


@pytest.mark.parametrize(
    ("classes", "options", "message"),
    [
        ([], {}, "No classes"),
        (["Mass", " _"], {}, "Class 2 of 2 has no name"),
        (["Pleural_Thickening", "pleural thickening"], {}, "one name"),
        (["Mass"], {"model": "bluebird"}, "No label space 'bluebird': use one of auto, minilm, bluebert"),
        (["Mass"], {"model": "nowhere.npy", "vector_classes": ["Mass"]}, "nowhere.npy"),
        (["Mass"], {"model": "glove"}, "goes with the label space 'glove'"),
        (["Mass"], {"model": "glove", "vectors": Path("nowhere.txt")}, "nowhere.txt"),
        (["Mass"], {"vectors": Path("nowhere.txt")}, "goes with the label space 'glove'"),
        (["Mass"], {"vector_classes": ["Mass"]}, "goes with a .npy file"),
        (["Mass"], {"model": "random", "seed": -1}, "seed of 0 or more"),
        (["Mass"], {"model": "random", "size": 0}, "2 or more dimensions"),
    ],
)
def test_bad_input_gets_one_line(classes: list[str], options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as raised:
        embed(classes, **options)  # type: ignore[arg-type]
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_without_transformers_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InputError, match=r"pip install 'bomd\[text\]'"):
        embed(["Mass"], "bluebert")


@pytest.mark.slow
def test_without_a_network_the_way_out_is_named(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    code = "from bomd.describe.labelspace import embed; embed(['Mass'], 'bluebert')"
    offline = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=offline, capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("bomd.errors.InputError: Cannot load")
    assert ENCODERS["bluebert"] in last
    assert "use 'minilm'" in last


def test_one_dimension_is_too_few_for_directions() -> None:
    with pytest.raises(InputError, match="2 or more dimensions"):
        embed(["Mass", "Edema"], "random", size=1)
    assert embed(["Mass", "Edema"], "random", size=2).vectors.shape == (2, 2)
