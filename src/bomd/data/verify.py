"""Check a dataset before time is spent on it: files, ids, patients and labels, each fault by name."""

from __future__ import annotations

import os
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from stat import S_ISREG
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bomd import progress
from bomd.data.image_files import DICOM_SUFFIXES, IMAGE_SUFFIXES
from bomd.data.images import FORMATS, LARGEST, cores, read_chunks
from bomd.errors import InputError
from bomd.files import checksum, status
from bomd.tables import NO_FINDING, LabelTable, rows_of

NOT_FINDINGS = (NO_FINDING, "Support Devices")  # CheXpert's labeller gives "No Finding" beside a device by rule
Counts = Mapping[str, Mapping[str, int]]  # of positives by split and class
SAMPLE = 200  # images whose header is read in the quick check

_NAMED = 3  # offenders spelled out in a message
_ROWS = 20  # classes printed, so that everything fits one screen
_CHUNK = 32  # images that a process decodes before it reports


@dataclass(frozen=True)
class Check:
    """One thing that was looked at; the message has the first offenders (ids, files or patients)."""

    name: str
    ok: bool
    message: str
    offenders: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verification:
    """What all checks found."""

    checks: tuple[Check, ...]
    counts: Counts = field(default_factory=dict)
    declared: Counts = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    def render(self) -> RenderableType:
        """A screen to print: one line per check, then positives per class and split."""
        lines = Table(box=None, show_header=False, pad_edge=False)
        for _ in range(3):
            lines.add_column(overflow="fold")  # a file's name is of use only whole
        for check in self.checks:
            mark = Text("ok", style="green") if check.ok else Text("WRONG", style="bold red")
            lines.add_row(mark, Text(check.name), Text(check.message))
        wrong = sum(not check.ok for check in self.checks)
        verdict = Text("Nothing is wrong.", style="green")
        if wrong:
            verdict = Text(f"{wrong} of {len(self.checks)} checks found something wrong.", style="bold red")
        return Group(lines, *([self._positives()] if self.counts else []), verdict)

    def _positives(self) -> Table:
        names = list(dict.fromkeys(name for numbers in self.counts.values() for name in numbers))
        grid = Table("Positives", *self.counts, box=None, pad_edge=False)
        for name in names[:_ROWS]:
            grid.add_row(Text(name), *(self._cell(split, name) for split in self.counts))
        if len(names) > _ROWS:
            grid.add_row(Text(f"and {len(names) - _ROWS} more classes"))
        return grid

    def _cell(self, split: str, name: str) -> Text:
        found, declared = self.counts[split].get(name), self.declared.get(split, {}).get(name)
        if found is None or declared in (None, found):
            return Text("" if found is None else f"{found:,}")
        return Text(f"{found:,}, declared {declared:,}", style="bold red")


def verify(
    read: Callable[..., LabelTable],
    root: Path,
    *,
    splits: Sequence[str],
    declared: Counts | None = None,
    deep: bool = False,
    **options: Any,
) -> Verification:
    """Read a dataset with its own reader, which can do without images, and check all of it."""
    found = {split: _read(read, root, split, options) for split in splits}
    tables = {split: table for split, (table, _) in found.items() if table is not None}
    faults = [fault for _, fault in found.values() if fault is not None]
    verification = verify_tables(tables, declared=declared, deep=deep)
    return replace(verification, checks=(*faults, *verification.checks))


def verify_tables(
    tables: Mapping[str, LabelTable], *, declared: Counts | None = None, deep: bool = False
) -> Verification:
    """Check the label tables of a dataset and the image files that they name.

    Args:
        tables: Labels of each split; an empty path stands for an image that was not found. Tables without
            paths are checked as labels alone.
        declared: Positives that each class of a split should have; the keys "images" and "patients" stand
            for their numbers.
        deep: Decode every image and compare images byte by byte, instead of reading some headers.
    """
    rows = ", ".join(f"{split} {len(table):,}" for split, table in tables.items())
    filled = bool(tables) and all(len(table) for table in tables.values())
    checks = [Check("labels", filled, f"images labelled: {rows or 'none'}")]
    checks += [_shared("ids", {split: table.ids for split, table in tables.items()}, "none is in more than one split")]
    checks += [_patients(tables), _contradictions(tables), _unlabelled(tables)]
    counts = {split: _positives(table) for split, table in tables.items()}
    checks += [_against_declared(tables, counts, declared)] if declared else []
    return Verification((*checks, *_files(tables, deep)), counts, declared or {})


