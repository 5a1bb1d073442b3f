"""Prompts through a real, tiny BERT and through the stand-in, and the logits they give."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bomd.describe.labelspace import LabelSpace, embed
from bomd.describe.prompts import PromptHead, TextTower, VectorTower, open_tower
from bomd.errors import InputError

CPU = torch.device("cpu")
BOTH = torch.full((2,), 0.5)  # a class that every other image has has no bias
CLASSES = ["Pleural_Thickening", "Mass", "No Finding"]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "pleural", "thick", "##ening", "mass", "no", "finding"]
PLACES = 12


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers of 16 states with weights large enough that words change each other's states."""
    transformers: Any = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("bert")
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(PIECES),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=PLACES,
        initializer_range=0.3,
    )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(5)
        transformers.BertModel(config).save_pretrained(folder)
    return folder


def some_context(words: int, width: int) -> torch.Tensor:
    return torch.randn(words, width, generator=torch.Generator().manual_seed(1)).requires_grad_()


class TestLogits:
    def test_worked_case(self) -> None:
        """Cosines of (1, 0) with (.6, .8) and (1, 0) are .6 and 1; the scale makes them 60 and 100."""
        head = PromptHead(4, VectorTower(LabelSpace(("a", "b"), np.eye(2, dtype=np.float32), "test"), CPU), 3, BOTH)
        images, prompts = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.6, 0.8], [1.0, 0.0]])
        with torch.no_grad():
            head.log_scale.fill_(math.log(100))
            assert head.logits(images, prompts)[0].tolist() == pytest.approx([60, 100])
            head.bias.copy_(torch.tensor([1.0, -2.0]))
            assert head.logits(5 * images, prompts / 3)[0].tolist() == pytest.approx([61, 98])

    def test_head_starts_at_the_prevalence_and_a_scale_of_ten(self) -> None:
        tower = VectorTower(LabelSpace(("a", "b"), np.eye(2, dtype=np.float32), "test"), CPU)
        head = PromptHead(4, tower, 3, torch.tensor([0.2, 0.0]))
        across = torch.tensor([[0.0, 0.0], [1.0, 0.0]])  # no direction at all, then the direction of "a"
        logits = head.logits(across, torch.eye(2))
        assert logits[0].sigmoid().tolist() == pytest.approx([0.2, 1e-4])  # never an infinite logit
        assert (logits[1] - logits[0]).tolist() == pytest.approx([10, 0], abs=1e-5)
        assert head.context.shape == (3, 2)


class TestVectorTower:
    def test_is_the_mean_of_context_and_class_vector(self) -> None:
        tower = VectorTower(LabelSpace(("a", "b"), np.eye(2, dtype=np.float32), "test"), CPU)
        context = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
        expected = torch.tensor([[3.0, 1.0], [2.0, 2.0]])
        torch.testing.assert_close(tower(context), expected / expected.norm(dim=1, keepdim=True))

    def test_without_context_it_is_the_label_space(self) -> None:
        space = embed(CLASSES, "minilm")
        tower = open_tower(CLASSES, "minilm", CPU, seed=0)
        np.testing.assert_allclose(tower(torch.zeros(4, tower.token_width)), space.vectors, atol=1e-6)

    def test_says_that_it_is_not_coop(self) -> None:
        assert any("not CoOp" in note for note in open_tower(CLASSES, "auto", CPU, seed=0).notes)

    def test_identity_follows_the_vectors(self) -> None:
        first, again, other = (open_tower(CLASSES, "random", CPU, seed).identity for seed in (0, 0, 1))
        assert first == again != other


