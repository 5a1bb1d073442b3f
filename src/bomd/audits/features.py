"""The user's own embeddings in place of training: neighbours vote, and nothing else judges."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import torch

from bomd import progress, runs
from bomd.clean.graph import nearest_images
from bomd.clean.relabel import neighbour_mean, relabel
from bomd.config import Config
from bomd.data import datasets
from bomd.data.store import Store
from bomd.errors import InputError
from bomd.files import write_json
from bomd.measure.confirmed import keep_confirmed
from bomd.measure.evaluate import evaluate
from bomd.measure.experiment import pack_images, skipped_images
from bomd.measure.records import LabelRecord, choose_examples, save_predictions
from bomd.measure.suspicion import suspicion_of
from bomd.methods.base import Prepared
from bomd.methods.bomd import outvoted
from bomd.tables import Floats, Text, rows_of

METHOD = "features"  # where a run says how it was made


def read_features(file: Path, ids: Text, rows: tuple[int, ...], records: int) -> Floats:
    """(N, 1, D) embeddings of the images with these ids, each of length one.

    Args:
        file: `.npy` with one row for each record of the label file, or `.npz` with "ids" and "features".
        ids: (N) of the images that are audited.
        rows: (N) their records.
        records: of the label file.
    """
    try:
        loaded = np.load(file, allow_pickle=False)
        named = dict(loaded) if isinstance(loaded, np.lib.npyio.NpzFile) else None
    except Exception as error:  # numpy and zipfile raise many kinds for a damaged file
        raise InputError(f"Cannot read features from {file}: {' '.join(str(error).split())}") from error
    if named is not None:
        if not {"ids", "features"} <= set(named):
            raise InputError(f"{file} holds {', '.join(named) or 'nothing'}: it needs 'ids' and 'features'.")
        values, names = named["features"], named["ids"].astype(np.str_)
        if names.ndim != 1 or len(names) != len(values):
            raise InputError(f"{file}: {names.shape} ids for {len(values)} rows of features.")
    else:
        values, names = loaded, None
    if values.ndim != 2 or not values.size or not np.issubdtype(values.dtype, np.number):
        raise InputError(f"Features in {file} are {values.dtype} of shape {values.shape}; expected numbers (N, D).")
    if names is None and len(values) != records:
        raise InputError(f"{file} has {len(values)} rows of features for {records} rows of labels; use .npz with ids.")
    chosen = values[list(rows)] if names is None else values[rows_of(names, ids)]
    chosen = chosen.astype(np.float32)
    finite = np.isfinite(chosen).all(axis=1)
    if not finite.all():
        raise InputError(f"Features of image {str(ids[np.argmin(finite)])!r} in {file} are not finite.")
    lengths = np.linalg.norm(chosen, axis=1, keepdims=True)
    unit = chosen / np.where(lengths > 0, lengths, np.float32(1))
    return np.asarray(unit[:, None], dtype=np.float32)


def run_on_features(config: Config, features: Floats, ids: Text, root: Path) -> runs.Run:
    """Flag and re-label by the votes of the nearest images, and leave a run directory like any other.

    Args:
        config: Its `train` names the labels; its method is `METHOD`.
        features: (N, 1, D).
        ids: (N) their images.
        root: As for `bomd.measure.experiment.run`.
    """
    started = time.time()
    this = runs.start(root, config)
    if this.finished:
        progress.say(f"{this.directory} is finished already; delete it to run again")
        return this
    labels, dataset = datasets.read(config.train, "train")
    source = pack_images(labels, dataset, config, runs.Stages(root / "stages"), torch.device("cpu"))
    given, store = source.labels, source.store
    own = features[rows_of(ids, given.ids)]
    count = int(config.settings[METHOD]["neighbours"])
    if len(given) <= count:
        raise InputError(f"{len(given)} readable images are too few: at least {count + 1} are needed.")
    found = nearest_images(own, count)
    votes = neighbour_mean(given.values, found).astype(np.float32)
    flags = outvoted(votes, given)
    kept = keep_confirmed(Prepared(relabel(given, found, flags.noisy).values, flags), given)
    record = LabelRecord(given, given.replace(kept.targets), flags=kept.flags, neighbours=found.indices, scores=votes)
    _write(this, record, store, config, started, skipped_images({"train": source}))
    return this


def _write(this: runs.Run, record: LabelRecord, store: Store, config: Config, started: float, notes: list[str]) -> None:
    """All files of a run; what nobody trained or tested is empty."""
    record.save(this.directory / "labels.npz")
    choose_examples(record, store, config.seed, suspicion_of(record).rank).save(this.directory / "examples.npz")
    save_predictions(this.directory / "predictions.npz", {}, {})
    runs.write_lines(this.directory / "metrics.jsonl", [])
    runs.remember_images(this, store.directory, store.size, store.fingerprint)
    write_json(this.directory / "environment.json", runs.environment("cpu", started))
    facts = {
        "format": runs.FORMAT,
        "name": config.name,
        "method": config.method,
        "seed": config.seed,
        "notes": ["Neighbours come from features that were given; nothing was trained.", *notes],
        "images": {"train": len(record.given)},
        "seconds": round(time.time() - started, 1),
        "images_presented": 0,
    }
    write_json(this.directory / "result.json", facts | evaluate(record, {}, {}, config.minimum_positives))