def _read(
    read: Callable[..., LabelTable], root: Path, split: str, options: Mapping[str, Any]
) -> tuple[LabelTable | None, Check | None]:
    """What can be read of a split, with an empty path for every image that is missing, and what cannot."""
    try:
        return read(root, split, **options), None
    except InputError as error:
        fault = Check(f"{split} labels", False, str(error))
    try:
        labels = read(root, split, images=False, **options)
    except InputError:
        return None, fault
    try:
        present = read(root, split, missing="drop", **options)
    except InputError as error:
        return labels, Check(f"{split} images", False, str(error))
    assert present.paths is not None
    paths = np.zeros(len(labels), dtype=present.paths.dtype)
    paths[rows_of(labels.ids, present.ids)] = present.paths
    return replace(labels, paths=paths), None


def _patients(tables: Mapping[str, LabelTable]) -> Check:
    known = {split: table.patients for split, table in tables.items() if table.patients is not None}
    if len(known) < len(tables):
        return Check("patients", True, "not known in every split; each image counts as its own patient")
    total = len(set().union(*(patients.tolist() for patients in known.values())))
    return _shared("patients", known, f"{total:,}, none in more than one split")


def _contradictions(tables: Mapping[str, LabelTable]) -> Check:
    wrong: list[str] = []
    for table in tables.values():
        if NO_FINDING in table.classes:
            findings = [column for column, name in enumerate(table.classes) if name not in NOT_FINDINGS]
            nothing = table.values[:, table.classes.index(NO_FINDING)] >= 0.5
            wrong += table.ids[nothing & (table.values[:, findings] >= 0.5).any(axis=1)].tolist()
    return _check(NO_FINDING, wrong, f'carry "{NO_FINDING}" beside a finding', "never stands beside a finding")


def _unlabelled(tables: Mapping[str, LabelTable]) -> Check:
    wrong = [name for table in tables.values() for name in table.ids[np.isnan(table.values).all(axis=1)].tolist()]
    negative = sum(int((table.values == 0).all(axis=1).sum()) for table in tables.values())
    remark = f"every row has a label; {negative:,} are negative for every class"
    return _check("unlabelled", wrong, "have no label at all", remark)


def _positives(table: LabelTable) -> dict[str, int]:
    return dict(zip(table.classes, (table.values >= 0.5).sum(axis=0).tolist(), strict=True))


def _against_declared(tables: Mapping[str, LabelTable], counts: Counts, declared: Counts) -> Check:
    wrong = []
    for split, numbers in declared.items():
        found = dict(counts.get(split, {}))
        if split in tables:
            found |= {"images": len(tables[split]), "patients": len(np.unique(tables[split].groups))}
        differ = [name for name, number in numbers.items() if found.get(name) != number]
        wrong += [f"{split} {name} {found.get(name, 0):,} instead of {numbers[name]:,}" for name in differ]
    total = sum(len(numbers) for numbers in declared.values())
    return _check("counts", wrong, f"of {total} differ from the declared", f"all {total} as declared")


def _files(tables: Mapping[str, LabelTable], deep: bool) -> list[Check]:
    """Checks of the image files of all splits together."""
    located = {split: (table, table.paths) for split, table in tables.items() if table.paths is not None}
    if not located:
        return [Check("images", True, "labels alone, no image was looked at")]
    ids = np.concatenate([table.ids for table, _ in located.values()])
    paths = np.concatenate([paths for _, paths in located.values()])
    lengths = _lengths(paths)
    there = lengths >= 0
    all_there = f"all {len(ids):,} there, {lengths[there].sum() / 1e9:.2f} GB"
    checks = [
        _check("images", ids[~there].tolist(), f"of {len(ids):,} are missing", all_there),
        _check("empty", paths[lengths == 0].tolist(), "files have no content", "no file is empty"),
        _file_names(paths[there]),
    ]
    full = np.flatnonzero(lengths > 0)
    if not deep:
        sample = full[np.unique(np.linspace(0, len(full) - 1, SAMPLE).astype(np.intp))] if len(full) else full
        broken = [fault for path in paths[sample] if (fault := _header_fault(Path(path)))]
        remark = f"headers of {len(sample)} of {len(full):,} are sound; --deep decodes all"
        return [*checks, _check("readable", broken, f"of {len(sample)} sampled cannot be read", remark)]
    reasons, checksums = _decode_all(paths[full])
    owners = [
        (split, str(table.groups[row]), table.values[row].tobytes())
        for split, (table, _) in located.items()
        for row in range(len(table))
    ]
    files = pd.DataFrame({"path": paths, "length": lengths, "owner": owners}).iloc[full].assign(checksum=checksums)
    readable = _check("readable", reasons, "cannot be read", f"all {len(full):,} decoded")
    return [*checks, readable, _copies(files)]


