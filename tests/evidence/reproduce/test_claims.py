"""Sentences about the paper's claims, on records whose numbers are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bomd.config import Config
from bomd.experiments.recorded import Record
from bomd.measure.significance import Sample
from bomd.reports.sheet import Mean
from evidence.reproduce import ARTEFACTS
from evidence.reproduce.artefact import Material, Setting, key_of
from evidence.reproduce.claims import against_all, claims, context
from evidence.reproduce.claims.classifiers import on_google
from evidence.reproduce.claims.labels import detection, neighbours, new_labels, space
from evidence.reproduce.claims.words import NO_RUNS, Tally, count, gap, tally
from evidence.reproduce.figures.gather import NO_NOISE, noise_of, plan

DEMO = Setting("demo", (0, 1))
LEAST, MOST = (0.2, 0.2), (0.6, 0.6)


def record(config: Config, result: dict[str, Any]) -> Record:
    written = {"run": f"seed{config.seed}", "config": config.to_dict(), "result": {"tests": {}, **result}}
    return Record(written, "made up")


def material(setting: Setting, more: list[Config], result: Callable[[Config], dict[str, Any]]) -> Material:
    """The noise grid, and the records of these runs."""
    planned = ARTEFACTS["noise-grid"].plan(setting)
    return Material(setting, planned, {key_of(config): record(config, result(config)) for config in (*planned, *more)})


def scores(test: str, value: float, name: str = "Mass", positives: int = 4) -> dict[str, Any]:
    one = {"name": name, "auc": value, "positives": positives}
    return {"tests": {test: {"mean_auc": value, "averaged": [name], "classes": [one], "left_out": []}}}


def bomd(result: dict[str, Any], at: Callable[[Config], bool] = lambda config: True) -> Material:
    """Every run of BoMD in the grid has this result, where it is asked for."""
    return material(DEMO, [], lambda config: result if config.method == "bomd" and at(config) else {})


def mean(*values: float) -> Mean:
    return Mean(Sample.of(values), len(values), len(values))


class TestWords:
    def test_a_clear_lead_counts_on_its_own_side_only(self) -> None:
        """0.80, 0.82 against 0.60, 0.62: t = 14.1 with 2 degrees of freedom; 0.7, 0.9 against 0.69, 0.89: t = 0.07."""
        clear, unclear = (mean(0.80, 0.82), mean(0.60, 0.62)), (mean(0.7, 0.9), mean(0.69, 0.89))
        said = count({"x": clear, "y": clear[::-1], "z": unclear, "w": (mean(0.5), Mean(None, 0, 2))}, "ours", "theirs")
        assert said == (
            "ours above theirs in 2 of 3 (1 more have not been run); significantly above in 1: x; "
            "significantly below in 1: y."
        )
        assert count({"x": clear, "y": clear}, "ours", "theirs").endswith(
            "above in all 2; significantly below in none."
        )

    def test_a_gap_with_its_p(self) -> None:
        """t = 0.2 / 0.01414 = 14.14, p = (1 - 14.14 / sqrt(2 + 200)) / 2 = 0.0025."""
        assert gap(mean(0.80, 0.82), mean(0.60, 0.62)) == "+0.200 (p = 0.0025)"
        assert gap(mean(0.8), mean(0.6)) == "+0.200"
        assert gap(mean(0.8), Mean(None, 0, 1)) == ""


class TestVerdicts:
    @pytest.mark.parametrize(
        ("found", "verdict"),
        [
            (Tally(), "untested"),
            (Tally(4, 4, 4, 2), "holds"),
            (Tally(4, 4, 4, 1), "partly"),  # as claimed throughout, and mostly within chance
            (Tally(4, 4), "holds"),  # nothing to test
            (Tally(4, 2, 4, 1, 1), "partly"),
            (Tally(4, 3, 4, 0, 1), "fails"),
            (Tally(5, 2, 5, 2), "fails"),
        ],
    )
    def test_one_word_follows_from_the_counts(self, found: Tally, verdict: str) -> None:
        assert found.verdict == verdict

    def test_comparisons_are_counted_on_their_own_side(self) -> None:
        clear, unclear = (mean(0.80, 0.82), mean(0.60, 0.62)), (mean(0.7, 0.9), mean(0.69, 0.89))
        found = tally({"x": clear, "y": clear[::-1], "z": unclear, "w": (mean(0.5), Mean(None, 0, 2))})
        assert found == Tally(comparisons=3, as_claimed=2, tested=3, sure=1, against=1)
        assert found + found == Tally(6, 4, 6, 2, 2)

    def test_to_be_the_best_is_to_be_above_the_best_other(self) -> None:
        """One rival of two is above at every level of noise that was run."""
        lead = {"nvum": 0.1, "bce": -0.1}
        found = material(
            DEMO, [], lambda config: scores("south", 0.6 + 0.01 * config.seed + lead.get(config.method, 0))
        )
        counted = against_all(found).tally
        assert counted is not None
        assert counted.verdict == "fails"
        assert counted.as_claimed == 0
        assert counted.against == counted.comparisons > 0


def test_methods_that_beat_bomd_are_named_with_the_size_of_a_sure_lead() -> None:
    """Co-teaching leads by 0.1, small-loss by no more than the seeds differ; a changed setting is another method."""
    lead = {"co-teaching": 0.1, "small-loss": 0.001}
    more = plan(DEMO, ["co-teaching", "small-loss"], [MOST])
    more += plan(DEMO, ["dividemix"], [MOST], "fit.epochs=1")
    found = material(DEMO, more, lambda config: scores("south", 0.6 + 0.01 * config.seed + lead.get(config.method, 0)))
    (sentence,) = [said for said in against_all(found).here if "south" in said]
    assert "without noise 0 of 2" in sentence
    assert sentence.endswith("at (0.6, 0.6) 2 of 4: co-teaching (+0.100, significant), small-loss.")


def test_nih_google_says_how_few_positives_there_are() -> None:
    setting = Setting("nih-64", (0, 1))
    worse = {"bomd": 0.1}
    found = material(
        setting,
        [],
        lambda config: scores("google", 0.6 + 0.01 * config.seed - worse.get(config.method, 0), "Pneumothorax"),
    )
    (claim,) = on_google(found)
    assert claim.here[0] == (
        "Pneumothorax (4 positives), methods with a higher mean than BoMD: 2 of 2: bce (+0.100, significant), "
        "nvum (+0.100, significant)."
    )
    assert on_google(bomd({})) == []


def test_what_to_keep_in_mind_comes_from_recipe_and_records() -> None:
    low = {"bce": 0.4}
    made = material(
        DEMO, [], lambda config: scores("south", low.get(config.method, 0.6) if noise_of(config) == MOST else 0.7)
    )
    notes = " ".join(context(made))
    assert "14,714 of 98,386 images (15 %)" in notes
    assert "programs took from reports" not in notes  # phantoms are labelled as they were drawn
    assert "The mean AUC on south is over 1 finding with 4 positives." in notes
    assert "on south: bce at (0.6, 0.6)." in notes
    real = " ".join(context(material(Setting("nih-64", (0,)), [], lambda _: {})))
    assert "programs took from reports" in real
    mixture = " ".join(context(material(Setting("nihxpdc", (0,)), [], lambda _: {})))
    assert "PadChest part alone" not in mixture


def test_detection_is_held_against_the_share_of_wrong_images() -> None:
    """Precision rises with rows as the base rate does, and falls with labels."""

    def result(config: Config) -> dict[str, Any]:
        rows, labels = noise_of(config)
        found = {"precision": rows - labels / 10 + 0.3, "recall": 0.9 - rows, "base_rate": rows, "auroc": 0.7}
        return {"detection": {**found, "auroc_by_count": 0.8}} if config.method == "bomd" else {}

    split, trend, simple = detection(material(DEMO, [], result))
    assert all(NO_RUNS in sentence for sentence in split.here)
    assert trend.here == (
        "From (0.2, 0.2) to (0.6, 0.6): precision from 0.48 to 0.84, the share of wrong images from 0.20 to 0.60, "
        "recall from 0.70 to 0.30. With more of the labels flipped in as many images, from 0.2 to "
        "0.6, precision rises for 0 of 3 shares of the rows.",
    )
    assert "BoMD above flagging every image in 9 of 9" in simple.here[0]
    assert "BoMD above counting labels in 0 of 9" in simple.here[1]


def test_new_labels_are_judged_on_changed_images_too_and_counted() -> None:
    """(8, 2) against (5, 5) is 0.3 away, against (14, 6) it is 0.1; on changed images the new labels are worse."""
    histograms = [
        {"name": "Mass", "clean": 8, "given": 5, "proposed": 14.0},
        {"name": "Hernia", "clean": 2, "given": 5, "proposed": 6.0},
    ]
    labels = {"before": 0.6, "after": 0.7, "before_changed": 0.5, "after_changed": 0.4, "histograms": histograms}
    better, closer = new_labels(bomd({"labels": labels}))
    assert "in 9 of 9" in better.here[0]
    assert "in 0 of 9" in better.here[1]
    assert "that of the given above that of the new labels in 9 of 9" in closer.here[0]
    assert "10 labels in all before noise, 10 with it, and 20 after re-labelling" in closer.here[1]


def test_votes_count_only_where_every_run_has_them() -> None:
    """With 3 votes the first seed sets nothing, so that its precision of 1.0 in the second does not count."""

    def result(config: Config) -> dict[str, Any]:
        if config.method != "bomd" or noise_of(config) != LEAST:
            return {}
        lines = [(1, 0.2, 0.9), (2, 0.5, 0.4), (3, 1.0 if config.seed else None, 0.04)]
        both = [(step, {"micro": {"precision": precision, "recall": recall}}) for step, precision, recall in lines]
        return {"votes": {"thresholds": [{"threshold": step, "entry": one, "positive": one} for step, one in both]}}

    said = neighbours(material(DEMO, [], result)).here
    assert said[0] == "To find wrong labels, precision is highest when this many votes are asked for: 2 (rows = 0.2)."
    assert said[1].endswith(": 1 (rows = 0.2).")
    assert "still set: 4% (rows = 0.2)." in said[-1]


def test_distances_and_cosines_are_told_apart() -> None:
    gaps = {"Mass": (-0.5, 0.2), "Hernia": (0.1, 0.3)}
    classes = [
        {"name": name, "nearest": {"gap": near}, "cosine": {"gap": cosine}} for name, (near, cosine) in gaps.items()
    ]
    found = space(bomd({"space": {"classes": classes}}, lambda config: noise_of(config) == NO_NOISE))
    assert [sentence.split(": ")[1] for sentence in found.here] == [
        "closer on average in 1 of 2 classes.",
        "closer on average in 2 of 2 classes.",
    ]


@pytest.mark.parametrize("recipe", ["demo", "nih-64"])
def test_without_any_run_every_claim_says_so(recipe: str) -> None:
    setting = Setting(recipe, (0,))
    for claim in claims(Material(setting, ARTEFACTS["noise-grid"].plan(setting), {})):
        assert claim.here
        assert all(NO_RUNS in sentence for sentence in claim.here)
        assert claim.tally is None or claim.tally.verdict == "untested"
