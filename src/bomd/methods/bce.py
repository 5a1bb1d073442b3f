"""The baseline that trusts every label."""

from __future__ import annotations

from bomd.methods.base import Method


class Bce(Method):
    """Binary cross-entropy on the labels as given.

    Paper: the BCE rows of BoMD (Chen et al. 2023).
    Differs: nothing known.
    Cost: 1.
    """
