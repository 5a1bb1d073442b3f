"""Everything that the paper measures or shows, made anew from recorded runs: `bomd reproduce NAME`."""

from __future__ import annotations

from evidence.reproduce.artefact import Artefact
from evidence.reproduce.figures import FIGURES
from evidence.reproduce.tables import TABLES

ARTEFACTS: dict[str, Artefact] = TABLES | FIGURES
