from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from bomd.clean.graph import Neighbours, nearest_images
from bomd.clean.relabel import neighbour_mean, relabel
from bomd.errors import InputError
from bomd.tables import LabelTable

NAN = np.nan
LABELS = st.sampled_from([0.0, 0.25, 1.0, NAN])


def loop(labels, indices, noisy, graph_weight, uniform, use_graph, use_mask):
    """Equation 6, one label at a time."""
    new = np.array(labels, dtype=np.float64)
    for i in np.flatnonzero(noisy):
        for c in range(labels.shape[1]):
            votes = [float(labels[j, c]) for j in indices[i] if j >= 0 and not math.isnan(labels[j, c])]
            if not votes:
                continue
            old, mean = float(labels[i, c]), sum(votes) / len(votes)
            part = uniform + (1 - uniform) * mean if use_graph else uniform
            if use_mask and not old + mean > 0:
                part = 0.0
            new[i, c] = (1 - graph_weight) * old + graph_weight * part
    return new


def random_case(seed, N=40, C=6, K=5, missing=0.2):
    generator = np.random.default_rng(seed)
    labels = (generator.random((N, C)) < 0.3).astype(np.float32)
    labels[generator.random((N, C)) < missing] = NAN
    indices = generator.integers(0, N, (N, K))
    indices[generator.random((N, K)) < missing] = -1
    indices[0] = -1
    return labels, indices, generator.random(N) < 0.6


def test_worked_value():
    """y = (1, 0, 0) with a neighbour mean of (.2, .5, 0) becomes (.64, .375, 0)."""
    votes = np.zeros((10, 3))
    votes[:2, 0], votes[:5, 1] = 1, 1
    labels = np.vstack([[1, 0, 0], votes])
    new = relabel(labels, np.arange(1, 11)[None], np.arange(11) == 0)
    np.testing.assert_allclose(new[0], [0.64, 0.375, 0], atol=1e-12)


def test_mean_over_the_neighbours_of_the_worked_graph():
    """A's neighbours D (1, 0), B (1, 1), C (0, 0) give (2/3, 1/3)."""
    values = np.array([[0, 10], [0.1, 20], [10.2, 30], [0.3, 10.05]], dtype=np.float32)[:, :, None]
    labels = np.array([[0, 0], [1, 1], [0, 0], [1, 0]], dtype=np.float32)
    mean = neighbour_mean(labels, nearest_images(values, 3, device="cpu"))
    np.testing.assert_allclose(mean[0], [2 / 3, 1 / 3])


def test_mean_counts_only_labelled_neighbours_that_exist():
    labels = np.array([[1, NAN], [0, NAN], [1, 1]])
    mean = neighbour_mean(labels, np.array([[0, 1, -1], [0, 1, 2], [-1, -1, -1]]))
    np.testing.assert_array_equal(mean, [[0.5, NAN], [2 / 3, 1], [NAN, NAN]])


@pytest.mark.parametrize("use_graph", [True, False])
@pytest.mark.parametrize("use_mask", [True, False])
@pytest.mark.parametrize(("graph_weight", "uniform"), [(0.6, 0.25), (1, 0), (0.3, 0.5)])
def test_equals_the_loop(use_graph, use_mask, graph_weight, uniform):
    labels, indices, noisy = random_case(3)
    options = {"graph_weight": graph_weight, "uniform": uniform, "use_graph": use_graph, "use_mask": use_mask}
    expected = loop(labels, indices, noisy, *options.values())
    np.testing.assert_allclose(relabel(labels, indices, noisy, **options), expected, atol=1e-7)
    np.testing.assert_allclose(relabel(labels, indices[noisy], noisy, **options), expected, atol=1e-7)


def test_limits():
    labels, indices, noisy = random_case(4)
    np.testing.assert_array_equal(relabel(labels, indices, noisy, graph_weight=0), labels)
    np.testing.assert_array_equal(relabel(labels, indices, np.zeros(40, dtype=bool)), labels)
    everything = np.ones(40, dtype=bool)
    only_votes = relabel(labels, indices, everything, graph_weight=1, uniform=0)
    known = ~np.isnan(labels) & ~np.isnan(neighbour_mean(labels, indices))
    np.testing.assert_allclose(only_votes[known], neighbour_mean(labels, indices)[known], atol=1e-7)


