"""Raw terms of reports and label lists, matched whole: "pericardial effusion" never counts as "effusion"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bomd.errors import InputError
from bomd.tables import NO_FINDING, LabelTable

TermsOfClass = Mapping[str, Collection[str]]


def normalise(term: str) -> str:
    """The term in lower case with single spaces, so that spellings that differ only in these are one."""
    return " ".join(term.lower().split())


def whole_terms(text: str) -> dict[str, frozenset[str]]:
    """Terms of each class, from lines such as "Mass: mass; lung mass"; one that is indented goes on with the last."""
    lines = (line.partition(":") for line in text.strip().replace("\n ", " ").splitlines())
    return {name: frozenset(normalise(term) for term in terms.split(";")) for name, _, terms in lines}


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

    def where(self, test: Callable[[frozenset[str]], bool]) -> NDArray[np.bool_]:
        """(N) the image's terms pass a test."""
        return np.asarray([test(found) for found in self.sets], dtype=np.bool_)[self.index]

    def positives(self, terms_of: TermsOfClass) -> NDArray[np.float32]:
        """(N, C) 1 where an image carries a term of the class, in the mapping's order."""
        of_set = [[not found.isdisjoint(terms) for terms in terms_of.values()] for found in self.sets]
        return np.asarray(of_set, dtype=np.float32).reshape(-1, len(terms_of))[self.index]

    def count(self) -> Counter[str]:
        """Number of images that carry each term."""
        images = np.bincount(self.index, minlength=len(self.sets))
        counter: Counter[str] = Counter()
        for terms, number in zip(self.sets, images, strict=True):
            if number:
                counter.update(dict.fromkeys(terms, int(number)))
        return counter


def with_no_finding(positives: NDArray[np.float32]) -> NDArray[np.float32]:
    """(N, C + 1) the findings and a last column that is 1 where there is none of them."""
    return np.column_stack([positives, 1 - positives.max(axis=1)]).astype(np.float32)


def terms_behind(
    table: LabelTable, terms: ImageTerms, terms_of: TermsOfClass, class_name: str
) -> list[tuple[str, int, bool]]:
    """Raw terms behind a class, how many images each brings, and whether it counts, most frequent first.

    For "No Finding" these are all terms of the images without a finding. Terms that contain the name of the class and
    yet do not count, such as "pericardial effusion", come last.
    """
    if class_name == NO_FINDING:
        there = terms.take(table.values[:, table.classes.index(NO_FINDING)] == 1)
        found = [(term, images, True) for term, images in there.count().items()]
    elif class_name not in terms_of:
        raise InputError(f"No class {class_name!r}. Known: {', '.join([*terms_of, NO_FINDING])}.")
    else:
        counted, name = terms_of[class_name], normalise(class_name.replace("_", " "))
        every = [(term, images, term in counted) for term, images in terms.count().items()]
        found = [row for row in every if row[2] or name in row[0]]
    return sorted(found, key=lambda row: (not row[2], -row[1], row[0]))
