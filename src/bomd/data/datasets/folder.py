"""Any other data: a table of labels (CSV or TSV, compressed or not, Parquet or Excel) and a folder of images.

What the columns mean is detected and said before work starts; every guess can be replaced by an argument.
Labels are either one column per class, with 0, 1, a probability or a blank for "not labelled", or one column
that lists the classes of an image, such as `Effusion|Mass`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bomd.data.cells import meaning, numbers_of
from bomd.data.datasets.layout import check_folder, seen_from
from bomd.data.image_files import ImageIndex, told
from bomd.data.label_files import TABLES, WORKBOOK, guess_in_words, read_table
from bomd.data.split import split_by_patient
from bomd.errors import InputError
from bomd.progress import say
from bomd.tables import NO_FINDING, Floats, LabelTable, Text
from bomd.typed import nearest

SPLITS = {"train": 0.7, "validation": 0.1, "test": 0.2}

# Names of columns without case, spaces and signs, the likeliest first.
_ID = ("id", "image", "imageid", "imageindex", "imagename", "path", "imagepath", "file", "filename", "filepath")
_PATIENT = ("patient", "patientid", "subject", "subjectid")
_SPLIT = ("split", "set", "subset", "partition")
_LABELS = ("labels", "label", "findinglabels", "findings", "finding", "classes", "class", "diagnosis")
_NO_CLASS = ("age", "patientage", "sex", "patientsex", "gender", "patientgender", "followup", "fold", *_ID)
_SPLIT_NAMES = {"training": "train", "val": "validation", "valid": "validation", "dev": "validation"}
_MOST_CLASSES = 1000  # more than that is a column of something else


def _pass(option: str, example: str) -> str:
    """How to give an argument of the reader, wherever it was left out."""
    return f"pass {option} (--set '{option}={example}', or under [train] of a recipe)"


CLASSES = _pass("classes", '["A", "B"]')


@dataclass(frozen=True)
class Columns:
    """What is said about the columns of a table, each as for `read`; what is not said is found out."""

    classes: Sequence[str] | None = None
    id_column: str | None = None
    label_column: str | None = None
    patient_column: str | None = None
    split_column: str | None = None
    delimiter: str | None = None

    @classmethod
    def among(cls, options: Mapping[str, Any]) -> Columns:
        """Those of a reader's settings that are about columns."""
        return cls(**{item.name: options[item.name] for item in fields(cls) if item.name in options})


NOTHING_SAID = Columns()


@dataclass(frozen=True, eq=False)
class Layout:
    """What was found in a folder, and how it is understood."""

    file: Path
    frame: pd.DataFrame = field(repr=False)  # its columns as text; a blank is ""
    images: ImageIndex = field(repr=False)
    id_column: str
    patient_column: str | None
    split_column: str | None
    label_column: str | None  # lists the classes of an image; None where each class has a column of its own
    delimiter: str | None
    class_columns: tuple[str, ...]  # where each class has its own
    classes: tuple[str, ...]  # of the result
    unused: tuple[str, ...]  # columns, and classes in the label column, that are left out

    def summary(self) -> list[str]:
        """Lines that tell a reader how the data will be understood."""
        patient = self.patient_column or "not given, so every image is its own"
        split = self.split_column or "not given, so drawn by patient when asked for"
        form = "one column each" if self.label_column is None else f"listed in {self.label_column}"
        many = self.label_column and self.frame[self.label_column].str.contains(str(self.delimiter), regex=False).any()
        between = f" with {self.delimiter} between" if many else ""
        lines = [
            f"labels: {len(self.frame)} rows of {self.file}{guess_in_words(self.file)}",
            f"images: {len(self.images.paths)} files in {self.images.folder}",
            f"id: {self.id_column}; patient: {patient}; split: {split}",
            f"{len(self.classes)} class{'es' * (len(self.classes) > 1)}, {form}{between}: {', '.join(self.classes)}",
        ]
        others = [name for name in self.images.others if Path(name).absolute() != self.file.absolute()]
        lines += [told(others)] if others else []
        lines += [f"not used: {', '.join(self.unused)}"] if self.unused else []
        folded = Counter(name.casefold() for name in self.classes)
        alike = [name for name in self.classes if folded[name.casefold()] > 1]
        slip = f"told apart by upper and lower case alone, which may be a slip: {', '.join(alike)}"
        return lines + ([slip] if alike else [])


