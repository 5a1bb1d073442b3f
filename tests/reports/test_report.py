"""The report is read back as a browser would: parsed, searched for what must and must not be in it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import pytest
from rich.console import Console

from bomd.clean.opinion import decide
from bomd.clean.posterior import Posterior
from bomd.data.store import Store
from bomd.errors import InputError
from bomd.experiments.grid import Group
from bomd.experiments.records import (
    REVIEWED,
    Examples,
    LabelRecord,
    choose_examples,
    load_predictions,
    save_predictions,
)
from bomd.experiments.writing import evaluate
from bomd.files import fingerprint, write_json
from bomd.measure import paired
from bomd.reports import figures, gallery, noise_curves, report
from bomd.reports.noise_curves import Judged, compare, judge, panels
from bomd.reports.report import write_report
from bomd.reports.summary import gather, groups_of, summary_table
from bomd.reports.words import in_words, margin_words
from bomd.runs import Run, write_lines
from bomd.tables import NO_FINDING, Flags, LabelTable, Opinion

CLASSES = (NO_FINDING, "Atelectasis", "Cardiomegaly", "Effusion", "Mass", "Pneumothorax", "Hernia")
HOSTILE = (
    NO_FINDING,
    "<script>alert(1)</script>",
    '"quoted\' onload="x',
    "$x_1$ & co",
    "{{ 7 * 7 }}",
    "Plain",
    "</svg><b>out",
)


def write_run(
    root: Path,
    method: str = "bomd",
    seed: int = 0,
    name: str = "demo",
    classes: tuple[str, ...] = CLASSES,
    prefix: str = "image",
    truth: bool = True,
    flags: bool = True,
    score: float = 0.8,
    settings: dict[str, Any] | None = None,
    noise: dict[str, Any] | None = None,
) -> Run:
    """Write a run directory as `experiment.run` leaves it, with made-up but consistent content."""
    generator = np.random.default_rng([seed, len(method)])
    N, C = 120, len(classes)
    clean = (generator.random((N, C)) < 0.25).astype(np.float32)
    clean[:, 0] = clean[:, 1:].sum(1) == 0
    given = np.where(generator.random((N, C)) < 0.1, 1 - clean, clean).astype(np.float32)
    wrong = (given != clean).any(1)
    table = LabelTable(np.asarray([f"{prefix}{row:03d}" for row in range(N)]), classes, given)
    margin = (generator.normal(0.3, 0.4, N) - 0.6 * wrong).astype(np.float32)
    margin[0] = np.nan
    noisy = (margin <= 0) & flags
    targets = np.where(noisy[:, None], 0.4 * given + 0.6 * clean * 0.9, given).astype(np.float32)
    neighbours = generator.integers(0, N, (N, 10))
    learnt = np.arange(C) != 5
    doubt = np.where(given != clean, 0.55 + 0.4 * generator.random((N, C)), 0.15 * generator.random((N, C)))
    doubt = doubt.astype(np.float32)
    believed = Posterior(doubt, doubt, doubt[:, 0], doubt[:, 0])
    judged, any_wrong = np.broadcast_to(learnt, (N, C)), 1 - np.prod(1 - doubt.astype(np.float64), axis=1)
    record = LabelRecord(
        given=table,
        targets=table.replace(targets if flags else given),
        opinion=decide(believed, table, learnt, judged, 0.5, ("Errors were made up.",), any_wrong),
        clean=table.replace(clean) if truth else None,
        exposed=np.arange(N) < 100 if truth else None,
        flags=Flags(table.ids, noisy, margin, np.zeros((N, C), np.float32)) if flags else None,
        neighbours=neighbours if flags else None,
    )
    noise = {"kind": "symmetric", "rows": 0.4, "labels": 0.4} if noise is None else noise
    directory = root / name / method / f"seed{seed}-{fingerprint(settings, noise)[:6]}"
    record.save(directory / "labels.npz")

    flagged = np.flatnonzero(noisy)
    flagged = flagged[np.argsort(margin[flagged])]
    chosen = np.asarray(["most suspect"] * min(4, len(flagged)) + ["random"] * min(3, max(0, len(flagged) - 4)))
    flagged = flagged[: len(chosen)]
    rows = np.unique(np.concatenate([flagged, neighbours[flagged, :5].ravel()]))
    ramp = np.add.outer(np.arange(64), np.arange(64))
    pixels = np.stack([ramp + generator.integers(0, 120) for _ in rows]).astype(np.uint8) if len(rows) else []
    Examples(flagged, chosen.astype("<U12"), rows, np.asarray(pixels, dtype=np.uint8).reshape(-1, 64, 64)).save(
        directory / "examples.npz"
    )

    shared = np.random.default_rng(7)  # every run is tested on the same images
    tested = (shared.random((80, C)) < 0.3).astype(np.float32)
    tested[:, -1] = 0
    south = LabelTable(np.asarray([f"south{row}" for row in range(80)]), classes, tested)
    scores = np.clip(0.5 + (score - 0.5) * (tested - 0.5) + generator.normal(0, 0.15, (80, C)), 0, 1)
    save_predictions(directory / "predictions.npz", {"south": south}, {"south": south.replace(scores)})

    history = [
        {"stage": "train classifier", "epoch": e, "loss": 1 / e, "validation": 0.6 + 0.05 * e} for e in (1, 2, 3)
    ]
    if flags:
        history = [{"stage": "learn descriptors", "epoch": e, "loss": 2 / e} for e in (1, 2)] + history
    write_lines(directory / "metrics.jsonl", history)
    config = {
        "name": name,
        "method": method,
        "seed": seed,
        "train": {"dataset": "phantom", "count": N},
        "noise": noise | {"seed": seed},
        "settings": {method: settings or {}},
    }
    write_json(directory / "config.json", {"format": 1, "config": config})
    environment = {
        "commit": "0123abc",
        "python": "3.11",
        "device": "cpu",
        "versions": {"torch": "2.13.0"},
        "seconds": 61.0,
        "peak_memory_mb": 812.5,
    }
    write_json(directory / "environment.json", environment)
    found = [(c, int(tested[:, c].sum())) for c in range(C)]
    entries = [
        {
            "name": classes[c],
            "positives": positives,
            "negatives": 80 - positives,
            "auc": score if positives else None,
            "auc_low": score - 0.05 if positives else None,
            "auc_high": score + 0.05 if positives else None,
            "ap": 0.5 if positives else None,
            "ap_low": None,
            "ap_high": None,
        }
        for c, positives in found
    ]
    test = {
        "classes": entries,
        "mean_auc": score,
        "mean_auc_low": score - 0.02,
        "mean_auc_high": score + 0.02,
        "mean_ap": 0.5,
        "left_out": [{"name": classes[-1], "reason": "no positives"}],
    }
    detection = {
        "precision": 0.6,
        "recall": 0.5,
        "auroc": 0.83,
        "base_rate": 0.3,
        "flagged": int(noisy.sum()),
        "auroc_by_count": 0.55,
        "entry_auroc": 0.9,
        "entry_ap": None,
    }
    labels = {
        "before": 0.8,
        "after": 0.9,
        "before_changed": 0.6,
        "after_changed": None,
        "classes": [{"name": item, "before": 0.8, "after": None if item == classes[-1] else 0.9} for item in classes],
        "distance_before": 0.2,
        "distance_after": 0.1,
    }
    result = {
        "name": name,
        "method": method,
        "seed": seed,
        "notes": [f"a note about {classes[1]}"],
        "images": {"train": N, "validation": 12, "south": 80},
        "tests": {"validation": test, "south": test},
        "detection": detection if flags and truth else None,
        "flagged": {"images": int(noisy.sum()), "of": N} if flags else None,
        "labels": labels if flags and truth else None,
        "composition": [{"name": item, "given": 40, "kept": 30} for item in classes] if flags else None,
        "seconds": 61.0,
        "images_presented": 4200,
    }
    write_json(directory / "result.json", result)
    return Run(directory)


class Page(HTMLParser):
    """What a browser would see: tags, addresses, ids and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            self.attributes.append((name, value or ""))
            if name in ("src", "href", "xlink:href", "srcset", "action", "data"):
                self.addresses.append(value or "")
            if name == "id":
                self.ids.append(value or "")

    def handle_data(self, data: str) -> None:
        if self.tags[-1:] == ["script"]:
            self.scripts.append(data)
        elif self.tags[-1:] != ["style"]:
            self.words.append(data)


