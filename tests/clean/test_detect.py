from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from bomd.clean import detect as module
from bomd.clean.detect import detect, scores_of
from bomd.errors import InputError
from bomd.tables import LabelTable

NAN = np.nan


def test_worked_example():
    """Scores (.9, .4, .7): labels 1 0 1 keep .7 above .4; labels 1 1 0 put .4 below .7."""
    flags = detect(np.array([[0.9, 0.4, 0.7]] * 2), np.array([[1, 0, 1], [1, 1, 0]]))
    assert flags.noisy.tolist() == [False, True]
    np.testing.assert_allclose(flags.margin, [0.3, -0.3], atol=1e-6)
    np.testing.assert_allclose(flags.entry, [[0.5, 0.3, 0.3], [0.2, -0.3, -0.3]], atol=1e-6)
    assert flags.ids.tolist() == ["0", "1"]


def test_equal_scores_are_flagged_even_if_float32_would_round_a_difference_away():
    scores = np.array([[1.0, 1.0], [1.0 + 1e-12, 1.0]])
    assert detect(scores, np.array([[1, 0], [1, 0]])).noisy.tolist() == [True, False]


def test_rows_without_positives_or_negatives_are_not_judged():
    labels = np.array([[0, 0, 0], [1, 1, 1], [1, NAN, NAN], [NAN, 0, 0], [NAN, NAN, NAN]])
    flags = detect(np.random.default_rng(0).normal(size=(5, 3)), labels)
    assert not flags.noisy.any()
    assert np.isnan(flags.margin).all()
    assert np.isnan(flags.entry).all()


def test_unlabelled_entries_take_no_part():
    """The unlabelled class scores highest; it neither makes the row noisy nor gets a score of its own."""
    flags = detect(np.array([[0.5, 0.9, 0.1]]), np.array([[1, NAN, 0]]))
    assert flags.noisy.tolist() == [False]
    assert flags.margin[0] == pytest.approx(0.4)
    np.testing.assert_allclose(flags.entry[0], [0.4, NAN, 0.4], atol=1e-6)


def test_any_number_of_positives_can_be_clean():
    scores = np.linspace(1, 0, 14)[None]
    labels = (np.arange(14) < 9)[None].astype(float)
    assert detect(scores, labels).noisy.tolist() == [False]


@given(data=st.data())
def test_equals_a_loop(data):
    shape = data.draw(arrays.array_shapes(min_dims=2, max_dims=2, max_side=6))
    scores = data.draw(arrays.arrays(np.float32, shape, elements=st.integers(-4, 4).map(float)))
    labels = data.draw(arrays.arrays(np.float32, shape, elements=st.sampled_from([0.0, 0.3, 0.5, 1.0, NAN])))
    flags = detect(scores, labels)
    for i in range(shape[0]):
        positives = [s for s, y in zip(scores[i], labels[i], strict=True) if y >= 0.5]
        negatives = [s for s, y in zip(scores[i], labels[i], strict=True) if y < 0.5]
        if not positives or not negatives:
            assert not flags.noisy[i]
            assert np.isnan(flags.margin[i])
            continue
        assert flags.noisy[i] == any(p <= n for p in positives for n in negatives)
        assert flags.margin[i] == min(positives) - max(negatives)
        assert np.nanmin(flags.entry[i]) == flags.margin[i]
        for c in range(shape[1]):
            if labels[i, c] >= 0.5:
                assert flags.entry[i, c] == min(scores[i, c] - n for n in negatives)
            elif labels[i, c] < 0.5:
                assert flags.entry[i, c] == min(p - scores[i, c] for p in positives)
            else:
                assert np.isnan(flags.entry[i, c])


def test_a_table_is_matched_by_id():
    table = LabelTable(np.array(["a", "b"]), ("x", "y"), np.array([[1, 0], [0, 1]]))
    scores = np.array([[0.0, 1.0], [1.0, 0.0]])  # of b, then of a: both agree with their labels
    assert detect(scores, table).noisy.tolist() == [True, True]
    matched = detect(scores, table, ids=["b", "a"])
    assert matched.ids.tolist() == ["b", "a"]
    assert matched.noisy.tolist() == [False, False]


def test_scores_of_descriptors_in_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 4)
    generator = np.random.default_rng(1)
    bags = generator.normal(size=(11, 3, 8)).astype(np.float32)
    words = generator.normal(size=(5, 8)).astype(np.float32)
    np.save(tmp_path / "bags.npy", bags)
    scores = scores_of(np.load(tmp_path / "bags.npy", mmap_mode="r"), words)
    expected = [[max(float(np.dot(v, w)) for v in bag) for w in words] for bag in np.float64(bags)]
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-6)
    assert scores.dtype == np.float32


def test_bad_input_is_refused():
    with pytest.raises(InputError, match="both must be"):
        detect(np.zeros((2, 3)), np.zeros((2, 4)))
    with pytest.raises(InputError, match="'b' are not finite"):
        detect(np.array([[0.0, 1.0], [NAN, 1.0]]), np.zeros((2, 2)), ids=["a", "b"])
    with pytest.raises(InputError, match="3 ids for 2 rows"):
        detect(np.zeros((2, 2)), np.zeros((2, 2)), ids=["a", "b", "c"])
    with pytest.raises(InputError, match="do not fit"):
        scores_of(np.zeros((2, 3, 4)), np.zeros((5, 6)))
