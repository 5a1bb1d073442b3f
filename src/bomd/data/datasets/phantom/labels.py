"""Who has which findings: a Gaussian copula with the prevalences and co-occurrences of the real NIH labels.

Each image has 14 correlated normal numbers, one per finding and one for the view; a finding is present where
its number exceeds the threshold that gives its prevalence. Part of each number belongs to the patient, so
that findings persist over follow-ups as they do in NIH.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from bomd.data.datasets.classes import NIH
from bomd.data.datasets.phantom.draws import Identity, Keys, uniforms
from bomd.data.datasets.phantom.hospitals import HOSPITALS

FINDINGS = NIH[:-1]

# The tables below were measured once on Data_Entry_2017_v2020.csv: images of train_val_list.txt without those
# that name Consolidation, 83,672 in all. PREVALENCE is the mean of each column (last: View Position is AP).
PREVALENCE = np.array(
    [0.0899, 0.0196, 0.0944, 0.1562, 0.0438, 0.0526, 0.0097, 0.0303, 0.0154, 0.0163, 0.0144, 0.0250, 0.0017, 0.3417]
)
# CORRELATION is the tetrachoric correlation of each pair: that of two normal numbers which exceed their
# thresholds together as often as the two labels occur together.
_LOWER_TRIANGLE = """
  .03
  .36  .39
  .21  .01  .24
  .04 -.06  .20  .04
 -.03 -.09  .05  .11  .26
  .19  .00  .16  .28 -.04 -.02
  .11 -.15  .16 -.02  .13  .00 -.11
  .01  .12  .25  .34  .00  .00  .50 -.16
  .15  .00  .09 -.01  .12 -.05 -.03  .46 -.05
  .10  .04  .04  .08  .05  .11 -.04  .02 -.13 -.01
  .08  .06  .26  .05  .20  .19  .04  .14 -.02  .15  .25
  .17  .08  .01 -.01  .17 -.03 -.15 -.09 -.09  .03  .18  .05
  .17 -.02  .13  .15  .00 -.07  .11 -.06  .53  .04 -.29 -.15 -.20
"""
_LOWER = np.zeros((len(PREVALENCE), len(PREVALENCE)))
_LOWER[np.tril_indices(len(PREVALENCE), -1)] = np.array(_LOWER_TRIANGLE.split(), dtype=float)
CORRELATION = _LOWER + _LOWER.T + np.eye(len(PREVALENCE))
# PERSISTENCE is the tetrachoric correlation of each label between consecutive images of a patient, patients
# weighted equally.
PERSISTENCE = np.array([0.52, 0.65, 0.65, 0.26, 0.73, 0.57, 0.38, 0.78, 0.65, 0.71, 0.61, 0.52, 0.90, 0.60])
# Fraction of patients with 1, 2, ... images there; the 6 % with ten or more get nine.
IMAGES_PER_PATIENT = np.array([0.577, 0.140, 0.073, 0.044, 0.030, 0.026, 0.020, 0.016, 0.074])


def diagnose(identity: Identity) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """(N, 14) clean labels in the order of `NIH`, and (N) whether the view is AP."""
    # Splitting each number into a patient's and a day's part weakens the correlation between columns that
    # persist differently; dividing by what is kept restores it.
    kept = np.sqrt(np.outer(PERSISTENCE, PERSISTENCE)) + np.sqrt(np.outer(1 - PERSISTENCE, 1 - PERSISTENCE))
    factor = np.linalg.cholesky(CORRELATION / kept)
    patient = _normals(identity.patients, "findings") @ factor.T
    day = _normals(identity.images, "findings") @ factor.T
    latent = np.sqrt(PERSISTENCE) * patient + np.sqrt(1 - PERSISTENCE) * day
    threshold = -_normal_quantile(PREVALENCE)
    for name in np.unique(identity.hospitals):
        latent[identity.hospitals == name] += HOSPITALS[str(name)].shift
    present = latent > threshold
    labels = np.zeros((len(present), len(NIH)), dtype=np.float32)
    labels[:, :-1] = present[:, :-1]
    labels[:, -1] = ~present[:, :-1].any(axis=1)
    return labels, present[:, -1]


def follow_ups(patients: Keys) -> NDArray[np.intp]:
    """(N) how many images each patient has, 1 to 9."""
    edges = np.cumsum(IMAGES_PER_PATIENT)[:-1]
    return 1 + np.searchsorted(edges, uniforms(patients, "images")[:, 0])


def _normals(keys: Keys, name: str) -> NDArray[np.float64]:
    return _normal_quantile(uniforms(keys, name, len(PREVALENCE)))


def _normal_quantile(probability: NDArray[np.float64]) -> NDArray[np.float64]:
    quantile: NDArray[np.float64] = torch.special.ndtri(torch.from_numpy(probability)).numpy()
    return quantile
