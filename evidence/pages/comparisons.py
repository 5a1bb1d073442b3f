"""How many images each reader keeps beside what the paper states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Comparison:
    """How many images a reader keeps beside what the paper states.

    Attributes:
        images: number that `read(root, split, **options)` returns.
        paper: number that the paper states for the same purpose.
        options: arguments other than the defaults.
    """

    dataset: str
    split: str
    images: int
    paper: int
    why: str
    options: Mapping[str, Any] = field(default_factory=dict)


REPEATED = "the paper's preparation most likely repeats each patient's rows; here every image occurs once"
BOTH_VIEWS = "counted over both views; the paper keeps 3,818 frontal images of 7,470 before the same rule"
SUBSTRINGS = "whole terms instead of substrings, which the released code matches"

COMPARISONS = (
    Comparison("nih", "train", 83672, 83672, "the same"),
    Comparison("chexpert", "all", 32010, 170958, REPEATED),
    Comparison("chexpert", "all", 150993, 170958, REPEATED, {"drop": "columns"}),
    Comparison("nih-google", "test", 1962, 1962, "the same"),
    Comparison("openi", "test", 5979, 2971, f"{BOTH_VIEWS}; people's headings, whole terms", {"views": "all"}),
    Comparison("openi", "test", 5967, 2971, f"{BOTH_VIEWS}; {SUBSTRINGS}", {"views": "all", "mesh": "automatic"}),
    Comparison(
        "openi",
        "test",
        5635,
        2823,
        f"{BOTH_VIEWS}; people's headings, whole terms",
        {"views": "all", "classes": "chexpert"},
    ),
    Comparison(
        "openi",
        "test",
        5672,
        2823,
        f"{BOTH_VIEWS}; {SUBSTRINGS}",
        {"views": "all", "mesh": "automatic", "classes": "chexpert"},
    ),
    Comparison("padchest", "test", 14529, 14714, f"{SUBSTRINGS} (14,578 with these)"),
    Comparison("padchest", "test", 12952, 12885, SUBSTRINGS, {"classes": "chexpert"}),
)
