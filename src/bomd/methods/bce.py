"""The baseline that trusts every label."""

from __future__ import annotations

from bomd.methods.base import Method


class Bce(Method):
    """Cross-entropy on the labels as given: of each class on its own, or by softmax where an image has one.

    Paper: the BCE rows of BoMD (Chen et al. 2023).
    Differs: nothing known.
    Cost: 1.
    """

    one_label = True
