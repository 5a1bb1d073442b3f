"""What an audit found: flags, proposals and order, as tables and pictures, and where its files are."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from bomd.audits.columns import LAST, MOVED, cells, names, positive
from bomd.data.images import fit_square
from bomd.data.store import Store
from bomd.experiments.records import LabelRecord, store_of
from bomd.runs import Run
from bomd.tables import Flags, LabelTable, Opinion

FACTS, TABLE, LONG, PAGE = "audit.json", "labels_clean.csv", "doubtful_labels.csv", "report.html"
RUNS = "runs"  # the folder of the run directories
LEAST = 0.2  # probability of being wrong below which a label is not listed
MOST = 100_000  # rows, so that the file opens anywhere
THUMBNAIL = 128  # pixels
LONGEST = 60  # characters of an id or of labels in a line


@dataclass(frozen=True, eq=False)
class Audit:
    """What an audit found.

    Attributes:
        directory: Where `labels_clean.csv`, `doubtful_labels.csv` and `report.html` are.
        run: The run directory, for `bomd review` and `bomd report`.
        record: Given labels, opinion, flags and neighbours of every image that could be read.
        left_out: Why an image could not be judged, by id.
    """

    directory: Path
    run: Run
    record: LabelRecord
    left_out: dict[str, str]
    notes: tuple[str, ...]

    @property
    def flags(self) -> Flags:
        """Which images look wrong."""
        assert self.record.flags is not None
        return self.record.flags

    @property
    def opinion(self) -> Opinion:
        """What is probably wrong, what is proposed, and in which order to look."""
        return self.record.opinion

    @property
    def labels(self) -> LabelTable:
        """(N, C) proposed labels, 0 or 1; the given ones are in `record.given`."""
        return self.record.given.replace(self.record.opinion.proposed)

    def table(self) -> pd.DataFrame:
        """One row for each judged image, the most suspect first, with the columns of `labels_clean.csv`."""
        headings = names(self.record.given.classes, self.record.given.exclusive)
        frame = pd.DataFrame(cells(self.record, range(len(self.record.given))), columns=headings)
        numbers = [name for name in headings if name not in (LAST, MOVED)]
        frame[numbers] = frame[numbers].apply(pd.to_numeric)
        frame.insert(0, "id", self.record.given.ids)
        return frame.iloc[np.argsort(self.record.opinion.rank)].reset_index(drop=True)

    def doubtful(self) -> pd.DataFrame:
        """One row for each doubtful label, the most doubtful first, with the columns of `doubtful_labels.csv`."""
        return doubtful_labels(self.record)

    def store(self) -> Store:
        """The packed images."""
        return store_of(self.run.directory)

    def show(self, count: int = 10) -> Suspects:
        """The most suspect images: pictures in a notebook, lines elsewhere."""
        return Suspects(self, count)

    def __repr__(self) -> str:
        return (
            f"Audit: {headline(self)} Everything is in {self.directory}.\n"
            "show() has the most suspect, table() all of them, labels what is proposed."
        )

    def _repr_html_(self) -> str:
        return page(self, 10)


def doubtful_labels(record: LabelRecord) -> pd.DataFrame:
    """One row per label of a finding, by falling probability of being wrong; "No Finding" follows from them.

    Patients have a column where they are known. An image with one label has one row at most, and what is proposed.
    """
    opinion, given = record.opinion, record.given
    findings = np.arange(len(given.classes)) if given.exclusive else given.findings
    wrong = np.nan_to_num(opinion.wrong[:, findings], nan=-1.0)
    if given.exclusive:  # where one class is wrong another is missing, so that the given one stands for both
        wrong[given.values < 0.5] = -1
    order = np.argsort(-wrong, axis=None, kind="stable")[: min(MOST, int((wrong >= LEAST).sum()))]
    rows, columns = np.unravel_index(order, wrong.shape)
    places = findings[columns]
    table = pd.DataFrame(
        {
            "image": given.ids[rows].astype(object),
            "class": np.asarray(given.classes, dtype=object)[places],
            "given": given.values[rows, places],
            "proposed": opinion.proposed[rows, places].astype(np.int64),
            "wrong": opinion.wrong[rows, places],
            "label rank": np.arange(1, len(rows) + 1),
            "image rank": opinion.rank[rows],
        }
    )
    if given.exclusive:
        table.insert(4, MOVED, np.asarray(given.classes, dtype=object)[opinion.proposed[rows].argmax(axis=1)])
    if given.patients is not None and not np.array_equal(given.patients, given.ids):
        table.insert(1, "patient", given.patients[rows].astype(object))
    return table


@dataclass(frozen=True, eq=False)
class Suspects:
    """The most suspect images of an audit, which a notebook shows as pictures and everything else as lines."""

    audit: Audit
    count: int

    def __repr__(self) -> str:
        return "\n".join([headline(self.audit), *lines(self.audit, self.count)])

    def _repr_html_(self) -> str:
        return page(self.audit, self.count)


def lines(audit: Audit, count: int) -> list[str]:
    """One line for each of the most suspect images: id, given labels, and what is proposed or else doubtful."""
    found = []
    for row, given, proposed, doubts in _suspects(audit.record, count):
        before, after = _short(given), _short(proposed)
        proposal = f"{before} -> {after}" if before != after else f"{before} ({doubts or 'no doubtful label'})"
        name = _short(str(audit.record.given.ids[row]))
        found.append(f"{audit.record.opinion.rank[row]:>4}  {name}: {proposal}")
    return found


def headline(audit: Audit) -> str:
    """How many images are flagged, how many labels are expected to be wrong, and how many changes are proposed."""
    record = audit.record
    left_out = f"; {len(audit.left_out)} could not be judged" if audit.left_out else ""
    flagged = int(record.flagged.sum())
    labels = "labels" if record.given.exclusive else "labels of findings"  # as the report counts them
    return (
        f"{flagged:,} of {len(record.given):,} images {'is' if flagged == 1 else 'are'} flagged{left_out}. "
        f"About {record.opinion.expected.sum():,.0f} {labels} are expected to be wrong; "
        f"{record.changes:,} are proposed to change."
    )


def page(audit: Audit, count: int) -> str:
    """A table of pictures with given and proposed labels, as HTML; ids and class names are escaped."""
    record, store, body = audit.record, audit.store(), ""
    for row, *words in _suspects(record, count):
        (place,) = store.rows(record.given.ids[[row]])
        pixels, stream = fit_square(np.asarray(store.images[place]), min(THUMBNAIL, store.size)), io.BytesIO()
        Image.fromarray(pixels).save(stream, format="png")
        source = f"data:image/png;base64,{base64.b64encode(stream.getvalue()).decode('ascii')}"
        picture = f'<img alt="" width="{THUMBNAIL}" height="{THUMBNAIL}" src="{source}">'
        cells = [str(record.opinion.rank[row]), picture, *map(escape, (str(record.given.ids[row]), *words))]
        body += f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
    heads = "".join(f"<th>{name}</th>" for name in ("rank", "image", "id", "given", "proposed", "most doubtful"))
    return (
        f"<div><p><b>{escape(headline(audit))}</b> {escape(' '.join(record.opinion.reasons))} The most suspect:</p>"
        f'<table style="text-align:left"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>'
        f"<p>All of them: <code>{escape(str(audit.directory))}</code></p></div>"
    )


def _suspects(record: LabelRecord, count: int) -> Iterator[tuple[int, str, str, str]]:
    """Rows of the most suspect images, with given and proposed labels and the most doubtful, up to three, in words."""
    given, opinion = record.given, record.opinion
    for row in np.argsort(opinion.rank)[:count].tolist():
        wrong, doubts = opinion.wrong[row], []
        for column in np.argsort(-np.nan_to_num(wrong, nan=-1))[:3]:
            way = "has" if given.values[row, column] >= 0.5 else "lacks"
            if wrong[column] >= LEAST:
                doubts.append(f"{way} {given.classes[column]} ({wrong[column]:.2f})")
        yield row, positive(given, given.values[row]), positive(given, opinion.proposed[row]), ", ".join(doubts)


def _short(text: str) -> str:
    plain = " ".join(text.split())  # a line break in a name would tear the line apart
    return plain if len(plain) <= LONGEST else plain[: LONGEST - 1] + "…"
