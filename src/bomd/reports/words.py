"""The outcome of a set of runs in plain sentences."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from bomd.experiments.summary import Group, held_out, number, show, test_name
from bomd.measure.gap import Gap
from bomd.reports.noise_curves import Grid, compare

DESCRIBED = 2  # methods that flag or change labels and are described; the sections below have them all
MANY = 5  # methods; the best of more looks better than it is
CLASSES = 14  # named one by one; the table of an audit has them all
Point = dict[str, str]  # "lead" in bold, "text" after it


def in_words(grid: Grid) -> list[Point]:
    """What came out for one set of images, the most important first."""
    points = []
    if not any(not held_out(test) for test in grid.tests):
        scored = (
            "Only held-out patients were scored, whose labels may be wrong." if grid.tests else "Nobody was scored."
        )
        points.append(_point("No test set.", scored))
    if len(grid.noises) == 1:
        points += [_winner(grid, grid.noises[0], test) for test in grid.headline]
        points += [point for test in grid.headline if (point := _against_baseline(grid, grid.noises[0], test))]
        points += _judging_once(grid, grid.noises[0])
    else:
        points += [point for test in grid.headline for point in _over_noise(grid, test)]
        points += _judging_over_noise(grid)
    if not any(row["flagged"] for row in grid.rows.values()):
        points.append(_point("No flags.", "None of these methods says which labels look wrong."))
    if missing := grid.missing():
        count = sum(map(len, missing.values()))
        of = len(grid.methods) * len(grid.noises)
        points.append(
            _point(
                f"Not complete: {count} of {of} entries lack runs.",
                "Means over fewer seeds are less certain; the list is below the table of methods.",
            )
        )
    return points


def subject(grid: Grid) -> str:
    """What was audited: the folder of the images, without the path of somebody's home, or the name of the data."""
    train = next(iter(grid.groups.values())).first.config.get("train") or {}
    if train.get("dataset") != "folder" or not train.get("images"):
        return grid.data
    place = PurePath(str(train["images"]))
    return "/".join([part for part in place.parts if part != place.anchor][-2:]) or grid.data


def audit_in_words(grid: Grid, asked: Mapping[tuple[str, str], dict[str, Any]]) -> list[Point]:
    """What an audit found in one set of images.

    Args:
        grid: Its runs.
        asked: By method and noise what `gallery.questions` counts.
    """
    points = []
    for (method, noise), found in asked.items():
        group, row = grid.groups[method, noise], grid.rows[method, noise]
        by = f"{method}{f', {noise}' if len(grid.noises) > 1 else ''}: " if len(asked) > 1 else ""
        sentences = [_doubtful(found, by), _questioned(found, by), _decided(found, by), _swept(found)]
        points += [point for point in (*sentences, _detected(row), _relabelled(row)) if point]
        points.append(_trained(group, by))
    return points


def _doubtful(found: dict[str, Any], by: str) -> Point:
    share = f" ({100 * found['flagged'] / found['images']:.1f} %)" if found["flagged"] else ""
    return _point(
        f"{by}{found['flagged']:,} of {found['images']:,} images{share} have labels that look wrong.",
        f"{found['expected']:,.0f} labels of findings are expected to be wrong in all. "
        "A flag is a question, not a verdict: somebody who can read the image decides. Nothing was changed in the "
        "labels that were given.",
    )


def _questioned(found: dict[str, Any], by: str) -> Point | None:
    """Which labels would change, the classes with most of them first."""
    if not found["flagged"]:
        return None
    total = found["removed"] + found["added"]
    if not total:
        return _point(f"{by}No other labels are proposed.", "No label is doubtful enough.")
    lead = f"{by}{total:,} of {found['labels']:,} labels are questioned, in {found['changed']:,} images: "
    lead += f"{found['removed']:,} positive and {found['added']:,} negative."
    sides = (("Positive", "removed", "positives"), ("Negative", "added", "negatives"))
    return _point(lead, " ".join(f"{side}: {told}." for side, *keys in sides if (told := _by_class(found, *keys))))


