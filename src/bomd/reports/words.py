"""The outcome of a set of runs: a few sentences, and a table with a row for each leading method."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from bomd.experiments.grid import Group
from bomd.measure.result import held_out
from bomd.measure.significance import UNDEFINED, Gap, Sample, show
from bomd.reports.comparison import not_compared, verdicts
from bomd.reports.noise_curves import Judged, compare
from bomd.reports.summary import mixed, test_name

ANOTHER = "Another seed may give another number."
MANY = 5  # methods; the best of more looks better than it is
CLASSES = 14  # named one by one; the table of an audit has them all
_SCORES = "the score of the lowest class that it is labelled with less that of the highest other class"
_EXPECTED = "0.5 less the number of its labels that are expected to be wrong"
_VOTES = "the share of its nearest images that agree with its most doubtful label, less one half"
MARGINS = {  # method, or kind of audit -> an image's margin is ...; the order of review may weigh more
    **dict.fromkeys(("bomd", "bomd-paper"), _SCORES),
    **dict.fromkeys(("bomd-plus", "features", "probabilities", "frozen"), _EXPECTED),
    "cleanlab": "cleanlab's quality score of its labels",
    "small-loss": "minus the mean loss of its labels",
    "li-transition": "the lowest probability of any of its labels to be clean",
}
Point = dict[str, str]  # "lead" in bold, "text" after it


def in_words(grid: Judged) -> list[Point]:
    """What came out for one set of images, the most important first."""
    points = []
    if all(held_out(test) for test in grid.tests):
        held = "Only held-out patients were scored, whose labels may be wrong."
        points.append(_point("No test set.", held if grid.tests else "Nobody was scored."))
    for test in grid.headline:
        points += [_first_places(grid, test) if len(grid.noises) > 1 else _winner(grid, test), *_against(grid, test)]
    if not any(group.flagged for group in grid.groups.values()):
        points.append(_point("No flags.", "None of these methods says which labels look wrong."))
    points += [point for group in grid.groups.values() if (point := _emptied(group, len(grid.noises) > 1))]
    if missing := grid.lacking():
        count, of = sum(map(len, missing.values())), len(grid.methods) * len(grid.noises)
        text = "Means over fewer seeds are less certain; the list is below the table of methods."
        points.append(_point(f"Not complete: {count} of {of} entries lack runs.", text))
    if found := mixed(grid.groups.values()):
        text = "Code was edited between these runs, so that their mean is of no method: delete and repeat the older."
        points.append(_point(f"Not all seeds are by the same code: {'; '.join(found)}.", text))
    return points


def margin_words(groups: Iterable[Group]) -> list[str]:
    """What the margins of these methods are, each said once; nothing of a method that is not known here."""
    methods: dict[str, list[str]] = {}
    for group in groups:
        voted = (group.first.result.settings or {}).get(
            "stage"
        ) == "self-supervised"  # of BoMD, which then has no scores
        if words := _VOTES if voted else MARGINS.get(group.method):
            methods.setdefault(words, []).append(group.method)
    return [f"With {' and '.join(dict.fromkeys(names))} it is {words}." for words, names in methods.items()]


def overview(grid: Judged) -> dict[str, Any]:
    """The leading methods in numbers, over all kinds of noise: a column each; lines that say nothing are left out."""
    columns = [_numbers(grid, label) for label in grid.leading]
    told = [name for name in columns[0] if any(column[name] not in ("", UNDEFINED) for column in columns)]
    # What stands in brackets or behind ± goes below its number, so that six methods fit beside each other.
    rows = [(name, [re.split(r" (?=[(±])", column[name]) for column in columns]) for name in told]
    return {"heads": grid.leading, "rows": rows}


def _numbers(grid: Judged, label: str) -> dict[str, str]:
    """What is known of one method, by title."""
    groups = [grid.groups[label, noise] for noise in grid.noises if (label, noise) in grid.groups]
    places = [(label, noise, test) for test in grid.headline[:1] for noise in grid.noises]
    gaps = [grid.gaps[place] for place in places if place in grid.gaps]
    found, labels = [group.detection for group in groups], [group.labels for group in groups]
    return {
        "mean AUC": _over_noise(group.score(test) for test in grid.headline[:1] for group in groups),
        f"minus {grid.reference}": _distance(gaps),
        "surely": _sure([gap.certain for gap in gaps]),
        "images flagged": _over_noise((group.flagged for group in groups), percent=True),
        "flagged ones that are wrong": _over_noise((one.get("precision") for one in found), percent=True),
        "images that are wrong": _over_noise((one.get("base_rate") for one in found), percent=True),
        "wrong ones that are flagged": _over_noise((one.get("recall") for one in found), percent=True),
        "AUROC of the margin": _over_noise(one.get("auroc") for one in found),
        "AUROC of counting labels": _over_noise(one.get("auroc_by_count") for one in found),
        "label AUC as given": _over_noise(one.get("before") for one in labels),
        "label AUC as learnt": _over_noise(one.get("after") for one in labels),
    }


def _over_noise(samples: Iterable[Sample | None], percent: bool = False) -> str:
    """A number as it is, or from which to which it lies where there are several."""
    known = [sample for sample in samples if sample is not None]
    if len(known) < 2:
        return show(known[0] if known else None, percent)
    low, high = (Sample(end(sample.mean for sample in known), None, 1) for end in (min, max))
    return f"{show(low, percent)} to {show(high, percent)}"


def _distance(gaps: Sequence[Gap]) -> str:
    if len(gaps) < 2:
        return show_gap(gaps[0]) if gaps else UNDEFINED
    return f"{signed(min(gap.mean for gap in gaps))} to {signed(max(gap.mean for gap in gaps))}"


def _sure(signs: Sequence[int]) -> str:
    if len(signs) == 1:
        return {1: "better", -1: "worse"}.get(signs[0], "neither")
    words = [f"{word} in {signs.count(sign)}" for word, sign in (("better", 1), ("worse", -1)) if sign in signs]
    return f"{', '.join(words) or 'in none'} of {len(signs)}" if signs else ""


def _winner(grid: Judged, test: str) -> Point:
    """Who is first and by how much, and whether that is more than chance."""
    noise, where = grid.noises[0], test_name(test)
    scored = [(label, score) for label in grid.methods if (score := grid.score(label, noise, test))]
    ranked = sorted(scored, key=lambda pair: -pair[1].mean)
    if not ranked:
        return _point(f"{where}: no mean AUC.", "No finding has both positives and negatives there.")
    best, score = ranked[0]
    reached = f"{best} reaches a mean AUC of {show(score)} over the findings of {where}"
    if len(ranked) == 1:
        return _point(f"{reached}.")
    second, other = ranked[1]
    lead = f"{reached}, {score.mean - other.mean:.3f} above {second} at {show(other)}."
    if round(score.mean - other.mean, 3) == 0:
        lead = f"{best} and {second} are level on {where}: {show(score)} and {show(other)}."
    gap = compare(grid.groups[best, noise], grid.groups[second, noise], test)
    return _point(lead, ("" if gap is None else _certainty(gap, max(score.count, other.count))) + _many(len(ranked)))


def _certainty(gap: Gap, seeds: int) -> str:
    """Whether chance explains a lead: in the choice of test patients, where there is one seed, or of seeds.

    With more `seeds` than both methods have, the difference is not that of the means before it.
    """
    common = f" in the seed{'s' * (gap.count > 1)} that both have" if gap.count < seeds else ""
    if gap.count == 1:
        sure = "does not explain" if gap.certain > 0 else "may explain"
        return f"The choice of test patients {sure} it: {show_gap(gap)}{common}. {ANOTHER}"
    sure = "Chance does not explain it" if gap.certain > 0 else "It may be chance"
    return f"{sure}: {show_gap(gap)}{common}, ahead in {gap.won} of {gap.count}{'' if common else ' seeds'}."


def _first_places(grid: Judged, test: str) -> Point:
    """Who is first under which noise; a shared first place counts for each that shares it."""
    won: dict[tuple[str, ...], list[str]] = {}
    for noise in grid.noises:
        found = {label: score.mean for label in grid.methods if (score := grid.score(label, noise, test))}
        equal = tuple(label for label in found if round(found[label], 3) == round(max(found.values()), 3))
        if equal:
            won.setdefault(equal, []).append(noise)  # what looks level in the table is shared
    where, count = test_name(test), sum(map(len, won.values()))
    if not won:
        return _point(f"{where}: no mean AUC.", "No finding has both positives and negatives there.")
    firsts = Counter(label for labels, noises in won.items() for label in labels for _ in noises)
    most = max(firsts.values())
    leaders = [label for label in firsts if firsts[label] == most]
    lead = f"No method has the highest mean AUC on {where} in most of the {count} noise levels."
    if 2 * most > count:
        has = "has the highest mean AUC"
        if any(len(labels) > 1 and set(labels) & set(leaders) for labels in won):
            has = f"{'is' if len(leaders) == 1 else 'are each'} first or level by mean AUC"
        lead = f"{' and '.join(leaders)} {has} on {where} in {most} of {count} noise levels."
    order = sorted(won, key=lambda labels: -len(won[labels]))
    places = [f"{' and '.join(labels)} at {', '.join(won[labels])}" for labels in order]
    return _point(lead, f"First places: {'; '.join(places)}." + _many(len(grid.methods)))


def _against(grid: Judged, test: str) -> list[Point]:
    """Who differs surely from the reference, in the words of the tables of results; of single runs, by patients."""
    gaps = [gap for (_, _, tested), gap in grid.gaps.items() if tested == test]
    if grid.reference is None:
        return []
    if not gaps:
        alone = all(group.method == grid.reference for group in grid.groups.values())
        return [_point(sentence) for sentence in not_compared(grid, grid.reference) if not alone]
    chance = f" Of {len(gaps)} comparisons about {round(len(gaps) * 0.05) or 1} would look sure by chance alone."
    text = chance if len(gaps) > 2 * MANY else ""
    if any(gap.over_seeds is not None for gap in gaps):
        better, *others = verdicts(grid, test, grid.reference)
        return [_point(f"On {test_name(test)}: {better}", " ".join(others) + text)]
    if len(gaps) == 1 and len(grid.methods) == 2:  # the sentence on the winner has said it
        return []
    sure = {sign: sum(gap.certain == sign for gap in gaps) for sign in (1, -1)}
    lead = f"Of {len(gaps)} comparisons with {grid.reference} on {test_name(test)}, {sure[1]} are surely better and "
    return [_point(f"{lead}{sure[-1]} surely worse, judged over test patients.", ANOTHER + text)]


def _many(count: int) -> str:
    """A warning that the best of many was picked."""
    return f" The best of {count} methods looks better here than it would on new data." if count > MANY else ""


def _emptied(group: Group, several: bool) -> Point | None:
    """A warning when the rule leaves nothing of a class: its positives are then never learnt as given."""
    present = [item for item in group.first.result.composition or () if item.given]
    empty = [item.name for item in present if not item.kept]
    if not empty or several:
        return None
    lead = f"{group.label} keeps no positive label of {len(empty)} of {len(present)} classes as clean."
    return _point(lead, f"In the run with seed {group.first.seed}: {', '.join(empty)}.")


def subject(grid: Judged) -> str:
    """What was audited: the folder of the images, without the path of somebody's home, or the name of the data."""
    train = next(iter(grid.groups.values())).first.config.train
    if train.get("dataset") != "folder" or not train.get("images"):
        return grid.name
    place = PurePath(str(train["images"]))
    return "/".join([part for part in place.parts if part != place.anchor][-2:]) or grid.name


