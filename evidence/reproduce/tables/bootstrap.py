"""A paired bootstrap over test patients, kept beside the tables, since it needs predictions and they may go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bomd.config import Config
from bomd.experiments.records import load_predictions
from bomd.files import fingerprint, read_json, write_json
from bomd.measure.paired import Paired, over_seeds
from bomd.measure.result import HELD_OUT
from bomd.tables import LabelTable
from evidence.reproduce.artefact import Material, key_of
from evidence.reproduce.tables.entries import Entry, recorded

DRAWS = 2000
FILE = "bootstrap.json"


class Bootstraps:
    """Differences with their intervals: computed where the runs are here, else as kept from when they were."""

    def __init__(self, material: Material, draws: int = DRAWS) -> None:
        self.material, self.draws = material, draws
        self.path = None if material.kept is None else material.kept / FILE
        self.kept: dict[str, Any] = read_json(self.path) if self.path is not None and self.path.exists() else {}

    def compare(self, ones: Entry, others: Entry, test: str) -> Paired | None:
        """Mean AUC of `ones` minus that of `others` on a test set.

        Returns:
            None where runs are missing, where neither predictions nor an earlier outcome is here, and for held-out
            patients, who differ from seed to seed.
        """
        ones, others = self._done(ones), self._done(others)
        if not ones or not others or test == HELD_OUT:
            return None
        key = self._key(ones, others, test)
        if key not in self.kept:
            found = self._compute(ones, others, test)
            if found is None:
                return None
            self.kept[key] = {name: round(getattr(found, name), 6) for name in ("difference", "low", "high", "p")}
            if self.path is not None:  # each takes seconds, so that none is lost when the rest is interrupted
                write_json(self.path, dict(sorted(self.kept.items())))
        return Paired(**self.kept[key])

    def _done(self, configs: Entry) -> list[Config]:
        return [config for config in configs if self.material.record(config) is not None]

    def _key(self, ones: Entry, others: Entry, test: str) -> str:
        """Changes with any of the runs and with what came of them."""
        scores = [record.result.auc(test) for side in (ones, others) for record in recorded(self.material, side)]
        return fingerprint(test, self.draws, [[key_of(config) for config in side] for side in (ones, others)], scores)

    def _compute(self, ones: Entry, others: Entry, test: str) -> Paired | None:
        loaded: list[tuple[LabelTable, LabelTable]] = []
        for config in (*ones, *others):
            run = self.material.run(config)
            path = Path() if run is None else run.directory / "predictions.npz"
            predictions = load_predictions(path) if path.is_file() else {}
            if test not in predictions:
                return None
            loaded.append(predictions[test])
        truth = loaded[0][0]
        if any(not np.array_equal(truth.ids, other.ids) for other, _ in loaded):
            return None
        scores = [table for _, table in loaded]
        least = ones[0].minimum_positives
        return over_seeds(truth, scores[: len(ones)], scores[len(ones) :], draws=self.draws, minimum_positives=least)
