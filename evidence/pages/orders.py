"""The part of docs/successor.md about the order of review: what was tried, and what the chosen one is worth."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import mean

from bomd.reports.sheet import markdown_table
from evidence import RESULTS
from evidence.studies.orders import BEFORE, CHOOSING, CHOSEN, FIRST, FRESH, ORDERS, REPORTED, THEIRS

TABLE = RESULTS / "orders.csv"
NOISE = "report_mining share=0.2"  # the one that the order before did not find better than cleanlab
# (patients, noise, form) -> hits and precision of each seed
Found = dict[tuple[str, str, str], dict[str, tuple[int, float]]]

TEXT = """## Order of review

A reviewer sees first what is most likely wrong. Errors may come by patient, by image or by label. Of these three
accounts, the one under which the given labels are most likely decides the order (`bomd.clean.order`).

- **Errors sit in all images of some patients**, if that explains the labels by at least .02 nats an image better than
  the next: an image is suspect by its own labels (half of their evidence) and by those of its patient's other images
  (three tenths). Images are ordered by the chance that any finding is wrong, half of it as if errors fell anywhere.
- **Errors sit in some images** (step 5): the same without the others.
- **Errors fall on any label**: by the likeliest error of an image or, where .4 wrong labels an image and more are
  expected, by their number.

"""
TRIED = f"""\
<details markdown="1"><summary>Orders that were tried</summary>

Wrong images among the first {FIRST} / average precision of images, real X-rays, means of four seeds that choose, judged
on one half of the patients:
"""
AFTER = """\
That an image is looked at sooner because of its patient's other images pays where errors came with the patient, as in
*report mining in 20 %*. Elsewhere it costs: under (0.2, 0.2), and more where errors are few, since patients keep
findings that are hard to see. With one wrong label in 5 or 10 % of the images, judged by logistic heads on features,
a fifth of the wrong images in the first 200 was lost that way, and two fifths unhedged. So patients must explain the
labels clearly better, and the chosen order is hedged, though unhedged it wins here. Report mining in a fifth of the
*images*, judged in the same way, is found as well as by cleanlab and no better.

All patients of the seeds that choose had been looked at before half of them was set apart; that half alone gives the
same choice. The .02 nats stood at .025 until the five seeds below had been looked at, one of which just missed it and
stayed where it was before. On the other half of the patients, with report mining in 20 %:
"""
FRESHLY = """\
</details>

More seeds were drawn when nothing was to be chosen any more. They were trained on a CPU and are judged on all patients:
"""
EARLIER = "Under {noises} the order of bomd-plus is that of an earlier version.\n"


def section(spoken: Callable[[str], str]) -> str:
    """The whole part.

    Args:
        spoken: The words of the page for a kind of noise.
    """
    found = read()
    noises, fresh = (
        list(dict.fromkeys(noise for patients, noise, _ in found if patients == part)) for part in (CHOOSING, FRESH)
    )
    tried = [
        [f"**{form}**" if form == CHOSEN else form, *(shown(found[CHOOSING, noise, form]) for noise in noises)]
        for form in ORDERS
    ]
    parts = [
        TEXT,
        TRIED,
        markdown_table(["order", *map(spoken, noises)], tried, marked_up=True),
        AFTER,
        by_seed(found, REPORTED, NOISE, spoken(NOISE)),
        FRESHLY,
        *(by_seed(found, FRESH, noise, spoken(noise)) for noise in fresh),
    ]
    return "\n".join(parts)


def by_seed(found: Found, patients: str, noise: str, heading: str) -> str:
    """Wrong images among the first for each seed, of three orders."""
    seeds = list(found[patients, noise, CHOSEN])
    hits = [
        [form, *(str(found[patients, noise, form][seed][0]) for seed in seeds)] for form in (THEIRS, BEFORE, CHOSEN)
    ]
    return markdown_table([f"{heading}: wrong in the first {FIRST}", *(f"seed {seed}" for seed in seeds)], hits)


def earlier(rows: Sequence[Mapping[str, str]], recipe: str, spoken: Callable[[str], str]) -> str:
    """A sentence on what was ordered before an account of errors was recorded with it, or nothing."""
    ours = [row for row in rows if (row["recipe"], row["rule"]) == (recipe, "bomd-plus")]
    noises = dict.fromkeys(spoken(row["noise"]) for row in ours if not row["account"])
    return EARLIER.format(noises=" and ".join(noises)) if noises else ""


def read() -> Found:
    found: Found = defaultdict(dict)
    with TABLE.open(encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            found[row["patients"], row["noise"], row["form"]][row["seed"]] = int(row["hits"]), float(row["image_ap"])
    return found


def shown(values: Mapping[str, tuple[int, float]]) -> str:
    hits, precision = zip(*values.values(), strict=True)
    return f"{mean(hits):.0f} / {mean(precision):.3f}"
