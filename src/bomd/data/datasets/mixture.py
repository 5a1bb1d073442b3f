"""Two sets as one: a noisy base, and a clean part whose labels can be corrupted on purpose.

The paper's NIHxPDC benchmark is NIH with the manually labelled part of PadChest; any other pair works the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bomd.errors import InputError
from bomd.tables import LabelTable, Text

BASE, PART = "base", "part"


def read(base: LabelTable, part: LabelTable) -> LabelTable:
    """All rows of both, with the classes of the base; `origins` tells them apart."""
    if (base.paths is None) != (part.paths is None):
        raise InputError("A mixture needs two sets of files, or two of generated images.")
    if not set(base.classes) & set(part.classes):
        raise InputError("The two sets of a mixture share no class.")
    both = (base, part.align(base.classes))
    confirmed = [np.zeros(one.values.shape, np.bool_) if one.confirmed is None else one.confirmed for one in both]
    return LabelTable(
        ids=np.concatenate([table.ids for table in both]),
        classes=base.classes,
        values=np.concatenate([table.values for table in both]),
        paths=_joined(base.paths, part.paths),
        patients=np.concatenate([table.groups for table in both]),
        views=_joined(base.views, part.views),
        origins=np.repeat(np.asarray([BASE, PART]), [len(base), len(part)]),
        confirmed=None if base.confirmed is None and part.confirmed is None else np.concatenate(confirmed),
    )


def _joined(first: Text | None, second: Text | None) -> Any:
    return None if first is None or second is None else np.concatenate([first, second])