def _decided(found: dict[str, Any], by: str) -> Point | None:
    """What the run concluded about its labels before it judged any, in its own words."""
    return _point(f"{by}How labels were judged.", " ".join(found["reasons"])) if found["reasons"] else None


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
    images = f"{result['images']['train']:,} images"
    held = "Nobody was held out, so no score on this page says how good the flags are."
    if not result["images_presented"]:
        named = (config.get("fit") or {}).get("backbone")
        kinds = {"probabilities": "Probabilities that were given", "frozen": f"Frozen features of {named}"}
        what = kinds.get(config["method"], "Features that were given")
        return _point(f"{by}No network was trained.", f"{what} judge the labels of the {images}. {held}")
    fit, size = config.get("fit") or {}, (config.get("images") or {}).get("size")
    network = f"The network is {fit['backbone']}" if fit.get("backbone") else ""
    network += f", which started from {fit['weights']} weights" if network and fit.get("weights") else ""
    network += f"; it saw images of {size} × {size} pixels" if network and size else ""
    lead = f"{by}{config['method']} was trained on all {images} and the labels that it judges."
    if config["method"] == "bomd-plus":
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
    return {"lead": lead, "text": text}


def _winner(grid: Grid, noise: str, test: str) -> Point:
    scored = [(method, score) for method in grid.methods if (score := grid.score(method, noise, test))]
    ranked = sorted(scored, key=lambda pair: -pair[1]["mean"])
    where = test_name(test)
    if not ranked:
        return _point(f"{where}: no mean AUC.", "No finding has both positives and negatives there.")
    best, score = ranked[0]
    reached = f"{best} reaches a mean AUC of {show(score)} over the findings of {where}"
    if len(ranked) == 1:
        return _point(reached + ".", _runs(score))
    second, other = ranked[1]
    gap = score["mean"] - other["mean"]
    if round(gap, 3) == 0:
        lead = f"{best} and {second} are level on {where}: {show(score)} and {show(other)}."
    else:
        lead = f"{reached}, {gap:.3f} above {second} at {show(other)}."
    sure = _certainty(grid.groups[best, noise], grid.groups[second, noise], test)
    rest = [f"{method} {value['mean']:.3f}" for method, value in ranked[2 : 2 + MANY]]
    behind = f" Behind them: {', '.join(rest)}" if rest else ""
    behind += f" and {len(ranked) - 2 - MANY} more." if len(ranked) > 2 + MANY else "." if rest else ""
    return _point(lead, f"{_runs(score)} {sure}{behind}{_many(len(ranked))}".strip())


def _many(count: int) -> str:
    """A warning that the best of many was picked."""
    return f" The best of {count} methods looks better here than it would on new data." if count > MANY else ""


def _runs(score: dict[str, Any]) -> str:
    if score["count"] > 1:
        return f"± is the standard deviation over {score['count']} seeds."
    if score["low"] is None:
        return "This is a single run: another seed may shift it."
    return "Brackets hold the 95 % interval over the test patients of a single run; another seed adds to it."


def _certainty(best: Group, second: Group, test: str) -> str:
    """How sure the order of two groups is: over the seeds they share, and over the test patients."""
    gap = compare(best, second, test)
    if gap is None:
        return ""
    sentences = []
    if gap.count > 1:
        spread = "" if gap.std is None else f" ± {gap.std:.3f}"
        won = f"{best.label} is ahead in {gap.won} of {gap.count}"
        sentences.append(f"Seed by seed the difference is {signed(gap.mean)}{spread}; {won}.")
    if gap.low is not None and gap.high is not None:
        verdict = f"more than {gap.explained} explains" if gap.certain > 0 else "so it may be chance"
        between = f"between {signed(gap.low)} and {signed(gap.high)} (95 %)"
        sentences.append(f"On resampled test patients the difference lies {between}, {verdict}.")
    return " ".join(sentences)


def _against_baseline(grid: Grid, noise: str, test: str) -> Point | None:
    """Which methods beat plain training, where there are more than the two that `_winner` compares."""
    gaps = {method: gap for method in grid.methods if (gap := grid.gaps.get((method, noise, test)))}
    if len(gaps) < 2:
        return None
    sides = {sign: [method for method, gap in gaps.items() if gap.certain == sign] for sign in (1, -1)}
    better, worse = (", ".join(sides[sign]) or "none" for sign in (1, -1))
    unsure = len(gaps) - len(sides[1]) - len(sides[-1])
    lead = f"{len(sides[1])} of {len(gaps)} methods beat plain training ({grid.baselines[0]}) on {test_name(test)} "
    lead += f"by more than {next(iter(gaps.values())).explained} explains."
    text = f"Better: {better}. Worse: {worse}. For {unsure} the difference may be chance or was not tested."
    return _point(lead, text + _chance(len(gaps)))