def _lengths(paths: NDArray[np.str_]) -> NDArray[np.int64]:
    """(N) bytes in each file, -1 where there is none."""
    lengths = np.full(len(paths), -1, dtype=np.int64)
    for row, path in enumerate(progress.track(paths.tolist(), "Looking for images")):
        if (found := status(path)) is not None and S_ISREG(found.st_mode):
            lengths[row] = found.st_size
    return lengths


def _file_names(paths: NDArray[np.str_]) -> Check:
    """Files that stand for two images, and images that lie in two folders."""
    unique, uses = np.unique(paths, return_counts=True)
    wrong = [f"{path} is named by {uses[row]} rows" for row, path in enumerate(unique) if uses[row] > 1]
    files = [path.rpartition(os.sep) for path in unique.tolist()]
    folders = [Path(folder) for folder in sorted({folder for folder, _, _ in files})]
    # Where names repeat, as with a folder for every study, the folder is part of the name.
    if len({name for _, _, name in files}) == len(files):
        places: defaultdict[str, list[str]] = defaultdict(list)
        for folder in folders:
            for file in folder.iterdir():
                if file.suffix.lower() in IMAGE_SUFFIXES:
                    places[file.name].append(str(folder))
        wrong += [f"{name} is in {' and '.join(found)}" for name, found in places.items() if len(found) > 1]
    where = f"{len(folders):,} folder{'' if len(folders) == 1 else 's'}"
    return _check("file names", wrong, "are used twice", f"each once, in {where}")


def _header_fault(path: Path) -> str | None:
    """Why the file cannot be an image, as far as its first bytes tell."""
    try:
        with path.open("rb") as stream:
            start = stream.read(132)
        if path.suffix.lower() in DICOM_SUFFIXES or start[128:] == b"DICM":
            from bomd.data.dicom import read_dicom_size  # only now: pydicom is optional

            height, width = read_dicom_size(path)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Pillow's remarks about damaged remarks of cameras
                with Image.open(path, formats=FORMATS) as image:
                    width, height = image.size
    except (InputError, ImportError) as error:
        return str(error)
    except Exception as error:  # a damaged header makes Pillow raise OSError, SyntaxError and others
        return f"{path}: {' '.join(str(error).split())}"
    return f"{path} claims {width} x {height} pixels" if width * height > LARGEST else None


def _decode_all(paths: NDArray[np.str_]) -> tuple[list[str], NDArray[np.uint32]]:
    """Why images cannot be read, and (N) a checksum of each picture at a small size."""
    reasons: dict[int, str] = {}
    checksums = np.zeros(len(paths), dtype=np.uint32)
    chunks = read_chunks(paths, 16, range(0, len(paths), _CHUNK), _CHUNK, cores())
    with closing(chunks), progress.bar("Decoding images", len(paths)) as advance:
        for chunk in chunks:
            checksums[chunk.start : chunk.start + len(chunk.pixels)] = chunk.checksums
            reasons.update({chunk.start + row: reason for row, reason in chunk.broken.items()})
            advance(len(chunk.pixels), note=f"{len(reasons)} broken" if reasons else "")
    return [reasons[row] for row in sorted(reasons)], checksums


def _copies(files: pd.DataFrame) -> Check:
    """Files with the same content; only those of the same length and picture are read again.

    A patient's image that was filed twice with the same labels is in the published sets and does no harm; one that
    has two owners (split, patient and labels) does.
    """
    files = files.drop_duplicates("path", keep="last")
    files = files[files.duplicated(["length", "checksum"], keep=False)]
    digests = [checksum(Path(path)) for path in files["path"]]
    groups = [group for _, group in files.assign(digest=digests).groupby("digest", sort=False) if len(group) > 1]
    harmful = [" = ".join(group["path"]) for group in groups if group["owner"].nunique() > 1]
    fault = "groups of files are the same byte by byte in spite of another patient, split or label"
    harmless = f"{len(groups) - len(harmful):,} images of a patient are filed twice with the same labels"
    return _check("copies", harmful, fault, harmless if groups else "no two files are the same")


def _shared(what: str, columns: Mapping[str, NDArray[np.str_]], fine: str) -> Check:
    """Names that occur in more than one split, with the splits."""
    splits: defaultdict[str, list[str]] = defaultdict(list)
    for split, names in columns.items():
        for name in np.unique(names).tolist():
            splits[name].append(split)
    shared = [f"{name} ({', '.join(found)})" for name, found in splits.items() if len(found) > 1]
    return _check(what, shared, "are in more than one split", fine)


def _check(name: str, offenders: Sequence[str], fault: str, fine: str) -> Check:
    if not offenders:
        return Check(name, True, fine)
    more = ", ..." if len(offenders) > _NAMED else ""
    first = ", ".join(offenders[:_NAMED])
    return Check(name, False, f"{len(offenders):,} {fault}: {first}{more}", tuple(offenders))
