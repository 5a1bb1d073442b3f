"""The paper's tables: the runs that each needs, and the sheets that are made of their records."""

from __future__ import annotations

from evidence.reproduce.artefact import Artefact
from evidence.reproduce.tables import ablations, main_results, noise_grid, per_finding

TABLES: dict[str, Artefact] = {
    artefact.name: artefact
    for module in (noise_grid, main_results, per_finding, ablations)
    for artefact in module.TABLES
}
