"""Tables refuse what is wrong when they are made, and never change in place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bomd.errors import InputError
from bomd.tables import Descriptors, Flags, LabelTable, rows_of

NAN = float("nan")


def table() -> LabelTable:
    values = np.array([[1, 0, NAN], [0, 0.5, 0], [0, 0, 1]], dtype=np.float32)
    return LabelTable(
        np.array(["b", "a", "c"]),
        ("Mass", "Edema", "No Finding"),
        values,
        paths=np.array(["b.png", "a.png", "c.png"]),
        patients=np.array(["p1", "p1", "p2"]),
    )


def test_rows_match_by_id_and_columns_by_name() -> None:
    chosen = table().select(["c", "b"]).align(["No Finding", "Hernia", "Mass"])
    assert list(chosen.ids) == ["c", "b"]
    assert list(chosen.patients if chosen.patients is not None else []) == ["p2", "p1"]
    np.testing.assert_array_equal(chosen.values, np.array([[1, NAN, 0], [NAN, NAN, 1]], dtype=np.float32))


def test_replacing_leaves_the_given_labels_alone() -> None:
    before = table()
    after = before.replace(np.zeros((3, 3)))
    assert np.isnan(before.values[0, 2])
    assert (after.values == 0).all()
    assert list(after.ids) == list(before.ids)


def test_findings_are_all_but_no_finding() -> None:
    assert list(table().findings) == [0, 1]
    assert list(LabelTable(np.array(["a"]), ("x",), np.ones((1, 1))).findings) == [0]


def test_saved_and_loaded_the_same(tmp_path: Path) -> None:
    table().save(tmp_path / "t.npz")
    loaded = LabelTable.load(tmp_path / "t.npz")
    np.testing.assert_array_equal(loaded.values, table().values)
    assert loaded.classes == table().classes
    assert list(loaded.ids) == list(table().ids)
    assert loaded.views is None


@pytest.mark.parametrize(
    ("ids", "classes", "values", "message"),
    [
        (["a", "a"], ("x",), [[0], [1]], "Duplicate id 'a'"),
        (["a", "b"], ("x", "x"), [[0, 1], [1, 0]], "Duplicate class 'x'"),
        (["a"], ("x",), [[1.2]], "Label 1.2 of image 'a', class 'x' is outside"),
        (["a"], ("x",), [[-1]], "Label -1 of image 'a', class 'x' is outside"),
        (["a"], ("x",), [[np.inf]], "outside"),
        (["a"], ("x", "y"), [[1]], "expected 1 ids by 2 classes"),
    ],
)
def test_wrong_labels_are_refused(ids: list[str], classes: tuple[str, ...], values: object, message: str) -> None:
    with pytest.raises(InputError) as caught:
        LabelTable(np.array(ids), classes, np.asarray(values))
    assert message in str(caught.value)


def test_rows_of_finds_every_id_or_names_one_that_is_missing() -> None:
    ids = np.array(["d", "b", "a"])
    assert list(rows_of(ids, np.array(["a", "d"]))) == [2, 0]
    with pytest.raises(InputError, match="No row for id 'c'"):
        rows_of(ids, np.array(["a", "c"]))
    with pytest.raises(InputError, match="'z'"):
        rows_of(ids, np.array(["z"]))


def test_descriptors_must_be_finite_and_three_dimensional() -> None:
    values = np.zeros((5000, 2, 3), dtype=np.float32)
    ids = np.arange(5000).astype(np.str_)
    assert len(Descriptors(ids, values)) == 5000
    values[4500, 1, 2] = np.nan
    with pytest.raises(InputError, match="'4500' are not finite"):
        Descriptors(ids, values)
    with pytest.raises(InputError, match="expected"):
        Descriptors(ids, values[:, 0])


def test_flags_need_equal_lengths() -> None:
    with pytest.raises(InputError, match="one row per id"):
        Flags(np.array(["a"]), np.array([True, False]), np.zeros(1), np.zeros((1, 2)))


def test_confirmed_labels_go_with_their_rows_and_columns(tmp_path: Path) -> None:
    confirmed = np.array([[True, False, False], [False, True, False], [False, False, True]])
    marked = replace(table(), confirmed=confirmed)
    chosen = marked.select(["c", "b"]).align(["No Finding", "Hernia", "Mass"])
    np.testing.assert_array_equal(chosen.confirmed, [[True, False, False], [False, False, True]])  # type: ignore[arg-type]
    marked.save(tmp_path / "table.npz")
    np.testing.assert_array_equal(LabelTable.load(tmp_path / "table.npz").confirmed, confirmed)  # type: ignore[arg-type]
    assert table().select(["c"]).confirmed is None
    with pytest.raises(InputError, match=r"Confirmed labels have shape \(3, 2\)"):
        replace(table(), confirmed=confirmed[:, :2])
