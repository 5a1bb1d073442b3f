"""Small loss: after a short training, learn only from the images that fit best."""

from __future__ import annotations

import numpy as np

from bomd.errors import InputError
from bomd.learn.engine import predict
from bomd.methods.base import Context, Method, Prepared, train_plainly
from bomd.methods.dividemix import clean_posterior, row_means
from bomd.methods.two_gaussians import cross_entropies
from bomd.tables import Flags, LabelTable


class SmallLoss(Method):
    """Divide the images once by their loss after a short training, and leave out the part with the larger loss.

    Paper: the first half of DivideMix (Li et al., ICLR 2020), which the BoMD paper compares its detection with.
    Differs: nothing is mixed or guessed, and the division is made once. The short training follows the recipe's
    schedule over `warmup` epochs. Images left out have no labels to learn from.
    Found: with right labels it is far behind plain cross-entropy: images with findings have the larger losses, and
    hardly any finding is left to learn from. With very heavy noise on whole images what it leaves out is nearly all
    wrong: there it was ahead of every method that was run beside it, on phantoms and on X-rays.
    Cost: 1.2.
    """

    def __init__(self, warmup: int = 2, threshold: float = 0.5) -> None:
        """Take the settings.

        Args:
            warmup: Epochs of plain cross-entropy before the division.
            threshold: Posterior of the low-loss heap at or below which an image is left out.
        """
        self.warmup, self.threshold = warmup, threshold

    def check(self, train: LabelTable) -> None:
        if self.warmup < 1:
            raise InputError(f"small-loss.warmup is {self.warmup}, but at least 1 epoch is needed to have losses.")

    def prepare(self, train: LabelTable, context: Context) -> Prepared:
        self.check(train)
        network, history = train_plainly(train, context, self.warmup)
        logits = predict(self, [network], context.images, score=lambda networks, images: networks[0](images))
        losses = cross_entropies(logits.numpy(), train.values)
        noisy = clean_posterior(losses, train.values, per_label=False)[:, 0] <= self.threshold
        flags = Flags(train.ids, noisy, -row_means(losses).astype(np.float32), -losses.astype(np.float32))
        targets = np.where(noisy[:, None], np.nan, train.values).astype(np.float32)
        return Prepared(targets, flags, history=history)
