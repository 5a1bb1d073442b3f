"""Prompt pre-training: the trunk first learns to match images with learnt prompts of the class names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from bomd.config import FitSettings
from bomd.data.batches import Images
from bomd.describe.prompts import PromptHead, Tower, open_tower
from bomd.files import replacing
from bomd.learn.engine import Batch, Learner
from bomd.methods.base import Context, Method, Prepared, frequencies, masked_cross_entropy
from bomd.methods.fitted import fit_once, own_settings
from bomd.methods.hermoza import Hermoza
from bomd.methods.settings import within
from bomd.networks.architectures import SaliencyTrunk
from bomd.networks.backbone import Network
from bomd.seeds import derive
from bomd.tables import LabelTable


class Coop(Method):
    """Pre-train the trunk against prompts whose context words are learnt, then train the classifier as usual.

    Paper: Zhou et al., Learning to Prompt for Vision-Language Models, IJCV 2022. Context vectors in front of a class
    name are learnt through a frozen text tower, and an image's logits are scaled cosines with the prompts. BoMD
    (Chen et al. 2023) pre-trains Hermoza et al. so, and reports a loss of about one point (`classifier="hermoza"`).
    Differs: one sigmoid per class with a learnt scale and bias, where CoOp has a softmax and CLIP's scale; the image
    tower is the recipe's backbone with a linear projection, and is trained, where CoOp freezes CLIP's; Adam in place
    of SGD. Unless `language` names a text model there is no text tower, and prompts are the mean of the context and
    fixed class vectors, which is not CoOp: a note in the results says so.
    Cost: 1.17 in 30 epochs, since pre-training adds 5 of its own however long the run is.

    Args:
        classifier: What is trained from the trunk: one linear layer by cross-entropy, or the method "hermoza".
        language: "bluebert", "biobert", "clinicalbert" or the folder of a transformers model for a text tower; others
            (see `bomd embed --help`) give fixed class vectors only.
        context: Learnt words in front of each class name.
        epochs: Passes over the data to pre-train; batch, rate and schedule belong to them too.
    """

    trusts_labels = True

    def __init__(
        self,
        classifier: Literal["linear", "hermoza"] = "linear",
        language: str = "auto",
        context: int = 16,
        epochs: int = 5,
        batch: int = 32,
        rate: float = 1e-4,
        schedule: Literal["constant", "cosine", "onecycle"] = "cosine",
    ) -> None:
        within("[1, inf)", "coop", context=context)
        self.classifier = Hermoza() if classifier == "hermoza" else Method()
        self.language, self.context = language, context
        self.epochs, self.batch, self.rate, self.schedule = epochs, batch, rate, schedule
        self._trunk: Path | None = None

    def check(self, train: LabelTable) -> None:
        open_tower(train.classes, self.language, torch.device("cpu"), seed=0)

    def prepare(self, train: LabelTable, context: Context) -> Prepared:
        tower = open_tower(train.classes, self.language, context.fabric.device, derive(context.seed, "language"))
        settings = own_settings(context.fit, self.epochs, self.batch, self.rate, self.schedule)
        learner = PromptLearner(tower, self.context, torch.as_tensor(frequencies(train.values)))
        inputs = [train.values, tower.identity, self.context]
        self._trunk, history = fit_once(
            "prompts", learner, train.values, settings, tower.width, context, keep_trunk, "trunk.safetensors", inputs
        )
        return replace(self.classifier.prepare(train, context), history=history, notes=tower.notes)

    def build(self, outputs: int, settings: FitSettings, seed: int) -> list[Network]:
        """The classifier on the pre-trained trunk, once there is one."""
        if self._trunk is None:
            return self.classifier.build(outputs, settings, seed)
        (network,) = self.classifier.build(outputs, replace(settings, weights="none"), seed)
        trunk = network.trunk.trunk if isinstance(network.trunk, SaliencyTrunk) else network.trunk
        trunk.load_state_dict(load_file(self._trunk))
        return [network]

    def loss(self, logits: Tensor, targets: Tensor, index: Tensor) -> Tensor:
        return self.classifier.loss(logits, targets, index)


def keep_trunk(learner: Learner, networks: Sequence[Network], images: Images, path: Path) -> None:
    """Write the weights of the trunk."""
    weights = {name: value.cpu().contiguous() for name, value in networks[0].trunk.state_dict().items()}
    with replacing(path) as temporary:
        temporary.write_bytes(save(weights))


class PromptLearner(Learner):
    """Learns a trunk and context words such that an image fits the prompts of its labels."""

    recordable = False  # a text model of others may look at values, such as whether a mask is full

    def __init__(self, tower: Tower, words: int, frequency: Tensor) -> None:
        """Take the tower that reads prompts, how many context vectors are learnt, and the (C) shares of positives."""
        self.tower, self.words, self.frequency = tower, words, frequency

    def build(self, outputs: int, settings: FitSettings, seed: int) -> list[Network]:
        (network,) = super().build(outputs, settings, seed)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(derive(seed, "prompts"))
            network.head = PromptHead(network.feature_size, self.tower, self.words, self.frequency)
        return [network]

    def step(self, networks: Sequence[Network], batch: Batch) -> Tensor:
        return masked_cross_entropy(self._logits(networks[0], batch.view()), batch.targets)

    def predict(self, networks: Sequence[Network], images: Tensor) -> Tensor:
        return self._logits(networks[0], images).sigmoid()

    def _logits(self, network: Network, images: Tensor) -> Tensor:
        head = network.head
        assert isinstance(head, PromptHead)
        return head.logits(network(images), self.tower(head.context))
