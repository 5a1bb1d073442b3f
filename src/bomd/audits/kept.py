"""The table that a run's labels came from, kept beside the run, so that reviewed labels go back as they came.

The same columns, order, separator and spelling: only labels change.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bomd.audits.given import Given, Source
from bomd.data.cells import csv_line, harmless, meaning, original
from bomd.data.datasets import folder
from bomd.data.datasets.corrected import details_beside
from bomd.data.label_files import kind_of, read_verbatim
from bomd.data.records import Records
from bomd.errors import InputError
from bomd.experiments.records import LabelRecord, load_record
from bomd.files import checksum, read_json, unpacked, write_bytes, write_json, write_pieces
from bomd.runs import Run
from bomd.tables import NO_FINDING, Floats, LabelTable, rows_of
from bomd.typed import convert, table

TABLE, FORM = "table.csv", "table.json"
Changes = Callable[[Sequence[str], Mapping[str, float | None]], dict[int, str]]  # cells, decided -> new cells by place
PLAIN: dict[float | None, str] = {1.0: "1", 0.0: "0", None: ""}  # spellings where the table shows none of its own


@dataclass(frozen=True)
class Form:
    """Where a table has what: a column that lists the classes of an image, or else one for each class."""

    id_column: str
    label_column: str | None
    delimiter: str | None  # between the classes in the label column
    class_columns: tuple[str, ...]
    classes: tuple[str, ...]  # of the class columns, or those that the label column may list


@dataclass(frozen=True, eq=False)
class Kept:
    """A user's own table."""

    records: Records
    form: Form
    suffix: str
    details: Path  # who decided what about its labels in earlier reviews; the file need not exist
    source: Source | None  # None where the table was in memory

    def has(self, classes: Sequence[str]) -> NDArray[np.bool_]:
        """(C) which classes the table has; "No Finding" may have been added to them."""
        return np.isin(np.asarray(classes, dtype=np.str_), np.asarray(self.form.classes, dtype=np.str_))

    def says_nothing(self, labels: LabelTable) -> NDArray[np.bool_]:
        """(N) images of which `rewrite` lists "No Finding" because no label is left, even if that is none of them."""
        form, empty = self.form, np.zeros(len(labels), dtype=np.bool_)
        if form.label_column is None or NO_FINDING not in labels.classes or not self.has([NO_FINDING]).all():
            return empty
        empty = (labels.values[:, self.has(labels.classes)] == 0).all(axis=1)
        if empty.any():
            header, _, rows = _cells(self.records)
            place, at = header.index(form.id_column), header.index(form.label_column)
            named = set(labels.classes)
            others = [cells for cells in rows if any(_name(token) not in named for token in _tokens(cells, at, form))]
            listed = np.asarray([cells[place].strip() for cells in others], dtype=np.str_)
            empty = np.asarray(empty & ~np.isin(labels.ids, listed))
        return empty


def keep(given: Given, directory: Path) -> None:
    """Put the given table and its form down in a run directory, with the details of earlier reviews."""
    suffix = unpacked(Path(given.name)).suffix.lower()
    source = None if given.source is None else asdict(given.source)
    write_pieces(directory / TABLE, given.records.lines())
    facts = {"suffix": suffix if suffix in (".csv", ".tsv") else ".csv", "digest": checksum(directory / TABLE)}
    write_json(directory / FORM, facts | {"source": source} | asdict(form_of(given.layout)))
    if given.details is not None:
        write_bytes(details_beside(directory / TABLE), given.details)


def find(directory: Path) -> Kept | None:
    """The table of a run: the one that was kept, or that of the folder which its recipe names; else None."""
    if (directory / FORM).is_file():
        where = f"{directory / FORM} is damaged, audit again"
        facts = table(read_json(directory / FORM), where)
        suffix, digest = str(facts.pop("suffix", ".csv")), facts.pop("digest", None)
        source = convert(facts.pop("source", None), Source | None, where)
        form = convert(facts, Form, where)
        if digest not in (None, checksum(directory / TABLE)):
            raise InputError(f"{directory / TABLE} is not the table that was audited: restore it, or audit again.")
        return Kept(read_verbatim(directory / TABLE)[1], form, suffix, details_beside(directory / TABLE), source)
    if not (directory / "config.json").is_file():
        return None
    train = Run(directory).config().get("train", {})
    if not isinstance(train, dict) or train.get("dataset") != "folder":
        return None
    if "root" not in train:  # an audit, which keeps its table
        raise InputError(f"{directory / FORM} is missing: restore it, or audit again.")
    return _of_folder(train, directory)