def audit_in_words(grid: Judged, asked: Mapping[tuple[str, str], dict[str, Any]]) -> list[Point]:
    """What an audit found in one set of images, from what `gallery.questions` counts by method and noise."""
    points = []
    for (label, noise), found in asked.items():
        by = f"{label}{f', {noise}' if len(grid.noises) > 1 else ''}: " if len(asked) > 1 else ""
        reasons = _point(f"{by}How labels were judged.", " ".join(found["reasons"])) if found["reasons"] else None
        trained = _trained(grid.groups[label, noise], by)
        sentences = [_doubtful(found, by), _questioned(found, by), reasons, _swept(found), trained]
        points += [point for point in sentences if point]
    return points


def _doubtful(found: dict[str, Any], by: str) -> Point:
    share = f" ({100 * found['flagged'] / found['images']:.1f} %)" if found["flagged"] else ""
    labels = "labels" if found["one_label"] else "labels of findings"
    return _point(
        f"{by}{found['flagged']:,} of {found['images']:,} images{share} have labels that look wrong.",
        f"{found['expected']:,.0f} {labels} are expected to be wrong in all. "
        "A flag is a question, not a verdict: somebody who can read the image decides. Nothing was changed in the "
        "labels that were given.",
    )


def _questioned(found: dict[str, Any], by: str) -> Point | None:
    """Which labels would change, the classes with most of them first."""
    if not found["flagged"]:
        return None
    total = found["removed"] + found["added"]
    if not total:
        return _point(f"{by}No other labels are proposed.", "No label of a class that was learnt is doubtful enough.")
    if found["one_label"]:
        ways = f"Away from: {_by_class(found, 'removed', 'positives')}. To: {_by_class(found, 'added', 'negatives')}."
        return _point(f"{by}{found['removed']:,} of {found['images']:,} labels are proposed to move.", ways)
    lead = f"{by}{total:,} of {found['labels']:,} labels are questioned, in {found['changed']:,} images: "
    lead += f"{found['removed']:,} positive and {found['added']:,} negative."
    sides = (("Positive", "removed", "positives"), ("Negative", "added", "negatives"))
    return _point(lead, " ".join(f"{side}: {told}." for side, *keys in sides if (told := _by_class(found, *keys))))


