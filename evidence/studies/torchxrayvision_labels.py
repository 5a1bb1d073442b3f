"""Compare labels with those that torchxrayvision reads from the same label files.

python -m evidence.studies.torchxrayvision_labels LABELS_DIR

Writes results/dataset_torchxrayvision.csv, from which evidence/pages/datasets.py makes its table. The rules of
torchxrayvision 1.5.7 are written down here again, over all views, ages and images of a patient, so that the package
need not be installed: it looks for the name of a class, and a few synonyms, anywhere in the text of an image's labels.
"""

from __future__ import annotations

import argparse
import csv
import io
import tarfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bomd.data.datasets import chexpert, nih, openi, padchest
from bomd.data.datasets.finding_terms import ImageTerms, normalise
from bomd.files import write_text
from bomd.tables import NO_FINDING, LabelTable, rows_of
from evidence import RESULTS
from evidence.pages.datasets import WHOLE_PADCHEST

FILE = RESULTS / "dataset_torchxrayvision.csv"
COLUMNS = ("dataset", "class", "images", "here", "there", "only_here", "only_there", "differ")
TERMS = ("terms_only_here", "terms_only_there")
NAMED = 2  # terms that explain most of a difference

OPENI_SYNONYMS = {
    "Pleural_Thickening": ["pleural thickening"],
    "Infiltration": ["infiltrate"],
    "Atelectasis": ["atelectases"],
}
PADCHEST_SYNONYMS = {
    "Infiltration": [
        *("infiltrates", "interstitial pattern", "ground glass pattern", "alveolar pattern"),
        *("consolidation", "air bronchogram"),
    ],
    "Pleural_Thickening": ["pleural thickening"],
    "Consolidation": ["air bronchogram"],
    "Hilar Enlargement": ["adenopathy", "pulmonary artery enlargement"],
    "Support Devices": ["device", "pacemaker"],
    "Tube": ["stent'"],
}
PADCHEST_NAMES = {"Tube": "tube'"}  # its way to say that the term ends there

