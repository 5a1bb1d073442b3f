"""The part of docs/speed.md about the paper's schedule on phantoms, where results/schedule.csv has it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from evidence.rows import read_rows
from evidence.studies.schedule import IMAGES, NOISES, OURS, SIZE, TABLE, epochs_of

Row = dict[str, str]
Kind = tuple[str, str, str, str, str, str]  # length, images, size, backbone, batch, device

PROJECTED = "all of NIH at 512 px, batch 64, projected"  # item of results/speed.csv
STAGES = {"learn descriptors": "bomd", "train classifier": "fit"}  # stage -> which of the recipe's epochs it has
COLUMNS = (
    "noise", "method", "seconds of training", "of these", "runs at once", "memory", "GPU memory", "AUC, same",
    "AUC, another",
)  # fmt: skip


def read() -> list[Row]:
    """What was measured; nothing where no run is recorded."""
    return read_rows(TABLE)


def section(rows: Sequence[Row], timings: Sequence[Row] = ()) -> str:
    """Times of every stage, memory and AUC; the longest training first, samples of the images last.

    Args:
        rows: Those of results/schedule.csv.
        timings: Those of results/speed.csv, for what it projects.
    """
    kinds = sorted(dict.fromkeys(map(_kind, rows)), key=lambda kind: (_sample(kind), -float(kind[0]), kind))
    names = [_name(kind) for kind in kinds]
    parts: list[str] = []
    for kind, name in zip(kinds, names, strict=True):
        own = [row for row in rows if _kind(row) == kind]
        _, images, size, backbone, batch, device = kind
        apart = f", {backbone} in batches of {batch} on one {device}" if names.count(name) > 1 else ""
        dates = ", ".join(sorted({row["date"] for row in own}))
        about = f"{int(images):,} phantoms at {size} px in batches of {batch} on one {device}, measured {dates}."
        if not parts:
            about += " " + _opening(kinds)
        remarks = (_wrapped(remark) for remark in _remarks(kind, own, timings))
        parts += [f"### {name}{apart}", _wrapped(about), _table(own), *remarks]
    return "\n\n".join(parts)


def full_minutes(row: Row) -> float | None:
    """Minutes that all images and epochs would take at a row's pace; None where a stage has epochs of its own."""
    stages, paper, done = _seconds(row), epochs_of(1.0), epochs_of(float(row["length"]))
    if not stages.keys() <= STAGES.keys():
        return None
    seconds = sum(taken * paper[STAGES[what]] / done[STAGES[what]] for what, taken in stages.items())
    return seconds * IMAGES / int(row["images"]) / 60


def _opening(kinds: Sequence[Kind]) -> str:
    """What is said once, and that the whole length is missing where it is."""
    whole = any(float(kind[0]) == 1 and not _sample(kind) for kind in kinds)
    return (
        "By `python -m evidence.studies.schedule`, which says where it is not the recipe of the paper "
        "([results/schedule.csv](../results/schedule.csv)). AUC is on right labels of new patients, of the same and of "
        "another hospital; of wrong labels, average precision at finding them among all labels that were learnt, where "
        "it is recorded." + ("" if whole else " At its full length the schedule is not run.")
    )


def _table(rows: Sequence[Row]) -> str:
    found = any(row["wrong_labels_ap"] for row in rows)
    titles = [*COLUMNS, "wrong labels, AP"] if found else COLUMNS
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for row in rows:
        stages = _seconds(row)
        gpu = f"{float(row['peak_gpu_mb']):,.0f} MB" if row["peak_gpu_mb"] else ""
        parts = ", ".join(f"{what}: {taken:,.1f}" for what, taken in stages.items())
        cells = [row["noise"], row["method"], f"{sum(stages.values()):,.1f}", parts if len(stages) > 1 else ""]
        cells += [row["jobs"], f"{float(row['peak_mb']):,.0f} MB", gpu]
        cells += [row["auc_north"], row["auc_south"], *([row["wrong_labels_ap"]] if found else [])]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _remarks(kind: Kind, rows: Sequence[Row], timings: Sequence[Row]) -> Iterator[str]:
    if any(int(row["jobs"]) > 1 for row in rows):
        yield (
            "Runs at once shared the device: their seconds are not those of a run alone, and their sum is not the time "
            "that all of them took."
        )
    if compared := list(_compared(rows)):
        yield f"AUC compared with that of bce, at the same hospital and at another, one seed: {'; '.join(compared)}."
    for row in rows:
        if row["said"]:
            yield f"What {row['method']} says of labels under {row['noise']}: *{row['said']}*"
    if _sample(kind):
        yield from _scaled(rows, timings)
        return
    ran = {(row["noise"], row["method"]) for row in rows}
    missing = [f"{method} under {noise}" for noise in NOISES for method in OURS if (noise, method) not in ran]
    if missing:
        yield f"Not run: {', '.join(missing)}."


def _compared(rows: Sequence[Row]) -> Iterator[str]:
    """For each noise, what the methods have more than bce, where both were run."""
    for noise in NOISES:
        own = {row["method"]: row for row in rows if row["noise"] == noise}
        told = []
        for method in ("bomd-plus", "bomd"):
            if method in own and "bce" in own:
                more = [float(own[method][test]) - float(own["bce"][test]) for test in ("auc_north", "auc_south")]
                told.append(f"{method} {more[0]:+.4f}, {more[1]:+.4f}")
        if told:
            yield f"under {noise}, {' and '.join(told)}"


def _scaled(rows: Sequence[Row], timings: Sequence[Row]) -> Iterator[str]:
    """What a sample says about all images and epochs, beside what was projected for them."""
    for row in rows:
        minutes = full_minutes(row)
        if minutes is None:
            continue
        epochs = " + ".join(str(epochs_of(1.0)[STAGES[what]]) for what in _seconds(row))
        shared = f", {row['jobs']} runs at once" if int(row["jobs"]) > 1 else ""
        projected = [
            float(one["ours"])
            for one in timings
            if (one["item"], one["device"]) == (PROJECTED, row["device"])
            and (row["method"], row["size"], row["batch"]) == ("bomd", "512", "64")
        ]
        beside = (
            f" The table above projects {projected[0]:.1f} minutes from the rate of an epoch, with descriptors of all "
            "images and neighbours, which are not among these."
            if projected
            else ""
        )
        yield (
            f"At this pace {row['method']} under {row['noise']} would train for {minutes:.1f} minutes with {IMAGES:,} "
            f"images and {epochs} epochs{shared}.{beside} What a training does once, such as recording its step, is "
            "scaled with the rest."
        )


def _seconds(row: Row) -> dict[str, float]:
    """Seconds of each stage of training."""
    stages = (stage.rsplit(" ", 1) for stage in row["seconds_training"].split("; "))
    return {what: float(taken) for what, taken in stages}


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def _kind(row: Row) -> Kind:
    return row["length"], row["images"], row["size"], row["backbone"], row["batch"], row["device"]


def _sample(kind: Kind) -> bool:
    """Whether it is another set of images than the study's own."""
    return (int(kind[1]), int(kind[2])) != (IMAGES, SIZE)


def _name(kind: Kind) -> str:
    length, images, size = kind[:3]
    share = "" if float(length) == 1 else f"with {100 * float(length):g}% of its epochs"
    if _sample(kind):
        return f"The paper's schedule for {int(images):,} phantoms at {size} px {share}".rstrip()
    return f"The paper's schedule {share or 'at its full length'}"