def read(
    root: Path,
    split: str | None = None,
    *,
    labels: Path | None = None,
    images: Path | None = None,
    classes: Sequence[str] | None = None,
    id_column: str | None = None,
    label_column: str | None = None,
    patient_column: str | None = None,
    split_column: str | None = None,
    delimiter: str | None = None,
    drop_duplicates: bool = False,
    seed: int = 0,
) -> LabelTable:
    """Read labels and find the image of every row.

    Args:
        root: The folder.
        split: Only these rows: a value of the split column (`val`, `valid` and `dev` mean `validation`), or,
            where there is no such column, `train`, `validation` or `test`: 70, 10 and 20 % of images, with
            no patient in two of them and every class in proportion. By default all rows.
        labels: The label file; by default the only table in the folder.
        images: Where the images are, at any depth; by default `root/images` if it exists, else the folder.
        classes: Columns, or classes of the label column, to use; by default all that look like it.
        id_column: Name, stem, or path under the images folder of each image.
        label_column: Lists the classes of each image. A blank cell means "not labelled" where other rows say
            "No Finding", and none of the classes where "No Finding" never occurs.
        patient_column: Whose images must stay together.
        split_column: Which part a row belongs to.
        delimiter: Between the classes of the label column; by default the first of `|;,` that occurs.
        drop_duplicates: Keep the first row of an id that occurs again, instead of refusing the table.
        seed: Draws the split where there is no split column.

    Returns:
        The labels with paths and, where known, patients.
    """
    columns = Columns(classes, id_column, label_column, patient_column, split_column, delimiter)
    layout = describe(root, labels, images, columns)
    for line in layout.summary():
        say(line)
    ids = texts_of(layout, layout.id_column)
    first = first_rows(ids)
    if len(first) < len(ids) and not drop_duplicates:
        raise InputError(f"{duplicates(layout, ids)}; keep the first row of each with drop_duplicates = true.")
    if len(first) < len(ids):
        say(f"{len(ids) - len(first)} rows repeat an id and are left out.")
        layout = replace(layout, frame=layout.frame.iloc[first].reset_index(drop=True))
    table = labels_of(layout)
    return table if split is None else table.take(_rows_of_split(table, layout, split, seed))


def labels_of(layout: Layout) -> LabelTable:
    """The labels of a table that was read and understood, with the image of every row."""
    ids = texts_of(layout, layout.id_column)
    patients = None if layout.patient_column is None else texts_of(layout, layout.patient_column)
    return LabelTable(ids, layout.classes, values_of(layout), _find_images(ids, layout), patients)


def first_rows(ids: Text) -> NDArray[np.intp]:
    """Rows in which an id occurs for the first time, in order."""
    return np.sort(np.unique(ids, return_index=True)[1])


def duplicates(layout: Layout, ids: Text) -> str:
    """The first id that occurs twice, where, and how many more there are."""
    unique, counts = np.unique(ids, return_counts=True)
    name, repeated = str(unique[np.argmax(counts > 1)]), int((counts > 1).sum())
    first, second = np.flatnonzero(ids == name)[:2] + 2
    where = f"{layout.file}, lines {first} and {second}"
    return f"Duplicate id {name[:80]!r} in {where} ({repeated} ids are repeated)"


def describe(
    root: Path, labels: Path | None = None, images: Path | None = None, columns: Columns = NOTHING_SAID
) -> Layout:
    """How `read` understands a folder with these arguments."""
    file = label_file(root, labels)
    return understand(read_table(file), file, index_of(root, images), columns)


