"""Everything that the paper measures or shows, made anew from recorded runs: `bomd reproduce NAME`."""

from __future__ import annotations

from bomd.reproduce.artefact import Artefact
from bomd.reproduce.figures import FIGURES
from bomd.reproduce.tables import TABLES

ARTEFACTS: dict[str, Artefact] = TABLES | FIGURES
