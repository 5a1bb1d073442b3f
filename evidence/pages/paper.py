"""docs/paper-and-release.md: where the paper and its released code disagree, and which of our settings is which.

What the two sources do is written down here. What we do is read from the code: a default that changes, changes the
page.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bomd.config import Config, FitSettings
from bomd.data.datasets import DATASETS
from bomd.methods import METHODS
from bomd.methods.bomd import Bomd


@dataclass(frozen=True)
class Choice:
    """One thing that has to be decided.

    Attributes:
        here: Settings whose defaults say what we do, as `table.key`.
        otherwise: How to get another behaviour, or why there is none.
        note: What we do where no setting says it.
    """

    item: str
    paper: str
    release: str
    here: tuple[str, ...] = ()
    otherwise: str = ""
    note: str = ""


DESCRIPTORS = (
    Choice(
        "weight of the ranking loss",
        "positives / negatives",
        "(1 + spread of the positive class vectors) / positives",
        ("bomd.weighting",),
        '`bomd.weighting = "paper"`, or the method `bomd-paper`',
    ),
    Choice(
        "term that keeps descriptors together",
        "squared distance from their mean, divided by D − 1",
        "variance over the M descriptors, summed over D: about 511 times as large for M = 3 and D = 1024",
        ("bomd.weighting",),
        "the same setting",
    ),
    Choice(
        "how the two are added",
        "loss + β × term",
        "2 × ((1 − β) × loss + β × term)",
        ("bomd.weighting", "bomd.beta"),
        "the same setting",
    ),
    Choice(
        "an image without positives",
        "not defined",
        "gives NaN",
        note="takes no part in the loss",
    ),
    Choice(
        "training of the descriptors",
        "Adam 1e-4, cosine, batches of 16, 20 epochs",
        "Adam 2e-4, one cycle, batches of 64, 30 epochs",
        ("bomd.rate", "bomd.schedule", "bomd.batch", "bomd.epochs"),
        '`bomd.rate = 2e-4`, `bomd.schedule = "onecycle"`, `bomd.batch = 64`, `bomd.epochs = 30`',
    ),
    Choice(
        "which epoch is kept",
        "not said",
        "the best on the (noisy) NIH test set",
        note="the last",
        otherwise="choosing on a test set is not offered",
    ),
    Choice(
        "class vectors",
        "BlueBERT; how a name is put and pooled is not said",
        "files of 1024 numbers per class",
        ("bomd.language",),
        '`bomd.language = "bluebert"`, or a `.npy` file; "auto" takes the small sentence model in the package',
    ),
)
CLEANING = (
    Choice(
        "when labels count as clean",
        "text and algorithm say opposite things",
        "the top classes are exactly the given ones, for six or fewer",
        note="the lowest given class scores above the highest other class, for any number",
    ),
    Choice(
        "neighbours",
        "the different images among the K nearest descriptors",
        "rank sums over lists of 200 for each descriptor",
        ("bomd.reading", "bomd.neighbours"),
        '`bomd.reading = "nodes"` is the paper\'s, `"ranksum"` the release\'s',
    ),
    Choice(
        "mean label of the neighbours",
        "divided by K, even if there are fewer",
        "always exactly K",
        note="divided by those that there are",
    ),
    Choice(
        "λ, weight of the vote",
        "0.6; one sentence of the appendix has it the wrong way round",
        "0.6",
        ("bomd.graph_weight",),
    ),
    Choice("γ, even share", "0.25", "0.25, given as half of a flag called beta", ("bomd.uniform",)),
)
CLASSIFIER = (
    Choice(
        "optimiser",
        "Adam 0.05",
        "Adam 0.05 with betas 0.9 and 0.99, and eps 0.1",
        ("fit.rate", "fit.betas", "fit.eps"),
        "the rate of 0.05 diverges with the usual eps of 1e-8: change both or neither",
    ),
    Choice(
        "length", "30 epochs in batches of 16", "40 in its script", ("fit.epochs", "fit.batch"), "`fit.epochs = 40`"
    ),
    Choice(
        "augmentation",
        "random crop and flip",
        "also colour jitter and affine motion",
        ("fit.augment",),
        '`fit.augment = "release"`',
    ),
    Choice(
        "which epoch is kept",
        "not said",
        "the best on the OpenI test set",
        ("fit.select", "validation"),
        '`fit.select = "best"` looks at held-out training patients; a test set never chooses',
    ),
)
DATA = (
    Choice(
        "noise that is added on purpose",
        "a random share of the images",
        "the first rows of each group, drawn anew and unseeded by every loader; its main script ignores the flag",
        note="drawn once per seed and kept in a file that every method reads",
    ),
    Choice(
        "CheXpert, rows with a dropped class",
        "170,958 images",
        "rows removed, and then most likely each patient's rows repeated",
        ("chexpert.drop",),
        '`drop = "columns"` keeps more images; every image occurs once either way',
    ),
    Choice(
        "CheXpert, uncertain and blank",
        "not said",
        "both negative",
        ("chexpert.uncertain", "chexpert.blank"),
        '`uncertain = "ones"` or `"ignore"`, or one choice per class',
    ),
    Choice(
        "OpenI, where labels come from",
        "annotated by people",
        "substrings of the automatic headings",
        ("openi.mesh",),
        '`mesh = "automatic"`; whole terms are matched in both',
    ),
    Choice(
        "PadChest, findings outside the list",
        "rows are removed",
        "substrings",
        ("padchest.others",),
        "whole terms are matched; the counts beside the paper's are on the page of [datasets](datasets.md)",
    ),
)
GROUPS = {
    "Descriptors": DESCRIPTORS,
    "Detection and new labels": CLEANING,
    "Classifier": CLASSIFIER,
    "Data": DATA,
}


def page() -> str:
    parts = "\n\n".join(f"## {title}\n\n{table(choices)}" for title, choices in GROUPS.items())
    return f"""# Paper against released code

