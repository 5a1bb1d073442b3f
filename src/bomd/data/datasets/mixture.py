"""Two sets as one: a noisy base, and a clean part whose labels can be corrupted on purpose.

The paper's NIHxPDC benchmark is NIH with the manually labelled part of PadChest; any other pair works the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bomd.errors import InputError
from bomd.tables import LabelTable, Text

BASE, PART = "base", "part"


def read(base: LabelTable, part: LabelTable) -> LabelTable:
    """All rows of both, with the classes of the base; `origins` tells them apart."""
    if (base.paths is None) != (part.paths is None):
        raise InputError("A mixture needs two sets of files, or two of generated images.")
    unknown = [name for name in base.classes if name not in part.classes]
    if len(unknown) == len(base.classes):
        raise InputError("The two sets of a mixture share no class.")
    part = part.align(base.classes)
    both = (base, part)
    return LabelTable(
        ids=np.concatenate([table.ids for table in both]),
        classes=base.classes,
        values=np.concatenate([table.values for table in both]),
        paths=_joined(base.paths, part.paths),
        patients=np.concatenate([table.groups for table in both]),
        views=_joined(base.views, part.views),
        origins=np.repeat(np.asarray([BASE, PART]), [len(base), len(part)]),
        confirmed=None if base.confirmed is None and part.confirmed is None else np.concatenate(_confirmed(both)),
    )


def _confirmed(tables: Sequence[LabelTable]) -> list[NDArray[np.bool_]]:
    return [np.zeros(table.values.shape, np.bool_) if table.confirmed is None else table.confirmed for table in tables]


def _joined(first: Text | None, second: Text | None) -> Any:
    return None if first is None or second is None else np.concatenate([first, second])
