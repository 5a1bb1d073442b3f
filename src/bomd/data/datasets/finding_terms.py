"""Raw terms of reports and label lists, matched whole: "pericardial effusion" never counts as "effusion"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bomd.errors import InputError
from bomd.tables import NO_FINDING, LabelTable

TermsOfClass = Mapping[str, Collection[str]]


def normalise(term: str) -> str:
    """The term in lower case with single spaces, so that spellings that differ only in these are one."""
    return " ".join(term.lower().split())


def whole_terms(lists: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """Terms of each class from a list in which semicolons part them, since terms themselves hold commas."""
    return {name: frozenset(normalise(term) for term in text.split(";")) for name, text in lists.items()}


@dataclass(frozen=True, eq=False)
class ImageTerms:
    """Which terms N images carry, stored as the few distinct sets that occur."""

    sets: tuple[frozenset[str], ...]  # distinct sets of normalised terms
    index: NDArray[np.intp]  # (N) place of each image's set in `sets`

    @classmethod
    def of(cls, images: Iterable[frozenset[str]]) -> ImageTerms:
        """Collect one set per image."""
        place: dict[frozenset[str], int] = {}
        index = [place.setdefault(terms, len(place)) for terms in images]
        return cls(tuple(place), np.asarray(index, dtype=np.intp))

    def take(self, rows: NDArray[np.bool_] | NDArray[np.intp]) -> ImageTerms:
        """The terms of these images."""
        return ImageTerms(self.sets, self.index[rows])

    def any_of(self, terms: Collection[str]) -> NDArray[np.bool_]:
        """(N) the image carries at least one of these terms."""
        wanted = frozenset(terms)
        return self._spread([not wanted.isdisjoint(found) for found in self.sets])

    def any_but(self, terms: Collection[str]) -> NDArray[np.bool_]:
        """(N) the image carries at least one term that is not among these."""
        known = frozenset(terms)
        return self._spread([not found <= known for found in self.sets])

    def positives(self, terms_of: TermsOfClass) -> NDArray[np.float32]:
        """(N, C) 1 where an image carries a term of the class, in the mapping's order."""
        columns: dict[str, list[int]] = {}
        for column, terms in enumerate(terms_of.values()):
            for term in terms:
                columns.setdefault(term, []).append(column)
        of_set = np.zeros((len(self.sets), len(terms_of)), dtype=np.float32)
        for row, found in enumerate(self.sets):
            for term in found & columns.keys():
                of_set[row, columns[term]] = 1
        return of_set[self.index]

    def count(self) -> Counter[str]:
        """Number of images that carry each term."""
        images = np.bincount(self.index, minlength=len(self.sets))
        counter: Counter[str] = Counter()
        for terms, number in zip(self.sets, images, strict=True):
            if number:
                counter.update(dict.fromkeys(terms, int(number)))
        return counter

    def _spread(self, of_set: Sequence[bool]) -> NDArray[np.bool_]:
        return np.asarray(of_set, dtype=bool)[self.index]


def with_no_finding(positives: NDArray[np.float32]) -> NDArray[np.float32]:
    """(N, C + 1) the findings and a last column that is 1 where there is none of them."""
    return np.column_stack([positives, 1 - positives.max(axis=1)]).astype(np.float32)


def terms_behind(
    table: LabelTable, terms: ImageTerms, terms_of: TermsOfClass, class_name: str, left_out: bool = False
) -> list[tuple[str, int]]:
    """Raw terms behind a class and how many images each brings, most frequent first.

    For "No Finding" these are all terms of the images without a finding. With `left_out` they are instead the
    terms that contain the name of the class and yet do not count, such as "pericardial effusion".

    Args:
        terms: raw terms of the same N images.
        class_name: a class of `terms_of` or "No Finding".
        left_out: list what was left out rather than what counts.
    """
    if class_name not in terms_of and class_name != NO_FINDING:
        raise InputError(f"No class {class_name!r}. Known: {', '.join([*terms_of, NO_FINDING])}.")
    if class_name == NO_FINDING:
        column = table.classes.index(NO_FINDING)
        return _ranked(terms.take(table.values[:, column] == 1).count())
    counted = frozenset(terms_of[class_name])
    if left_out:
        name = normalise(class_name.replace("_", " "))
        return _ranked({t: n for t, n in terms.count().items() if name in t and t not in counted})
    return _ranked({t: n for t, n in terms.count().items() if t in counted})


def _ranked(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