<!-- Written by evidence/pages/paper.py; the column "here" is read from the code. Do not edit. -->

The paper and the code that its authors released describe two slightly different methods, and each leaves something
open. Where they differ, both are settings here as far as that makes sense. The column *here* shows our defaults;
*otherwise* says how to get something else. Settings of `bomd` and `fit` belong in a recipe or behind `--set`; those
of a dataset under `[train]` or `[test.NAME]`.

The released code does not run from end to end as it stands: a constructor is called with an argument that it does not
have, a checkpoint is saved under one name and loaded under another, and a noise flag is overwritten. So the paper's
numbers are what to compare with, not what that code would give.

{parts}

## Why our default is the release's loss

The paper's weight, positives / negatives, counts an image more the more labels it has. Noise that adds labels makes
such images, so the wrong ones weigh most. [Measured on real X-rays](nih-small.md), `bomd-paper` is the literal form
and has its own rows.

## Slips in the paper that matter when numbers are compared

- The p-values match a test that divides the difference of the means by the *other* method's spread over three runs.
  The number of runs and BoMD's own spread do not enter. We print it as "z-test" beside Welch's t.
- Ablation tables and main table differ by a few hundredths: most likely single runs against means of three.
- The number of OpenI images is given as 2,971 in one place and 2,917 in another. The second is most likely a slip.
- The text says that results fall by 3.8 points per 20 % of corrupted images; its own table gives 2.5.
- "14 classes" counts No Finding, which is no part of the mean. The mean is over 13 findings.
- The noise is called symmetric, but it is not: a healthy image gains several findings, while one with findings loses
  all of them whenever its No Finding bit flips on. Merely counting labels finds many corrupted images, so we print
  that baseline beside every detection score.
"""


def table(choices: Sequence[Choice]) -> str:
    lines = ["| | paper | released code | here | otherwise |", "|---|---|---|---|---|"]
    for choice in choices:
        here = ", ".join(f"`{key} = {default(key)}`" for key in choice.here) or choice.note
        lines.append(f"| {choice.item} | {choice.paper} | {choice.release} | {here} | {choice.otherwise} |")
    return "\n".join(lines)


def default(key: str) -> str:
    """The default of `table.key` as a recipe would write it."""
    place, _, name = key.rpartition(".")
    if key == "bomd.weighting":
        return _written(Bomd.usual_weighting)  # the argument itself is None, which means "as the method is usually"
    if place in METHODS:
        return _written(inspect.signature(METHODS[place]).parameters[name].default)
    if place in DATASETS:
        return _written(inspect.signature(DATASETS[place].read).parameters[name].default)
    (found,) = [item.default for item in dataclasses.fields(FitSettings if place else Config) if item.name == name]
    return _written(found)


def _written(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return str(list(value)) if isinstance(value, tuple) else f"{value:g}"
