"""The noise that a recipe adds on purpose: checked before work starts, drawn once for all methods."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from bomd import runs
from bomd.config import Config
from bomd.data.noise import NOISES, NoisyLabels, check_fits, within
from bomd.data.split import split_by_patient
from bomd.errors import InputError
from bomd.seeds import derive
from bomd.tables import LabelTable
from bomd.typed import arguments, convert, nearest


def plan_noise(config: Config, table: LabelTable) -> Callable[[], NoisyLabels] | None:
    """The recipe's noise, checked and ready to be drawn; nothing where the recipe asks for none.

    Beside the arguments of its kind, `only` names the origin of the rows that it falls on, and `share` the part
    of the patients.
    """
    options = dict(config.noise)
    kind = convert(options.pop("kind", "none"), str, "noise.kind")
    if kind == "none":
        if options:
            raise InputError(f"noise: {next(iter(options))!r} is set, but 'kind' is not.")
        return None
    if kind not in NOISES:
        raise InputError(f"noise: unknown kind {kind!r}.{nearest(kind, [*NOISES, 'none'])}")
    origin, share = options.pop("only", None), options.pop("share", 1.0)
    seed = derive(config.seed, "noise")
    draw = partial(NOISES[kind], table=table, seed=seed)
    chosen = arguments(draw, options, "noise")
    check_fits(kind, table, chosen.get("labels"))
    exposed = np.ones(len(table), dtype=np.bool_)
    if origin is not None:
        exposed = np.zeros_like(exposed) if table.origins is None else table.origins == origin
        if not exposed.any():
            known = [] if table.origins is None else np.unique(table.origins).tolist()
            raise InputError(f"noise.only: no training image comes from {origin!r}. There are: {known}.")
    if not 0 < convert(share, float, "noise.share") <= 1:
        raise InputError(f"noise.share must be above 0 and at most 1, not {share}.")
    if share < 1:
        rows = np.flatnonzero(exposed)
        kept, _ = split_by_patient(table.take(rows), share, seed)
        exposed[rows[kept]] = False
    return partial(within, exposed, table, lambda part: NOISES[kind](table=part, seed=seed, **chosen))


def add_noise(config: Config, table: LabelTable, stages: runs.Stages) -> NoisyLabels | None:
    """Draw the recipe's noise once per seed; every method and stage then reads the same file."""
    draw = plan_noise(config, table)
    if draw is None:
        return None
    by = ("bomd.data.noise", "bomd.data.split")
    inputs = (table.ids, table.classes, table.values, table.groups, table.origins, config.noise, config.seed)
    with stages.enter("noise", *inputs, *table.marks(), by=by) as stage:
        path = stage.directory / "noise.npz"
        if not stage.finished:
            draw().save(path)
            stage.finish()
        return NoisyLabels.load(path)
