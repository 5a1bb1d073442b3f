"""The two figures that are not drawn from records: the toy, and the map of the descriptors."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from bomd.errors import InputError
from bomd.files import write_arrays, write_text
from bomd.runs import Run
from evidence.reproduce.artefact import Drawing, Material, Setting, key_of
from evidence.reproduce.figures import FIGURES, descriptor_map, smoothing_toy
from evidence.reproduce.figures.smoothing_toy import toy
from evidence.reproduce.writing import write

SETTING = Setting("demo", (0,))


def test_the_toy_agrees_with_a_plain_loop() -> None:
    """Equation 6 point by point: who is flagged, whom it asks, and what comes of it."""
    made = toy(3)
    points, given = made.points.tolist(), made.labels["given"].tolist()
    for i, (x, y) in enumerate(points):
        label = [given[i], 1 - given[i]]
        scores = [-x, x]  # the class vectors are (-1, 0) and (1, 0)
        positive, negative = (0, 1) if label[0] else (1, 0)
        flagged = not scores[positive] > scores[negative]
        assert made.flagged[i] == flagged
        expected = label[0]
        if flagged:
            others = sorted((math.hypot(x - a, y - b), j) for j, (a, b) in enumerate(points) if j != i)
            mean = sum(given[j] for _, j in others[:10]) / 10
            mask = 1.0 if label[0] + mean > 0 else 0.0
            expected = 0.4 * label[0] + 0.6 * (0.25 + 0.75 * mean) * mask
        assert made.labels["bomd"][i] == pytest.approx(expected)
        assert made.labels["ls"][i] == pytest.approx(0.7 if given[i] else 0.3)
        assert made.labels["gls"][i] == pytest.approx(1.2 if given[i] else -0.2)


def test_the_toy_has_as_many_wrong_labels_as_it_says_and_is_the_same_again() -> None:
    one, other = toy(0), toy(0)
    wrong = one.labels["given"] != one.labels["true"]
    assert wrong.mean() == smoothing_toy.WRONG
    assert wrong[: smoothing_toy.POINTS].mean() == smoothing_toy.WRONG
    assert np.array_equal(one.points, other.points)
    assert np.array_equal(one.labels["bomd"], other.labels["bomd"])
    assert not np.array_equal(one.points, toy(1).points)


def test_the_toy_is_drawn_with_every_point_in_the_numbers() -> None:
    (made,) = FIGURES["smoothing-toy"].make(Material(SETTING, [], {}))
    assert isinstance(made, Drawing)
    titles = [axes.get_title() for axes in made.figure.axes if axes.get_title()]
    assert titles == ["true labels", "given labels", "LS", "GLS", "BoMD"]
    assert len(made.numbers.rows) == 2 * smoothing_toy.POINTS
    errors = [axes.get_xlabel() for axes in made.figure.axes if axes.get_title()]
    # 0.8 * 0.3 + 0.2 * 0.7 and 0.8 * 0.2 + 0.2 * 1.2
    assert errors[:4] == ["mean error 0.00", "mean error 0.20", "mean error 0.38", "mean error 0.40"]
    columns = dict(zip(made.numbers.heads, np.array(made.numbers.rows, dtype=float).T, strict=True))
    assert errors[4] == f"mean error {np.abs(columns['bomd'] - columns['true']).mean():.2f}"
    drawn = sum(len(dots.get_offsets()) for dots in made.figure.axes[0].collections)
    assert drawn == 2 * smoothing_toy.POINTS


@pytest.fixture
def space(tmp_path: Path) -> Run:
    """Two classes whose descriptors lie along their vectors, with any length; two descriptors an image."""
    draws = np.random.default_rng(0)
    labels = np.repeat([[1.0, 0.0], [0.0, 1.0]], 20, axis=0)
    vectors = np.eye(2, 6)
    near = (labels @ vectors)[:, None] + 0.05 * draws.normal(size=(40, 2, 6))
    run = Run(tmp_path / "runs" / "seed0-abcdef")
    write_arrays(
        run.directory / "space.npz",
        {
            "ids": np.array([f"i{row}" for row in range(40)]),
            "classes": np.array(["Mass", "No Finding"]),
            "labels": labels.astype(np.float32),
            "values": (near * draws.uniform(0.5, 5, size=(40, 1, 1))).astype(np.float16),
            "vectors": vectors.astype(np.float32),
        },
    )
    return run


def material(run: Run | None, kept: Path | None) -> Material:
    planned = FIGURES["descriptor-map"].plan(SETTING)
    return Material(SETTING, planned, {}, {} if run is None else {key_of(planned[0]): run}, kept)


def test_the_map_keeps_neighbours_together_and_is_drawn_again_from_its_file(space: Run, tmp_path: Path) -> None:
    made = FIGURES["descriptor-map"].make(material(space, None))
    (drawn,) = made
    assert isinstance(drawn, Drawing)
    rows = drawn.numbers.rows
    assert len(rows) == 40 * 2 + 2
    assert rows[0][:3] == ["descriptor", "i0", 0]
    assert (rows[0][5], rows[-1][1], rows[-1][6]) == ("Mass", "No Finding", "seed0-abcdef")
    places = np.array([row[3:5] for row in rows], dtype=float)
    first, second, words = places[:40], places[40:80], places[80:]
    for word, own, other in ((words[0], first, second), (words[1], second, first)):
        assert np.linalg.norm(own - word, axis=1).mean() < np.linalg.norm(other - word, axis=1).mean()
    panels = [axes for axes in drawn.figure.axes if axes.get_title()]
    assert [axes.get_title() for axes in panels] == ["Mass", "No Finding"]
    without, having, own = panels[0].lines
    assert np.array_equal(having.get_xydata(), first)
    assert np.array_equal(without.get_xydata(), second)
    assert np.array_equal(own.get_xydata()[0], words[0])
    assert "40 training images" in drawn.caption
    assert drawn.caption.endswith("Run: bomd seed0-abcdef.")

    write("descriptor-map", made, [], tmp_path)
    (again,) = FIGURES["descriptor-map"].make(material(None, tmp_path))
    assert isinstance(again, Drawing)
    assert again.numbers.rows == rows
    assert again.caption == drawn.caption


def test_the_map_is_the_same_for_the_same_seed() -> None:
    values = np.random.default_rng(1).normal(size=(30, 5))
    assert np.array_equal(descriptor_map.flatten(values, 0), descriptor_map.flatten(values, 0))


def test_without_run_and_file_the_map_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"bomd reproduce descriptor-map --recipe demo$"):
        FIGURES["descriptor-map"].make(material(None, tmp_path))


def test_another_file_of_that_name_is_refused(tmp_path: Path) -> None:
    write_text(tmp_path / "descriptor-map.csv.xz", "a,b\n1,2\n")
    with pytest.raises(InputError, match="does not hold a map"):
        FIGURES["descriptor-map"].make(material(None, tmp_path))