def _chance(count: int) -> str:
    """A warning that many intervals were looked at."""
    if count <= 2 * MANY:
        return ""
    return (
        f" Of {count} comparisons with plain training about {round(count * 0.05) or 1} would look sure by chance alone."
    )


def _over_noise(grid: Grid, test: str) -> list[Point]:
    """Who is ahead under which noise, and whether plain training is beaten."""
    scores = {
        noise: {method: score["mean"] for method in grid.methods if (score := grid.score(method, noise, test))}
        for noise in grid.noises
    }
    known = {noise: found for noise, found in scores.items() if found}
    where = test_name(test)
    if not known:
        return [_point(f"{where}: no mean AUC.", "No finding has both positives and negatives there.")]
    won: dict[str, list[str]] = {}
    for noise, found in known.items():
        equal = [method for method in found if round(found[method], 3) == round(max(found.values()), 3)]
        won.setdefault(" and ".join(equal), []).append(noise)  # what looks level in the table is shared
    order = sorted(won, key=lambda methods: -len(won[methods]))
    if 2 * len(won[order[0]]) > len(known):
        has = "has" if order[0] in grid.methods else "share"
        lead = f"{order[0]} {has} the highest mean AUC on {where} in {len(won[order[0]])} of {len(known)} noise levels."
    else:
        lead = f"No method has the highest mean AUC on {where} in most of the {len(known)} noise levels."
    places = [f"{methods} at {', '.join(won[methods])}" for methods in order if len(won[methods]) < len(known)]
    text = f"First places: {'; '.join(places)}." if places else ""
    losses = [
        f"{method} from {known[first][method]:.3f} to {known[last][method]:.3f}"
        for method in grid.leading[:3]
        if method in known[first := next(iter(known))] and method in known[last := list(known)[-1]]
    ]
    if losses:
        text += f" From {first} to {last}: {_listed(losses)}."
    tested = sum(key[2] == test and gap.low is not None for key, gap in grid.gaps.items())
    points = [_point(lead, (text + _many(len(grid.methods)) + _chance(tested)).strip())]
    chosen = [method for method in grid.leading if any(key[0] == method and key[2] == test for key in grid.gaps)]
    chosen.sort(key=lambda method: method != "bomd")
    return points + [_beaten(grid, method, test) for method in chosen[:DESCRIBED]]


def _beaten(grid: Grid, method: str, test: str) -> Point:
    gaps = {noise: gap for noise in grid.noises if (gap := grid.gaps.get((method, noise, test)))}
    ahead = sum(gap.mean > 0 for gap in gaps.values())
    mean = sum(gap.mean for gap in gaps.values()) / len(gaps)
    lead = f"{method} is ahead of {grid.baselines[0]} in {ahead} of {len(gaps)} noise levels on {test_name(test)}; "
    lead += f"the mean difference is {signed(mean)}."
    sure = {sign: [noise for noise, gap in gaps.items() if gap.certain == sign] for sign in (1, -1)}
    tested = sum(gap.low is not None for gap in gaps.values())
    text = f"The choice of test patients does not explain it in {len(sure[1])} of {tested} tested"
    text += f", and it is behind beyond chance in {len(sure[-1])} ({'; '.join(sure[-1])})." if sure[-1] else "."
    clean = [noise for noise, gap in gaps.items() if not grid.groups[method, noise].level[0]]
    if clean:
        text += f" Without noise the difference is {show_gap(gaps[clean[0]])}."
    return _point(lead, text)