def groups(runs: list[Run]) -> list[Group]:
    return groups_of(gather(runs))


def grid_of(runs: list[Run]) -> Judged:
    return judge(gather(runs))[0]


def read(runs: list[Run], path: Path) -> Page:
    return Page(write_report(runs, path).read_text(encoding="utf-8"))


def test_one_run_shows_every_section(tmp_path: Path) -> None:
    page = read([write_run(tmp_path / "runs")], tmp_path / "report.html")
    for words in (
        "bomd reaches a mean AUC of 0.800 (0.780–0.820)",
        "method bomd mean AUC 0.800 (0.780–0.820) images flagged",
        "flagged ones that are wrong 60.0 % images that are wrong 30.0 % wrong ones that are flagged 50.0 % AUROC of "
        "the margin 0.830 AUROC of counting labels 0.550 label AUC as given 0.800 label AUC as learnt 0.900",
        "Left out of the mean: Hernia (no positives); No Finding",
        "Most suspect",
        "Random",
        "4,200",
        "812 MB",
        "a note about Atelectasis",
        "0123abc",
    ):
        assert words in page.text, words
    assert page.text.count("not a medical device") == 1
    # findings, margins, clean set, sums and AUC of labels, two losses, one validation curve
    assert page.tags.count("svg") == 8
    assert len([value for value in page.addresses if value.startswith("data:image/jpeg")]) > 7


def test_the_same_runs_give_the_same_page(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs", flags=False)
    one = write_report([run], tmp_path / "one.html").read_bytes()
    assert one == write_report([run], tmp_path / "two.html").read_bytes()


def test_a_page_takes_the_place_of_pages_alone(tmp_path: Path) -> None:
    """Called as it is by default, report.html may well be somebody else's."""
    runs, page = [write_run(tmp_path / "runs")], tmp_path / "report.html"
    page.write_text("<!doctype html><title>Quarterly report: wards</title>")
    with pytest.raises(InputError, match="holds something else"):
        write_report(runs, page)
    assert "Quarterly" in page.read_text()
    page.unlink()
    for _ in range(2):
        write_report(runs, page)


def test_examples_of_a_kind_stay_together_and_truth_shows_only_where_known(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs")
    text = write_report([run], tmp_path / "report.html").read_text(encoding="utf-8")
    record = LabelRecord.load(run.directory / "labels.npz")
    examples = Examples.load(run.directory / "examples.npz")
    first, second = text.index("<h4>Most suspect</h4>"), text.index("<h4>Random</h4>")
    assert record.clean is not None
    for row, kind in zip(examples.flagged, examples.chosen, strict=True):
        place = text.index(f'<div class="id">{record.given.ids[row]}</div>')
        assert (first < place < second) == (kind == "most suspect")
        card = text[place : text.index("</article>", place)]
        wrong = bool((record.given.values[row] != record.clean.values[row]).any())
        assert ("label truly wrong" in card) == (wrong and row < 100)
        assert ("label was right" in card) == (not wrong and row < 100)


def test_methods_are_ranked_and_their_difference_is_paired(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / "runs", "bce", flags=False, score=0.7),
        write_run(tmp_path / "runs", "bomd", score=0.9),
    ]
    page = read(runs, tmp_path / "report.html")
    assert (
        "bomd reaches a mean AUC of 0.900 (0.880–0.920) over the findings of test set south, 0.200 above bce"
        in page.text
    )
    said = r"The choice of test patients does not explain it: \+0\.200 \(\+0\.\d+ to \+0\.\d+\)\. Another seed may "
    assert re.search(said, page.text)
    assert re.search(r"minus bce \+0\.200 \(.*?\) – surely better images flagged", page.text)
    assert "1 of 1" not in page.text


def test_several_methods_of_one_seed_are_counted_against_the_reference(tmp_path: Path) -> None:
    scores = {"bce": 0.7, "bomd": 0.9, "nvum": 0.7}
    runs = [write_run(tmp_path / "runs", method, flags=False, score=score) for method, score in scores.items()]
    points = in_words(grid_of(runs))
    assert points[1]["lead"] == (
        "Of 2 comparisons with bce on test set south, 1 are surely better and 0 surely worse, judged over test "
        "patients."
    )


def test_seeds_become_mean_and_sample_deviation(tmp_path: Path) -> None:
    """Scores .80, .82, .84 have mean .82 and sample deviation .02; against .81, .81, .81 two of three win."""
    runs = [write_run(tmp_path / "runs", "bomd", seed, score=0.80 + 0.02 * seed) for seed in (2, 0, 1)]
    runs += [write_run(tmp_path / "runs", "bce", seed, score=0.81, flags=False) for seed in range(3)]
    rows = {group.label: group for group in groups([*runs, runs[0]])}  # a run given twice counts once
    assert set(rows) == {"bce", "bomd"}
    assert rows["bomd"].seeds == [0, 1, 2]
    score = rows["bomd"].score("south")
    assert score is not None
    assert score.mean == pytest.approx(0.82)
    assert score.std == pytest.approx(0.02)
    assert score.low is None
    assert rows["bce"].flagged is None
    page = read(runs, tmp_path / "report.html")
    assert "0.820 ± 0.020" in page.text
    assert re.search(r"It may be chance: \+0\.010 \(.*?\), ahead in 2 of 3 seeds\.", page.text)


def test_other_settings_and_other_data_are_never_averaged(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / "runs", flags=False, settings={"neighbours": 5}),
        write_run(tmp_path / "runs", flags=False, settings={"neighbours": 10}),
        write_run(tmp_path / "runs", name="nih", flags=False),
    ]
    assert [(group.experiment, group.label) for group in groups(runs)] == [
        ("demo", "bomd (neighbours=10)"),
        ("demo", "bomd (neighbours=5)"),
        ("nih", "bomd"),
    ]
    page = read(runs, tmp_path / "report.html")
    assert "above bomd (neighbours" in page.text or "are level" in page.text
    assert "nih: bomd" in page.text


