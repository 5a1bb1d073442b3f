"""Write results/pretrain.csv from the records of pretrain_trial.sh, and docs/pretraining.md from that table.

python -m evidence.pages.pretraining

Runs that start from ImageNet are those of the successor's study as well, with the very same settings: they are read from
there. What has not been run is said to be missing. Where heat maps point is in results/pointing.csv, which the trial
writes itself, as OUTPUT/heat-maps.csv.
"""

from __future__ import annotations

import csv
import textwrap
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from bomd.experiments.noise_names import noise_name
from bomd.files import write_text
from bomd.measure.result import HELD_OUT
from bomd.reports.sheet import markdown_table, rows_to_csv
from evidence import DOCS, RESULTS
from evidence.pages.pretraining_numbers import (
    METHODS,
    MISSING,
    NOISES,
    STARTS,
    TESTS,
    USUAL,
    Scores,
    Tally,
    certain,
    gap,
    paired,
    read_scores,
    rows_of,
    shared,
    spread,
    tally,
)
from evidence.records import records_of
from evidence.studies.pointing import UNTOUCHED

TABLE, POINTING, PAGE = RESULTS / "pretrain.csv", RESULTS / "pointing.csv", DOCS / "pretraining.md"
FEW = ("no noise", "(0.4, 0.4)")  # what the smaller comparisons look at
PAIRS = (("imagenet+phantom", "imagenet"), ("phantom", "none"))
ON_TOP = "imagenet+phantom"
VARIANTS = {ON_TOP: "all three hospitals", f"{ON_TOP}-plain": "north and south", f"{ON_TOP}-varied": "varied alone"}
VARIANTS |= {f"{ON_TOP}-place": "all three, severity and place taught, too"}
CPU = f"{ON_TOP}-16k-2"
AMOUNTS = {"imagenet": "none", CPU: "16,000, twice: what a CPU makes", f"{ON_TOP}-30k-3": "30,000, three times"}
AMOUNTS |= {f"{ON_TOP}-120k-1": "120,000, once", ON_TOP: "120,000, three times: what a GPU makes"}
AMOUNTS |= {f"{ON_TOP}-360k-1": "360,000, once"}
OWN = {start: start for start in ("imagenet", "imagenet+self", ON_TOP, f"{ON_TOP}+self")}
LARGE = {f"{start}, 128 px": start for start in ("imagenet", ON_TOP)}
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def main() -> None:
    others = [record for record in records_of("successor-nih") if record.config.fit["weights"] == "imagenet"]
    asked = [
        record for record in others if record.config.method in METHODS and noise_name(record.config.noise) in NOISES
    ]
    write_text(TABLE, rows_to_csv(rows_of([*asked, *records_of("pretrain")])))
    write_text(PAGE, page(read_scores(TABLE), POINTING))


def page(scores: Scores, pointing: Path) -> str:
    """The whole page; every number is from results/pretrain.csv and results/pointing.csv."""
    parts = [TITLE, finding(scores), HOW, verdict(scores)]
    for test, spoken in TESTS.items():
        parts += [f"### {spoken[0].upper()}{spoken[1:]}\n", grid(scores, test)]
    densenet = {"none": "none", "phantom": "phantom"}
    parts += [DENSENET_TEXT, smaller(scores, densenet, "none", "densenet121")]
    parts += [VARIANTS_TEXT, smaller(scores, VARIANTS, ON_TOP)]
    parts += [AMOUNTS_TEXT, smaller(scores, AMOUNTS, "imagenet")]
    parts += [LARGE_TEXT, smaller(scores, LARGE, "imagenet, 128 px")]
    parts += [OWN_TEXT, smaller(scores, OWN, "imagenet")]
    parts += [POINTING_TEXT, pointing_table(pointing)]
    return "\n".join([*parts, limits(scores), FILES])


def finding(scores: Scores) -> str:
    """What it is worth, in words that follow from the table."""
    top, scratch = (tally(scores, *pair, HELD_OUT) for pair in PAIRS)
    if top is None:
        return "What that is worth on real X-rays has not been measured.\n"
    text = f"On top of ImageNet weights this {_moved(top)} the mean AUC on held-out NIH patients "
    text += _how(top, "settings of method and noise")
    text += f"; from random weights it {_moved(scratch)} it {_how(scratch)}." if scratch else "."
    for test in TESTS:
        found = tally(scores, *PAIRS[0], test)
        if found and test != HELD_OUT:
            text += f" On {TESTS[test]}, on top of ImageNet, it {_moved(found)} it {_how(found)}."
    return _filled(f"{text} Where bomd-plus learns exactly what bce learns, the two are one setting.")