def test_without_graph_and_mask_it_is_label_smoothing():
    labels, indices, _ = random_case(5, missing=0)
    indices[0] = 1
    everything = np.ones(40, dtype=bool)
    smooth = relabel(labels, indices, everything, uniform=0.5, use_graph=False, use_mask=False)
    np.testing.assert_allclose(smooth, 0.4 * labels + 0.3, atol=1e-7)


def test_a_table_comes_back_as_a_table_with_its_images():
    labels, indices, noisy = random_case(6)
    names = np.array([f"image {i}" for i in range(40)])
    table = LabelTable(names, tuple("abcdef"), labels, patients=names)
    found = Neighbours(indices, np.zeros(indices.shape, dtype=np.float32))
    new = relabel(table, found, noisy)
    assert isinstance(new, LabelTable)
    assert new.patients is not None
    np.testing.assert_array_equal(new.values, relabel(labels, indices, noisy))
    np.testing.assert_array_equal(table.values, labels)  # the given labels are still there


def test_labels_of_any_type_come_back_as_fractions():
    """The README's example of three images; doubles stay doubles, and whole numbers become floats."""
    exact = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    options = (np.array([[1, 2]]), np.array([True, False, False]))
    new = relabel(exact, *options)
    assert new.dtype == np.float64
    whole = relabel(exact.astype(np.int64), *options)
    assert whole.dtype == np.float32
    np.testing.assert_allclose(whole, new, rtol=1e-6)
    np.testing.assert_allclose(new[0], [0.55, 0.6], rtol=1e-12)


@given(data=st.data())
def test_properties(data):
    N, C, K = (data.draw(st.integers(1, high)) for high in (7, 4, 5))
    labels = data.draw(arrays.arrays(np.float32, (N, C), elements=LABELS))
    indices = data.draw(arrays.arrays(np.int64, (N, K), elements=st.integers(-1, N - 1)))
    noisy = data.draw(arrays.arrays(np.bool_, N))
    options = {
        "graph_weight": data.draw(st.floats(0, 1)),
        "uniform": data.draw(st.floats(0, 0.5)),
        "use_graph": data.draw(st.booleans()),
        "use_mask": data.draw(st.booleans()),
    }
    new = relabel(labels, indices, noisy, **options)
    assert new.dtype == labels.dtype
    assert new[~noisy].tobytes() == labels[~noisy].tobytes()
    np.testing.assert_array_equal(np.isnan(new), np.isnan(labels))
    assert ((new >= 0) & (new <= 1) | np.isnan(new)).all()
    np.testing.assert_allclose(new, loop(labels, indices, noisy, *options.values()), atol=1e-6)


def test_the_size_of_nih_takes_under_a_second():
    generator = np.random.default_rng(0)
    labels = (generator.random((83_672, 14)) < 0.1).astype(np.float32)
    indices = generator.integers(0, 83_672, (83_672, 10))
    start = time.process_time()
    relabel(labels, indices, np.ones(83_672, dtype=bool))
    assert time.process_time() - start < 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"graph_weight": 1.1}, "lambda"),
        ({"graph_weight": NAN}, "lambda"),
        ({"uniform": 0.6}, "gamma"),
        ({"uniform": -0.1}, "gamma"),
        ({"labels": np.full((40, 6), 2.0)}, "lie in"),
        ({"labels": np.zeros(40)}, "expected \\(N, C\\)"),
        ({"noisy": np.zeros(40)}, "40 booleans"),
        ({"noisy": np.zeros(39, dtype=bool)}, "40 booleans"),
        ({"neighbours": np.zeros((3, 5), dtype=int)}, "fit neither"),
        ({"neighbours": np.full((40, 5), 40)}, "there are 40 rows"),
        ({"neighbours": np.full((40, 5), -2)}, "there are 40 rows"),
        ({"neighbours": np.zeros((40, 5))}, "row numbers"),
    ],
)
def test_bad_input_is_refused(change, message):
    labels, indices, noisy = random_case(7)
    with pytest.raises(InputError, match=message):
        relabel(**({"labels": labels, "neighbours": indices, "noisy": noisy} | change))
