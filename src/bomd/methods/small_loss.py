"""Small loss: after a short training, learn only from the images that fit best."""

from __future__ import annotations

import numpy as np

from bomd.learn.engine import predict
from bomd.methods.base import Context, Method, Prepared, train_plainly
from bomd.methods.settings import check_shares, warm_epochs, within
from bomd.methods.two_gaussians import cross_entropies, low_posterior, row_means
from bomd.tables import Flags, LabelTable


class SmallLoss(Method):
    """Divide the images once by their loss after a short training, and leave out the part with the larger loss.

    Paper: the first half of DivideMix (Li et al., ICLR 2020), which the BoMD paper compares its detection with.
    Differs: nothing is mixed or guessed, and the division is made once. The short training follows the recipe's
    schedule over its own epochs. Images left out have no labels to learn from.
    Found: with right labels images with findings have the larger losses, and after 2 epochs hardly any finding is left
    to learn from. With very heavy noise on whole images what it leaves out is nearly all wrong.
    Cost: 1.3.

    Args:
        share: Length of the short training, relative to that of the classifier.
        threshold: Posterior of the low-loss heap at or below which an image is left out.
        warmup: Epochs of the short training in place of `share`, for runs whose classifier is cut short because only
            the division matters.
    """

    def __init__(self, share: float = 0.3, threshold: float = 0.5, warmup: int | None = None) -> None:
        check_shares("small-loss", share=share)
        within("[1, inf)", "small-loss", warmup=warmup)
        self.share, self.threshold, self.warmup = share, threshold, warmup

    def prepare(self, train: LabelTable, context: Context) -> Prepared:
        epochs = max(1, warm_epochs(self.share, context.fit.epochs)) if self.warmup is None else self.warmup
        network, history = train_plainly(train, context, epochs)
        logits = predict(self, [network], context.images, score=lambda networks, images: networks[0](images))
        losses = cross_entropies(logits.numpy(), train.values)
        means = row_means(losses)
        noisy = low_posterior(means) <= self.threshold
        flags = Flags(train.ids, noisy, -means.astype(np.float32), -losses.astype(np.float32))
        targets = np.where(noisy[:, None], np.nan, train.values).astype(np.float32)
        return Prepared(targets, flags, history=history)
