"""Which weights an audit starts from, and whether the images look like those that generated chests help with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bomd.audits.choose import Choice, usual_weights
from bomd.config import DeviceSettings
from bomd.data.colour import is_coloured
from bomd.data.datasets.classes import CHEXPERT_NATIVE, NIH_NATIVE
from bomd.data.images import read_image
from bomd.errors import InputError
from bomd.networks.device import make_fabric
from bomd.networks.weights import is_made
from bomd.pretrain.make import how_long, is_there
from bomd.pretrain.plan import usual
from bomd.pretrain.provide import parts
from bomd.tables import NO_FINDING, LabelTable

LOOKED_AT = 8  # images
NAMED = 2  # classes that have to be findings of the chest
RADIOGRAPHS = ("CR", "DX", "RG", "DR")  # DICOM's words for plain X-rays


@dataclass(frozen=True)
class Look:
    """What a few images and the class names suggest: chest X-rays, or images with colour, which no X-ray has."""

    chests: bool
    coloured: bool
    reason: str


def with_start(choice: Choice, asked: str | None, labels: LabelTable) -> tuple[Choice, list[str]]:
    """The choice with the weights that are asked for or usual, and a line that offers others that may suit better."""
    look = look_at(labels)
    offered = offer(choice.backbone, choice.size, look) if asked is None else []
    return replace(choice, weights=choose_weights(asked, choice.backbone, look)), offered


def look_at(labels: LabelTable) -> Look:
    """Whether a few of the images look like chest X-rays.

    They do if all are DICOM files of a radiograph whose body part, if named, is the chest; or if all are grey and at
    least two classes are called like findings of NIH or CheXpert.
    """
    paths = [] if labels.paths is None else [Path(str(path)) for path in labels.paths[:: -(-len(labels) // LOOKED_AT)]]
    kinds = [kind for path in paths if (kind := _kind(path)) is not None]
    if not kinds:
        return Look(False, False, "no image could be looked at")
    if "colour" in kinds:
        return Look(False, True, "some images have colour")
    if all(kind == "radiograph" for kind in kinds):
        return Look(True, False, "they are DICOM files of radiographs")
    if "other scan" in kinds:
        return Look(False, False, "they are DICOM files, but not of the chest by X-rays")
    known = chest_findings(labels.classes)
    if len(known) < NAMED:
        return Look(False, False, "they are grey, but no two classes are findings of the chest")
    return Look(True, False, f"they are grey, and classes are {known[0]}, {known[1]}")


def chest_findings(classes: Sequence[str]) -> list[str]:
    """The classes that NIH or CheXpert knows, however they are spelt."""
    known = {_plain(name) for name in (*NIH_NATIVE, *CHEXPERT_NATIVE) if name != NO_FINDING}
    return [name for name in classes if _plain(name) in known]


def choose_weights(asked: str | None, backbone: str, look: Look) -> str:
    """The weights to start from, or an error where those that are asked for do not suit."""
    if asked is None:
        return usual_weights(backbone)
    if asked.startswith("imagenet") and usual_weights(backbone) == "none":
        rest = asked.removeprefix("imagenet").removeprefix("+") or "none"
        raise InputError(f"--weights {asked}: {backbone} has no ImageNet weights: use {rest}, or allow more --minutes.")
    if is_made(asked) and "phantom" in parts(asked)[1] and look.coloured:
        raise InputError(f"--weights {asked} is for X-rays, but {look.reason}: leave it out, or use self.")
    return asked


def offer(backbone: str, size: int, look: Look) -> list[str]:
    """A line about the start that suits chest X-rays, where these look like some."""
    if not look.chests:
        return []
    fabric = make_fabric(DeviceSettings())
    plan = usual(backbone, usual_weights(backbone), size, fabric.device.type)
    takes = "which are made already" if is_there(plan) else f"made once, in {how_long(plan, fabric)}"
    return [
        f"These look like chest X-rays ({look.reason}): --weights {plan.name} starts from weights learnt on "
        f"generated ones, {takes}."
    ]


def _kind(path: Path) -> str | None:
    """ "radiograph", "other scan", "colour" or "grey"; None where the file cannot be read."""
    if scan := _scan(path):
        return scan
    try:
        return "colour" if is_coloured(read_image(path, colour=True)) else "grey"
    except InputError:  # unreadable images are listed when all are packed
        return None


def _scan(path: Path) -> str | None:
    """ "radiograph" or "other scan"; None for what is no DICOM file, and where nothing installed can read one."""
    try:
        from pydicom import dcmread

        found = dcmread(path, stop_before_pixels=True, specific_tags=["Modality", "BodyPartExamined"])
        part = str(found.get("BodyPartExamined", "") or "CHEST").upper()
        chest = "CHEST" in part or "THORAX" in part
        return "radiograph" if chest and found.get("Modality", "") in RADIOGRAPHS else "other scan"
    except Exception:  # pydicom has kinds of its own, and more for a damaged file; most likely it is a picture
        return None


def _plain(name: str) -> str:
    return " ".join(name.replace("_", " ").casefold().split())
