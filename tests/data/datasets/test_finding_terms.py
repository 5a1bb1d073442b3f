"""Whole-term matching on hand-sized cases."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bomd.data.datasets.finding_terms import ImageTerms, normalise, terms_behind, whole_terms, with_no_finding
from bomd.tables import LabelTable

TERMS = whole_terms("""
Effusion: pleural effusion;
  Hernia, Hiatal
Mass: mass; pulmonary  mass
""")


def test_terms_are_parted_by_semicolons_and_normalised():
    assert TERMS["Effusion"] == {"pleural effusion", "hernia, hiatal"}
    assert TERMS["Mass"] == {"mass", "pulmonary mass"}
    assert normalise("  Subcutaneous \t Emphysema ") == "subcutaneous emphysema"


def test_only_whole_terms_count():
    images = ImageTerms.of(
        [frozenset({"pleural effusion"}), frozenset({"pericardial effusion"}), frozenset(), frozenset({"mass", "x"})]
    )
    positives = images.positives(TERMS)
    assert positives.tolist() == [[1, 0], [0, 0], [0, 0], [0, 1]]
    assert with_no_finding(positives)[:, 2].tolist() == [0, 1, 1, 0]
    assert images.where(lambda found: "x" in found).tolist() == [False, False, False, True]
    assert images.where({"mass", "pleural effusion"}.issuperset).tolist() == [True, False, True, False]


@given(st.lists(st.frozensets(st.sampled_from(["mass", "pulmonary mass", "pleural effusion", "goiter"]))))
def test_counts_and_labels_equal_a_plain_loop(sets):
    images = ImageTerms.of(sets)
    expected = [[float(bool(found & terms)) for terms in TERMS.values()] for found in sets]
    np.testing.assert_array_equal(images.positives(TERMS), np.asarray(expected).reshape(len(sets), 2))
    assert images.count() == {term: n for term in set().union(*sets) if (n := sum(term in s for s in sets))}
    assert len(images.sets) == len(set(sets))


def test_terms_behind_a_class_are_ranked():
    sets = [frozenset({"mass"}), frozenset({"pulmonary mass", "mass"}), frozenset({"breast mass"})]
    images = ImageTerms.of(sets)
    table = LabelTable(["a", "b", "c"], (*TERMS, "No Finding"), with_no_finding(images.positives(TERMS)))
    counted, left_out = [("mass", 2, True), ("pulmonary mass", 1, True)], [("breast mass", 1, False)]
    assert terms_behind(table, images, TERMS, "Mass") == counted + left_out
    assert terms_behind(table, images, TERMS, "No Finding") == [("breast mass", 1, True)]  # once, not also as left out