def understand(frame: pd.DataFrame, file: Path, index: ImageIndex, columns: Columns = NOTHING_SAID) -> Layout:
    """What the columns of a table are, given that it and the folder of its images were read.

    `file` is where it stands, or a word for it, for those who read errors.
    """
    classes, id_column, label_column = columns.classes, columns.id_column, columns.label_column
    patient_column, split_column, delimiter = columns.patient_column, columns.split_column, columns.delimiter
    names = [str(name) for name in frame.columns]
    for given in (id_column, label_column, patient_column, split_column):
        if given is not None and given not in names:
            raise InputError(f"{file} has no column {given!r}.{nearest(given, names)}")

    taken = {label_column, patient_column, split_column, *(classes or ())}
    free = [name for name in names if name not in taken]
    id_column = id_column or _choose_id(free, frame, index, file)
    free = [name for name in free if name != id_column]
    patient_column = patient_column or _called(_PATIENT, free)
    split_column = split_column or _called(_SPLIT, free)
    free = [name for name in free if name not in (patient_column, split_column)]
    alike = [name for name in free if _looks_like_a_class(frame[name])]
    known = [name for name in alike if _plain(name) not in _NO_CLASS]
    if label_column is None and not (classes and set(classes) <= set(names)):
        text = [name for name in free if name not in alike]
        judged = any(_tells_apart(frame[name]) for name in known)
        label_column = _called(_LABELS, text) or (None if judged else _listing(text, frame))
    free = [name for name in free if name != label_column]
    own: tuple[str, ...] = ()
    if label_column is not None:
        known, delimiter = _listed_classes(frame[label_column], file, delimiter)
        chosen = _choose_classes(classes or known, known, f"column {label_column!r} of {file}")
        free += [f"class {name}" for name in known if name not in chosen]
    else:
        if not known and not classes:
            problem = f"no column of {', '.join(names)} is called labels, lists A|B or holds 0 to 1 (0.5, not 0,5)"
            raise InputError(f"No labels in {file}: {problem}; {_pass('label_column', 'NAME')}, or {CLASSES}.")
        own = _choose_classes(classes or known, names, str(file))
        chosen, delimiter = tuple(map(_canonical, own)), None
    unused = tuple(name for name in free if name not in own)
    special = (id_column, patient_column, split_column, label_column)
    return Layout(file, frame, index, *special, delimiter, own, chosen, unused)


def index_of(root: Path, images: Path | None = None) -> ImageIndex:
    """The images of a folder; arguments as for `read`."""
    root = check_folder(root)
    default = root / "images" if (root / "images").is_dir() else root
    return ImageIndex(default if images is None else check_folder(seen_from(root, images)))


def label_file(root: Path, labels: Path | None = None) -> Path:
    """The table of a folder; arguments as for `read`."""
    root = check_folder(root)
    if labels is not None:
        file = seen_from(root, labels)
        if not file.is_file():
            raise InputError(f"No label file {labels}, neither here nor in {root}.")
        return file
    tables = sorted(path for path in root.iterdir() if path.name.lower().endswith(TABLES))
    tables = [path for path in tables if path.suffix.lower() != WORKBOOK] or tables  # taken where there is no other
    if len(tables) != 1:
        found = ", ".join(path.name for path in tables[:5]) or f"no {', '.join(TABLES)} file"
        raise InputError(f"{root} holds {found}: {_pass('labels', 'FILE')}.")
    return tables[0]


def _choose_id(names: list[str], frame: pd.DataFrame, images: ImageIndex, file: Path) -> str:
    """The column that is called like an id and leads to most files, or else the first that leads to files."""
    shares = {name: np.mean([images.knows(cell.strip()) for cell in frame[name].head(200)]) for name in names}
    called = sorted((name for name in names if _plain(name) in _ID), key=lambda name: _ID.index(_plain(name)))
    if called:
        return max(called, key=lambda name: shares[name])
    for name in names:
        if shares[name] > 0.5:
            return name
    for name in names:  # what to do about its upper and lower case is said where the files are looked for
        cells = [cell.strip() for cell in frame[name].head(200)]
        if 2 * len(images.alike(cells)) > len(cells):
            return name
    problem = f"none of {', '.join(names)} is called id, image or path, or names files in {images.folder}"
    raise InputError(f"No id column in {file}: {problem}; {_pass('id_column', 'NAME')}.")


