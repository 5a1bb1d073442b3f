"""Room 5: one file per way to learn from noisy labels. To add one, add its line here."""

from __future__ import annotations

from bomd.methods.base import Method
from bomd.methods.bce import Bce
from bomd.methods.bomd import Bomd, BomdPaper

METHODS: dict[str, type[Method]] = {
    "bce": Bce,
    "bomd": Bomd,
    "bomd-paper": BomdPaper,
}
