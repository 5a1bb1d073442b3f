"""Count the real label files and write docs/datasets.md; every number on that page comes from here.

python -m evidence.pages.datasets [DATA_DIR]

DATA_DIR holds `labels/` with the label files of all sets and, where there are some, `nih/` and `openi/` with the images
that the experiments of this project ran on. The counts go to results/dataset_counts.csv, and the page is made from that
file and from the readers themselves: their docstrings, arguments and defaults. Without DATA_DIR nothing is counted
anew, and only the page is made again. The comparison with torchxrayvision is of
evidence/studies/torchxrayvision_labels.py.
"""

from __future__ import annotations

import argparse
import csv
import inspect
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bomd import progress
from bomd.data.chosen import PLACES, count_labels
from bomd.data.datasets import DATASETS, mixture
from bomd.data.datasets.classes import SYNONYMS
from bomd.data.datasets.declared import OPTIONS
from bomd.files import write_text
from evidence import DOCS, RESULTS
from evidence.pages.comparisons import COMPARISONS

PAGE = DOCS / "datasets.md"
COUNTS = RESULTS / "dataset_counts.csv"
BESIDE = RESULTS / "dataset_torchxrayvision.csv"
COLUMNS = ("dataset", "folder", "split", "classes", "options", "images", "patients", "class")
NUMBERS = ("positive", "negative", "not_labelled")

Row = dict[str, str]
Key = tuple[str, str, str, str, str]  # dataset, folder, split, classes, options

UNCOUNTED = {*PLACES, "split", "missing", "seed"}  # arguments that choose a part or a place, not what counts

# What the paper does for every argument that changes counts; "code" is its released preparation.
PAPER = {
    "nih": {"classes": "nih", "drop": "rows"},
    "chexpert": {
        "classes": "chexpert",
        "drop": "rows (code)",
        "uncertain": "zeros (code)",
        "blank": "zeros (code)",
        "frontal": "True",
        "minimum_age": "1 (code)",
        "held_out": "0.1 (code), with most patients on both sides",
    },
    "openi": {
        "classes": "nih or chexpert, as the training set",
        "mesh": "people's headings by its text, automatic by its code",
        "drop": "rows",
        "views": "frontal",
        "unindexed": "no finding (code)",
    },
    "padchest": {
        "classes": "nih or chexpert, as the training set",
        "others": "not stated; listed comes closest",
        "views": "PA, AP",
        "physician_only": "True",
        "reviewed_view_only": "True",
        "labelled_only": "True",
        "one_per_patient": "True (code)",
        "minimum_age": "11 (code)",
    },
    "nih-google": {"classes": "native, of which Pneumothorax and Nodule or mass"},
}
WHOLE_PADCHEST: dict[str, Any] = {
    "views": (),
    "physician_only": False,
    "reviewed_view_only": False,
    "labelled_only": False,
    "one_per_patient": False,
    "minimum_age": 0,
}


@dataclass(frozen=True)
class Reading:
    """One way to read a set, which the page shows under a heading."""

    dataset: str
    split: str
    heading: str
    options: Mapping[str, Any] = field(default_factory=dict)
    folder: str = "labels"

    @property
    def key(self) -> Key:
        classes = self.options.get("classes", default(self.dataset, "classes"))
        others = {name: value for name, value in self.options.items() if name not in ("classes", *PLACES)}
        return (self.dataset, self.folder, self.split, classes, written(others))