def _find_images(ids: Text, layout: Layout) -> Text:
    """(N) image files, each of another id."""
    paths = [layout.images.find(name) for name in ids.tolist()]
    absent = [str(name) for name, path in zip(ids, paths, strict=True) if path is None]
    if absent:
        examples = ", ".join(repr(name[:80]) for name in absent[:5]) + (" ..." if len(absent) > 5 else "")
        doubt = f"; is {layout.id_column!r} the id column?" if len(absent) == len(ids) else "."
        case = layout.images.hint(absent)
        doubt = f"; {case}." if case else doubt
        where = f"{layout.file} have no image in {layout.images.folder}"
        raise InputError(f"{len(absent)} of {len(ids)} ids in {where}: {examples}{doubt}")
    path, uses = Counter(paths).most_common(1)[0]
    if uses > 1:
        raise InputError(f"{uses} ids in {layout.file} name the same image {path}.")
    return np.asarray(paths, dtype=np.str_)


def _listing(names: list[str], frame: pd.DataFrame) -> str | None:
    """The one column whose cells list several things, as in Mass|Edema, whatever it is called."""
    listing = [name for name in names if frame[name].str.contains("|", regex=False).any()]
    return listing[0] if len(listing) == 1 else None


def _listed_classes(column: pd.Series[str], file: Path, delimiter: str | None) -> tuple[list[str], str]:
    """All classes of a label column, "No Finding" last, and what separates them."""
    cells = [str(cell) for cell in column.unique()]
    present = [sign for sign in "|;," if any(sign in cell for cell in cells)]
    where = f"column {column.name!r} of {file}"
    if delimiter is not None and present and not any(delimiter in cell for cell in cells):
        raise InputError(f"{delimiter!r} never occurs in {where}; is the delimiter {present[0]!r}?")
    delimiter = delimiter or (present[0] if present else "|")
    listed = sorted({name for cell in cells for name in _split_cell(cell, delimiter)})
    listed.sort(key=lambda name: name == NO_FINDING)
    if not listed:
        raise InputError(f"There are no labels: {where} is blank in every row.")
    if all(re.fullmatch(r"\[.*]|", cell.strip()) for cell in cells):
        raise InputError(f"Cells such as {cells[0][:80]} in {where} are lists of a program: write A|B instead.")
    if len(listed) > _MOST_CLASSES:
        raise InputError(f"{len(listed)} different labels in {where}; {_pass('label_column', 'NAME')}.")
    return listed, delimiter


def _choose_classes(chosen: Sequence[str], known: Sequence[str], where: str) -> tuple[str, ...]:
    for name in chosen:
        if name not in known:
            raise InputError(f"There is no class {name!r} in {where}.{nearest(name, known)}")
    return tuple(chosen)


def values_of(layout: Layout) -> Floats:
    """(N, C) labels; each different cell is understood once, however often it occurs."""
    if layout.label_column is None:
        columns = np.empty((len(layout.frame), len(layout.class_columns)), dtype=np.float32)
        for place, name in enumerate(layout.class_columns):  # one at a time: a large table fills the memory twice else
            columns[:, place] = _numbers(layout, name)
        return columns
    assert layout.delimiter is not None
    codes, cells = pd.factorize(layout.frame[layout.label_column])
    values = np.zeros((len(cells), len(layout.classes)), dtype=np.float32)
    places = {name: place for place, name in enumerate(layout.classes)}
    for row, cell in enumerate(cells):
        listed = _split_cell(str(cell), layout.delimiter)
        values[row] = 0 if listed or NO_FINDING not in places else np.nan
        values[row, [places[name] for name in listed if name in places]] = 1
    return values[codes]


