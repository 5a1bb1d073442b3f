"""Class names behind learnt words: a frozen text tower reads both, and images are compared with what it says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bomd.describe.labelspace import ENCODERS, LabelSpace, embed, in_words, open_text_model
from bomd.errors import InputError
from bomd.files import fingerprint

FIRST_SCALE = 10.0  # of the cosines, learnt from there
SPREAD = 0.02  # of the first context vectors: as small as the word vectors of a fresh language model


class TextTower:
    """A frozen language model that reads context and name in one sentence.

    A name's vector is the mean of its last-layer word-piece states, as in the label space: without context, the
    two are equal.

    Attributes:
        token_width: E, the length of a context vector; `width` is D, that of what comes out.
        identity: changes with anything that changes what comes out.
    """

    notes: tuple[str, ...] = ()  # what a reader of the results should know

    def __init__(self, model: Any, tokenizer: Any, classes: Sequence[str], device: torch.device) -> None:
        self.model = model.float().eval().requires_grad_(False).to(device)
        encoded = [tokenizer(in_words(name), return_special_tokens_mask=True) for name in classes]
        for name, pieces in zip(classes, encoded, strict=True):
            if all(pieces["special_tokens_mask"]) or tokenizer.unk_token_id in pieces["input_ids"]:
                raise InputError(f"The text model has no word pieces for class {name!r}: rename it or use another.")
        longest = max(len(pieces["input_ids"]) for pieces in encoded)

        def table(rows: Sequence[Sequence[int]], fill: int) -> Tensor:
            return torch.tensor([[*row, *[fill] * (longest - len(row))] for row in rows], device=device)

        self._start = encoded[0]["special_tokens_mask"].index(0)  # the context stands where the name would begin
        self._words = self.model.get_input_embeddings()(
            table([pieces["input_ids"] for pieces in encoded], tokenizer.pad_token_id or 0)
        )  # (C, longest, E)
        self._read = table([[1] * len(pieces["input_ids"]) for pieces in encoded], 0)
        self._name = 1.0 - table([pieces["special_tokens_mask"] for pieces in encoded], 1).float()
        self.token_width, self.width = self._words.shape[2], int(model.config.hidden_size)
        used = {name: weight for name, weight in model.state_dict().items() if "pooler" not in name}
        self.identity = fingerprint(list(classes), *(weight.cpu().numpy() for weight in used.values()))

    def __call__(self, context: Tensor) -> Tensor:
        """(n, E) context to (C, D) vectors of length one; gradients reach the context and nothing else."""
        begin, end = self._words[:, : self._start], self._words[:, self._start :]
        places = getattr(self.model.config, "max_position_embeddings", math.inf)
        if self._words.shape[1] + len(context) > places:
            raise InputError(f"{len(context)} context vectors and a name do not fit into the model's {places} places.")
        words = torch.cat([begin, context.to(begin.dtype).expand(len(begin), -1, -1), end], dim=1)
        mask = torch.cat([self._read.new_ones(len(begin), len(context)), self._read], dim=1)
        states = self.model(inputs_embeds=words, attention_mask=mask).last_hidden_state
        states = torch.cat([states[:, : self._start], states[:, self._start + len(context) :]], dim=1)
        weights = self._name / self._name.sum(dim=1, keepdim=True)
        return F.normalize((states * weights[:, :, None]).sum(dim=1))


class VectorTower:
    """Stands in for a text tower where there is none: the mean of the context vectors and a fixed class vector.

    It is not CoOp, and says so: the context moves all classes by the same vector, and cannot change what a name means.
    """

    def __init__(self, space: LabelSpace, device: torch.device) -> None:
        self._vectors = torch.as_tensor(space.vectors, device=device)
        self.token_width = self.width = self._vectors.shape[1]
        self.identity = fingerprint(space.vectors)
        self.notes = (
            f"No text model: prompts are means of learnt vectors and fixed class vectors from {space.source}, "
            f"which is not CoOp.",
            *space.notes,
        )

    def __call__(self, context: Tensor) -> Tensor:
        return F.normalize((self._vectors + context.sum(dim=0)) / (1 + len(context)))


Tower = TextTower | VectorTower


class PromptHead(nn.Module):
    """What is learnt beside the trunk: a projection of its features, (n, E) context, a scale and a bias per class."""

    def __init__(self, features: int, tower: Tower, words: int, prevalence: Tensor) -> None:
        """Draw the projection of (B, features) and n `words` of context from PyTorch's global generator.

        Cosines have no calibrated zero, so the bias starts at the (C) prevalence.
        """
        super().__init__()
        self.projection = nn.Linear(features, tower.width)
        self.context = nn.Parameter(SPREAD * torch.randn(words, tower.token_width))
        self.log_scale = nn.Parameter(torch.tensor(math.log(FIRST_SCALE)))
        self.bias = nn.Parameter(prevalence.float().clamp(1e-4, 1 - 1e-4).logit())

    def forward(self, features: Tensor) -> Tensor:
        """(B, F) features to (B, D), where prompts are."""
        projected: Tensor = self.projection(features)
        return projected

    def logits(self, projected: Tensor, prompts: Tensor) -> Tensor:
        """(B, C) scaled cosines between (B, D) projected images and (C, D) prompts, plus a bias."""
        cosines = F.normalize(projected) @ F.normalize(prompts.to(projected.dtype)).T
        return self.log_scale.exp() * cosines + self.bias


def open_tower(classes: Sequence[str], language: str, device: torch.device, seed: int) -> Tower:
    """The text tower of an encoder or the folder of a transformers model, or the stand-in for any other language."""
    where = ENCODERS.get(language, language)
    if language not in ENCODERS and not Path(language).is_dir():
        return VectorTower(embed(classes, language, seed=seed), device)
    tokenizer, model = open_text_model(where)
    return TextTower(model, tokenizer, classes, device)