def _by_class(found: dict[str, Any], key: str, of: str) -> str:
    classes = sorted((item for item in found["classes"] if item[key]), key=lambda item: -item[key])
    told = [f"{item['name']} {item[key]:,} of {item[of]:,}" for item in classes[:CLASSES]]
    return "; ".join(told) + (f"; and {len(classes) - CLASSES} more classes" if len(classes) > CLASSES else "")


def _swept(found: dict[str, Any]) -> Point | None:
    """A warning about classes of which nothing would be left: most probably they were not learnt."""
    present = [item for item in found["classes"] if item["positives"]]
    gone = [item["name"] for item in present if item["removed"] == item["positives"]]
    if not gone:
        return None
    return _point(
        f"Every positive label of {len(gone)} of {len(present)} classes is questioned.",
        f"More probably these classes were not learnt than that all their labels are wrong, so their flags say "
        f"little: {', '.join(gone)}.",
    )


def _trained(group: Group, by: str) -> Point:
    """What learnt from what."""
    config, result = group.first.config, group.first.result
    images = f"{result.images['train']:,} images"
    held = "Nobody was held out, so no score on this page says how good the flags are."
    backbone, weights, size = config.fit.get("backbone"), config.fit.get("weights"), config.images.get("size")
    if not result.images_presented:
        kinds = {"probabilities": "Probabilities that were given", "frozen": f"Frozen features of {backbone}"}
        what = kinds.get(config.method, "Features that were given")
        return _point(f"{by}No network was trained.", f"{what} judge the labels of the {images}. {held}")
    network = f"The network is {backbone}" if backbone else ""
    network += f", which started from {weights.replace('none', 'random')} weights" if network and weights else ""
    network += f"; it saw images of {size} × {size} pixels" if network and size else ""
    lead = f"{by}{config.method} was trained on all {images} and the labels that it judges."
    if config.method == "bomd-plus":
        lead = f"{by}Each of the {images} was judged by a network that never saw its patient."
    return _point(lead, f"{network}. {held}" if network else held)


def signed(value: float) -> str:
    """A difference with its sign; what rounds to nothing has none."""
    return f"{value:+.3f}".replace("-", "−") if abs(value) >= 0.0005 else "0.000"


def show_gap(gap: Gap) -> str:
    """A difference with its interval over patients, or its spread over seeds where that was not computed."""
    if gap.low is not None and gap.high is not None:
        return f"{signed(gap.mean)} ({signed(gap.low)} to {signed(gap.high)})"
    return signed(gap.mean) + ("" if gap.std is None else f" ± {gap.std:.3f}")


def _point(lead: str, text: str = "") -> Point:
    return {"lead": lead, "text": text.strip()}
