"""What the paper claims of the classifiers that BoMD trains: against BCE and NVUM under noise, and against others."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from bomd.config import Config
from bomd.experiments.noise_names import noise_name
from bomd.experiments.plan import configure
from bomd.measure.result import HELD_OUT
from bomd.methods import METHODS as KNOWN
from bomd.reports.sheet import Mean
from evidence.reproduce import paper
from evidence.reproduce.artefact import Material, UnsuitableError
from evidence.reproduce.claims.words import NO_RUNS, Claim, Tally, count, gap, surely_above, tally
from evidence.reproduce.figures.gather import LEVELS, NO_NOISE, Noise, noise_of, plan, show_noise
from evidence.reproduce.tables.ablations import NOISE as ABLATED
from evidence.reproduce.tables.entries import as_given, mean, mean_auc, recorded, tests_of
from evidence.reproduce.tables.main_results import GOOGLE_FINDINGS, google_test, of
from evidence.reproduce.tables.noise_grid import CELLS, METHODS, TABLE, cell

WORST: Noise = (0.6, 0.6)  # where the paper's BoMD loses to NVUM
DIAGONAL: tuple[Noise, ...] = (NO_NOISE, *((level, level) for level in LEVELS))
OURS = "bomd"
VARIANTS = ("bomd", "bomd-paper")  # no rivals
CHANCE = 0.5


def against_each(material: Material) -> list[Claim]:
    """The noise grid against each of the other methods in it."""
    return [_against(material, other) for other in METHODS if other != OURS]


def _against(material: Material, other: str) -> Claim:
    gaps = {}
    for noise in CELLS:
        ours, theirs = (paper.find(TABLE, method, show_noise(noise), "openi") for method in (OURS, other))
        gaps[noise] = ours.value - theirs.value if ours and theirs else 0.0
    lost = [f"{show_noise(noise)}, by {-points:.1f} points" for noise, points in gaps.items() if points < 0]
    won = [points for points in gaps.values() if points > 0]
    says = f"BoMD has a higher AUC than {other} in {len(won)} of {len(gaps)} cells of the noise grid"
    says += f" (by {min(won):.2f} to {max(won):.2f} points)" + (f", and loses at {'; '.join(lost)}." if lost else ".")
    here, total = [], Tally()
    for test in tests_of(material.setting):
        scores = {
            show_noise(noise): [mean_auc(material, cell(material, method, noise), test) for method in (OURS, other)]
            for noise in CELLS
        }
        total += tally(
            {show_noise(noise): scores[show_noise(noise)][:: 1 if gaps[noise] > 0 else -1] for noise in CELLS}
        )
        worst = gap(*scores[show_noise(WORST)])
        here.append(f"On {test}: {count(scores, 'BoMD', other)}")
        here[-1] += f" At {show_noise(WORST)}, BoMD minus {other} is {worst}." if worst else ""
    return Claim(says, tuple(here), total)


def all_methods(material: Material, runs: Sequence[Config] | None = None) -> list[Claim]:
    """Against every other method, on all test sets and on NIH-Google.

    Args:
        runs: Of all methods, to be compared; by default those with nothing changed but the noise.
    """
    return [against_all(material, runs), *on_google(material, runs)]


def against_all(material: Material, runs: Sequence[Config] | None = None) -> Claim:
    """Every method that has been run, where the noise is none or on the diagonal; `runs` as for `all_methods`."""
    rivals = _rivals(material)
    runs = plan(material.setting, [OURS, *rivals], DIAGONAL) if runs is None else runs
    entries = {
        (method, noise): [config for config in runs if config.method == method and noise_of(config) == noise]
        for method in (OURS, *rivals)
        for noise in DIAGONAL
    }
    here, total = [], Tally()
    for test in tests_of(material.setting):
        parts = []
        for noise in DIAGONAL:
            scores = {method: mean_auc(material, entries[method, noise], test) for method in (OURS, *rivals)}
            part = _above(scores)
            total += _best(scores)
            parts += [f"{'without noise' if noise == NO_NOISE else f'at {show_noise(noise)}'} {part}"] if part else []
        here += [f"On {test}, methods with a higher mean than BoMD: {'; '.join(parts)}."] if parts else []
    says = (
        "BoMD has the highest AUC of all methods compared, trained on NIH and on CheXpert, on both test sets; under "
        "added noise it compares with BCE and NVUM alone."
    )
    return Claim(says, tuple(here or [NO_RUNS]), total)


def _rivals(material: Material) -> list[str]:
    """Other methods that have been run."""
    run = {record.config.method for record in material.records.values()}
    return [method for method in KNOWN if method in run and method not in VARIANTS]


def _above(scores: dict[str, Mean]) -> str:
    """Which methods have a higher mean than BoMD, those whose lead is significant with its size."""
    known = {method: score.sample for method, score in scores.items() if score.sample is not None}
    ours = known.pop(OURS, None)
    if ours is None or not known:
        return ""
    above = sorted((m for m in known if known[m].mean > ours.mean), key=lambda method: -known[method].mean)
    names = [
        f"{method} ({known[method].mean - ours.mean:+.3f}, significant)"
        if surely_above(known[method], ours)
        else method
        for method in above
    ]
    return f"{len(above)} of {len(known)}" + (f": {', '.join(names)}" if names else "")


def _best(scores: dict[str, Mean]) -> Tally:
    """Whether BoMD has the highest mean of all; that is one comparison, with the best of the others."""
    known = {method: score for method, score in scores.items() if score.sample is not None}
    ours = known.pop(OURS, None)
    if ours is None or not known:
        return Tally()
    rival = max(known.values(), key=lambda score: score.sample.mean if score.sample else 0.0)
    return tally({"": (ours, rival)})


def on_google(material: Material, runs: Sequence[Config] | None = None) -> list[Claim]:
    """Pneumothorax and nodule or mass, where the recipe tests on NIH-Google; `runs` as for `all_methods`."""
    try:
        test = google_test(material.setting)
    except UnsuitableError:
        return []
    rivals = _rivals(material)
    given = as_given(material.setting, [OURS, *rivals])
    if runs is not None:
        given = [config for config in runs if noise_name(config.noise) == noise_name(given[0].noise)]
    entries = {method: [config for config in given if config.method == method] for method in (OURS, *rivals)}
    here, total = [], Tally()
    for finding in GOOGLE_FINDINGS:
        value = partial(of, test=test, finding=finding)
        scores = {method: mean(material, entries[method], value) for method in entries}
        part = _above(scores)
        total += _best(scores)
        if part:
            positives = _positives(material, test).get(finding, 0)
            here.append(f"{finding} ({positives} positives), methods with a higher mean than BoMD: {part}.")
    says = "On NIH-Google BoMD is best, by 0.6 points for pneumothorax and by 2.4 for nodule or mass."
    return [Claim(says, tuple(here or [NO_RUNS]), total)]


def context(material: Material) -> list[str]:
    """What else a reader should know before the claims: the noise, the truth, and how little is behind a mean."""
    setting = material.setting
    config = configure(setting.recipe, overrides=setting.overrides)
    notes = []
    if config.train.get("dataset") != "mixture":
        notes.append(
            "Noise here goes to a share of all training images. The paper adds it to its PadChest part alone, "
            "14,714 of 98,386 images (15 %), so that the same cell is much noisier here. Its own table is without "
            "spread or number of runs."
        )
    if config.train.get("dataset") != "phantom":
        notes.append(
            "Labels before noise are those of the data set, which programs took from reports and which are wrong in "
            "part. For detection, votes and label AUC only the added noise counts as wrong."
        )
    if setting.recipe not in paper.TRAINED_ON:
        notes.append(f"The paper's ablations are on labels as given, those here at {show_noise(ABLATED)}.")
    for test in config.test:
        averaged = _averaged(material, test)
        if averaged:
            counts = [_positives(material, test)[name] for name in averaged]
            many = f"{min(counts):,} to {max(counts):,}" if min(counts) < max(counts) else f"{counts[0]:,}"
            notes.append(
                f"The mean AUC on {test} is over {len(averaged)} finding{'s' * (len(averaged) > 1)} with {many} "
                f"positives{' each' * (len(averaged) > 1)}."
            )
    below = {
        test: [
            f"{method} at {show_noise(noise)}"
            for noise in CELLS
            for method in METHODS
            if (sample := mean_auc(material, cell(material, method, noise), test).sample) and sample.mean < CHANCE
        ]
        for test in tests_of(setting)
    }
    notes += [
        f"Mean AUC below {CHANCE}, which is that of guessing, on {test}: {', '.join(bad)}."
        for test, bad in below.items()
        if bad
    ]
    return notes


def _averaged(material: Material, test: str) -> list[str]:
    for record in recorded(material, material.planned):
        if record.result.auc(test) is not None and test != HELD_OUT:
            return list(record.result.tests[test].averaged)
    return []


def _positives(material: Material, test: str) -> dict[str, int]:
    for record in material.records.values():
        scores = record.result.tests.get(test)
        if scores and scores.classes:
            return {item.name: item.positives for item in scores.classes}
    return {}