def _listed(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _judging(grid: Grid) -> list[str]:
    """Methods that flag images or change labels, the best first."""

    def judges(row: dict[str, Any]) -> bool:
        return bool(row["flagged"] or _relabelled(row))

    return [m for m in grid.methods if any(judges(row) for (label, _), row in grid.rows.items() if label == m)]


def _judging_once(grid: Grid, noise: str) -> list[Point]:
    judging = _judging(grid)
    points = []
    for method in judging[:DESCRIBED]:
        row = grid.rows[method, noise]
        sentences = (_flagged(row), _detected(row), _relabelled(row), _emptied(grid.groups[method, noise]))
        points += [point for point in sentences if point]
    if rest := judging[DESCRIBED:]:
        points.append(_point(f"{len(rest)} more flag or change labels:", f"{', '.join(rest)}; see below."))
    return points


def _judging_over_noise(grid: Grid) -> list[Point]:
    judging = sorted(_judging(grid), key=lambda method: method != "bomd")
    points = []
    for method in judging[:DESCRIBED]:
        rows = {noise: row for noise in grid.noises if (row := grid.rows.get((method, noise)))}
        points += [point for point in (_detected_over(method, rows), _relabelled_over(method, rows)) if point]
    if rest := judging[DESCRIBED:]:
        points.append(_point(f"{len(rest)} more flag or change labels:", f"{', '.join(rest)}; see below."))
    return points


def _detected_over(method: str, rows: dict[str, dict[str, Any]]) -> Point | None:
    found = [row["detection"] for row in rows.values()]
    found = [item for item in found if item.get("precision") and (number(item["base_rate"], "mean") or 0) > 0]
    if not found:
        return None
    precision, base, recall = (_range(item[key] for item in found if item.get(key)) for key in KEYS)
    lead = f"Of the images that {method} flags, {precision} have a wrong label; of all images with known truth, {base}."
    text = f"It finds {recall} of the wrong ones, over {len(found)} noise levels."
    ranked = [item for item in found if item.get("auroc") and item.get("auroc_by_count")]
    if ranked:
        beaten = sum(item["auroc"]["mean"] > item["auroc_by_count"]["mean"] for item in ranked)
        text += f" Its ranking beats merely counting positive labels in {beaten} of {len(ranked)}."
    return _point(lead, text)


KEYS = ("precision", "base_rate", "recall")


def _range(values: Any) -> str:
    means = [100 * value["mean"] for value in values]
    low, high = (f"{end:.0f}" for end in (min(means), max(means)))
    return f"{low} %" if low == high else f"{low} to {high} %"


def _relabelled_over(method: str, rows: dict[str, dict[str, Any]]) -> Point | None:
    changes = [row["labels"] for row in rows.values() if _relabelled(row)]
    if not changes:
        return None
    gains = [labels["after"]["mean"] - labels["before"]["mean"] for labels in changes]
    better = sum(gain > 0 for gain in gains)
    lead = (
        f"The training targets of {method} are closer to the truth than the given labels in {better} of {len(gains)} "
    )
    return _point(lead + "noise levels.", f"Label AUC changes by {signed(min(gains))} to {signed(max(gains))}.")


def _flagged(row: dict[str, Any]) -> Point | None:
    flagged = row["flagged"]
    if not flagged:
        return None
    text = f"That is {flagged['images']:,.0f} of {flagged['of']:,.0f}"
    text += f" on average over {flagged['count']} runs." if flagged["count"] > 1 else "."
    if not row["detection"]:
        text += " Their right labels are not known, so nothing says how many are truly wrong."
    return _point(f"{row['method']} flags {show(flagged, percent=True)} of the training images.", text)


def _emptied(group: Group) -> Point | None:
    """A warning when the rule leaves nothing of a class: its positives are then never learnt as given."""
    items = group.first.result["composition"] or []
    present = [item for item in items if item["given"]]
    empty = [item["name"] for item in present if not item["kept"]]
    if not empty:
        return None
    lead = f"{group.label} keeps no positive label of {len(empty)} of {len(present)} classes as clean."
    return _point(lead, f"In the run with seed {group.first.seed}: {', '.join(empty)}.")


def _detected(row: dict[str, Any]) -> Point | None:
    found = row["detection"]
    if not all(found.get(key) for key in KEYS):
        return None
    lead = (
        f"{show(found['precision'], percent=True)} of the images that {row['method']} flags have a wrong "
        f"label (of all images with known truth: {show(found['base_rate'], percent=True)})."
    )
    text = f"It finds {show(found['recall'], percent=True)} of those that do."
    if found.get("auroc"):
        text += f" As a ranking its margin has AUROC {show(found['auroc'])}"
        counted = found.get("auroc_by_count")
        beaten = counted and counted["mean"] < found["auroc"]["mean"]
        verdict = "merely counting positive labels has" if beaten else "merely counting positive labels does no worse,"
        text += f"; {verdict} {show(counted)}." if counted else "."
    return _point(lead, text)


def _relabelled(row: dict[str, Any]) -> Point | None:
    before, after = row["labels"].get("before"), row["labels"].get("after")
    if not before or not after or before["mean"] == after["mean"]:
        return None
    better = "closer to" if after["mean"] > before["mean"] else "further from"
    lead = f"The training targets of {row['method']} are {better} the truth than the given labels."
    return _point(lead, f"Label AUC {show(before)} before, {show(after)} after.")
