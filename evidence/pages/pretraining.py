"""Write results/pretrain.csv from the records of pretrain_trial.sh, and docs/pretraining.md from that table.

python -m evidence.pages.pretraining [RECORDS.jsonl.gz...]

Without records only the page is written. What has not been run is said to be missing.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from scipy.stats import t as student  # type: ignore[import-untyped]

from bomd.experiments.noise_names import noise_name
from bomd.experiments.recorded import Record, read_records
from bomd.files import write_text
from bomd.measure.result import HELD_OUT
from bomd.reports.sheet import markdown_table, rows_to_csv
from evidence import DOCS, RESULTS

TABLE, PAGE = RESULTS / "pretrain.csv", DOCS / "pretraining.md"
COLUMNS = ("backbone", "start", "method", "noise", "seed", "test", "auc")
METHODS = ("bce", "bomd", "bomd-plus")
STARTS = ("none", "imagenet", "phantom", "imagenet+phantom")
NOISES = {
    "no noise": "none",
    "(0.2, 0.2)": "(.2, .2)",
    "(0.4, 0.4)": "(.4, .4)",
    "report_mining share=0.2": "report mining, 20 %",
}
FEW = ("no noise", "(0.4, 0.4)")  # what the smaller comparisons look at
TESTS = {HELD_OUT: "held-out NIH patients", "openi": "OpenI", "google": "Google's labels (one finding)"}
MISSING = "not run"
Scores = Mapping[tuple[str, str, str, str, str], Mapping[int, float]]  # backbone, start, method, noise, test -> seed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path, nargs="*", help="what the trial left behind")
    given = parser.parse_args()
    if given.records:
        rows = rows_of([record for path in given.records for record in read_records(path)])
        write_text(TABLE, rows_to_csv(rows))
    write_text(PAGE, page(read_scores(TABLE)))


def rows_of(records: Sequence[Record]) -> list[dict[str, Any]]:
    """One row for each run and test set."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for record in records:
        config = record.config
        facts = {
            "backbone": config.fit["backbone"],
            "start": str(config.fit["weights"]).replace("densenet-phantom", "phantom"),
            "method": config.method,
            "noise": noise_name(config.noise),
            "seed": config.seed,
        }
        found = {test: record.result.auc(test) for test in TESTS}
        for test, value in found.items():
            if value is not None:  # of the same run in several files the last counts
                rows[(*facts.values(), test)] = {**facts, "test": test, "auc": value}
    return sorted(rows.values(), key=lambda row: [str(row[name]) for name in COLUMNS])


def read_scores(path: Path) -> Scores:
    """The table by setting and seed; nothing where there is no table yet."""
    scores: dict[tuple[str, str, str, str, str], dict[int, float]] = defaultdict(dict)
    if path.exists():
        with path.open(encoding="utf-8") as stream:
            for row in csv.DictReader(stream):
                key = (row["backbone"], row["start"], row["method"], row["noise"], row["test"])
                scores[key][int(row["seed"])] = float(row["auc"])
    return scores


def page(scores: Scores) -> str:
    """The whole page; every number is from results/pretrain.csv."""
    parts = [HEAD, verdict(scores)]
    for test, spoken in TESTS.items():
        parts += [f"### {spoken[0].upper()}{spoken[1:]}\n", grid(scores, test)]
    parts += [DENSENET, smaller(scores, "densenet121", ("none", "phantom"), "none")]
    variants = [f"imagenet+phantom{ending}" for ending in ("", "-plain", "-varied", "-place")]
    parts += [VARIANTS, smaller(scores, "efficientnet_lite0", variants, "imagenet+phantom")]
    parts += [OWN, smaller(scores, "efficientnet_lite0", ("imagenet", "imagenet+self", "imagenet+phantom"), "imagenet")]
    return "\n".join([*parts, LIMITS])