@pytest.mark.slow  # imports transformers
class TestTextTower:
    def test_without_context_it_is_the_label_space(self, bert: Path) -> None:
        tower = open_tower(CLASSES, str(bert), CPU, seed=0)
        assert isinstance(tower, TextTower)
        assert tower.notes == ()
        found = tower(torch.zeros(0, tower.token_width))
        np.testing.assert_allclose(found, embed(CLASSES, str(bert)).vectors, atol=1e-5)

    def test_each_prompt_is_read_as_if_it_stood_alone(self, bert: Path) -> None:
        """[CLS] v1 v2 name [SEP] word by word, without padding; the mean is over the name's pieces alone."""
        import transformers

        model = transformers.BertModel.from_pretrained(bert).eval()
        tower = open_tower(CLASSES, str(bert), CPU, seed=0)
        context = some_context(2, tower.token_width)
        found = tower(context)
        for row, name in enumerate((["pleural", "thick", "##ening"], ["mass"], ["no", "finding"])):
            table = model.embeddings.word_embeddings.weight
            words = [table[PIECES.index(piece)] for piece in ("[CLS]", *name, "[SEP]")]
            sentence = torch.stack([words[0], context[0], context[1], *words[1:]])
            states = model(inputs_embeds=sentence[None]).last_hidden_state[0]
            mean = states[3 : 3 + len(name)].mean(dim=0)
            torch.testing.assert_close(found[row], mean / mean.norm(), atol=1e-5, rtol=1e-4)

    def test_context_changes_classes_apart_from_each_other_and_is_all_that_learns(self, bert: Path) -> None:
        tower = open_tower(CLASSES, str(bert), CPU, seed=0)
        assert isinstance(tower, TextTower)
        context = some_context(2, tower.token_width)
        found = tower(context)
        plain = tower(torch.zeros(0, tower.token_width))
        moved = (found - plain).detach()
        assert (moved[0] - moved[1]).norm() > 1e-2
        (gradient,) = torch.autograd.grad(found[1, 3], context)
        assert (gradient.abs().sum(dim=1) > 0).all()
        assert not any(weight.requires_grad for weight in tower.model.parameters())

    def test_networks_of_double_precision_can_use_it(self, bert: Path) -> None:
        tower = open_tower(CLASSES, str(bert), CPU, seed=0)
        context = some_context(2, tower.token_width)
        head = PromptHead(4, tower, 2, torch.full((3,), 0.5)).double()
        found = tower(context.double())
        torch.testing.assert_close(found, tower(context))
        assert head.logits(head(torch.ones(2, 4).double()), found).dtype == torch.float64

    def test_refusals_are_one_line(self, bert: Path, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="no word pieces for class 'Hernia'"):
            open_tower(["Mass", "Hernia"], str(bert), CPU, seed=0)
        tower = open_tower(CLASSES, str(bert), CPU, seed=0)
        with pytest.raises(InputError, match=f"do not fit into the model's {PLACES} places"):
            tower(torch.zeros(PLACES - 4, tower.token_width))
        with pytest.raises(InputError, match="Cannot load the text model") as caught:
            open_tower(CLASSES, str(tmp_path), CPU, seed=0)
        assert "\n" not in str(caught.value)

    def test_weights_that_do_not_fill_the_model_are_refused(self, bert: Path, tmp_path: Path) -> None:
        from safetensors.torch import load_file, save_file

        for file in bert.iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
        state = load_file(tmp_path / "model.safetensors")
        del state["encoder.layer.1.output.dense.weight"]
        save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(InputError, match=r"encoder\.layer\.1\.output\.dense\.weight"):
            open_tower(CLASSES, str(tmp_path), CPU, seed=0)

    def test_identity_follows_weights_and_names_but_not_a_pooler_drawn_at_random(
        self, bert: Path, tmp_path: Path
    ) -> None:
        from safetensors.torch import load_file, save_file

        for file in bert.iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())

        def saved(change: dict[str, torch.Tensor]) -> str:
            state = {name: value for name, value in load_file(bert / "model.safetensors").items() if "pool" not in name}
            save_file({**state, **change}, tmp_path / "model.safetensors", metadata={"format": "pt"})
            return open_tower(CLASSES, str(tmp_path), CPU, seed=0).identity

        plain = open_tower(CLASSES, str(bert), CPU, seed=0).identity
        assert saved({}) == plain
        assert open_tower(CLASSES[:2], str(bert), CPU, seed=0).identity != plain
        assert saved({"encoder.layer.0.output.dense.bias": torch.ones(16)}) != plain


def test_without_transformers_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InputError, match=r"pip install 'bomd\[text\]'"):
        open_tower(CLASSES, str(tmp_path), CPU, seed=0)