def _of_folder(train: dict[str, Any], directory: Path) -> Kept | None:
    """The table that a recipe reads, if it still says what the run learnt from."""
    root = Path(str(train["root"]))
    try:
        file = folder.label_file(root, train.get("labels"))
        if kind_of(file) in ("Parquet file", "Excel workbook"):  # no text to change cells of
            return None
        frame, records = read_verbatim(file)
        index, said = folder.index_of(root, train.get("images")), folder.Columns.among(train)
        layout = folder.understand(frame, file, index, said)
        values = folder.values_of(layout)
    except InputError:  # moved, or it cannot be read any more: the labels of the run itself then have to do
        return None
    if "labels_from" not in train and (directory / "labels.npz").is_file():  # else another file was learnt from
        _check_same(layout, values, load_record(directory))
    earlier = Path(str(train.get("labels_from", layout.file)))
    details = earlier if earlier.stem.endswith("-details") else details_beside(earlier)
    source = Source(str(layout.file.absolute()), checksum(layout.file))
    return Kept(records, form_of(layout), unpacked(layout.file).suffix, details, source)


def _check_same(layout: folder.Layout, values: Floats, record: LabelRecord) -> None:
    """Refuse a table that somebody has edited since: what is written would hold changes that nobody decided on."""
    before = record.given if record.clean is None else record.clean  # noise that a recipe adds is in no table
    remedy = f"{layout.file} has been edited since the run learnt from it: restore it, or run again."
    ids = layout.frame[layout.id_column].str.strip().to_numpy().astype(np.str_)
    gone = sorted(set(before.ids.tolist()) - set(ids.tolist())) or sorted(set(before.classes) - set(layout.classes))
    if gone:
        raise InputError(f"{remedy} It has no {gone[0]!r} any more.")
    now = values[rows_of(ids, before.ids)][:, [layout.classes.index(name) for name in before.classes]]
    other = (now != before.values) & ~(np.isnan(now) & np.isnan(before.values))
    if other.any():
        row, column = np.argwhere(other)[0].tolist()
        first = f"{before.classes[column]!r} of {str(before.ids[row])!r}"
        raise InputError(f"{remedy} {int(other.sum())} labels are others, such as {first}.")


def form_of(layout: folder.Layout) -> Form:
    return Form(layout.id_column, layout.label_column, layout.delimiter, layout.class_columns, layout.classes)


def rewrite(records: Records, form: Form, decided: Mapping[str, Mapping[str, float | None]]) -> str:
    """The table with decided labels in place of its own; every other character stays as it was.

    Args:
        decided: By id and class, 1, 0 or None for unknown; classes that the table does not have are left out.
    """
    header, cut, rows = _cells(records)
    change = _list_changes if form.label_column is not None else _column_changes
    lines = [records.header]
    place = header.index(form.id_column)
    changed = change(header, rows, form)
    for raw, pieces, cells in zip(records.rows, cut, rows, strict=True):
        wanted = decided.get(cells[place].strip() if place < len(cells) else "", {})
        new = changed(cells, wanted) if wanted else {}
        if new:
            pieces = pieces + [""] * (max(new) + 1 - len(pieces))
            for column, text in new.items():
                pieces[column] = csv_line([harmless(text)], records.separator) if text else ""
            raw = records.separator.join(pieces)
        lines.append(raw)
    return records.mark + "".join(f"{line}{records.newline}" for line in lines)


def _cells(records: Records) -> tuple[list[str], list[list[str]], list[list[str]]]:
    """The names of the columns, and the cells of all rows: as they stand in the file, and what they say."""
    cut = [cut_record(row, records.separator) for row in records.rows]
    header = [original(plain(piece).strip()) for piece in cut_record(records.header, records.separator)]
    return header, cut, [[original(plain(piece)) for piece in pieces] for pieces in cut]


def cut_record(raw: str, separator: str) -> list[str]:
    """The cells of a record as they stand in the file, quotation marks included."""
    if '"' not in raw:
        return raw.split(separator)
    quoted = r'"(?:[^"]|"")*"?'  # only at the start of a cell, and maybe never closed
    sign = re.escape(separator)
    return re.findall(rf"(?:^|{sign})((?:{quoted})?[^{sign}]*)", raw)


