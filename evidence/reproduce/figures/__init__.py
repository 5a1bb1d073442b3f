"""The paper's figures, one file each: the runs that it needs, and how it is drawn from their records."""

from __future__ import annotations

from evidence.reproduce.artefact import Artefact
from evidence.reproduce.figures import (
    descriptor_distances,
    descriptor_map,
    detection,
    label_auc,
    label_histogram,
    noise_curves,
    smoothing_toy,
    votes,
)

FIGURES: dict[str, Artefact] = {
    module.ARTEFACT.name: module.ARTEFACT
    for module in (
        noise_curves,
        detection,
        label_histogram,
        label_auc,
        votes,
        smoothing_toy,
        descriptor_distances,
        descriptor_map,
    )
}