def _moved(found: Tally) -> str:
    return "raised" if found.average > 0 else "lowered"


def _how(found: Tally, what: str = "settings") -> str:
    """In 9 of 10 settings, by 0.030 on average (five seeds; beyond chance in 7)."""
    higher, ways = found.average > 0, (found.clearly_higher, found.clearly_lower)
    count = found.higher if higher else found.settings - found.higher
    text = f"in {count} of {found.settings} {what}, by {abs(found.average):.3f} on average"
    if found.seeds[0] < 3:
        return f"{text} ({_seeds(found)}, too few to be certain)"
    sure, against = ways if higher else ways[::-1]
    other = f", and the other way in {against}" if against else ""
    return f"{text} ({_seeds(found)}; beyond chance in {sure}{other})"


def _seeds(found: Tally) -> str:
    fewest, most = map(_count, found.seeds)
    return f"{most} seed{'s' * (most != 'one')}" if fewest == most else f"{fewest} to {most} seeds"


def _count(number: int) -> str:
    return NUMBERS[number] if number < len(NUMBERS) else str(number)


def grid(scores: Scores, test: str) -> str:
    """Methods and starts by noise, and what phantoms add to ImageNet and to nothing."""
    lines = []
    for method in METHODS:
        for start in STARTS:
            cells = [spread(scores.get((USUAL, start, method, noise, test), {})) for noise in NOISES]
            lines.append([method, start, *cells])
        for one, other in PAIRS:
            cells = [gap(paired(scores, USUAL, one, other, method, noise, test)) for noise in NOISES]
            lines.append([method, f"*{one} less {other}*", *cells])
    return table(["method", "start", *NOISES.values()], lines)


def smaller(scores: Scores, starts: Mapping[str, str], reference: str, backbone: str = USUAL) -> str:
    """Starts of one backbone under plain training, on every test set, with the distance from one of them.

    All lines have the seeds that each of them has, since seeds differ by more than starts do.

    Args:
        starts: What each is called on the page.
    """
    run = [start for start in starts if any(scores.get((backbone, start, "bce", noise, HELD_OUT)) for noise in FEW)]
    lines: list[list[str]] = []
    certainly, most = [], 0
    for test, shown in TESTS.items():
        found = {noise: shared(scores, backbone, run, noise, test) for noise in FEW}
        for start in run:
            cells = []
            for noise in FEW:
                ours, theirs = found[noise].get(start, {}), found[noise].get(reference, {})
                apart = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
                cells += [spread(ours), "" if start == reference else gap(apart)]
                most = max(most, len(ours))
                if test == HELD_OUT and start != reference and certain(apart):
                    certainly.append(f"{starts[start]} ({NOISES[noise]})")
            lines.append([shown, starts[start], *cells])
    heads = [f"{NOISES[noise]}{what}" for noise in FEW for what in ("", ", difference")]
    if len(run) < 2:
        return "Not run yet.\n"
    words = f"{_count(most)} seed{'s' * (most > 1)}. On held-out NIH patients "
    words += f"beyond chance: {'; '.join(certainly)}." if certainly else "no difference is beyond chance."
    missing = [spoken for start, spoken in starts.items() if start not in run]
    words += f" Not run: {'; '.join(missing)}." if missing else ""
    return _filled(words[0].upper() + words[1:]) + "\n" + table(["test", "start", *heads], lines)


def table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """The lines in which anything was run."""
    known = [line for line in lines if set(line[2:]) - {MISSING, ""}]
    return markdown_table(heads, known, marked_up=True) if known else "Not run yet.\n"


def verdict(scores: Scores) -> str:
    """In how many settings phantoms help, counted, and which have not been run."""
    lines = []
    for one, other in PAIRS:
        for test, spoken in TESTS.items():
            found = tally(scores, one, other, test)
            if found:
                lines.append(
                    f"- {one} against {other}, {spoken}: higher in {found.higher} of {found.settings} settings, "
                    f"{found.average:+.3f} on average ({_seeds(found)})."
                )
    if not lines:
        return "None of these cells has been run yet.\n"
    missing = {
        method: [
            f"{start} with {shown}"
            for start in STARTS
            for noise, shown in NOISES.items()
            if not scores.get((USUAL, start, method, noise, HELD_OUT))
        ]
        for method in METHODS
    }
    each = len(STARTS) * len(NOISES)
    said = [
        f"{method} ({'all' if len(cells) == each else ', '.join(cells)})" for method, cells in missing.items() if cells
    ]
    count = sum(map(len, missing.values()))
    text = "\n".join(lines) + "\n"
    return text + (f"\nNot run, {count} of {each * len(METHODS)} cells: {'; '.join(said)}.\n" if said else "")