def noise(rows: float, labels: float) -> dict[str, Any]:
    return {"kind": "symmetric", "rows": rows, "labels": labels}


def write_grid(root: Path, scores: dict[str, list[float]], levels: list[dict[str, Any]], seeds: int = 2) -> list[Run]:
    """Runs of methods under kinds of noise; `scores` holds the mean AUC of each method for every kind."""
    return [
        write_run(root, method, seed, flags=method == "bomd", score=score + 0.01 * seed, noise=level)
        for method, values in scores.items()
        for score, level in zip(values, levels, strict=True)
        for seed in range(seeds)
    ]


LEVELS = [noise(0, 0), noise(0.4, 0.4), noise(0.2, 0.2)]  # not in order
SCORES = {"bce": [0.90, 0.60, 0.80], "bomd": [0.85, 0.75, 0.80], "nvum": [0.80, 0.70, 0.81]}


def test_kinds_of_noise_become_columns(tmp_path: Path) -> None:
    """Means over seeds lie 0.005 above the scores; bomd is last without noise and first with most."""
    page = read(write_grid(tmp_path / "runs", SCORES, LEVELS), tmp_path / "report.html")
    assert "18 runs of" in page.text
    assert "3 noise levels; seeds 0, 1" in page.text
    head = "method no noise (0.2, 0.2) (0.4, 0.4)"
    assert head in page.text
    body = page.text[page.text.index(head) :]
    line = re.search(r"bomd 0\.855 ± 0\.007 0\.805 ± 0\.007 0\.755\W+± 0\.007", body)
    assert line is not None
    assert re.search(r"bce plain training 0\.905 ± 0\.007 0\.805 ± 0\.007 0\.605 ± 0\.007", body)
    assert (
        "No method has the highest mean AUC on test set south in most of the 3 noise levels. First places: bce at no "
        "noise; nvum at (0.2, 0.2); bomd at (0.4, 0.4)." in page.text
    )
    overview = re.search(r"method ((?:bce |bomd |nvum )+)mean AUC (.+)", page.text)
    assert overview is not None
    place = overview[1].split().index("bomd")
    assert re.findall(r"0\.\d+ to 0\.\d+", overview[2])[place] == "0.755 to 0.855"
    assert re.search(r"minus bce .*?−0\.050 to \+0\.150 .*? surely .*?better in 1, worse in 1 of 3", overview[2])
    assert "Bars are" not in page.text
    assert page.text.count("a line each time it ran") == 3  # only one kind of noise shows its training
    assert "Not complete" not in page.text


def test_best_under_most_noise_is_named_and_ties_are_not_called_ahead(tmp_path: Path) -> None:
    scores = {"bce": [0.8, 0.6, 0.7], "bomd": [0.8, 0.75, 0.75]}
    points = in_words(grid_of(write_grid(tmp_path, scores, LEVELS)))
    assert points[0]["lead"] == "bomd is first or level by mean AUC on test set south in 3 of 3 noise levels."
    assert points[0]["text"].startswith("First places: bomd at (0.2, 0.2), (0.4, 0.4); bomd and bce at no noise.")
    better = "On test set south: Better than bce over seeds, by Welch's p < 0.05: bomd at (0.2, 0.2), (0.4, 0.4)."
    assert points[1] == {"lead": better, "text": "Worse than bce over seeds, by Welch's p < 0.05: none."}


@pytest.mark.parametrize(
    ("scores", "lead", "places"),
    [
        (  # first everywhere, once with two others
            {"bce": [0.8, 0.6], "bomd-plus": [0.8, 0.7], "gce": [0.8, 0.6]},
            "bomd-plus is first or level by mean AUC on test set south in 2 of 2 noise levels.",
            "bomd-plus and bce and gce at no noise; bomd-plus at (0.4, 0.4).",
        ),
        (
            {"bce": [0.8, 0.7], "bomd": [0.8, 0.7]},
            "bce and bomd are each first or level by mean AUC on test set south in 2 of 2 noise levels.",
            "bce and bomd at no noise, (0.4, 0.4).",
        ),
        (
            {"bce": [0.8, 0.6], "bomd": [0.7, 0.5]},
            "bce has the highest mean AUC on test set south in 2 of 2 noise levels.",
            "bce at no noise, (0.4, 0.4).",
        ),
        (
            {"bce": [0.8, 0.6], "bomd": [0.7, 0.7]},
            "No method has the highest mean AUC on test set south in most of the 2 noise levels.",
            "bce at no noise; bomd at (0.4, 0.4).",
        ),
    ],
)
def test_a_shared_first_place_counts_for_each(
    tmp_path: Path, scores: dict[str, list[float]], lead: str, places: str
) -> None:
    point = in_words(grid_of(write_grid(tmp_path, scores, LEVELS[:2])))[0]
    assert point == {"lead": lead, "text": f"First places: {places}"}


def test_missing_runs_are_said(tmp_path: Path) -> None:
    runs = write_grid(tmp_path / "runs", SCORES, LEVELS)
    kept = [run for run in runs if run.config()["method"] != "nvum" or run.config()["noise"]["rows"] == 0]
    kept = [run for run in kept if (run.config()["method"], run.config()["seed"]) != ("bce", 1)]
    page = read(kept, tmp_path / "report.html")
    assert "Not complete: 5 of 9 entries lack runs." in page.text
    assert "nvum: (0.2, 0.2) not run; (0.4, 0.4) not run" in page.text
    assert "bce: no noise without seed 1; (0.2, 0.2) without seed 1; (0.4, 0.4) without seed 1" in page.text
    assert re.search(r"bce plain training 0\.900 \(0\.880–0\.920\) 1 seed", page.text)


def test_images_are_counted_over_all_runs(tmp_path: Path) -> None:
    """Other seeds hold out other patients: the images of one run stood for those of all."""
    runs = write_grid(tmp_path / "runs", {"bce": [0.9]}, LEVELS[:1])
    result = runs[1].result()
    result["images"] |= {"train": 1118, "validation": 14}
    write_json(runs[1].directory / "result.json", result)
    page = read(runs, tmp_path / "report.html")
    assert "120 to 1,118 images in training, 12 to 14 images in held-out patients, 80 images in south." in page.text


