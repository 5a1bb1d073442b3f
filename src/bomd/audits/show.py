"""The most suspect images for people: lines for a terminal, a page with pictures for a notebook."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from bomd.audits.columns import positive
from bomd.data.images import fit_square
from bomd.experiments.records import LabelRecord
from bomd.tables import Floats, Text

if TYPE_CHECKING:
    from bomd.audits.found import Audit

THUMBNAIL = 128  # pixels
LONGEST = 60  # characters of an id or of labels in a line


def lines(audit: Audit, count: int) -> list[str]:
    """One line for each of the most suspect images: id, given labels, and what is proposed or else doubtful."""
    record, opinion = audit.record, audit.record.opinion
    found = []
    for row in np.argsort(opinion.rank)[:count]:
        given = _short(positive(record.given, record.given.values[row]))
        proposed = _short(positive(record.given, opinion.proposed[row]))
        doubts = _doubtful(record, row, opinion.wrong[row])
        proposal = f"{given} -> {proposed}" if given != proposed else f"{given} ({doubts or 'no doubtful label'})"
        found.append(f"{opinion.rank[row]:>4}  {_short(str(record.given.ids[row]))}: {proposal}")
    return found


def headline(audit: Audit) -> str:
    """How many images are flagged, how many labels are expected to be wrong, and how many changes are proposed."""
    record = audit.record
    left_out = f"; {len(audit.left_out)} could not be judged" if audit.left_out else ""
    flagged = int(record.flagged.sum())
    wrong = f"About {record.opinion.expected.sum():,.0f} labels are expected to be wrong"
    return (
        f"{flagged:,} of {len(record.given):,} images {'is' if flagged == 1 else 'are'} flagged{left_out}. {wrong}; "
        f"{record.changes:,} changes are proposed."
    )


def brief(audit: Audit) -> str:
    """An audit in two lines, for a prompt."""
    return (
        f"Audit: {headline(audit)} Everything is in {audit.directory}.\n"
        "show() has the most suspect, table() all of them, labels what is proposed."
    )


@dataclass(frozen=True, eq=False)
class Suspects:
    """The most suspect images of an audit, which a notebook shows as pictures and everything else as lines."""

    audit: Audit
    count: int

    def __repr__(self) -> str:
        return "\n".join([headline(self.audit), *lines(self.audit, self.count)])

    def _repr_html_(self) -> str:
        return page(self.audit, self.count)


def page(audit: Audit, count: int) -> str:
    """A table of pictures with given and proposed labels, as HTML; ids and class names are escaped."""
    record, opinion = audit.record, audit.record.opinion
    order = np.argsort(opinion.rank)[:count]
    pictures = _pictures(audit, record.given.ids[order])
    body = ""
    for row, picture in zip(order, pictures, strict=True):
        given, proposed = (positive(record.given, labels[row]) for labels in (record.given.values, opinion.proposed))
        body += (
            f"<tr><td>{opinion.rank[row]}</td>"
            f'<td><img alt="" width="{THUMBNAIL}" height="{THUMBNAIL}" src="data:image/png;base64,{picture}"></td>'
            f"<td>{escape(str(record.given.ids[row]))}</td><td>{escape(given)}</td><td>{escape(proposed)}</td>"
            f"<td>{escape(_doubtful(record, row, opinion.wrong[row]))}</td></tr>"
        )
    heads = "".join(f"<th>{name}</th>" for name in ("rank", "image", "id", "given", "proposed", "most doubtful"))
    return (
        f"<div><p><b>{escape(headline(audit))}</b> {escape(' '.join(opinion.reasons))} The most suspect:</p>"
        f'<table style="text-align:left"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>'
        f"<p>All of them: <code>{escape(str(audit.directory))}</code></p></div>"
    )


def _doubtful(record: LabelRecord, row: int, wrong: Floats) -> str:
    """The labels of an image that are most probably wrong, at most three, and which way."""
    doubts = []
    for column in np.argsort(-np.nan_to_num(wrong, nan=-1))[:3]:
        way = "has" if record.given.values[row, column] >= 0.5 else "lacks"
        if wrong[column] >= 0.2:
            doubts.append(f"{way} {record.given.classes[column]} ({wrong[column]:.2f})")
    return ", ".join(doubts)


def _pictures(audit: Audit, ids: Text) -> list[str]:
    store = audit.store()
    found = []
    for row in store.rows(ids):
        stream = io.BytesIO()
        pixels = fit_square(np.asarray(store.images[row]), min(THUMBNAIL, store.size))
        Image.fromarray(pixels).save(stream, format="png")
        found.append(base64.b64encode(stream.getvalue()).decode("ascii"))
    return found


def _short(text: str) -> str:
    plain = " ".join(text.split())  # a line break in a name would tear the line apart
    return plain if len(plain) <= LONGEST else plain[: LONGEST - 1] + "…"
