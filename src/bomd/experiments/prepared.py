"""What a method has prepared fits the labels that it was given, or is refused before a classifier is trained on it."""

from __future__ import annotations

from typing import Any

import numpy as np

from bomd.errors import InputError
from bomd.methods.base import Context, Method, Prepared
from bomd.tables import LabelTable


def prepare(method: Method, given: LabelTable, context: Context) -> Prepared:
    """Let a method prepare on labels of its own, so that what it edits in place leaves the given ones as they are."""
    prepared = method.prepare(given.replace(given.values.copy()), context)
    hook = f"`prepare` of {type(method).__name__}"
    if not isinstance(prepared, Prepared):
        kind = None if prepared is None else type(prepared).__name__  # labels of a whole set would fill the screen
        raise InputError(f"{hook} must return a `Prepared`, not {kind}.")
    each_label, each_image = given.values.shape, (len(given), 1)
    allowed = {"targets": (each_label,), "scores": (each_label,), "weights": (each_label, each_image)}
    for name, shapes in allowed.items():
        found: Any = getattr(prepared, name)
        if (found is not None or name == "targets") and getattr(found, "shape", None) not in shapes:
            fits = " or ".join(map(str, dict.fromkeys(shapes)))
            raise InputError(f"{name} from {hook} must have the shape {fits}, not {getattr(found, 'shape', None)}.")
    for name, rows in {"flags": prepared.flags, "opinion": prepared.opinion}.items():
        if rows is not None and not np.array_equal(rows.ids, given.ids):
            raise InputError(f"{name} from {hook} must have the ids of the training table in their order.")
    if prepared.flags is not None and np.shape(prepared.flags.entry) != each_label:
        found = np.shape(prepared.flags.entry)
        raise InputError(f"entry of the flags from {hook} must have the shape {each_label}, not {found}.")
    if prepared.opinion is None and prepared.scores is not None and not np.isfinite(prepared.scores).all():
        raise InputError(f"scores from {hook} must be finite, since labels are judged by them.")
    return prepared