def test_a_copied_run_counts_once_and_no_noise_is_one_kind(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "runs", seed=0, noise=noise(0, 0.2)), write_run(tmp_path / "runs", seed=1, noise={})]
    shutil.copytree(runs[0].directory, tmp_path / "copy" / "demo" / "bomd" / "seed0-copied")
    found = groups([*runs, Run(tmp_path / "copy" / "demo" / "bomd" / "seed0-copied")])
    assert [(group.noise, group.seeds) for group in found] == [("no noise", [0, 1])]


def test_settings_of_a_base_method_are_never_averaged(tmp_path: Path) -> None:
    runs = []
    for neighbours in (5, 10):
        run = write_run(tmp_path / str(neighbours), "bomd-paper")
        saved = json.loads((run.directory / "config.json").read_text())
        saved["config"]["settings"] = {"bomd": {"neighbours": neighbours}, "elr": {"weight": neighbours}}
        write_json(run.directory / "config.json", saved)
        runs.append(run)
    assert [group.label for group in groups(runs)] == ["bomd-paper (neighbours=10)", "bomd-paper (neighbours=5)"]


def test_distance_from_plain_training_is_paired_over_seeds_and_patients(tmp_path: Path) -> None:
    """Scores .75, .76 against .60, .61: .15 in both seeds; the interval is that of the predictions on disk."""
    runs = write_grid(tmp_path, {"bce": [0.6], "bomd": [0.75]}, LEVELS[1:2])
    found = {group.label: group for group in groups(runs)}
    gap = compare(found["bomd"], found["bce"], "south", draws=100)
    assert gap is not None
    assert (gap.mean, gap.std, gap.won, gap.count) == (pytest.approx(0.15), pytest.approx(0), 2, 2)
    tables = {
        label: [load_predictions(Path(str(run.directory)) / "predictions.npz")["south"] for run in group.runs]
        for label, group in found.items()
    }
    expected = paired.over_seeds(
        tables["bce"][0][0], [item[1] for item in tables["bomd"]], [item[1] for item in tables["bce"]], draws=100
    )
    assert expected is not None
    assert (gap.low, gap.high) == (expected.low, expected.high)
    assert gap.certain == (1 if expected.low > 0 else -1 if expected.high < 0 else 0)
    other = compare(found["bce"], found["bomd"], "south", draws=100)
    assert other is not None
    assert (other.low, other.high) == (pytest.approx(-expected.high), pytest.approx(-expected.low))
    assert other.certain == -gap.certain
    assert compare(found["bomd"], found["bce"], "nowhere") is None


def test_a_reference_with_several_settings_is_said_to_be_compared_with_nothing(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, "elr", seed, settings={"weight": w}, flags=False) for w in (1, 2) for seed in (0, 1)]
    leads = [point["lead"] for point in in_words(judge(gather(runs, "elr"))[0])]
    assert not any("Not compared" in lead for lead in leads)
    runs += [write_run(tmp_path, "bce", seed, flags=False, score=0.6) for seed in (0, 1)]
    leads = [point["lead"] for point in in_words(judge(gather(runs, "elr"))[0])]
    assert "Not compared with elr at (0.4, 0.4), where it ran with several settings." in leads


def test_a_lead_of_other_seeds_is_told_from_one_of_the_same(tmp_path: Path) -> None:
    """.610 is the mean of three seeds and .615 that of two of them: nobody is ahead in the seeds that both have."""
    runs = [write_run(tmp_path, "bce", seed, flags=False, score=0.60 + 0.01 * seed) for seed in range(3)]
    runs += [write_run(tmp_path, "elr", seed, flags=False, score=0.60 + 0.01 * seed) for seed in (1, 2)]
    text = in_words(grid_of(runs))[0]["text"]
    assert re.search(r"^It may be chance: 0\.000 \(.*\) in the seeds that both have, ahead in 0 of 2\.", text), text


def test_a_difference_over_seeds_has_no_interval_of_one_of_them(tmp_path: Path) -> None:
    """Each seed holds out other patients: the mean over all stood before the interval of the first seed alone."""
    runs = write_grid(tmp_path, {"bce": [0.6], "bomd": [0.75]}, LEVELS[1:2])
    for run in runs:
        saved = load_predictions(run.directory / "predictions.npz")["south"]
        rows = np.arange(40) + 40 * run.config()["seed"]
        parts = [{"validation": table.take(rows)} for table in saved]
        save_predictions(run.directory / "predictions.npz", *parts)
        result = run.result()
        write_json(run.directory / "result.json", result | {"tests": {"validation": result["tests"]["south"]}})
    found = {group.label: group for group in groups(runs)}
    both = compare(found["bomd"], found["bce"], "validation", draws=100)
    first = compare(found["bomd"], found["bce"], "validation", draws=100, most=1)
    assert both is not None
    assert first is not None
    assert (both.count, both.low, both.high) == (2, None, None)
    assert both.std == pytest.approx(0)
    assert first.low is not None


def test_intervals_stop_where_they_would_take_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = write_grid(tmp_path / "runs", SCORES, LEVELS)
    grid = grid_of(runs)
    assert all(gap.low is not None for gap in grid.gaps.values())
    assert not grid.limits
    whole = 2 * 2 * 7 * 80  # runs, classes and images of a pair
    monkeypatch.setattr(noise_curves, "WORK", whole * noise_curves.FEWER_DRAWS)  # two pairs of single seeds
    grid = grid_of(runs)
    assert sum(gap.low is not None for gap in grid.gaps.values()) == 2
    assert len(grid.gaps) == 6
    assert grid.limits[-1] == "4 of 6 differences have no interval, to save time: report fewer runs."
    assert "first seed alone" in grid.limits[0]


def test_where_kinds_of_noise_lie_on_the_axis(tmp_path: Path) -> None:
    diagonal = grid_of(write_grid(tmp_path / "a", {"bce": [0.8] * 3}, LEVELS, 1))
    (panel,) = panels(diagonal, "south")
    assert panel["ticks"] == ["no noise", "(0.2, 0.2)", "(0.4, 0.4)"]
    cells = [noise(0, 0), *(noise(rows, labels) for rows in (0.2, 0.6) for labels in (0.2, 0.6))]
    square = grid_of(write_grid(tmp_path / "b", {"bce": [0.8] * 5}, cells, 1))
    found = panels(square, "south")
    assert [panel["title"] for panel in found] == [f"labels flip with probability {share}" for share in (0.2, 0.6)]
    assert [panel["places"] for panel in found] == [[0, 0.2, 0.6]] * 2
    assert found[1]["noises"] == ["no noise", "(0.2, 0.6)", "(0.6, 0.6)"]
    single = grid_of(write_grid(tmp_path / "c", {"bce": [0.8]}, cells[:1], 1))
    assert panels(single, "south") == []