NATIVE = {"classes": "native"}
CHEXPERT = {"classes": "chexpert"}
BOTH_VIEWS = OPTIONS["openi"]
READINGS = {
    "nih": [
        Reading("nih", "all", "whole set", NATIVE),
        Reading("nih", "train", "train", NATIVE),
        Reading("nih", "test", "test", NATIVE),
        Reading("nih", "train", "train, paper's list"),
        Reading("nih", "test", "test, paper's list"),
    ],
    "chexpert": [
        Reading("chexpert", "all", "whole set", {**NATIVE, "frontal": False, "minimum_age": 0}),
        Reading("chexpert", "train", "train", NATIVE),
        Reading("chexpert", "validation", "validation", NATIVE),
        Reading("chexpert", "expert", "expert", NATIVE),
        Reading("chexpert", "train", "train, paper's list"),
        Reading("chexpert", "validation", "validation, paper's list"),
        Reading("chexpert", "expert", "expert, paper's list"),
    ],
    "openi": [
        Reading("openi", "test", "whole set", {**NATIVE, **BOTH_VIEWS}),
        Reading("openi", "test", "both views, NIH's list", BOTH_VIEWS),
        Reading("openi", "test", "both views, CheXpert's list", {**CHEXPERT, **BOTH_VIEWS}),
        Reading("openi", "test", "frontal by DICOM header, NIH's list"),
    ],
    "padchest": [
        Reading("padchest", "test", "whole set", {**NATIVE, **WHOLE_PADCHEST}),
        Reading("padchest", "test", "physicians' part", NATIVE),
        Reading("padchest", "test", "of it, NIH's list"),
        Reading("padchest", "test", "of it, CheXpert's list", CHEXPERT),
    ],
    "nih-google": [
        Reading("nih-google", "test", "test"),
        Reading("nih-google", "validation", "validation"),
    ],
}
DROP = {"missing": "drop"}
PART = [  # the images that the experiments of this project ran on
    Reading("nih", "train", "NIH, part of train", {**DROP, "lists": "labels"}, "nih"),
    Reading("openi", "test", "OpenI, frontal", {**DROP, "reports": "labels/NLMCXR_reports.tgz"}, "openi"),
    Reading("nih-google", "all", "NIH-Google, of these NIH images", {**DROP, "images_root": "nih"}),
]


def main(data: Path | None = None) -> None:
    """Count anew where the data is here, and write the page."""
    if data is not None:
        write_text(COUNTS, as_csv(read_all(data)))
    write_text(PAGE, page(rows_of(COUNTS), rows_of(BESIDE)))


def rows_of(file: Path) -> list[Row]:
    with file.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def read_all(data: Path) -> list[Row]:
    """Rows of the CSV: every class of every reading."""
    compared = [Reading(row.dataset, row.split, "", row.options) for row in COMPARISONS]
    wanted = [*(reading for readings in READINGS.values() for reading in readings), *compared]
    wanted += [reading for reading in PART if (data / "nih").is_dir() and (data / "openi").is_dir()]
    unique = {reading.key: reading for reading in wanted}
    return [row for reading in progress.track(list(unique.values()), "reading") for row in count(reading, data)]


def count(reading: Reading, data: Path) -> list[Row]:
    """One row for each class of a reading."""
    options: dict[str, Any] = {"images": "missing" in reading.options, **reading.options}
    options |= {name: data / options[name] for name in ("lists", "reports", "images_root") if name in options}
    table = DATASETS[reading.dataset].read(data / reading.folder, reading.split, **options)
    found = (*reading.key, len(table), len(np.unique(table.groups)))
    return [
        dict(zip((*COLUMNS, *NUMBERS), map(str, (*found, *counted)), strict=True)) for counted in count_labels(table)
    ]


def as_csv(rows: Sequence[Row]) -> str:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, [*COLUMNS, *NUMBERS], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def page(rows: Sequence[Row], beside: Sequence[Row]) -> str:
    """The page, from the counts, from the comparison with torchxrayvision and from the readers."""
    counts: dict[Key, list[Row]] = {}
    for row in rows:
        key = (row["dataset"], row["folder"], row["split"], row["classes"], row["options"])
        counts.setdefault(key, []).append(row)
    parts = [_opening(counts), *(_section(name, counts) for name in READINGS), _mixture(counts)]
    parts.append(_beside(beside))
    if all(reading.key in counts for reading in PART):
        parts.append(_part(counts))
    return "\n".join(parts)