def plain(piece: str) -> str:
    """What a cell says without its quotation marks."""
    if not piece.startswith('"'):
        return piece
    body, _, rest = piece[1:].replace('""', "\0").partition('"')
    return body.replace("\0", '"') + rest


def _column_changes(header: Sequence[str], rows: Sequence[Sequence[str]], form: Form) -> Changes:
    """Changes of a table with a column for each class: the cell of each class that was decided otherwise."""
    places = {name: header.index(column) for name, column in zip(form.classes, form.class_columns, strict=True)}
    spelled = {name: _spellings([cells[at] for cells in rows if at < len(cells)]) for name, at in places.items()}
    usual = PLAIN | {value: text for own in spelled.values() for value, text in own.items()}

    def changes(cells: Sequence[str], wanted: Mapping[str, float | None]) -> dict[int, str]:
        new = {}
        for name, at in places.items():
            if name in wanted and (at >= len(cells) or _meaning(cells[at]) != wanted[name]):
                new[at] = spelled[name].get(wanted[name], usual[wanted[name]])
        return new

    return changes


def _list_changes(header: Sequence[str], rows: Sequence[Sequence[str]], form: Form) -> Changes:
    """Changes of a table that lists classes in one column: names are taken out, and added at the end."""
    assert form.label_column is not None
    assert form.delimiter is not None
    at, delimiter = header.index(form.label_column), form.delimiter
    cells_of_all = [cells[at] for cells in rows if at < len(cells)]
    tokens = Counter(token.strip() for cell in cells_of_all for token in cell.split(delimiter) if token.strip())
    spelled = {name: name for name in form.classes}
    spelled |= {_name(token): token for token, _ in reversed(tokens.most_common())}
    spaced = sum(f"{delimiter} " in cell for cell in cells_of_all)
    joint = f"{delimiter} " if 2 * spaced > sum(delimiter in cell for cell in cells_of_all) > 0 else delimiter

    def changes(cells: Sequence[str], wanted: Mapping[str, float | None]) -> dict[int, str]:
        own = _tokens(cells, at, form)
        listed = {_name(token) for token in own}
        kept = [token for token in own if wanted.get(_name(token), 1) == 1]
        added = [spelled[name] for name in form.classes if wanted.get(name) == 1 and name not in listed]
        new = kept + added
        nothing = spelled.get(NO_FINDING)
        if not new and nothing is not None and all(value is not None for value in wanted.values()):
            new = [nothing]  # a blank cell would say that the image is not labelled
        return {at: joint.join(new)} if [*map(_name, new)] != [*map(_name, own)] else {}

    return changes


def _tokens(cells: Sequence[str], at: int, form: Form) -> list[str]:
    """What a row lists, as it is spelled there."""
    listed = (cells[at] if at < len(cells) else "").split(form.delimiter)
    return [token.strip() for token in listed if token.strip()]


def _spellings(cells: Sequence[str]) -> dict[float | None, str]:
    """How a column usually writes yes, no and unknown."""
    found: dict[float | None, str] = {}
    for text, _ in reversed(Counter(cell.strip() for cell in cells).most_common()):
        meaning = _meaning(text)
        if meaning in (0, 1, None):
            found[meaning] = text
    return found


def _meaning(cell: str) -> float | None:
    number = meaning(cell)
    if number is None:
        return -1.0  # no label, and equal to none
    return None if np.isnan(number) else number


def _name(token: str) -> str:
    """The class that a token of a list means; "No Finding" has several spellings."""
    return NO_FINDING if "".join(filter(str.isalnum, token.lower())) in ("nofinding", "nofindings") else token


def as_decided(
    values: NDArray[np.float32], decided: NDArray[np.bool_], ids: Sequence[str], classes: Sequence[str]
) -> dict[str, dict[str, float | None]]:
    """What `rewrite` takes, from (N, C) labels and where somebody decided."""
    found: dict[str, dict[str, float | None]] = {}
    for row in np.flatnonzero(decided.any(axis=1)).tolist():
        said = {classes[column]: values[row, column] for column in np.flatnonzero(decided[row]).tolist()}
        found[ids[row]] = {name: None if np.isnan(value) else float(value) for name, value in said.items()}
    return found
