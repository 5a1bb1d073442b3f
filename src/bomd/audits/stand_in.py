"""What judges labels where no network is trained: a file of features or probabilities, or a network as it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from bomd.audits.arrays import read_features, read_probabilities
from bomd.audits.frozen import plan_frozen
from bomd.audits.given import Given
from bomd.audits.untrained import Kind, Values, given_features, given_values
from bomd.config import FitSettings
from bomd.errors import InputError
from bomd.files import fingerprint
from bomd.tables import LabelTable

PICTURES = 128  # pixels of the images that are packed to be looked at


@dataclass(frozen=True, eq=False)
class StandIn:
    """What judges instead of a trained network.

    Attributes:
        kind: Where the run says how it was made.
        values: Gives features or probabilities of packed images.
        side: Pixels along a side of the images that they want.
        fit: Names the network, where there is one.
    """

    kind: Kind
    values: Values
    key: str
    side: int = PICTURES
    fit: FitSettings = field(default_factory=FitSettings)


def find_stand_in(
    given: Given,
    labels: LabelTable,
    features: str | Path | None,
    probabilities: str | Path | None,
    backbone: str | None,
) -> StandIn | None:
    """What the options of an audit name, read and checked; None where a network is to be trained."""
    if at_most_one(features, probabilities, backbone) is None:
        return None
    if backbone is not None:
        frozen = plan_frozen(backbone, len(labels))
        side = max(frozen.side, PICTURES)
        return StandIn("frozen", frozen.features, frozen.fingerprint, side, FitSettings(backbone=backbone))
    where = (given.labels.ids, given.rows, len(given.records.rows))
    if features is not None:
        rows = read_features(Path(features), *where)
        return StandIn("features", given_features(rows, labels.ids), fingerprint("features", rows.values, rows.rows))
    values = read_probabilities(Path(str(probabilities)), *where, given.labels.classes, labels.classes)
    return StandIn("probabilities", given_values(values, labels.ids), fingerprint("probabilities", values))


def at_most_one(features: str | Path | None, probabilities: str | Path | None, backbone: str | None) -> str | None:
    """The option that is set; an error where several are."""
    ways = {"--features": features, "--probabilities": probabilities, "--backbone": backbone}
    chosen = [name for name, way in ways.items() if way is not None]
    if len(chosen) > 1:
        raise InputError(f"{' and '.join(chosen)}: one of them judges the labels, so pass one.")
    return chosen[0] if chosen else None