def test_many_methods_stay_readable(tmp_path: Path) -> None:
    """Nine methods: six are drawn in colour, plain training and BoMD among them though they are the worst."""
    scores = {f"method{place}": [0.8 + place / 100, 0.7] for place in range(7)} | {
        "bce": [0.6, 0.6],
        "bomd": [0.7, 0.5],
    }
    runs = write_grid(tmp_path / "runs", scores, LEVELS[:2], 1)
    assert set(grid_of(runs).leading) == {"bce", "bomd", *(f"method{place}" for place in (3, 4, 5, 6))}
    runs.append(write_run(tmp_path / "runs", "own", settings={"weight": 3}, noise=LEVELS[0], flags=False, score=0.5))
    page = read(runs, tmp_path / "report.html")
    assert "19 runs of 10 methods" in page.text
    assert "Thin grey lines: 4 more methods" in page.text
    assert "All 10 methods" in page.text  # without noise
    assert "All 9 methods" in page.text
    assert "The best of 10 methods looks better here than it would on new data." in page.text
    assert "own settings.own.weight = 3" in page.text
    assert "method0 as recipe" in page.text


def test_held_out_patients_are_no_test_set(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs")
    result = run.result()
    result["tests"] = {"validation": result["tests"]["south"], "validation before noise": result["tests"]["south"]}
    write_json(run.directory / "result.json", result)
    page = read([run], tmp_path / "report.html")
    assert "No test set." in page.text
    assert "over the findings of held-out patients, labels before noise." in page.text


def test_the_margin_is_explained_for_the_methods_that_are_shown(tmp_path: Path) -> None:
    """And of those that are known alone: whoever brings a method of their own has margins of their own."""
    runs = [write_run(tmp_path / "runs", method) for method in ("bomd", "bomd-plus", "mine.module:Own")]
    bomd, plus, own = (groups([run]) for run in runs)
    expected = "With bomd-plus it is 0.5 less the number of its labels that are expected to be wrong."
    assert margin_words(plus) == [expected]
    assert margin_words(own) == []
    assert [words.split(" it is ")[0] for words in margin_words([*bomd, *plus, *bomd])] == [
        "With bomd",
        "With bomd-plus",
    ]
    page = read(runs[1:2], tmp_path / "report.html").text
    assert expected in page
    assert "With bomd it is" not in page


def test_the_margin_of_bomd_without_scores_is_one_of_votes(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs", "bomd")
    result = json.loads((run.directory / "result.json").read_text())
    write_json(run.directory / "result.json", result | {"settings": {"stage": "self-supervised"}})
    (words,) = margin_words(groups([run]))
    assert words.startswith("With bomd it is the share of its nearest images")


def test_the_seed_of_a_run_is_no_number_of_seeds(tmp_path: Path) -> None:
    """0 below the head "seeds" would read as none."""
    run = write_run(tmp_path / "runs")
    (head,) = [column.header for column in summary_table([run]).columns if "seed" in str(column.header)]
    assert head == "seed"
    write_report([run], tmp_path / "report.html")
    assert '<th scope="col">seed</th>' in (tmp_path / "report.html").read_text()


def test_a_method_without_flags(tmp_path: Path) -> None:
    page = read([write_run(tmp_path / "runs", "bce", flags=False)], tmp_path / "report.html")
    assert "None of these methods says which labels look wrong." in page.text
    assert "None of these methods changes the labels it learns from." in page.text
    assert "Nothing was flagged." in page.text
    assert not [value for value in page.addresses if value.startswith("data:image")]


def test_a_long_list_of_methods_keeps_a_short_summary(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "runs", f"method{number}", score=0.7 + number / 100) for number in range(4)]
    assert len(in_words(grid_of(runs))) == 1


def test_bad_news_is_said_in_the_summary(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs")
    result = run.result()
    result["detection"]["auroc_by_count"] = 0.9
    result["labels"]["after"] = 0.7
    result["composition"][3]["kept"] = 0
    result["composition"][4] |= {"given": 0, "kept": 0}
    write_json(run.directory / "result.json", result)
    page = read([run], tmp_path / "report.html")
    assert "AUROC of counting labels 0.900 label AUC as given 0.800 label AUC as learnt 0.700" in page.text
    assert "bomd keeps no positive label of 1 of 6 classes as clean. In the run with seed 0: Effusion." in page.text


def test_unknown_truth_is_said_and_never_guessed(tmp_path: Path) -> None:
    page = read([write_run(tmp_path / "runs", truth=False)], tmp_path / "report.html")
    assert "The right labels are not known" in page.text
    assert "flagged ones that are wrong" not in page.text
    assert "label truly wrong" not in page.text
    assert "label was right" not in page.text


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs", name='"><img src=x>', method="bomd", classes=HOSTILE, prefix="<b onclick='x'>")
    plain = write_run(tmp_path / "runs", "bomd")
    page = read([run], tmp_path / "hostile.html")
    expected = read([plain], tmp_path / "plain.html")
    assert page.tags.count("script") == 1
    assert set(page.tags) == set(expected.tags)  # a name never becomes an element
    assert {name for name, _ in page.attributes} == {name for name, _ in expected.attributes}
    for name in HOSTILE:
        assert name in page.text
    assert "<b onclick='x'>" in page.text


def test_nothing_is_fetched_and_no_id_repeats(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "runs", method, flags=method == "bomd") for method in ("bomd", "bce")]
    path = write_report(runs, tmp_path / "report.html")
    page = Page(path.read_text(encoding="utf-8"))
    gates = {f"{quote(str(run.directory.relative_to(tmp_path)))}/review.html" for run in runs}
    leading_out = {value.split("#")[0] for value in page.addresses if not value.startswith(("#", "data:"))}
    assert len(leading_out) == 1
    assert leading_out < gates
    inside = {value[1:] for value in page.addresses if value.startswith("#")}
    assert inside <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert "http:" not in path.read_text(encoding="utf-8")
    assert "https:" not in path.read_text(encoding="utf-8")
    own = (Path(report.__file__).parent / "templates" / "find.js").read_text(encoding="utf-8")
    assert [text for text in page.scripts if text.strip()] == [own]  # the only script, and the only one that may run
    digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
    policy = [value for _, value in page.attributes if "default-src 'none'" in value]
    assert len(policy) == 1
    assert policy[0].endswith(f"; script-src 'sha256-{digest}'")


def test_cards_lead_to_the_review_of_their_image(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs", prefix="a/b c#")
    page = read([run], tmp_path / "pages" / "report.html")
    links = [value for value in page.addresses if "#image=" in value]
    ids = set(LabelRecord.load(run.directory / "labels.npz").given.ids.tolist())
    assert links
    for link in links:
        way, _, image = link.partition("#image=")
        assert (tmp_path / "pages" / unquote(way)).resolve() == (run.directory / "review.html").resolve()
        assert unquote(image) in ids
    assert f"bomd review {run.directory} --open" in page.text
    gate = Page((run.directory / "review.html").read_text(encoding="utf-8"))
    assert "No review is running" in gate.text


@pytest.mark.slow
def test_a_large_report_shows_fewer_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [write_run(tmp_path / "runs", f"method{number}") for number in range(2)]
    whole = write_report(runs, tmp_path / "whole.html").stat().st_size
    assert whole < 10_000_000
    monkeypatch.setattr(report, "LARGEST", whole - 1)
    path = write_report(runs, tmp_path / "small.html")
    assert path.stat().st_size < whole
    assert "are shown to keep this page small" in path.read_text(encoding="utf-8")
    assert "this page leaves out all but 3 examples of each kind." in path.read_text(encoding="utf-8")
    monkeypatch.setattr(report, "LARGEST", 100_000)
    text = write_report(runs, path).read_text(encoding="utf-8")
    assert "this page leaves out all examples, the curves of training, the histograms of margins" in text
    assert len(text.encode()) <= 100_000
    monkeypatch.setattr(report, "LARGEST", 1000)
    with pytest.raises(InputError, match="Report fewer runs"):
        write_report(runs, tmp_path / "none.html")
    assert not (tmp_path / "none.html").exists()


def test_real_sized_pictures_stay_under_ten_megabytes(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs")
    examples = Examples.load(run.directory / "examples.npz")
    noise = np.random.default_rng(0).integers(0, 256, (len(examples.rows), 128, 128), dtype=np.uint8)
    Examples(examples.flagged, examples.chosen, examples.rows, noise).save(run.directory / "examples.npz")
    assert write_report([run], tmp_path / "report.html").stat().st_size < 3_000_000


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda run: (run.directory / "result.json").unlink(), "not finished"),
        (lambda run: (run.directory / "labels.npz").write_bytes(b"PK"), "labels.npz"),
        (lambda run: (run.directory / "metrics.jsonl").unlink(), "metrics.jsonl"),
        (lambda run: write_json(run.directory / "config.json", {"format": 99}), "another version"),
        (lambda run: write_json(run.directory / "result.json", {"name": "demo"}), "has no 'tests'"),
    ],
)
def test_a_damaged_run_is_refused_and_the_old_report_survives(tmp_path: Path, damage: Any, message: str) -> None:
    run = write_run(tmp_path / "runs")
    path = tmp_path / "report.html"
    path.write_text("old")
    damage(run)
    with pytest.raises(InputError, match=message) as caught:
        write_report([run], path)
    assert "\n" not in str(caught.value)
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["report.html"]


