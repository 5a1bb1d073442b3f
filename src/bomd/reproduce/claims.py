"""What the paper claims, and what the records here say about it, in sentences that are computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bomd.config import Config
from bomd.measure.benchmark import Record
from bomd.measure.significance import welch_test
from bomd.measure.summary import number
from bomd.reproduce import ARTEFACTS, paper
from bomd.reproduce.artefact import Material, Mean
from bomd.reproduce.figures.gather import NOISES, Noise, noise_of, show_noise
from bomd.reproduce.tables.ablations import Variant, hyper_parameters, languages, runs_of, terms
from bomd.reproduce.tables.entries import Entry, mean, mean_auc, tests_of
from bomd.reproduce.tables.noise_grid import CELLS, METHODS, TABLE, cell

LEVEL = 0.05
WORST: Noise = (0.6, 0.6)  # where the paper's BoMD loses to NVUM
NO_RUNS = "No run here can tell."


@dataclass(frozen=True)
class Claim:
    """One statement of the paper, and sentences on what is found here."""

    paper: str
    here: tuple[str, ...]


def claims(material: Material) -> list[Claim]:
    """What the records of an experiment say about the paper's claims.

    Args:
        material: Of the noise grid; its records are all of the experiment.
    """
    return [
        *(_against(material, other) for other in METHODS if other != "bomd"),
        _detection(material),
        _labels(material),
        *_ablations(material),
    ]


def how_certain(material: Material) -> str:
    """How to read the p-values of the noise grid."""
    count = len(CELLS) * (len(METHODS) - 1)
    return (
        f"Methods are compared over {len(material.setting.seeds)} seeds by Welch's t-test, one-sided at {LEVEL}. It "
        "finds large differences only: one that it does not find may still be there. Of the "
        f"{count} comparisons on a test set, {count * LEVEL:.0f} would be called better and {count * LEVEL:.0f} worse "
        "by chance if no method differed; nothing is corrected for that."
    )


def _against(material: Material, other: str) -> Claim:
    """The noise grid against one method."""
    gaps = {}
    for noise in CELLS:
        ours, theirs = (paper.find(TABLE, method, show_noise(noise), "openi") for method in ("bomd", other))
        gaps[noise] = ours.value - theirs.value if ours and theirs else 0.0
    lost = [f"{show_noise(noise)}, by {-gap:.1f} points" for noise, gap in gaps.items() if gap < 0]
    won = sum(gap > 0 for gap in gaps.values())
    says = f"BoMD has a higher AUC than {other} in {won} of {len(gaps)} cells of the noise grid"
    says += f", and loses at {'; '.join(lost)}." if lost else "."
    here = []
    for test in tests_of(material.setting):
        scores = {
            show_noise(noise): [mean_auc(material, cell(material, method, noise), test) for method in ("bomd", other)]
            for noise in CELLS
        }
        here += [f"On {test}: {_count(scores, 'BoMD', other)}"]
        worst = _gap(*scores[show_noise(WORST)])
        here[-1] += f" At {show_noise(WORST)}, BoMD minus {other} is {worst}." if worst else ""
    return Claim(says, tuple(here))


def _count(scores: dict[str, list[Mean]], one: str, other: str) -> str:
    """In how many places the first mean is above the second, and in how many that is significant."""
    pairs = {place: (ours.sample, theirs.sample) for place, (ours, theirs) in scores.items()}
    known = {place: (ours, theirs) for place, (ours, theirs) in pairs.items() if ours and theirs}
    if not known:
        return NO_RUNS
    above = [place for place, (ours, theirs) in known.items() if ours.mean > theirs.mean]
    p_values = {place: welch_test(ours, theirs) for place, (ours, theirs) in known.items()}
    better = [place for place, p in p_values.items() if p is not None and p < LEVEL]
    worse = [place for place, p in p_values.items() if p is not None and p > 1 - LEVEL]
    absent = len(scores) - len(known)
    return (
        f"{one} above {other} in {len(above)} of {len(known)}"
        + (f" ({absent} more have not been run)" if absent else "")
        + f"; significantly above in {_places(better)}; significantly below in {_places(worse)}."
    )


def _places(places: Sequence[str]) -> str:
    return f"{len(places)}: {', '.join(places)}" if places else "none"


def _gap(one: Mean, other: Mean) -> str:
    """A difference with its one-sided p; empty where it cannot be told."""
    if one.sample is None or other.sample is None:
        return ""
    p = welch_test(one.sample, other.sample)
    return f"{one.sample.mean - other.sample.mean:+.3f}" + (
        f" (p = {p:.2g} that it is no better)" if p is not None else ""
    )


def _detection(material: Material) -> Claim:
    """Precision and recall of finding wrong labels, against the small-loss split with DivideMix's own warm-up."""
    says = (
        "BoMD finds noisy images with higher precision and higher recall than DivideMix's small-loss split everywhere."
    )
    planned = ARTEFACTS["detection"].plan(material.setting)
    here = []
    split = [config for config in planned if config.settings.get("small-loss", {}).get("warmup") == 2]
    for measure in ("precision", "recall"):
        scores = {}
        for noise in NOISES:
            sides = (cell(material, "bomd", noise), [config for config in split if noise_of(config) == noise])
            scores[show_noise(noise)] = [mean(material, side, _found("detection", measure)) for side in sides]
        here.append(f"{measure.capitalize()}: {_count(scores, 'BoMD', 'the split')}")
    rivals = {
        "precision": ("base_rate", "flagging every image"),
        "auroc": ("auroc_by_count", "counting an image's labels"),
    }
    for measure, (rival, name) in rivals.items():
        scores = {
            show_noise(noise): [
                mean(material, cell(material, "bomd", noise), _found("detection", key)) for key in (measure, rival)
            ]
            for noise in NOISES
        }
        here.append(f"{'AUROC' if measure == 'auroc' else 'Precision'}: {_count(scores, 'BoMD', name)}")
    return Claim(says, tuple(here))


