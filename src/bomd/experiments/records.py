"""What a run leaves behind for people and reports: labels, predictions and a few pictures, without any model.

labels.npz       given and clean (where known) labels, training targets, the opinion, flags, neighbours
predictions.npz  truth and scores of every test set and of the held-out patients
examples.npz     thumbnails of flagged images and of their neighbours
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bomd.errors import InputError
from bomd.files import read_arrays, read_json, write_arrays
from bomd.tables import Flags, LabelTable, Opinion, Text, brief, rows_of

if TYPE_CHECKING:  # reports read records without PyTorch, pandas and SciPy
    from bomd.clean.rates import Known
    from bomd.data.noise import NoisyLabels
    from bomd.data.store import Store
    from bomd.methods.base import Prepared

THUMBNAIL = 128  # pixels; enough to see a finding, small enough for a page of them
SUSPECTS, RANDOM = 12, 12  # examples from the top of the order of review, and drawn from all of it to be fair
REVIEWED = 24  # the former where people go through it
DOUBTED = 0.5  # labels expected to be wrong that make an image worth a look, where the method has no flags
SHOWN_NEIGHBOURS = 5
# What labels.npz has beside the labels themselves, each array by the name of its field.
OF_OPINION = ("wrong", "proposed", "expected", "rank", "learnt")
OF_FLAGS = ("noisy", "margin", "entry")
ARRAYS = ("exposed", "neighbours", "scores", "classifier")


@dataclass(frozen=True)
class LabelRecord:
    """The labels of the training images, and what the run thinks of them.

    Attributes:
        given: As the method got them.
        targets: As the classifier learnt them.
        opinion: Which given labels are probably wrong, what to propose, and in which order to look.
        clean: The truth, where noise was added on purpose.
        exposed: (N) whether noise could fall on the row, where it was added on purpose.
        flags: Which images the method itself holds to be noisy.
        neighbours: (N, K) rows of the nearest images; -1 where there are fewer.
        scores: (N, C) how well each label fits, on the method's own scale.
        classifier: (N, C) probabilities by the trained classifier, which has seen these images.
    """

    given: LabelTable
    targets: LabelTable
    opinion: Opinion
    clean: LabelTable | None = None
    exposed: NDArray[np.bool_] | None = None
    flags: Flags | None = None
    neighbours: NDArray[np.int64] | None = None
    scores: NDArray[np.float32] | None = None
    classifier: NDArray[np.float32] | None = None

    def __repr__(self) -> str:
        return brief(self)

    @property
    def flagged(self) -> NDArray[np.bool_]:
        """(N) images worth a look: by the method's flags, or where it has none, by how much is expected to be wrong."""
        return self.opinion.expected >= DOUBTED if self.flags is None else self.flags.noisy

    @property
    def removed(self) -> NDArray[np.bool_]:
        """(N, C) given labels that are proposed to be taken away."""
        return np.asarray((self.given.values >= 0.5) & (self.opinion.proposed == 0))

    @property
    def added(self) -> NDArray[np.bool_]:
        """(N, C) labels that are proposed to be added."""
        return np.asarray((self.given.values < 0.5) & (self.opinion.proposed == 1))

    @property
    def changes(self) -> int:
        """How many labels are proposed to change; one that moves to another class is one."""
        changed = (self.removed | self.added)[:, self.given.findings] if not self.given.exclusive else self.removed
        return int(changed.sum())

    def save(self, path: Path) -> None:
        columns: dict[str, NDArray[Any] | None] = {
            "ids": self.given.ids,
            "classes": np.asarray(self.given.classes, dtype=np.str_),
            "patients": self.given.groups,
            "paths": self.given.paths,
            "confirmed": self.given.confirmed,
            "given": self.given.values,
            "targets": self.targets.values,
            "clean": None if self.clean is None else self.clean.values,
            "reasons": np.asarray(self.opinion.reasons, dtype=np.str_),
            **{name: getattr(self.opinion, name) for name in OF_OPINION},
            **{name: getattr(self.flags, name, None) for name in OF_FLAGS},
            **{name: getattr(self, name) for name in ARRAYS},
        }
        write_arrays(path, {name: one for name, one in columns.items() if one is not None} | self.given.marks())

    @classmethod
    def load(cls, path: Path) -> LabelRecord:
        columns = read_arrays(path)
        try:
            given = LabelTable(
                columns["ids"],
                tuple(str(name) for name in columns["classes"]),
                columns["given"],
                paths=columns.get("paths"),
                patients=columns["patients"],
                confirmed=columns.get("confirmed"),
                exclusive="exclusive" in columns,
            )
            for name in ("scores", "classifier", "wrong"):
                if name in columns and columns[name].shape != given.values.shape:
                    shape = columns[name].shape
                    raise InputError(f"{path} is damaged: {name} have shape {shape}, not {given.values.shape}.")
            reasons = tuple(str(reason) for reason in columns["reasons"])
            return cls(
                given=given,
                targets=given.replace(columns["targets"]),
                opinion=Opinion(given.ids, **{name: columns[name] for name in OF_OPINION}, reasons=reasons),
                clean=given.replace(columns["clean"]) if "clean" in columns else None,
                flags=Flags(given.ids, *(columns[name] for name in OF_FLAGS)) if "noisy" in columns else None,
                **{name: columns.get(name) for name in ARRAYS},
            )
        except KeyError as error:
            raise InputError(f"{path} is not a label record of today: it has no {error}. Run again.") from error


