"""Label smoothing: every label is pulled towards undecided."""

from __future__ import annotations

from torch import Tensor

from bomd.errors import InputError
from bomd.methods.base import Method


class Ls(Method):
    """Binary cross-entropy towards labels that were pulled part of the way to one half.

    Paper: Szegedy et al., CVPR 2016, mix a softmax label with the uniform distribution over classes (share 0.1); the
    LS rows of BoMD (Chen et al. 2023) use a share of 0.6.
    Differs: every class moves towards 1/2 on its own, since classes of a multi-label problem do not share a total;
    where an image has one label it is as in the first paper.
    Found: with the share of 0.6 all negatives learn towards 0.3, which drowns rare positives: on X-rays it stays behind
    plain cross-entropy with labels as given. 0.1 is the milder choice.
    Cost: 1.

    Args:
        smoothing: Share r of one half in the target (1 - r) y + r / 2.
    """

    one_label = True

    def __init__(self, smoothing: float = 0.6) -> None:
        if not 0 <= smoothing <= 1:
            raise InputError(f"ls.smoothing is {smoothing:g}, but must lie in [0, 1]; use gls for negative values.")
        self.smoothing = smoothing

    def loss(self, logits: Tensor, targets: Tensor, index: Tensor) -> Tensor:
        undecided = 1 / logits.shape[1] if self.exclusive else 1 / 2
        return self.cross_entropy(logits, (1 - self.smoothing) * targets + self.smoothing * undecided)
