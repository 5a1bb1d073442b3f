"""MentorNet with its predefined curriculum: easy images first, hard ones hardly ever."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from bomd.learn.engine import Predict
from bomd.methods.base import Context, Method, Prepared
from bomd.methods.settings import note_of_default, within
from bomd.seeds import derive
from bomd.tables import LabelTable


class MentorNet(Method):
    """Leave out images whose loss lies above a running percentile, after a time in which all count.

    Paper: Jiang et al., MentorNet, ICML 2018, predefined curriculum. The mentor is a small network fitted to a rule:
    first every image counts, then those below the percentile, towards the end those above it count the less the
    further above they are; images are dropped at random, half of them in the beginning.
    Differs: the rule itself is the mentor; the loss of an image is its mean over classes; the percentile is taken over
    the last 128 losses, the paper's batch, whatever the recipe's; it starts from the first batch and not from 0; weight
    decay is not scaled.
    The percentile leaves out the share of images that the recipe's noise made wrong, where the release tries several.
    Found: on phantoms the hardest images are those with findings almost without exception, so that leaving out more
    than are wrong costs what is rare.
    Cost: 1.

    Args:
        percentile: Of the recent losses, as a share; images below it count as easy. By default the share that the
            recipe's noise left right.
        momentum: Of the running percentile.
        recent: Losses that it is taken over.
        burn_in: Share of the run in which every image counts.
        taper: Share of the run after which hard images fade instead of being left out.
        scale: How far above the percentile a loss has to lie then to count nothing.
        early: Share of the run in which `early_dropout` applies.
        early_dropout: Share of the images that is dropped at random in that time.
        late_dropout: The same afterwards.
    """

    def __init__(
        self,
        percentile: float | None = None,
        momentum: float = 0.5,
        recent: int = 128,
        burn_in: float = 0.3,
        taper: float = 0.9,
        scale: float = 1.0,
        early: float = 0.17,
        early_dropout: float = 0.5,
        late_dropout: float = 0.05,
    ) -> None:
        within("[0, 1]", "mentornet", percentile=percentile, momentum=momentum, burn_in=burn_in, taper=taper)
        within("[0, 1]", "mentornet", early=early, early_dropout=early_dropout, late_dropout=late_dropout)
        within("[1, inf)", "mentornet", recent=recent)
        within("(0, inf)", "mentornet", scale=scale)
        self.percentile, self.momentum, self.recent = percentile, momentum, recent
        self.burn_in, self.taper, self.scale = burn_in, taper, scale
        self.early, self.early_dropout, self.late_dropout = early, early_dropout, late_dropout

    def prepare(self, train: LabelTable, context: Context) -> Prepared:
        batch = min(context.fit.batch, len(train))
        self.steps = context.fit.epochs * (len(train) // batch)
        self.seed = context.seed
        self.easy = 1 - context.noise.images if self.percentile is None else self.percentile
        self.step_number = context.buffer(())
        self.threshold = context.buffer(()).fill_(torch.nan)  # unknown before the first batch
        self.losses = context.buffer((self.recent,)).fill_(torch.nan)
        self.luck = context.buffer((len(train),)).fill_(1.0)  # an image is dropped where the share to drop is higher
        why = "the share that the recipe's noise left right"
        return Prepared(train.values, notes=note_of_default("mentornet", "percentile", self.percentile, self.easy, why))

    def buffers(self) -> dict[str, Tensor]:
        return {"step_number": self.step_number, "threshold": self.threshold, "losses": self.losses}

    def start_epoch(self, epoch: int, predict: Predict) -> None:
        # Drawn for all images at once, so that an image's luck does not depend on its place in the batch.
        generator = torch.Generator().manual_seed(derive(self.seed, "dropout", epoch))
        self.luck.copy_(torch.rand(len(self.luck), generator=generator))

    def loss(self, logits: Tensor, targets: Tensor, index: Tensor) -> Tensor:
        known = ~targets.isnan()
        entries = F.binary_cross_entropy_with_logits(logits, targets.nan_to_num(), reduction="none") * known
        means = (entries.sum(1) / known.sum(1).clamp(min=1)).detach()
        done = self.step_number / self.steps
        self.remember(means.masked_fill(~known.any(1), torch.nan))
        dropout = self.late_dropout + (self.early_dropout - self.late_dropout) * (done < self.early)
        weights = self.curriculum(means, done) * (self.luck[index] >= dropout)
        self.step_number += 1
        return (entries * weights[:, None]).sum() / known.sum().clamp(min=1)

    def remember(self, losses: Tensor) -> None:
        """Let (B) losses replace the oldest ones, and move the threshold; NaN stands for an image without labels."""
        places = torch.arange(len(losses), device=losses.device)[-self.recent :]
        self.losses[(self.step_number.long() * len(losses) + places) % self.recent] = losses[-self.recent :]
        current = torch.nanquantile(self.losses, self.easy)
        moved = self.momentum * self.threshold + (1 - self.momentum) * current
        self.threshold.copy_(moved.where(~self.threshold.isnan(), current))

    def curriculum(self, losses: Tensor, done: Tensor) -> Tensor:
        """(B) weights of images with these losses when this share of the run is done."""
        above = losses - self.threshold
        selected = torch.where(done < self.taper, (above <= 0).float(), (1 - above / self.scale).clamp(0, 1))
        return torch.where(done <= self.burn_in, torch.ones_like(losses), selected)
