"""What is found of an image's neighbours, and what a person is told about it."""

from __future__ import annotations

import numpy as np

from bomd.clean.neighbours import Neighbours, nothing


def found() -> Neighbours:
    return Neighbours(np.asarray([[1, 2], [0, -1]]), np.asarray([[0.5, 1.0], [0.5, np.inf]], dtype=np.float32))


def test_a_person_is_told_how_many() -> None:
    assert repr(found()) == "Neighbours of 2 images, 2 each"


def test_rows_are_filled_in_where_they_belong() -> None:
    whole = nothing(4, 2)
    whole.put(np.asarray([False, True, False, True]), found())
    assert whole.indices.tolist() == [[-1, -1], [1, 2], [-1, -1], [0, -1]]
    assert whole.distances.tolist() == [[np.inf] * 2, [0.5, 1.0], [np.inf] * 2, [0.5, np.inf]]
