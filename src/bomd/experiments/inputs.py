"""What a run is made from: the state of its labels and images, and that nobody is both learnt from and tested on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bomd.data.store import Store
from bomd.data.wanted import file_state
from bomd.errors import InputError
from bomd.experiments.identity import flatten
from bomd.files import fingerprint
from bomd.methods import METHODS
from bomd.runs import Data
from bomd.sources import code_of
from bomd.tables import LabelTable, Text

if TYPE_CHECKING:  # it knows networks, which take seconds to import
    from bomd.experiments.packing import Source

_WAY_OUT = "Set hold_out_test_patients = true to drop them from training."


def code_of_run(method: str) -> str:
    """Changes with the code that the numbers of a run come from: reading, noise, packing and the method."""
    return code_of(METHODS.module(method), "bomd.data.datasets", "bomd.data.noise", "bomd.data.store")


def state_of(tables: Mapping[str, LabelTable], stores: Mapping[str, Store] | None = None) -> Data:
    """Fingerprints that change with any label, with any image file, and, where they are packed, with any pixel."""
    return {
        name: {
            "labels": fingerprint(table.ids, list(table.classes), table.values, table.groups),
            "files": None if table.paths is None else fingerprint(*file_state(table).values()),
            "images": stores[name].fingerprint if stores else None,
        }
        for name, table in tables.items()
    }


def without_shared_patients(
    train: LabelTable, tests: Mapping[str, LabelTable], sources: Mapping[str, Mapping[str, Any]], drop: bool
) -> LabelTable:
    """The training labels without patients of a test set, who are the same under whatever spelling of a folder.

    `sources` is what the recipe says of each set; without `drop` shared patients are refused.
    """
    for name, test in tests.items():
        shared = np.isin(_people(train, sources["train"]), _people(test, sources[name]))
        if train.paths is not None and test.paths is not None:
            shared |= np.isin(_real_files(train.paths), _real_files(test.paths))
        train = _leave_out(train, shared, drop, f"patients of test set {name!r} are in the training set too")
    return train


def without_copies(train: Source, tests: Mapping[str, Source], drop: bool) -> tuple[Source, list[str]]:
    """The training images without patients of whom a test set has the very picture, and what a reader should know.

    Ids of other folders may be the same by chance, as 0001.png is, so that pixels decide about them.
    """
    notes = []
    for name, test in tests.items():
        ids, copies = train.labels.ids, _copies(train, test)
        example = f", such as {str(ids[np.argmax(copies)])!r}" if copies.any() else ""
        problem = f"patients have pictures in the training set that are in test set {name!r} too{example}"
        same = np.isin(ids, test.labels.ids) & ~copies
        train = replace(train, labels=_leave_out(train.labels, copies, drop, problem))
        if same.any():
            first = f"{int(same.sum())} images of the training set and of test set {name!r} have the same ids"
            notes.append(f"{first} and other pixels: make sure that they are not the same patients.")
    return train, notes


def _leave_out(train: LabelTable, shared: NDArray[np.bool_], drop: bool, problem: str) -> LabelTable:
    """The table without everybody who has a shared row; refused if the recipe does not say so."""
    if not shared.any():
        return train
    people = np.unique(train.groups[shared])
    if not drop:
        raise InputError(f"{len(people)} {problem}. {_WAY_OUT}")
    kept = ~np.isin(train.groups, people)
    if not kept.any():
        raise InputError(f"No training image is left without the {len(people)} {problem}.")
    return train.take(kept)


def _people(table: LabelTable, source: Mapping[str, Any]) -> Text:
    """(N) patients with the real folder before their names, where a set names them by its folder."""
    people = table.groups.copy()
    for root in {str(value) for key, value in flatten(source).items() if key.rpartition(".")[2] == "root"}:
        real = f"{os.path.realpath(root)}:"
        named = np.char.startswith(people, f"{root}:")
        if named.any() and real != f"{root}:":
            people = people.astype(object)
            people[named] = [f"{real}{name.removeprefix(f'{root}:')}" for name in people[named]]
            people = people.astype(np.str_)
    return people


def _real_files(paths: Text) -> Text:
    """(N) files with links in their folders followed; a link to a single file is left to the pixels."""
    parts = [str(path).rpartition("/") for path in paths]
    folders = {folder: os.path.realpath(folder or Path.cwd()) for folder in {folder for folder, _, _ in parts}}
    return np.asarray([f"{folders[folder]}/{name}" for folder, _, name in parts], dtype=np.str_)


def _copies(train: Source, test: Source) -> NDArray[np.bool_]:
    """(N) training images whose packed pixels are those of a test image; checksums find them, pixels decide."""
    own, theirs = (source.store.rows(source.labels.ids) for source in (train, test))
    sums, others = train.store.checksums[own], test.store.checksums[theirs]
    by_sum: dict[int, list[int]] = {}
    for row in theirs[np.isin(others, sums)].tolist():
        by_sum.setdefault(int(test.store.checksums[row]), []).append(row)
    copies = np.zeros(len(own), dtype=np.bool_)
    for place in np.flatnonzero(np.isin(sums, others)):
        pixels = train.store.images[own[place]]
        copies[place] = any(np.array_equal(pixels, test.store.images[row]) for row in by_sum[int(sums[place])])
    return copies
