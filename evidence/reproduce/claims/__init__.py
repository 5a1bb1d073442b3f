"""What the paper claims, and what the records here say about it, in sentences that are computed."""

from __future__ import annotations

from collections.abc import Callable

from evidence.reproduce.artefact import Material
from evidence.reproduce.claims.ablations import ablations
from evidence.reproduce.claims.classifiers import against_all, against_each, all_methods, context
from evidence.reproduce.claims.labels import detection, neighbours, new_labels, space
from evidence.reproduce.claims.words import LEVEL, RULE, VERDICTS, Claim
from evidence.reproduce.tables.noise_grid import CELLS, METHODS

__all__ = ["RULE", "TOPICS", "VERDICTS", "Claim", "against_all", "all_methods", "claims", "context", "how_certain"]

# What the paper claims, by what it is about.
TOPICS: dict[str, Callable[[Material], list[Claim]]] = {
    "noise": against_each,
    "all-methods": all_methods,
    "detection": detection,
    "labels": new_labels,
    "space": lambda material: [neighbours(material), space(material)],
    "ablations": ablations,
}


def claims(material: Material) -> list[Claim]:
    """What the records of an experiment say about the paper's claims.

    Args:
        material: Of the noise grid; its records are all of the experiment.
    """
    return [claim for topic in TOPICS.values() for claim in topic(material)]


def how_certain(material: Material) -> str:
    """How to read the p-values of the noise grid."""
    count = len(CELLS) * (len(METHODS) - 1)
    return (
        f'Methods are compared over {len(material.setting.seeds)} seeds by Welch\'s t-test; "significant" means a '
        f"one-sided p below {LEVEL}. A p-value says how often so large a lead would be seen if there were none. "
        "With so few seeds the test finds large differences only: one that it does not find may still be there. Of the "
        f"{count} comparisons with BCE and NVUM on a test set, {count * LEVEL:.0f} would be called better and "
        f"{count * LEVEL:.0f} worse by chance if no method differed; nothing is corrected for that."
    )