Row = dict[str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("labels", type=Path, help="holds the label files of all sets")
    folder = parser.parse_args().labels
    stream = io.StringIO()
    writer = csv.DictWriter(stream, [*COLUMNS, *TERMS], lineterminator="\n")
    writer.writeheader()
    for compare in (compare_nih, compare_chexpert, compare_openi, compare_padchest):
        writer.writerows(compare(folder))
    write_text(FILE, stream.getvalue())


def compare_nih(folder: Path) -> list[Row]:
    """There, too, a class is looked for in the text, which no name is part of another's in."""
    here = nih.read(folder, "all", classes="native", images=False)
    frame = pd.read_csv(folder / "Data_Entry_2017_v2020.csv.gz").set_index("Image Index").loc[here.ids.tolist()]
    classes = [name for name in here.classes if name != NO_FINDING]
    text = frame["Finding Labels"].str.lower()
    there = np.stack([text.str.contains(name.lower(), regex=False) for name in classes], axis=1)
    return differences("nih", here.align(classes), there.astype(np.float32))


def compare_chexpert(folder: Path) -> list[Row]:
    """Uncertain and blank cells are unknown; findings beside No Finding are 0."""
    here = chexpert.read(
        folder,
        "all",
        images=False,
        classes="native",
        frontal=False,
        minimum_age=0,
        blank="ignore",
        uncertain="ignore",
    )
    frame = pd.read_csv(folder / "chexpert_train.csv.gz")
    classes = [name for name in here.classes if name != NO_FINDING]
    there = frame[classes].copy()
    findings = [name for name in classes if name != "Support Devices"]
    there.loc[frame["No Finding"] == 1, findings] = 0
    return differences("chexpert", here.align(classes), there.replace(-1, np.nan).to_numpy(dtype=np.float32))


def compare_openi(folder: Path) -> list[Row]:
    """People's headings here, a program's there."""
    here = openi.read(folder, classes="native", views="all", images=False)
    reports = folder / "NLMCXR_reports.tgz"
    ids, _, terms = openi._image_terms(reports, "major")
    headings = _automatic_headings(reports)
    texts = ["|".join(headings[name]) for name in here.ids.tolist()]
    classes = [name for name in here.classes if name != NO_FINDING]
    words = {name: [name.lower(), *OPENI_SYNONYMS.get(name, [])] for name in classes}
    own = [frozenset(normalise(term) for term in headings[name]) for name in here.ids.tolist()]
    names = _namer(terms.take(rows_of(ids, here.ids)), own, openi.TERMS, words)
    return differences("openi", here.align(classes), _by_substring(texts, words), names)


def compare_padchest(folder: Path) -> list[Row]:
    """The same cells, by whole terms here and by substrings there."""
    here = padchest.read(folder, classes="native", images=False, **{**WHOLE_PADCHEST, "labelled_only": True})
    frame = padchest._read_labels(folder)
    frame = frame.iloc[rows_of(frame["ImageID"].to_numpy(dtype=np.str_), here.ids)]
    terms = padchest._terms(frame, folder)
    classes = [name for name in here.classes if name != NO_FINDING]
    words = {name: [PADCHEST_NAMES.get(name, name.lower()), *PADCHEST_SYNONYMS.get(name, [])] for name in classes}
    there = _by_substring(frame["Labels"].tolist(), words)
    own = [terms.sets[place] for place in terms.index]
    return differences("padchest", here.align(classes), there, _namer(terms, own, padchest.TERMS, words))


Namer = Callable[[str, NDArray[np.bool_], NDArray[np.bool_]], tuple[str, str]]


def differences(dataset: str, here: LabelTable, there: NDArray[np.float32], names: Namer | None = None) -> list[Row]:
    """A row for each class: positives by either reading and by one alone, and labels that differ at all."""
    rows = []
    for column, name in enumerate(here.classes):
        ours, theirs = here.values[:, column], there[:, column]
        alone = (ours == 1) & (theirs != 1), (theirs == 1) & (ours != 1)
        differ = (ours != theirs) & ~(np.isnan(ours) & np.isnan(theirs))
        numbers = (len(here), (ours == 1).sum(), (theirs == 1).sum(), *(one.sum() for one in alone), differ.sum())
        terms = names(name, *alone) if names is not None else ("", "")
        rows.append(dict(zip((*COLUMNS, *TERMS), map(str, (dataset, name, *numbers, *terms)), strict=True)))
    return rows


def _namer(
    counted: ImageTerms,
    texts: Sequence[frozenset[str]],
    terms_of: Mapping[str, frozenset[str]],
    words: Mapping[str, Sequence[str]],
) -> Namer:
    """Says which terms made images positive here alone and there alone."""

    def name(of_class: str, here: NDArray[np.bool_], there: NDArray[np.bool_]) -> tuple[str, str]:
        ours = {term: n for term, n in counted.take(here).count().items() if term in terms_of[of_class]}
        parts = [word.rstrip("'") for word in words[of_class]]
        theirs: Counter[str] = Counter()
        for row in np.flatnonzero(there).tolist():
            theirs.update(term for term in texts[row] if any(part in term for part in parts))
        return _largest(ours), _largest(theirs)

    return name


def _largest(terms: Mapping[str, int]) -> str:
    ranked = sorted(terms.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{term} ({count})" for term, count in ranked[:NAMED])


def _by_substring(texts: Sequence[str], words: Mapping[str, Sequence[str]]) -> NDArray[np.float32]:
    """(N, C) 1 where one of the words of a class occurs anywhere in the text of an image."""
    found = {text: [any(word in text for word in of_class) for of_class in words.values()] for text in set(texts)}
    return np.asarray([found[text] for text in texts], dtype=np.float32)


def _automatic_headings(reports: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    with tarfile.open(reports) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.name.endswith(".xml") else None
            if content is not None:
                report = ElementTree.parse(content).getroot()
                headings = sorted({(node.text or "").lower() for node in report.findall(".//MeSH/automatic")})
                found |= {image.get("id", ""): headings for image in report.findall(".//parentImage")}
    return found


if __name__ == "__main__":
    main()