def _numbers(layout: Layout, column: str) -> Floats:
    cells = layout.frame[column]
    numbers, no_number = numbers_of(cells)
    wrong = no_number | (numbers < 0) | (numbers > 1)
    if wrong.any():
        row = int(np.argmax(wrong))
        problem = "is not a number (0.5, not 0,5)" if no_number[row] else "is outside [0, 1]"
        hint = f"if {column!r} is not a class, {CLASSES}"
        if numbers[row] == -1:
            hint = "if -1 means uncertain, replace it by 0, 1, a probability or a blank"
        where = f"column {column!r}, line {row + 2} of {layout.file}"
        raise InputError(f"Label {str(cells.iloc[row])[:80]!r} in {where} {problem}; {hint}.")
    return numbers


def _looks_like_a_class(column: pd.Series[str]) -> bool:
    """Whether most cells that are not blank hold a label; those that do not are then reported as errors.

    A decimal comma is one of these errors: such a column would be left out else, and nobody might notice.
    """
    counts = [(meaning(_pointed(str(cell))), int(count)) for cell, count in column.value_counts().items()]
    filled = sum(count for number, count in counts if number is None or not np.isnan(number))
    labels = sum(count for number, count in counts if number is not None and -1 <= number <= 1)
    return filled > 0 and 2 * labels >= filled


def _tells_apart(column: pd.Series[str]) -> bool:
    """Whether a column has yes and no: 1 and 0, or probabilities on both sides of 0.5, as no pixel spacing has."""
    numbers = [number for cell in column.unique() if (number := meaning(str(cell))) is not None]
    return any(number >= 0.5 for number in numbers) and any(number < 0.5 for number in numbers)


def _pointed(cell: str) -> str:
    """The cell with a point, if it is a number with a decimal comma."""
    return cell.replace(",", ".") if re.fullmatch(r"\s*[+-]?\d*,\d+\s*", cell) else cell


def _rows_of_split(table: LabelTable, layout: Layout, split: str, seed: int) -> NDArray[np.intp]:
    if layout.split_column is not None:
        parts = layout.frame[layout.split_column].str.strip().str.lower()
        wanted = _SPLIT_NAMES.get(split.lower(), split.lower())
        rows = np.flatnonzero((parts.replace(_SPLIT_NAMES) == wanted).to_numpy())
        if not len(rows):
            known = f"column {layout.split_column!r} holds {', '.join(map(repr, sorted(parts.unique())[:8]))}"
            raise InputError(f"No row of {layout.file} has split {split!r}; {known}.")
        return rows
    if split not in SPLITS:
        raise InputError(f"Unknown split {split!r}: without a split column there are {', '.join(SPLITS)}.")
    rest, test = split_by_patient(table, SPLITS["test"], seed)
    train, validation = split_by_patient(table.take(rest), SPLITS["validation"] / (1 - SPLITS["test"]), seed)
    return {"train": rest[train], "validation": rest[validation], "test": test}[split]


def texts_of(layout: Layout, column: str) -> Text:
    """(N) cells of a column of ids or patients, in which no cell may be blank."""
    texts = layout.frame[column].str.strip().to_numpy().astype(np.str_)
    if (texts == "").any():
        line = int(np.argmax(texts == "")) + 2
        raise InputError(f"Column {column!r} of {layout.file} is blank in line {line}.")
    return texts


def _split_cell(cell: str, delimiter: str) -> list[str]:
    return [_canonical(name) for name in cell.split(delimiter) if name.strip()]


def _canonical(name: str) -> str:
    """The name of a class; however "No Finding" is written, it is the class that excludes all others."""
    return NO_FINDING if _plain(name) in ("nofinding", "nofindings") else name.strip()


def _called(names: Sequence[str], columns: Iterable[str]) -> str | None:
    """The column with the likeliest of these names."""
    found = {_plain(column): column for column in columns}
    return next((found[name] for name in names if name in found), None)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