OPENING = """# The datasets

<!-- Written by evidence/pages/datasets.py from results/dataset_counts.csv and the readers themselves. Do not edit. -->

Point at a folder as you downloaded it; labels, patients, views and paths come out as one table, in which NaN means that
a set does not label a class. Three commands look at a set before any time goes into training:

```
bomd verify nih --root data/nih                        # what is there, missing, unreadable or contradictory
bomd labels openi --root data/openi --class Effusion   # the words behind a class, and those left out
bomd prepare nih --root data/nih --size 512            # decode every image once
```

Every option below is an argument of the reader: `--set drop=columns` on the command line, `drop = "columns"` under
`[train]` or `[test.NAME]` in a recipe. Labels load without images (`--set images=false`). Data of your own:
[`folder`](../README.md#your-own-data).

## Images beside those of the paper
"""
REMARK = """OpenI's file of projections is not among the label files counted here, so its rows are over both views. They
are of {} reports with NIH's list and {} with CheXpert's, and the paper has about one frontal image for each report.
"""


def _opening(counts: Mapping[Key, Sequence[Row]]) -> str:
    table = []
    for row in COMPARISONS:
        images = int(counts[Reading(row.dataset, row.split, "", row.options).key][0]["images"])
        if images != row.images:
            raise SystemExit(f"{row.dataset} {row.split} has {images} images, but {row.images} are declared.")
        difference = images - row.paper
        gap = "0" if not difference else f"{difference:+,} ({100 * difference / row.paper:+.1f} %)"
        options = written(row.options) or "defaults"
        table.append([row.dataset, row.split, options, f"{images:,}", f"{row.paper:,}", gap, row.why])
    heads = ["set", "split", "options", "here", "paper", "difference", "why"]
    reports = [
        f"{int(counts[Reading('openi', 'test', '', {**BOTH_VIEWS, **classes}).key][0]['patients']):,}"
        for classes in ({}, CHEXPERT)
    ]
    remark = REMARK.format(*reports)
    return "\n".join([OPENING, *markdown(heads, table, "lllrrrl"), "", remark])


def _section(name: str, counts: Mapping[Key, Sequence[Row]]) -> str:
    module = inspect.getmodule(DATASETS[name].read)
    summary, _, layout = inspect.cleandoc(str(module.__doc__)).partition("\n\n")
    title, _, what = summary.partition(": ")
    lines = [f"## {title}: `{name}`", "", capitalised(what), ""]
    lines += [f"**On disk.** {capitalised(layout.removeprefix('As downloaded: '))}", ""]
    lines += [*_options(name), "", *_positives(READINGS[name], counts)]
    return "\n".join([*lines, ""])


def _options(name: str) -> list[str]:
    """What changes counts: default, the paper's choice, and the reader's own explanation."""
    meanings = arguments_in(str(inspect.getdoc(DATASETS[name].read)))
    chosen = [key for key in inspect.signature(DATASETS[name].read).parameters if key not in UNCOUNTED]
    if set(chosen) != set(PAPER[name]):
        raise SystemExit(f"{name}: PAPER in {__file__} must name exactly {', '.join(chosen)}.")
    rows = [[f"`{key}`", f"`{shown(default(name, key))}`", PAPER[name][key], meanings[key]] for key in chosen]
    splits = [f"**Splits.** {capitalised(meanings['split'])}", ""]
    return [*splits, *markdown(["option", "default", "paper", "meaning"], rows, "llll")]


def _positives(readings: Iterable[Reading], counts: Mapping[Key, Sequence[Row]]) -> list[str]:
    """Images, patients and positives of each reading; a class that it does not label is blank."""
    columns = [(reading.heading, counts[reading.key]) for reading in readings]
    positives = [{SYNONYMS.get(row["class"], row["class"]): row for row in rows} for _, rows in columns]
    names = dict.fromkeys(name for found in positives for name in found)
    table = [
        ["*images*", *(f"{int(rows[0]['images']):,}" for _, rows in columns)],
        ["*patients*", *(f"{int(rows[0]['patients']):,}" for _, rows in columns)],
    ]
    table += [[name, *(_cell(found.get(name)) for found in positives)] for name in names]
    return markdown(["positives", *(heading for heading, _ in columns)], table, "l" + "r" * len(columns))