MEASURED = ("tests", "flagged", "composition", "detection", "labels", "votes", "space")


@pytest.mark.parametrize(("truth", "flags"), [(True, True), (False, True), (True, False)])
def test_what_an_experiment_measures_can_be_shown(tmp_path: Path, truth: bool, flags: bool) -> None:
    run = write_run(tmp_path / "runs", truth=truth, flags=flags)
    record = LabelRecord.load(run.directory / "labels.npz")
    tables = load_predictions(run.directory / "predictions.npz")
    truths = {name: pair[0] for name, pair in tables.items()}
    measured = evaluate(record, truths, {name: pair[1] for name, pair in tables.items()}, minimum_positives=1)
    numbers = {name: value for name, value in measured.to_dict().items() if name in MEASURED}
    write_json(run.directory / "result.json", run.result() | numbers)
    page = read([run], tmp_path / "report.html")
    score = measured.tests["south"]
    expected = f"{score.mean_auc:.3f} ({score.mean_auc_low:.3f}–{score.mean_auc_high:.3f})"
    assert f"bomd reaches a mean AUC of {expected}" in page.text
    if truth and flags:
        found = measured.detection
        assert found is not None
        assert f"{found.auroc:.3f} {found.auroc_by_count:.3f}" in page.text


def as_audit(run: Run) -> Run:
    """Make it a run of `bomd audit`: nobody tested, a folder of images, examples in the order of review."""
    save_predictions(run.directory / "predictions.npz", {}, {})
    result = run.result()
    result |= {"tests": {}, "images": {"train": result["images"]["train"]}}
    write_json(run.directory / "result.json", result)
    config = json.loads((run.directory / "config.json").read_text(encoding="utf-8"))["config"]
    config["train"] = {"dataset": "folder", "images": "/home/somebody/ward <i>7/x-rays"}
    config |= {"fit": {"backbone": "densenet121", "weights": "imagenet"}, "images": {"size": 64}}
    write_json(run.directory / "config.json", {"format": 1, "config": config})
    record = LabelRecord.load(run.directory / "labels.npz")
    choose_examples(record, store_of(record), 0, REVIEWED).save(run.directory / "examples.npz")
    return run


def store_of(record: LabelRecord) -> Store:
    N = len(record.given)
    pixels = np.repeat(np.arange(N, dtype=np.uint8), 32 * 32).reshape(N, 32, 32)
    return Store(
        Path(), record.given.ids, 32, pixels, np.full((N, 2), 32, dtype=np.int32), (), "", np.zeros(N, np.uint32)
    )


def test_questioned_labels_by_hand() -> None:
    """Mass of a and Effusion of c are probably wrong; e is doubted less, and one of its labels is unknown."""
    table = LabelTable(
        np.asarray(list("abcde")),
        ("Mass", "Effusion", NO_FINDING),
        np.asarray([[1, 0, 0], [0, 0, 1], [0, 1, 0], [0, 0, 1], [1, np.nan, 0]], dtype=np.float32),
    )
    wrong = [[0.75, 0, 0.5], [0.25, 0.25, 0.5], [0, 0.75, 0], [0, 0, 0], [0.5, np.nan, 0]]
    hard = [[0, 0, 1], [0, 0, 1], [0, 0, 1], [0, 0, 1], [1, np.nan, 0]]
    opinion = Opinion(
        table.ids,
        np.asarray(wrong, dtype=np.float32),
        np.asarray(hard, dtype=np.float32),
        expected=np.asarray([0.75, 0.5, 0.75, 0, 0.5], dtype=np.float32),
        rank=np.asarray([1, 3, 2, 5, 4]),
        learnt=np.asarray([True, False, False]),
        reasons=("Because.",),
    )
    noisy = np.asarray([True, False, True, False, True])
    flags = Flags(table.ids, noisy, np.zeros(5, np.float32), np.zeros((5, 3), np.float32))
    found = gallery.questions(LabelRecord(table, table, opinion, flags=flags))
    classes = found.pop("classes")
    counts = {"images": 5, "flagged": 3, "changed": 2, "labels": 14, "removed": 2, "added": 2}
    assert found == {**counts, "expected": 2.5, "reasons": ("Because.",), "one_label": False}
    heads = ("name", "positives", "negatives", "flagged", "removed", "added", "after", "wrong", "learnt")
    assert [tuple(item[head] for head in heads) for item in classes] == [
        ("Mass", 2, 3, 2, 1, 0, 1, 1.5, True),
        ("Effusion", 1, 3, 1, 1, 0, 0, 1.0, False),
        (NO_FINDING, 2, 3, 0, 0, 2, 4, 1.0, True),  # it is never learnt, and follows from the others
    ]
    assert gallery.questions(LabelRecord(table, table, opinion))["flagged"] == 4  # by what is expected to be wrong


