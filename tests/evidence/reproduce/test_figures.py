"""The figures that are drawn from records, on records whose numbers are known."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.text import Text

from bomd.config import Config
from bomd.errors import InputError
from bomd.experiments.recorded import Record
from bomd.measure.result import Result
from bomd.measure.significance import Sample
from bomd.reports.sheet import Mean
from bomd.saved import read_as
from evidence.reproduce.artefact import Drawing, Material, Setting, Sheet, key_of
from evidence.reproduce.figures import FIGURES, detection, gather, label_histogram
from evidence.reproduce.figures.gather import NOISES, noise_of
from evidence.reproduce.figures.style import SMALLEST, WIDTH

SETTING = Setting("demo", (0, 1, 2))
CLASSES = ("Mass", "Pleural_Thickening", "No Finding")
FROM_RECORDS = sorted(set(FIGURES) - {"smoothing-toy", "descriptor-map"})


def result(config: Config) -> dict[str, Any]:
    """Numbers that can be told from one another: they rise with the noise, and by 0.01 with the seed."""
    rows, labels = noise_of(config)
    step = 0.01 * config.seed
    warmup = config.settings.get("small-loss", {}).get("warmup", 0)
    found = 0.3 + rows + step - 0.02 * abs(warmup - 1)  # the split after one epoch is the best one
    line = {"precision": 0.4 + step, "recall": 0.6 + step}
    counts = {"auroc": 0.7 + step, "gap": 0.2 + step, "positive": [3, 1], "negative": [2, 6]}
    return {
        "images": {"train": 900 + config.seed},
        "tests": {"south": {"mean_auc": 0.8 - rows * labels + step, "averaged": list(CLASSES[:2])}},
        "detection": {
            "images": 900,
            "base_rate": rows,
            "flagged": 0.5,
            "precision": found,
            "recall": found,
            "auroc": found,
            "auroc_by_count": 0.6,
        },
        "labels": {
            "classes": [_label_auc(name, 0.5 + step) for name in CLASSES[:2]],
            **_label_auc("all", 0.6 + step),
            "histograms": [
                {"name": "Mass", "clean": 8, "given": 5, "proposed": 7.0, "proposed_hard": 8},
                {"name": "Pleural_Thickening", "clean": 2, "given": 5, "proposed": 3.0, "proposed_hard": 2},
            ],
        },
        "votes": {
            "images": 500,
            "neighbours": 3,
            "thresholds": [
                {"threshold": t, "positive": {"micro": line, "macro": line}, "entry": _entry(t, step)}
                for t in (1, 2, 3)
            ],
        },
        "space": {
            "images": 900,
            "edges": {kind: [0.5, 1.0, 1.5] for kind in ("nearest", "mean", "cosine")},
            "classes": [
                {"name": name, "positives": 4, "negatives": 8, "nearest": counts, "mean": counts, "cosine": counts}
                for name in CLASSES
            ],
        },
    }


def _label_auc(name: str, before: float) -> dict[str, Any]:
    return {"name": name, "before": before, "after": before + 0.1, "before_changed": None, "after_changed": 0.9}


def _entry(votes: int, step: float) -> dict[str, Any]:
    """With one vote nothing is flagged, so that precision is not defined."""
    line = {"precision": None if votes == 1 else 0.5 + step, "recall": 0.25 * votes}
    return {"micro": line, "macro": {"precision": 0.1, "recall": 0.2}}


def material(
    name: str, keep: Callable[[Config], bool] = lambda config: True, make: Callable[[Config], Any] = result
) -> Material:
    planned = plan(name)
    records = {
        key_of(config): Record(
            {"run": f"seed{config.seed}-{config.key[:6]}", "config": config.to_dict(), "result": make(config)},
            "made up",
        )
        for config in planned
        if keep(config)
    }
    return Material(SETTING, planned, records)


@functools.cache
def plan(name: str) -> list[Config]:
    return FIGURES[name].plan(SETTING)


@functools.cache  # drawing is slow, and most tests look at the same figures
def complete(name: str) -> Sequence[Sheet | Drawing]:
    return FIGURES[name].make(material(name))


def drawing(name: str, *arguments: Any) -> Drawing:
    made = FIGURES[name].make(material(name, *arguments)) if arguments else complete(name)
    assert isinstance(made[0], Drawing)
    return made[0]


def column(sheet: Sheet, head: str) -> list[Any]:
    return [row[list(sheet.heads).index(head)] for row in sheet.rows]


def sample(cell: Any) -> Sample:
    assert isinstance(cell, Mean)
    assert cell.sample is not None
    return cell.sample


def where(sheet: Sheet, **values: Any) -> dict[str, Any]:
    """The one row with these values, by head."""
    rows = [dict(zip(sheet.heads, row, strict=True)) for row in sheet.rows]
    (found,) = [row for row in rows if all(row[key] == value for key, value in values.items())]
    return found


def points(axes: Any) -> dict[str, np.ndarray]:
    """The heights of every drawn line, by its label."""
    return {bars.get_label(): np.asarray(bars.lines[0].get_ydata(), dtype=float) for bars in axes.containers}


def texts(figure: Any) -> Iterable[Text]:
    return (text for text in figure.findobj(Text) if text.get_visible() and text.get_text())


def test_every_figure_is_there_under_the_name_of_its_file() -> None:
    assert set(FIGURES) == {
        "detection",
        "label-histogram",
        "label-auc",
        "votes",
        "smoothing-toy",
        "descriptor-distances",
        "descriptor-map",
        "noise-curves",
    }
    assert all(artefact.name == name and artefact.kind == "figure" for name, artefact in FIGURES.items())


def test_plans_ask_for_the_runs_that_are_drawn() -> None:
    counts = {name: len(plan(name)) for name in FIGURES}
    assert counts == {
        "detection": 4 * 9 * 3,
        "label-histogram": 3,
        "label-auc": 27,
        "votes": 9,
        "smoothing-toy": 0,
        "descriptor-distances": 3,
        "descriptor-map": 1,
        "noise-curves": 3 * 10 * 3,
    }


def test_the_most_important_runs_are_planned_first() -> None:
    noises = list(dict.fromkeys(noise_of(config) for config in plan("noise-curves")))
    assert noises[:4] == [(0.0, 0.0), (0.2, 0.2), (0.4, 0.4), (0.6, 0.6)]
    assert sorted(noises[1:]) == sorted(NOISES)


@pytest.mark.parametrize(("recipe", "noise"), [("demo", "symmetric"), ("nih-small", None)])
def test_no_noise_keeps_the_truth_known_where_the_recipe_adds_noise(recipe: str, noise: str | None) -> None:
    (config,) = gather.plan(Setting(recipe, (0,)), ["bomd"], [(0.0, 0.0)])
    assert noise_of(config) == (0.0, 0.0)
    assert config.noise.get("kind") == noise
    (noisy,) = gather.plan(Setting(recipe, (0,)), ["bomd"], [(0.2, 0.6)])
    assert noisy.noise == {"kind": "symmetric", "rows": 0.2, "labels": 0.6}


@pytest.mark.parametrize("name", FROM_RECORDS)
def test_nothing_to_draw_names_the_command(name: str) -> None:
    with pytest.raises(InputError, match=f"bomd reproduce {name} --recipe demo$"):
        FIGURES[name].make(material(name, lambda config: False))


@pytest.mark.parametrize("name", [name for name in FROM_RECORDS if name != "noise-curves"])
def test_older_records_without_the_numbers_count_as_missing(name: str) -> None:
    def older(config: Config) -> dict[str, Any]:
        return {"images": {"train": 900}, "tests": {}, "labels": None, "detection": None}

    with pytest.raises(InputError, match="do them with"):
        FIGURES[name].make(material(name, lambda config: True, older))


@pytest.mark.parametrize("name", FROM_RECORDS)
def test_captions_say_data_seeds_and_runs(name: str) -> None:
    caption = drawing(name).caption
    for part in ("recipe demo", "900 to 902 training images", "Seeds 0, 1, 2."):
        assert part in caption
    assert "Missing" not in caption
    assert ("Runs: bomd seed0-" in caption) == (len(plan(name)) <= 3)
    assert (f"{len(plan(name))} runs of " in caption) == (len(plan(name)) > 3)


@pytest.mark.parametrize("name", FROM_RECORDS)
def test_text_can_be_read_at_the_width_of_a_column(name: str) -> None:
    figure = drawing(name).figure
    assert figure.get_figwidth() == WIDTH
    figure.draw_without_rendering()  # as when it is saved: outside of the style
    assert min(text.get_fontsize() for text in texts(figure)) >= SMALLEST
    drawn = figure.get_tightbbox()
    assert drawn.x0 >= 0
    assert drawn.x1 <= WIDTH
    assert drawn.y0 >= 0
    assert drawn.y1 <= figure.get_figheight()


def test_the_same_records_give_the_same_file() -> None:
    def svg(figure: Any) -> bytes:
        stream = io.BytesIO()
        with matplotlib.rc_context({"svg.hashsalt": "votes"}):
            figure.savefig(stream, format="svg", metadata={"Date": None})
        return stream.getvalue()

    assert svg(drawing("votes").figure) == svg(drawing("votes", lambda config: True).figure)


def test_a_users_settings_of_matplotlib_do_not_change_a_figure() -> None:
    with matplotlib.rc_context({"font.size": 30, "axes.grid": True, "figure.facecolor": "black"}):
        figure = drawing("votes", lambda config: True).figure
    assert figure.get_facecolor() == (1.0, 1.0, 1.0, 1.0)
    assert max(text.get_fontsize() for text in texts(figure)) < 9


def test_detection_numbers() -> None:
    sheet = drawing("detection").numbers
    assert len(sheet.rows) == 4 * 9
    row = where(sheet, method="bomd", rows=0.4, labels=0.2)
    assert row["warmup"] is None
    # found = 0.3 + 0.4 - 0.02 over seeds 0, 1, 2: 0.68, 0.69, 0.70
    assert sample(row["precision"]).mean == pytest.approx(0.69)
    assert sample(row["precision"]).std == pytest.approx(0.01)
    assert sample(row["base_rate"]).mean == pytest.approx(0.4)
    assert len(row["runs"].split()) == 3
    split = where(sheet, method="small-loss", warmup=5, rows=0.6, labels=0.6)
    assert sample(split["auroc"]).mean == pytest.approx(0.3 + 0.6 + 0.01 - 0.08)


def test_detection_draws_the_default_and_the_best_warmup_and_says_that_it_is_hindsight() -> None:
    made = drawing("detection")
    precision, recall, auroc = made.figure.axes
    best = "small loss, 1 epoch (hindsight)"
    assert set(points(precision)) == {"BoMD", "small loss, 2 epochs", best, "flagging all images"}
    assert set(points(recall)) == {"BoMD", "small loss, 2 epochs", best}
    assert set(points(auroc)) == {"BoMD", "small loss, 2 epochs", best, "counting labels"}
    # Three cells, a gap, three cells, a gap, three cells: base rates are the shares of images.
    heights = points(precision)["flagging all images"]
    assert heights == pytest.approx([0.2] * 3 + [np.nan] + [0.4] * 3 + [np.nan] + [0.6] * 3, nan_ok=True)
    assert points(recall)["small loss, 2 epochs"][0] == pytest.approx(0.3 + 0.2 + 0.01 - 0.02)
    assert "1 has the highest mean F1" in made.caption


def test_the_best_warmup_is_chosen_on_cells_that_all_have() -> None:
    """After 5 epochs only the cell with the most noise is done; alone it would look best."""

    def keep(config: Config) -> bool:
        warmup = config.settings.get("small-loss", {}).get("warmup")
        return warmup != 5 or noise_of(config) == (0.6, 0.6)

    made = drawing("detection", keep)
    assert "1 has the highest mean F1" in made.caption
    assert "Missing: small-loss warmup 5 at (0.2, 0.2), (0.4, 0.4), (0.2, 0.4)" in made.caption
    assert len(made.numbers.rows) == 3 * 9 + 1


def test_one_warmup_alone_is_not_called_the_best() -> None:
    made = drawing("detection", lambda config: config.settings.get("small-loss", {}).get("warmup", 2) == 2)
    assert "F1" not in made.caption
    assert "small-loss warmup 1 altogether; small-loss warmup 5 altogether" in made.caption
    assert detection.best_warmup({}) is None


def test_histograms_and_their_distances() -> None:
    """(8, 2) against (5, 5) is 0.3 apart, against (7, 3) 0.1."""
    made = drawing("label-histogram")
    assert "is 0.300 ± 0.000 before and 0.100 ± 0.000 after (0.000 ± 0.000 if" in made.caption
    row = where(made.numbers, **{"class": "Mass"})
    assert [sample(row[head]).mean for head in ("clean", "given", "proposed", "proposed_hard")] == [8, 5, 7, 8]
    (axes,) = made.figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["Mass", "Pleural Thickening"]
    drawn = {bars.get_label(): list(bars.lines[0].get_xdata()) for bars in axes.containers}
    assert drawn == {"given, with noise": [5, 5], "proposed by BoMD": [7, 3], "clean": [8, 2]}
    assert axes.get_xscale() == "log"


def test_a_class_without_labels_keeps_its_place() -> None:
    def empty(config: Config) -> dict[str, Any]:
        made = result(config)
        made["labels"]["histograms"][1]["clean"] = 0
        return made

    (axes,) = drawing("label-histogram", lambda config: True, empty).figure.axes
    assert axes.get_xscale() == "symlog"
    assert label_histogram.distance(read_as(Result, empty(plan("votes")[0]), ""), "proposed") == pytest.approx(0.3)


def test_label_auc_over_the_grid_and_by_finding() -> None:
    made = drawing("label-auc", lambda config: noise_of(config) != (0.2, 0.6))
    assert made.caption.endswith("Missing: bomd at (0.2, 0.6).")
    top, bottom = made.figure.axes
    assert points(top)["given labels"] == pytest.approx(
        [0.61, 0.61, np.nan, np.nan, 0.61, 0.61, 0.61, np.nan, 0.61, 0.61, 0.61], nan_ok=True
    )
    assert [label.get_text() for label in bottom.get_yticklabels()] == ["Mass", "Pleural Thickening"]
    assert len(made.numbers.rows) == 8 * 3
    row = where(made.numbers, rows=0.4, labels=0.2, **{"class": "Mass"})
    assert sample(row["after"]).mean == pytest.approx(0.61)
    assert row["before_changed"].sample is None
    assert row["before_changed"].done == 3


def test_votes_leave_out_what_is_not_defined() -> None:
    made = drawing("votes")
    (set_precision, wrong_precision, _, wrong_recall) = made.figure.axes
    assert list(points(set_precision)) == ["rows = 0.2", "rows = 0.4", "rows = 0.6"]
    assert points(wrong_precision)["rows = 0.4"] == pytest.approx([np.nan, 0.51, 0.51], nan_ok=True)
    assert points(wrong_recall)["rows = 0.6"] == pytest.approx([0.25, 0.5, 0.75])
    assert len(made.numbers.rows) == 2 * 2 * 3 * 3
    macro = where(made.numbers, task="entry", mean="macro", rows=0.2, votes=1)
    assert (sample(macro["precision"]).mean, sample(macro["recall"]).mean) == (pytest.approx(0.1), pytest.approx(0.2))


def test_votes_that_one_run_alone_can_judge_are_not_drawn() -> None:
    def one_seed(config: Config) -> dict[str, Any]:
        made = result(config)
        made["votes"]["thresholds"][2]["entry"]["micro"]["precision"] = None if config.seed else 0.9
        return made

    (made,) = FIGURES["votes"].make(material("votes", make=one_seed))
    assert points(made.figure.axes[1])["rows = 0.4"] == pytest.approx([np.nan, 0.51, np.nan], nan_ok=True)


def test_a_missing_level_does_not_change_the_look_of_the_others() -> None:
    def colours(made: Drawing) -> dict[str, str]:
        return {bars.get_label(): bars.lines[0].get_color() for bars in made.figure.axes[0].containers}

    everything, some = colours(drawing("votes")), colours(drawing("votes", lambda config: noise_of(config)[0] != 0.2))
    assert some == {label: colour for label, colour in everything.items() if label != "rows = 0.2"}


def test_distances_are_shares_of_each_kind_and_every_count_is_in_the_numbers() -> None:
    made = complete("descriptor-distances")
    assert isinstance(made[0], Drawing)
    assert isinstance(made[1], Sheet)
    panels = [axes for axes in made[0].figure.axes if axes.get_title()]
    assert [axes.get_title() for axes in panels] == [
        f"{name}\n0.71 (gap 0.21)" for name in ("Mass", "Pleural Thickening", "No Finding")
    ]
    negative, positive, _ = panels[0].patches
    assert list(negative.get_data().values) == [0.25, 0.75]
    assert list(positive.get_data().values) == [0.75, 0.25]
    assert made[0].numbers.rows[0][:5] == ["Mass", 0.5, 1.0, 3, 2]
    assert len(made[0].numbers.rows) == 3 * 2
    row = where(made[1], distance="cosine", **{"class": "Mass"})
    assert sample(row["auroc"]).mean == pytest.approx(0.71)
    assert sample(row["gap"]).std == pytest.approx(0.01)
    assert "closer on average in 3 of 3 classes" in made[0].caption


def test_noise_curves_start_at_the_same_point_in_every_panel() -> None:
    made = drawing("noise-curves", lambda config: config.method != "nvum")
    assert made.caption.endswith("Missing: nvum altogether.")
    panels = made.figure.axes
    assert [axes.get_title() for axes in panels] == ["rows = 0.2", "rows = 0.4", "rows = 0.6"]
    for axes, share in zip(panels, (0.2, 0.4, 0.6), strict=True):
        assert set(points(axes)) == {"BCE", "BoMD"}
        assert points(axes)["BoMD"] == pytest.approx([0.81 - share * labels for labels in (0, 0.2, 0.4, 0.6)])
    row = where(made.numbers, method="bce", rows=0.6, labels=0.6)
    assert (row["test"], row["findings"]) == ("south", 2)
    assert sample(row["mean_auc"]).mean == pytest.approx(0.81 - 0.36)
    assert len(made.numbers.rows) == 2 * 10


def test_fewer_seeds_are_named() -> None:
    made = drawing("noise-curves", lambda config: (config.seed, noise_of(config)) != (2, (0.4, 0.4)))
    for method in ("bce", "bomd", "nvum"):
        assert f"{method} at (0.4, 0.4) seed 2" in made.caption
    cell = where(made.numbers, method="bomd", rows=0.4, labels=0.4)["mean_auc"]
    assert (cell.done, cell.wanted) == (2, 3)


def test_one_seed_has_no_bars_and_says_so() -> None:
    made = drawing("label-histogram", lambda config: config.seed == 1)
    assert "There is one seed" in made.caption
    assert "Runs: bomd seed1-" in made.caption
    assert "0.300 before" in made.caption