def label_record(
    given: LabelTable,
    prepared: Prepared,
    noise: NoisyLabels | None,
    classifier: NDArray[np.float32],
    known: Known | None = None,
) -> LabelRecord:
    """Gather what a method found out about the training labels.

    The one opinion of a run is the method's own, else one by its scores, else one by its classifier.
    """
    from bomd.clean.opinion import form_opinion

    opinion = prepared.opinion
    if opinion is None:
        opinion = form_opinion(classifier if prepared.scores is None else prepared.scores, given, known=known)[0]
        if prepared.scores is None:
            reason = "Labels are judged by the classifier that learnt them, which doubts too few of them."
            opinion = replace(opinion, reasons=(reason, *opinion.reasons))
    return LabelRecord(
        given=given,
        targets=given.replace(np.clip(prepared.targets, 0, 1)),
        opinion=opinion,
        clean=None if noise is None else noise.clean.select(given.ids),
        exposed=None if noise is None else noise.exposed[rows_of(noise.clean.ids, given.ids)],
        flags=prepared.flags,
        neighbours=None if prepared.neighbours is None else prepared.neighbours.indices,
        scores=prepared.scores,
        classifier=classifier,
    )


def load_record(directory: Path) -> LabelRecord:
    """The labels of a run, with patients as its table names them.

    A run puts the name of the dataset or the folder of the table before the names of its patients, to tell those of
    several tables apart. That says nothing to a reader and has no place in a file that is passed on.
    """
    from bomd.data.datasets import DATASETS

    record = LabelRecord.load(directory / "labels.npz")
    if record.given.patients is None or not (directory / "config.json").is_file():
        return record
    try:
        train = read_json(directory / "config.json")["config"]["train"]
        people = DATASETS[train["dataset"]].people or str(train["root"])
    except (KeyError, TypeError):  # such as a mixture, whose patients need their origin
        return record
    patients = [str(patient).removeprefix(f"{people}:") for patient in record.given.patients]
    return replace(record, given=replace(record.given, patients=np.asarray(patients, dtype=np.str_)))


def store_of(run: Path) -> Store:
    """The packed images of a run directory."""
    from bomd.data.store import open_store

    if not (run / "images.json").is_file():
        raise InputError(f"{run} does not say where its images are: run it again with this version of bomd.")
    facts = read_json(run / "images.json")
    if not isinstance(facts, dict) or not isinstance(facts.get("store"), str):
        raise InputError(f"{run / 'images.json'} does not name a store of images: run it again.")
    return open_store(run / facts["store"], expected=facts.get("fingerprint"))