def grid(scores: Scores, test: str) -> str:
    """Methods and starts by noise, and what phantoms add to ImageNet and to nothing."""
    lines = []
    for method in METHODS:
        for start in STARTS:
            cells = [spread(scores.get(("efficientnet_lite0", start, method, noise, test), {})) for noise in NOISES]
            lines.append([method, start, *cells])
        for one, other in (("imagenet+phantom", "imagenet"), ("phantom", "none")):
            cells = [gap(scores, "efficientnet_lite0", one, other, method, noise, test) for noise in NOISES]
            lines.append([method, f"*{one} less {other}*", *cells])
    return table(["method", "start", *NOISES.values()], lines)


def smaller(scores: Scores, backbone: str, starts: Sequence[str], reference: str) -> str:
    """Starts of one backbone under plain training, on every test set, with the distance from one of them."""
    lines = []
    for test, spoken in TESTS.items():
        for start in starts:
            cells = []
            for noise in FEW:
                cells.append(spread(scores.get((backbone, start, "bce", noise, test), {})))
                same = start == reference
                cells.append("" if same else gap(scores, backbone, start, reference, "bce", noise, test))
            lines.append([spoken, start, *cells])
    heads = [f"{NOISES[noise]}{what}" for noise in FEW for what in ("", ", difference")]
    return table(["test", "start", *heads], lines)


def table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """The lines in which anything was run."""
    known = [line for line in lines if set(line[2:]) - {MISSING, ""}]
    return markdown_table(heads, known, marked_up=True) if known else "Not run yet.\n"


def spread(values: Mapping[int, float]) -> str:
    """Mean and standard deviation over seeds."""
    if not values:
        return MISSING
    found = list(values.values())
    return f"{mean(found):.3f}" + (f" ± {stdev(found):.3f}" if len(found) > 1 else " (one seed)")


def gap(scores: Scores, backbone: str, one: str, other: str, method: str, noise: str, test: str) -> str:
    """Mean of the paired differences over seeds with its 95 % interval; a star where that leaves out 0."""
    found = paired(scores, backbone, one, other, method, noise, test)
    if not found:
        return MISSING
    if len(found) < 3:  # an interval of two says nothing
        return f"{mean(found):+.3f} ({'one seed' if len(found) == 1 else 'two seeds'})"
    half = float(student.ppf(0.975, len(found) - 1)) * stdev(found) / math.sqrt(len(found))
    return f"{mean(found):+.3f} ± {half:.3f}{' *' if abs(mean(found)) > half else ''}"


def paired(scores: Scores, backbone: str, one: str, other: str, method: str, noise: str, test: str) -> list[float]:
    """Differences of two starts in the seeds that both have."""
    ours, theirs = (scores.get((backbone, start, method, noise, test), {}) for start in (one, other))
    return [ours[seed] - theirs[seed] for seed in sorted(set(ours) & set(theirs))]


def verdict(scores: Scores) -> str:
    """In how many cells of the tables above phantoms help, counted, and which cells are missing."""
    lines = []
    for one, other in (("imagenet+phantom", "imagenet"), ("phantom", "none")):
        for test, spoken in TESTS.items():
            cells = [
                paired(scores, "efficientnet_lite0", one, other, method, noise, test)
                for method in METHODS
                for noise in NOISES
            ]
            known = [mean(cell) for cell in cells if cell]
            if known:
                better = sum(value > 0 for value in known)
                lines.append(
                    f"- {one} against {other}, {spoken}: higher in {better} of {len(known)} cells, "
                    f"{mean(known):+.3f} on average."
                )
    missing = {
        method: [
            f"{start} with {shown}"
            for start in STARTS
            for noise, shown in NOISES.items()
            if not scores.get(("efficientnet_lite0", start, method, noise, HELD_OUT))
        ]
        for method in METHODS
    }
    each = len(STARTS) * len(NOISES)
    if not lines:
        return "None of these cells has been run yet.\n"
    said = [
        f"{method} ({'all' if len(cells) == each else ', '.join(cells)})" for method, cells in missing.items() if cells
    ]
    count = sum(map(len, missing.values()))
    text = "\n".join(lines) + "\n"
    return text + (f"\nNot run, {count} of {each * len(METHODS)} cells: {'; '.join(said)}.\n" if said else "")