def test_an_audit_asks_which_labels_are_wrong(tmp_path: Path) -> None:
    run = as_audit(write_run(tmp_path / "runs", truth=False, noise={}))
    page = read([run], tmp_path / "report.html")
    record = LabelRecord.load(run.directory / "labels.npz")
    assert record.flags is not None
    flagged, found = int(record.flags.noisy.sum()), gallery.questions(record)
    for words in (
        "Which labels look wrong: ward <i>7/x-rays",
        f"{flagged} of 120 images ({100 * flagged / 120:.1f} %) have labels that look wrong. "
        f"{found['expected']:,.0f} labels of findings are expected to be wrong in all. A flag is a question",
        "How labels were judged. Errors were made up.",
        f"{CLASSES[5]} not learnt",
        f"{found['removed'] + found['added']} of 840 labels are questioned, in {found['changed']} images: "
        f"{found['removed']} positive and {found['added']} negative.",
        "bomd was trained on all 120 images and the labels that it judges. The network is densenet121, which started "
        "from imagenet weights; it saw images of 64 × 64 pixels. Nobody was held out",
    ):
        assert words in page.text, words
    for item in found["classes"]:
        for key, of in (("removed", "positives"), ("added", "negatives")):
            assert (f"{item['name']} {item[key]} of {item[of]}" in page.text) == bool(item[key])
    sections = [name for name in page.ids if name in ("summary", "examples", "labels", "detection", "cost", "methods")]
    assert sections == ["summary", "examples", "labels", "detection", "cost"]
    for words in ("scored", "AUROC", "Precision", "base rate", "mean AUC", "truly wrong", "soft label"):
        assert words not in page.text, words
    assert len(page.ids) == len(set(page.ids))
    assert {value[1:] for value in page.addresses if value.startswith("#")} <= set(page.ids)


def test_examples_of_an_audit_follow_the_order_of_review(tmp_path: Path) -> None:
    run = as_audit(write_run(tmp_path / "runs", truth=False))
    text = write_report([run], tmp_path / "report.html").read_text(encoding="utf-8")
    record = LabelRecord.load(run.directory / "labels.npz")
    assert record.flags is not None
    rows = np.flatnonzero(record.flags.noisy)
    order = sorted(rows, key=lambda row: record.opinion.rank[row])
    by_margin = rows[np.argsort(record.flags.margin[rows])]
    assert order[:24] != by_margin[:24].tolist()
    assert len(order) > 24
    shown = re.findall(r'<div class="id">(\w+)</div>\s*<div>place (\d+) of (\d+)</div>', text)
    expected = [(str(record.given.ids[row]), str(record.opinion.rank[row]), "120") for row in order]
    assert shown[:24] == expected[:24]
    assert set(shown[24:]) <= set(expected[24:])
    assert len(shown) == 24 + min(12, len(order) - 24)
    first = order[0]
    card = text[text.index("<article") : text.index("</article>")]
    changed, table = card.split("<table>")
    assert f"{record.opinion.expected[first]:.1f} labels expected to be wrong" in changed
    for column, (name, given) in enumerate(zip(CLASSES, record.given.values[first], strict=True)):
        wrong = record.opinion.wrong[first, column]
        assert (name in changed) == (given != record.opinion.proposed[first, column])
        if name in changed and name != NO_FINDING:
            assert f"{name} ({wrong:.2f})" in changed
            assert f"<b>{wrong:.2f}</b>" in table


def test_examples_are_the_beginning_of_the_order_of_review(tmp_path: Path) -> None:
    record = LabelRecord.load(write_run(tmp_path).directory / "labels.npz")
    assert record.flags is not None
    flagged = np.flatnonzero(record.flags.noisy)
    turned = replace(record.opinion, rank=np.arange(len(record.given), 0, -1))  # the last image first
    reviewed = choose_examples(replace(record, opinion=turned), store_of(record), 0, REVIEWED)
    np.testing.assert_array_equal(reviewed.flagged[:24], flagged[::-1][:24])
    assert reviewed.chosen.tolist() == ["most suspect"] * 24 + ["random"] * min(12, len(flagged) - 24)
    assert len(set(reviewed.flagged.tolist())) == len(reviewed.flagged)
    usual = choose_examples(record, store_of(record), 0)
    np.testing.assert_array_equal(usual.flagged[:12], flagged[np.argsort(record.opinion.rank[flagged])][:12])
    assert usual.chosen.tolist() == ["most suspect"] * 12 + ["random"] * 12


def test_an_audit_with_hostile_names_stays_text(tmp_path: Path) -> None:
    hostile: dict[str, Any] = {"name": '"><img src=x>', "classes": HOSTILE, "prefix": "<b onclick='x'>"}
    run = as_audit(write_run(tmp_path / "runs", truth=False, **hostile))
    page = read([run], tmp_path / "hostile.html")
    expected = read([as_audit(write_run(tmp_path / "runs", truth=False))], tmp_path / "plain.html")
    assert set(page.tags) == set(expected.tags)
    assert {name for name, _ in page.attributes} == {name for name, _ in expected.attributes}
    for name in (*HOSTILE, "<b onclick='x'>"):
        assert name in page.text


def test_an_audit_with_known_truth_shows_the_columns_that_have_values(tmp_path: Path) -> None:
    page = read([as_audit(write_run(tmp_path / "runs"))], tmp_path / "report.html")
    assert (
        "method flagged precision base rate recall AUROC AUROC of counting labels single labels AUROC bomd" in page.text
    )
    assert re.search(r"AUROC bomd \d+\.\d % 60\.0 % 30\.0 % 50\.0 % 0\.830 0\.550 0\.900", page.text)
    assert "label truly wrong" in page.text