def patients_of(table: LabelTable) -> Text | None:
    """(N) patients, where they are known; a run puts the names of the images in their place where they are not."""
    return None if table.patients is None or (table.patients == table.ids).all() else table.patients


def save_predictions(path: Path, truths: Mapping[str, LabelTable], scores: Mapping[str, LabelTable]) -> None:
    """Save truth and scores of each test set under its name."""
    columns: dict[str, NDArray[Any]] = {}
    for name, truth in truths.items():
        columns |= {
            f"{name}/ids": truth.ids,
            f"{name}/classes": np.asarray(truth.classes, dtype=np.str_),
            f"{name}/patients": truth.groups,
            f"{name}/truth": truth.values,
            f"{name}/scores": scores[name].values,
        }
        columns |= {f"{name}/{mark}": value for mark, value in truth.marks().items()}
    write_arrays(path, columns)


def load_predictions(path: Path) -> dict[str, tuple[LabelTable, LabelTable]]:
    """Truth and scores of each test set by name."""
    columns = read_arrays(path)
    loaded = {}
    for name in [key.removesuffix("/ids") for key in columns if key.endswith("/ids")]:
        classes = tuple(str(item) for item in columns[f"{name}/classes"])
        truth = LabelTable(
            columns[f"{name}/ids"],
            classes,
            columns[f"{name}/truth"],
            patients=columns[f"{name}/patients"],
            exclusive=f"{name}/exclusive" in columns,
        )
        loaded[name] = (truth, truth.replace(columns[f"{name}/scores"]))
    return loaded


@dataclass(frozen=True)
class Examples:
    """Flagged images to look at, with the images that voted on them."""

    flagged: NDArray[np.int64]  # (F) rows of the label record, the most suspect first
    chosen: NDArray[np.str_]  # (F) "most suspect" or "random"
    rows: NDArray[np.int64]  # (E) rows of the label record that have a thumbnail
    pixels: NDArray[np.uint8]  # (E, size, size) uint8 thumbnails, or (E, size, size, 3) in colour

    def save(self, path: Path) -> None:
        write_arrays(path, vars(self))

    @classmethod
    def load(cls, path: Path) -> Examples:
        columns = read_arrays(path)
        return cls(**{field.name: columns[field.name] for field in fields(cls)})


def choose_examples(record: LabelRecord, store: Store, seed: int, most: int = SUSPECTS) -> Examples:
    """Take `most` from the beginning of the order of review, and some at random from all others that are flagged."""
    from bomd.data.images import fit_square, shape_of

    rows = np.flatnonzero(record.flagged)
    rows = rows[np.argsort(record.opinion.rank[rows])]
    first, rest = np.split(rows, [most])
    drawn = np.random.default_rng(seed).choice(rest, size=min(RANDOM, len(rest)), replace=False)
    drawn = drawn[np.argsort(record.opinion.rank[drawn])]
    flagged = np.concatenate([first, drawn]).astype(np.int64)
    chosen = np.asarray(["most suspect"] * len(first) + ["random"] * len(drawn), dtype="<U12")
    voters = flagged if record.neighbours is None else record.neighbours[flagged, :SHOWN_NEIGHBOURS].ravel()
    pictured = np.unique(np.concatenate([flagged, voters]))
    pictured = pictured[pictured >= 0].astype(np.int64)
    size = min(THUMBNAIL, store.size)
    pixels = np.zeros((len(pictured), *shape_of(size, store.colour)), dtype=np.uint8)
    for place, row in enumerate(store.rows(record.given.ids[pictured])):
        pixels[place] = fit_square(np.asarray(store.images[row]), size)
    return Examples(flagged, chosen, pictured, pixels)