HEAD = """# A start that knows chests

A network that has learnt generated X-rays first learns real ones from fewer and from worse labels: the phantoms'
labels are right, whatever is wrong with yours, and nothing is downloaded.

```toml
[fit]
weights = "imagenet+phantom" # or "phantom", where there are no ImageNet weights
```

| `fit.weights` | start |
|---|---|
| `"none"` | random weights |
| `"imagenet"` | photographs; not for the backbone `small` |
| `"phantom"` | generated X-rays, from random weights; for every backbone |
| `"imagenet+phantom"` | generated X-rays, on top of ImageNet |
| `"self"`, `"imagenet+self"`, `"imagenet+phantom+self"` | your own training images without their labels, on top of what stands before |
| a folder | the trunk of a model that `bomd` saved, with the same backbone |
| a file | weights in the backbone's own format |

The same start serves every network of a run: descriptors, evidence and classifier. `bomd run`, `bomd benchmark` and
`bomd audit --weights phantom` make it on first use and say how long that takes: a minute or a few on a GPU, where
120,000 phantoms are learnt three times, and some minutes on a CPU, which learns 16,000 twice; of images above 128 and
64 pixels half as many. It is kept for all runs of this
user in `~/.cache/bomd`, or where `BOMD_CACHE` says, as a model folder with card and metrics. Another backbone, image
size, recipe or a change of the code that draws phantoms gives another start. Processes that want the same one wait for
the first; interrupted, the next run goes on.

```
bomd pretrain efficientnet_lite0 --size 64
bomd pretrain small --size 64 --hospitals varied --targets severity,place -o start
bomd run nih-64 --set fit.weights=start
```

`--hospitals` says where phantoms are taken: *north* and *south* are those of the demo, *varied* draws every image as
from a hospital of its own, with other exposure, contrast, blur, grain, tilt, crop, borders and devices, some inverted
or lying on a side, and with subtler findings. `--targets` adds what only a drawn image knows: how severe each finding
is, and in which parts of the image it lies.

It is for chest X-rays. An audit offers it where the images look like radiographs: DICOM files, or grey images, with
class names that are findings of the chest. On phantoms themselves, as in the demo, it proves nothing: test images then
come from the same generator.

## What it is worth on real X-rays

NIH at 64 pixels (recipe `nih-64`, EfficientNet-lite0), mean AUC over findings, mean ± standard deviation over seeds.
*Less* rows are paired over seeds, from three seeds on ± half of the 95 % interval, with a star where that leaves out 0.
Held-out NIH patients with the labels from before noise decide; OpenI and Google's labels are reported.
"""

DENSENET = """## DenseNet-121 from scratch

Plain training. The difference is from random weights.
"""

VARIANTS = """## Which phantoms

Plain training on top of ImageNet: all three hospitals (the default), *plain* (north and south), *varied* alone, and
all three with severity and place as further targets. The difference is from the default.
"""

OWN = """## Your own images without labels

Contrastive learning on the training images, against ImageNet alone. The difference is from ImageNet.
"""

LIMITS = """## Limits

Chests of one build, one size of image and few seeds; phantoms differ from people in ways that nobody has listed. The
recipe of the start (how many, how long, which hospitals) was not tuned on any test set here. Everything above is from
starts made on a GPU: whether the smaller one that a CPU makes is worth its minutes has not been measured.

The numbers are in [results/pretrain.csv](../results/pretrain.csv); `evidence/studies/pretrain_trial.sh` makes them again.
"""


if __name__ == "__main__":
    main()