def test_an_audit_warns_about_classes_of_which_nothing_would_be_left(tmp_path: Path) -> None:
    run = as_audit(write_run(tmp_path / "runs", truth=False))
    record = LabelRecord.load(run.directory / "labels.npz")
    values, proposed = record.given.values.copy(), record.opinion.proposed.copy()
    values[:, 6], proposed[:, 6] = 0, 0
    values[:2, 6] = 1  # two images with Hernia, which both would lose
    replace(record, given=record.given.replace(values), opinion=replace(record.opinion, proposed=proposed)).save(
        run.directory / "labels.npz"
    )
    page = read([run], tmp_path / "report.html")
    assert re.search(r"Every positive label of \d of 7 classes is questioned\. .* say little: [^.]*Hernia", page.text)


def test_an_audit_by_given_features_says_that_nothing_was_trained(tmp_path: Path) -> None:
    run = as_audit(write_run(tmp_path / "runs", "features", truth=False))
    write_json(run.directory / "result.json", run.result() | {"images_presented": 0})
    (run.directory / "metrics.jsonl").write_text("")
    page = read([run], tmp_path / "report.html")
    assert "No network was trained. Features that were given judge the labels of the 120 images." in page.text
    assert "was trained on" not in page.text


def test_a_network_without_pretraining_started_from_random_weights(tmp_path: Path) -> None:
    run = as_audit(write_run(tmp_path / "runs", truth=False))
    saved = json.loads((run.directory / "config.json").read_text())
    saved["config"]["fit"]["weights"] = "none"
    write_json(run.directory / "config.json", saved)
    assert "which started from random weights; it saw" in read([run], tmp_path / "report.html").text


def test_an_audit_with_nothing_flagged_says_so(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs", truth=False)
    record = LabelRecord.load(run.directory / "labels.npz")
    assert record.flags is not None
    flags = Flags(record.given.ids, np.zeros(120, dtype=bool), record.flags.margin, record.flags.entry)
    content = replace(record.opinion, proposed=record.given.values, expected=np.zeros(120, np.float32))
    replace(record, targets=record.given, flags=flags, opinion=content).save(run.directory / "labels.npz")
    write_json(run.directory / "result.json", run.result() | {"flagged": {"images": 0, "of": 120}})
    page = read([as_audit(run)], tmp_path / "report.html")
    assert "0 of 120 images have labels that look wrong." in page.text
    assert "Nothing was flagged." in page.text
    assert "No label would change." in page.text


def test_proposals_of_an_audit_are_told_also_where_labels_were_learnt_as_given(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs", truth=False)
    record = LabelRecord.load(run.directory / "labels.npz")
    assert record.changes
    replace(record, targets=record.given).save(run.directory / "labels.npz")
    saved = run.result()
    write_json(run.directory / "result.json", saved | {"labels": None})
    page = read([as_audit(run)], tmp_path / "report.html")
    assert "No label would change." not in page.text
    assert "would be added" in page.text
    assert "The classifier has learnt the labels as they were given." in page.text
    assert "Training targets are soft" not in page.text


def test_only_runs_without_any_test_set_are_an_audit(tmp_path: Path) -> None:
    audit = as_audit(write_run(tmp_path / "runs", truth=False))
    page = read([audit, write_run(tmp_path / "runs", name="tested")], tmp_path / "report.html")
    assert "Learning from noisy labels: demo, tested" in page.text
    assert "methods" in page.ids
    assert "No test set. Nobody was scored." in page.text
    assert "Only held-out patients were scored" not in page.text


def test_no_run_and_missing_run_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No run to report"):
        write_report([], tmp_path / "report.html")
    with pytest.raises(InputError, match="nowhere"):
        write_report([Run(tmp_path / "nowhere")], tmp_path / "report.html")


def test_terminal_table(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / "runs", "bce", flags=False, score=0.7),
        write_run(tmp_path / "runs", "[red]bomd[/red]"),
    ]
    console = Console(width=90)
    with console.capture() as capture:
        console.print(summary_table(runs))
    shown = capture.get()
    assert "0.700" in shown
    assert "(0.680–0.720)" in shown  # whole, even in a narrow terminal
    assert "[red]bomd[/red]" in shown  # a name is never read as markup
    assert "→ 0.900" in shown
    assert "61 s" in shown


def test_the_terminal_speaks_of_no_scores_where_nobody_was_tested(tmp_path: Path) -> None:
    console = Console(width=90)
    with console.capture() as capture:
        console.print(summary_table([as_audit(write_run(tmp_path / "runs", truth=False))]))
    assert "flagged" in capture.get()
    assert "AUC" not in capture.get()
    assert "interval" not in capture.get()


def test_a_long_name_takes_nothing_from_the_other_columns_of_the_terminal(tmp_path: Path) -> None:
    """Names are folded until everything fits; the last column used to be cut off instead."""
    own = "my_package.my_module:MyMethod"
    runs = [
        write_run(tmp_path / "runs", method, seed, noise={"kind": "symmetric", "rows": rows, "labels": 0.4})
        for method in ("bce", own)
        for seed in (0, 1, 2)
        for rows in (0.2, 0.4)
    ]
    console = Console(width=80)
    with console.capture() as capture:
        console.print(summary_table(runs))
    lines = [line.rstrip() for line in capture.get().splitlines()]
    assert sum(line.endswith("61 s") for line in lines) == 4
    assert any(line.endswith("time") for line in lines)
    assert max(map(len, lines)) <= 80


def test_paired_difference_by_hand() -> None:
    """Two patients, one finding: the first classifier is always right, the second always wrong."""
    truth = LabelTable(
        np.asarray(["a", "b", "c", "d"]), ("Mass",), [[1], [0], [1], [0]], patients=np.asarray(list("ppqq"))
    )
    right, wrong = truth.replace(truth.values), truth.replace(1 - truth.values)
    for other, gap in ((wrong, 1.0), (right, 0.0)):
        found = paired.over_seeds(truth, [right], [other], draws=500)
        assert found is not None
        assert (found.difference, found.low, found.high) == (gap, gap, gap)
    nothing = truth.replace(np.ones((4, 1)))
    assert paired.over_seeds(nothing, [right], [wrong], draws=500) is None


def test_thirty_methods_look_different() -> None:
    looks = figures.looks([str(number) for number in range(30)])
    assert len({(look.colour, look.marker) for look in looks}) == 30


def test_a_stage_that_ran_twice_is_two_lines(tmp_path: Path) -> None:
    epochs = [("fold", 1), ("fold", 2), ("classify", 1), ("fold", 1), ("fold", 2)]
    lines = [{"stage": stage, "epoch": epoch, "loss": place} for place, (stage, epoch) in enumerate(epochs)]
    write_lines(tmp_path / "metrics.jsonl", lines)
    assert list(gallery.course(tmp_path)) == [
        (("fold", "loss"), [1, 2], [0, 1]),
        (("fold", "loss"), [1, 2], [3, 4]),
        (("classify", "loss"), [1], [2]),
    ]


def test_import_is_light() -> None:
    """The command line imports this at once: PyTorch must not come along."""
    code = "import sys, bomd.reports.report; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