def _labels(material: Material) -> Claim:
    says = "Re-labelling raises the AUC of the labels themselves at every level of noise."
    scores = {
        show_noise(noise): [
            mean(material, cell(material, "bomd", noise), _found("labels", key)) for key in ("after", "before")
        ]
        for noise in NOISES
    }
    return Claim(says, (f"Label AUC: {_count(scores, 'the new labels', 'the given ones')}",))


def _found(section: str, key: str) -> Callable[[Record], float | None]:
    return lambda record: number(record["result"].get(section), key)


def _ablations(material: Material) -> list[Claim]:
    setting = material.setting
    own = runs_of(setting, Variant("own"))
    return [
        Claim(
            "Class vectors of a medical language model are better than random ones by 2.5 and 1.5 points.",
            _differences(
                material, own, {f"the recipe's language model minus {one.label}": one for one in languages(setting)}
            ),
        ),
        Claim(
            "BoMD's descriptors are better than NVUM's features, and three for each image better than one.",
            _differences(
                material,
                own,
                {
                    "the recipe's descriptors minus NVUM's features": Variant("", ("stage=nvum",)),
                    "the recipe's descriptors minus one for each image": Variant("", ("descriptors=1",)),
                },
            ),
        ),
        Claim(
            "Every term of Eq. 6 helps: without any of them the AUC is lower.",
            _differences(material, own, {f"all terms minus only {one.label}": one for one in terms(setting)}),
        ),
        Claim(
            "lambda = 0.6, gamma = 0.25, M = 3 and K = 10 are best of those tried.",
            _best(material, hyper_parameters(setting)),
        ),
    ]


def _differences(material: Material, own: Entry, variants: dict[str, Variant]) -> tuple[str, ...]:
    """The recipe's own BoMD minus each variant, on each test set."""
    sentences = []
    for name, variant in variants.items():
        configs: Sequence[Config] = runs_of(material.setting, variant)
        if [config.key for config in configs] == [config.key for config in own]:
            continue
        gaps = [
            f"{gap} on {test}"
            for test in tests_of(material.setting)
            if (gap := _gap(mean_auc(material, own, test), mean_auc(material, configs, test)))
        ]
        if gaps:
            sentences.append(f"{name[0].upper()}{name[1:]}: {'; '.join(gaps)}.")
    return tuple(sentences or [NO_RUNS])


def _best(material: Material, variants: Sequence[Variant]) -> tuple[str, ...]:
    """Which value of each hyper-parameter has the highest mean on each test set, of those that were run."""
    sentences = []
    for symbol in dict.fromkeys(variant.label.partition(" ")[0] for variant in variants):
        tried = {one.label: runs_of(material.setting, one) for one in variants if one.label.startswith(f"{symbol} ")}
        found = []
        for test in tests_of(material.setting):
            means = {label: mean_auc(material, configs, test).sample for label, configs in tried.items()}
            known = {label: sample.mean for label, sample in means.items() if sample is not None}
            if len(known) > 1:
                best = max(known, key=lambda label: known[label])
                spread = max(known.values()) - min(known.values())
                found.append(f"{best} on {test} (of {len(known)} values, which span {spread:.3f})")
        if found:
            sentences.append(f"Highest mean: {'; '.join(found)}.")
    return tuple(sentences or [NO_RUNS])