def pointing_table(path: Path) -> str:
    """How often heat maps point at what was drawn, by start and by what was learnt from there."""
    if not path.exists():
        return "Not run yet.\n"
    hits: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    with path.open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    for row in rows:
        hits[row["start"], row["labels"]][int(row["seed"])] = float(row["hits"])
    lines = []
    for start in ("imagenet", ON_TOP, f"{ON_TOP}-place"):
        itself = hits.get((start, UNTOUCHED))
        line = [start, "" if itself is None else f"{itself[0]:.3f}"]
        for learnt in FEW:
            ours, plain = hits.get((start, learnt), {}), hits.get(("imagenet", learnt), {})
            same = [ours[seed] - plain[seed] for seed in sorted(set(ours) & set(plain))]
            line += [spread(ours), "" if start == "imagenet" else gap(same)]
        lines.append(line)
    learnt_heads = [head for noise in FEW for head in (f"NIH, {NOISES[noise]}", "difference")]
    chance, count = float(rows[0]["chance"]), int(rows[0]["images"])
    note = f"{count} findings in phantoms of other patients; pointing anywhere would hit {chance:.3f}."
    placed = []
    for noise in FEW:
        ours, theirs = (hits.get((start, noise), {}) for start in (f"{ON_TOP}-place", ON_TOP))
        apart = [ours[seed] - theirs[seed] for seed in sorted(set(ours) & set(theirs))]
        placed += [f"{gap(apart)} ({NOISES[noise]})"] if apart else []
    note += f" Severity and place taught beside labels change the hits by {' and '.join(placed)}." if placed else ""
    return _filled(note) + "\n" + markdown_table(["start", "the start itself", *learnt_heads], lines, marked_up=True)


def limits(scores: Scores) -> str:
    """What the numbers above do not say, as far as it follows from what was run."""
    run = {start for (_, start, *_), values in scores.items() if values}
    sides = "Images of 64 and 128 pixels" if set(LARGE) & run else "Images of 64 pixels alone"
    top = tally(scores, *PAIRS[0], HELD_OUT)
    text = [
        "Chests of one build; phantoms differ from people in ways that nobody has listed.",
        f"{sides}: the X-rays at hand have 128, so that 224 would show nothing more.",
        f"The main tables have {_seeds(top)}, whose settings share patients: they are no independent trials."
        if top
        else "",
        "The recipe of the start (how many, how long, which hospitals) was not tuned on any test set here.",
        "" if CPU in run else "Whether the smaller start that a CPU makes is worth its minutes has not been measured.",
        f"All starts were made on a GPU{', which draws and learns as a CPU does but for rounding' * (CPU in run)}.",
        "" if any(key[0] == "densenet121" for key in scores) else "Other backbones have not been tried.",
        "Fewer images, and X-rays from other places than NIH and Indiana, have not been tried.",
    ]
    return "## Limits\n\n" + _filled(" ".join(part for part in text if part))


def _filled(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False) + "\n"


TITLE = """# A start that knows chests

A network can learn generated X-rays first, and yours then: the phantoms' labels are right, whatever is wrong with yours,
and nothing is downloaded.
"""

HOW = """```toml
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

DENSENET_TEXT = """## DenseNet-121 from scratch

Plain training. The difference is from random weights.
"""

VARIANTS_TEXT = """## Which phantoms

Plain training on top of ImageNet. The difference is from the first line, which is the default.
"""

AMOUNTS_TEXT = """## How many phantoms, and how often

Plain training on top of ImageNet and phantoms of all three hospitals. The difference is from ImageNet alone.
"""

LARGE_TEXT = """## Images of 128 pixels

Plain training; the start was made from phantoms of 128 pixels. The difference is from ImageNet alone.
"""

OWN_TEXT = """## Your own images without labels

Contrastive learning on the training images, against phantoms, and on top of them. The difference is from ImageNet alone.
"""

POINTING_TEXT = """## Do heat maps point at findings?

The hottest place of a heat map should lie on the finding, or within a twentieth of the image's side of it (the pointing
game). Where findings lie is known of phantoms alone: NIH has boxes in 880 images of its official test list, none of which
was at hand; `python -m evidence.studies.pointing MODEL --boxes BBox_List_2017.csv --images FOLDER` plays on them. Models
that have learnt NIH from three starts, and the starts themselves, on phantoms of the hospital *south*, with plain
training. Only the first start had never seen a phantom, and learnt findings from people alone. The difference is from it.
"""

FILES = """The numbers are in [results/pretrain.csv](../results/pretrain.csv); `evidence/studies/pretrain_trial.sh` makes them again.
"""


if __name__ == "__main__":
    main()