def _cell(row: Row | None) -> str:
    return "" if row is None or row["not_labelled"] == row["images"] else f"{int(row['positive']):,}"


MIXTURE = """## NIHxPDC and other mixtures: `mixture`

{summary}

In a recipe, `[train]` has `dataset = "mixture"`, and `[train.base]` and `[train.part]` are two sets with settings of
their own; `only = "part"` under `[noise]` lets noise fall on the part alone. The recipe `nihxpdc` is the paper's
construction: {total:,} images in all, with these positives.
"""
TORCHXRAYVISION = """## Beside torchxrayvision

Read from the same label files by the rules of torchxrayvision 1.5.7, over all views, ages and images of a patient. It
looks for a name anywhere in the text of an image's labels; here whole terms count, and in OpenI the headings that
people assigned where torchxrayvision takes those of a program. {same} Positives where the two
differ, with the terms behind most of the difference:
"""
AT_HAND = """## The images that were at hand

The experiments in `results/` on real images ran on a part of NIH's training list and of OpenI's frontal images, at
128 px, with the classes and filters above. It is not a random part: its counts are here to judge those results by.
Runs recorded before nodules, granulomas and opacities of other organs stopped counting have a few images of OpenI
fewer.
"""


def _mixture(counts: Mapping[Key, Sequence[Row]]) -> str:
    both = [Reading("nih", "train", "base: NIH"), Reading("padchest", "test", "part: PadChest")]
    total = sum(int(counts[reading.key][0]["images"]) for reading in both)
    text = MIXTURE.format(summary=inspect.cleandoc(str(mixture.__doc__)), total=total)
    return "\n".join([text, *_positives(both, counts), ""])


def _beside(rows: Sequence[Row]) -> str:
    """Classes whose labels differ from torchxrayvision's; sets without such a class in a sentence."""
    sets = {name: [row for row in rows if row["dataset"] == name] for name in dict.fromkeys(r["dataset"] for r in rows)}
    alike = [f"{name} ({len(of)} classes)" for name, of in sets.items() if not any(int(row["differ"]) for row in of)]
    same = f"No label differs in {' and '.join(alike)}, where blank and uncertain cells of CheXpert stay unknown."
    heads = ["set", "class", "here", "there", "here alone", "there alone", "terms here alone", "terms there alone"]
    numbers = ("here", "there", "only_here", "only_there")
    texts = ("terms_only_here", "terms_only_there")
    table = [
        [row["dataset"], row["class"], *(f"{int(row[name]):,}" for name in numbers), *(row[name] for name in texts)]
        for row in rows
        if int(row["differ"])
    ]
    return "\n".join([TORCHXRAYVISION.format(same=same), *markdown(heads, table, "llrrrrll"), ""])


def _part(counts: Mapping[Key, Sequence[Row]]) -> str:
    return "\n".join([AT_HAND, *_positives(PART, counts), ""])


def default(name: str, option: str) -> Any:
    return inspect.signature(DATASETS[name].read).parameters[option].default


def capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


def shown(value: Any) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def written(options: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={shown(value) or '()'}" for name, value in sorted(options.items()))


def arguments_in(docstring: str) -> dict[str, str]:
    """What a Google-style docstring says about each argument, on one line."""
    body = docstring.partition("Args:\n")[2].partition("\n\n")[0]
    items = re.findall(r"^    (\w+): (.*?)(?=^    \w+: |\Z)", body, flags=re.MULTILINE | re.DOTALL)
    return {name: " ".join(text.split()) for name, text in items}


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]], sides: str) -> list[str]:
    """A table; `sides` has l or r for each column."""
    rule = ["---:" if side == "r" else "---" for side in sides]
    return ["| " + " | ".join(cells) + " |" for cells in (heads, rule, *rows)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?", help="holds labels/, and perhaps nih/ and openi/")
    progress.enable()
    main(parser.parse_args().data)
