"""What the paper claims of BoMD's parts: language models, descriptors, terms of Eq. 6, and hyper-parameters."""

from __future__ import annotations

from collections.abc import Sequence

from bomd.reports.sheet import Mean
from evidence.reproduce.artefact import Material
from evidence.reproduce.claims.words import NO_RUNS, Claim, Tally, gap, seen, sentence, tally
from evidence.reproduce.tables.ablations import Variant, hyper_parameters, languages, runs_of, terms
from evidence.reproduce.tables.entries import mean_auc, tests_of

OWN = Variant("own")
BEST = ("lambda = 0.6", "gamma = 0.25", "M = 3", "K = 10")  # the paper's


def ablations(material: Material) -> list[Claim]:
    """A claim for each of the paper's ablations."""
    setting = material.setting
    own, *others = languages(setting)
    one, nvum = Variant("one", ("descriptors=1",)), Variant("nvum", ("stage=nvum",))
    return [
        Claim(
            "Class vectors of a medical language model are better than random ones, by 2.5 points on OpenI and 1.5 on "
            "PadChest.",
            *_differences(material, [(f"{own.label}, minus {other.label}", OWN, other) for other in others]),
        ),
        Claim(
            "With one descriptor for each image, BoMD's are better than NVUM's features; three are better than one.",
            *_differences(
                material,
                [
                    ("one descriptor of BoMD minus NVUM's features", one, nvum),
                    ("the recipe's number of descriptors minus one", OWN, one),
                ],
            ),
        ),
        Claim(
            "All three terms of Eq. 6 together have a higher AUC than three combinations of fewer.",
            *_differences(
                material, [(f"all minus {part.label}", OWN, part) for part in terms(setting) if part.settings]
            ),
        ),
        Claim(
            f"{', '.join(BEST[:-1])} and {BEST[-1]} are best of those tried, by the AUC on the test sets.",
            *_best(material, hyper_parameters(setting)),
        ),
    ]


def _differences(material: Material, pairs: Sequence[tuple[str, Variant, Variant]]) -> tuple[tuple[str, ...], Tally]:
    """One variant minus another, on each test set; the paper has the first above the second."""
    sentences, total = [], Tally()
    for name, one, other in pairs:
        sides = [runs_of(material.setting, variant) for variant in (one, other)]
        scores = {test: [mean_auc(material, side, test) for side in sides] for test in tests_of(material.setting)}
        gaps = [f"{found} on {test}" for test, both in scores.items() if (found := gap(*both))]
        total += tally(scores)
        if gaps:
            sentences.append(f"{sentence(name)}: {'; '.join(gaps)}.")
    return tuple(sentences or [NO_RUNS]), total


def _best(material: Material, variants: Sequence[Variant]) -> tuple[tuple[str, ...], Tally]:
    """Which value of each hyper-parameter has the highest mean on each test set, and its lead over the paper's."""
    sentences, total = [], Tally()
    for theirs in BEST:
        symbol = theirs.partition(" ")[0]
        tried = {one.label: runs_of(material.setting, one) for one in variants if one.label.startswith(f"{symbol} ")}
        found = []
        for test in tests_of(material.setting):
            scores = {label: mean_auc(material, configs, test) for label, configs in tried.items()}
            known = {label: score for label, score in scores.items() if score.sample is not None}
            if len(known) > 1:
                best = max(known, key=lambda label: _mean(known[label]))
                total += seen([best == theirs])
                spread = max(map(_mean, known.values())) - min(map(_mean, known.values()))
                lead = (
                    ""
                    if best == theirs or theirs not in known
                    else f", {gap(known[best], known[theirs])} over {theirs}"
                )
                found.append(f"{best} on {test}{lead} (of {len(known)} values, which span {spread:.3f})")
        if found:
            sentences.append(f"Highest mean: {'; '.join(found)}.")
    return tuple(sentences or [NO_RUNS]), total


def _mean(score: Mean) -> float:
    return float("nan") if score.sample is None else score.sample.mean
