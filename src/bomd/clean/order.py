"""Which images should people look at first? Those in which most is likely to be wrong, however errors come about.

Errors may fall on single labels, sit in whole images, or in all images of some patients, as where one archive or one
reader is to blame. Labels and evidence tell which: the account under which the given labels are most likely.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bomd.clean.calibrate import Doubles, logistic, sigmoid
from bomd.clean.posterior import TEMPER, chunks
from bomd.clean.rates import Rates, compare, likeliest, true_probability
from bomd.tables import LabelTable

# Nats an image by which affected patients must explain labels better than affected images. Patients keep their
# findings, so that what is rare or hard to see is surprising in all of their images, even where every label is right.
TOGETHER = 0.02
OTHERS = 0.3  # of the evidence of a patient's other images, which depend on each other more than labels of one image
MANY = 0.4  # wrong labels an image, from which on images are told apart by their number


def how_urgent(
    evidence: NDArray[Any], labels: LabelTable, rates: Rates, possible: Sequence[Rates]
) -> tuple[Doubles, str]:
    """(N) how urgently each image should be looked at, higher first, and why so.

    Where errors sit in whole images or patients, that is the chance that any finding is labelled wrongly; half of the
    chance of each label is as if errors fell on any image, so that nobody relies on one account alone. Where errors
    fall anywhere, it is the chance of the likeliest error of the image if errors are few, and else their number.

    Args:
        evidence: (N, C) probabilities of the given labels; see `calibrate`.
        labels: As given, with patients where they are known.
        rates: What is believed of single images; see `likeliest`.
        possible: What else might be believed; see `possible_rates`.

    Examples:
        >>> import numpy as np
        >>> labels = LabelTable(np.array(["a", "b"]), ("Mass",), np.array([[1.0], [1.0]], np.float32))
        >>> rates = Rates(np.array([0.1]), np.array([0.1]))
        >>> urgency, _ = how_urgent(np.array([[0.9], [0.2]]), labels, rates, [rates])
        >>> urgency.argmax().item()  # the label that the evidence speaks against
        1
    """
    patients = np.unique(labels.groups, return_inverse=True)[1]
    single = patients.max(initial=-1) + 1 == len(patients)
    shared = rates if single else likeliest(possible, evidence, labels.values, patients)
    if not single and shared.gain >= rates.gain + TOGETHER:
        suspect = suspect_patients(evidence, labels, shared, patients)
        where = f"Taken patient by patient, errors seem to sit in all images of about {shared.affected:.0%} of them"
        return chance_of_any(evidence, labels, shared, suspect), f"{where}, and their images come first."
    if rates.affected < 1:
        suspect = suspect_patients(evidence, labels, rates, np.arange(len(labels)))
        return chance_of_any(evidence, labels, rates, suspect), "Images in which anything is likely wrong come first."
    likeliest_error, number = np.zeros(len(labels)), np.zeros(len(labels))
    for rows in chunks(len(labels)):
        _, affected, mistaken = weighed(evidence, labels, rates, rows)
        chance = (mistaken / affected)[:, labels.findings]
        likeliest_error[rows], number[rows] = chance.max(axis=1, initial=0), chance.sum(axis=1)
    if len(labels) and number.mean() >= MANY:
        return number, "Errors are many: images in which most of them are expected come first."
    return likeliest_error, "Errors are few: images with the likeliest single error come first."


def suspect_patients(evidence: NDArray[Any], labels: LabelTable, rates: Rates, patients: NDArray[np.intp]) -> Doubles:
    """(N) chance that an image is affected, by its own labels and, for less, those of its patient's (from 0) others."""
    ratio = np.zeros(len(labels))
    for rows in chunks(len(labels)):
        right, affected, _ = weighed(evidence, labels, rates, rows)
        ratio[rows] = np.log(affected / right).sum(axis=1)
    others = np.bincount(patients, ratio)[patients] - ratio if len(labels) else ratio
    return sigmoid(TEMPER * ratio + OTHERS * others + logistic(np.asarray(rates.affected)))


def chance_of_any(evidence: NDArray[Any], labels: LabelTable, rates: Rates, suspect: Doubles) -> Doubles:
    """(N) that any finding is labelled wrongly, where images are affected with these probabilities."""
    found, anywhere = np.zeros(len(labels)), Rates(rates.false_alarm, rates.miss)
    for rows in chunks(len(labels)):
        _, affected, mistaken = weighed(evidence, labels, rates, rows)
        _, alone, mistaken_alone = weighed(evidence, labels, anywhere, rows)
        doubt = (suspect[rows, None] * mistaken / affected + mistaken_alone / alone) / 2
        found[rows] = 1 - np.prod(1 - doubt[:, labels.findings], axis=1)
    return found


def weighed(evidence: NDArray[Any], labels: LabelTable, rates: Rates, rows: slice) -> tuple[Doubles, Doubles, Doubles]:
    """What the labels of some images say, as `compare` gives it; what people confirmed says nothing."""
    given = np.asarray(labels.values[rows], dtype=np.float64)
    if labels.confirmed is not None:
        given = np.where(labels.confirmed[rows], np.nan, given)
    return compare(true_probability(evidence[rows], rates), given, rates)
