"""What is found of an image's neighbours, and what a person is told about it."""

from __future__ import annotations

import numpy as np

from bomd.clean.neighbours import Neighbours


def found(recall: float = 1.0) -> Neighbours:
    return Neighbours(np.asarray([[1, 2], [0, -1]]), np.asarray([[0.5, 1.0], [0.5, np.inf]], dtype=np.float32), recall)


def test_recall_is_told_where_it_is_not_whole() -> None:
    assert repr(found()) == "Neighbours of 2 images, 2 each"
    assert repr(found(0.9876)) == "Neighbours of 2 images, 2 each, recall 0.988"
    assert repr(Neighbours(*vars(found()).values())) == "Neighbours of 2 images, 2 each"


def test_rows_are_filled_in_where_they_belong() -> None:
    whole = Neighbours(np.full((4, 2), -1), np.full((4, 2), np.inf, dtype=np.float32))
    whole.put(np.asarray([False, True, False, True]), found())
    assert whole.indices.tolist() == [[-1, -1], [1, 2], [-1, -1], [0, -1]]
    assert whole.distances.tolist() == [[np.inf] * 2, [0.5, 1.0], [np.inf] * 2, [0.5, np.inf]]
