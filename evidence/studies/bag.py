"""What another machine needs to go on with the long schedule: labels that a method has made, one network, some counts.

It is apart from the schedule, since a method's code is part of the name of what it has trained: whatever is changed
there between two sittings, networks and labels are found again.
"""

from __future__ import annotations

import io
import json
import os
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bomd.files import fingerprint, read_arrays, read_json, replacing, write_arrays, write_json
from bomd.methods.base import Context, Prepared
from bomd.methods.bomd import Bomd
from bomd.methods.bomd_plus import BomdPlus
from bomd.tables import Flags, LabelTable

PLACE = "BOMD_SCHEDULE_BAG"  # methods are made by name, also in other processes, and can be told in no other way
PIECE = 15_000_000  # bytes
CHECKPOINT = "checkpoint.pt"


class KeptBomd(Bomd):
    """`bomd`, whose new labels travel."""

    variant_of = "bomd"

    def prepare(self, train: LabelTable, context: Context) -> Prepared:
        return once("bomd", train, context, super().prepare)


class KeptBomdPlus(BomdPlus):
    """`bomd-plus`, whose new labels travel."""

    variant_of = "bomd-plus"

    def prepare(self, train: LabelTable, context: Context) -> Prepared:
        found = once("bomd-plus", train, context, super().prepare)
        self.weights = torch.as_tensor(found.weights, device=context.fabric.device)
        return found


def once(
    name: str, train: LabelTable, context: Context, prepare: Callable[[LabelTable, Context], Prepared]
) -> Prepared:
    """What a method prepares, as it is kept in the bag, whether this sitting or an earlier one has prepared it."""
    file = f"prepared-{name}-{fingerprint(train.ids, train.values, context.fit, context.seed)}.npz"
    path = Path(os.environ[PLACE]) / file
    if not path.exists():
        found = prepare(train, context)
        assert found.flags is not None
        arrays = {"targets": found.targets, "scores": found.scores, "weights": found.weights}
        flags = {"noisy": found.flags.noisy, "margin": found.flags.margin, "entry": found.flags.entry}
        # The arrays last: it is their file that says all is there, and the time may be over at any moment.
        write_json(path.with_suffix(".json"), {"history": found.history, "notes": list(found.notes)})
        write_arrays(path, {key: value for key, value in (arrays | flags).items() if value is not None})
    kept, told = read_arrays(path), read_json(path.with_suffix(".json"))
    flags_again = Flags(train.ids, kept["noisy"], kept["margin"], kept["entry"])
    return Prepared(
        kept["targets"], flags_again, None, kept.get("scores"), told["history"], tuple(told["notes"]),
        weights=kept.get("weights"),
    )  # fmt: skip


def most_at_once(bag: Path, name: str, jobs: int) -> int:
    """How many runs this one shared its machine with at most, itself included, in this sitting and all before it."""
    path = bag / "jobs.json"
    known: dict[str, int] = read_json(path) if path.exists() else {}
    if jobs > known.get(name, 1):
        known[name] = jobs
        write_json(path, known)
    return known.get(name, 1)


def put_into_bag(work: Path, bag: Path) -> str | None:
    """Keep one network in pieces: of those under way, the one that was trained longest; its stage, if there is one.

    What a finished run has used is done with, and nobody needs to carry it: its labels are taken out, and its
    classifier, which does not say itself that it is finished, is told by its last epoch.
    """
    courses = [_epochs(result.with_name("metrics.jsonl")) for result in work.glob("*/*/*/result.json")]
    for told in bag.glob("prepared-*.json"):
        history = read_json(told)["history"]
        if any(course[: len(history)] == history for course in courses):
            told.with_suffix(".npz").unlink(missing_ok=True)
            told.unlink()
    found = []
    for path in (work / "stages").glob(f"*/{CHECKPOINT}"):
        if not (path.parent / "finished.json").exists():
            history = torch.load(path, map_location="cpu", weights_only=True, mmap=True)["history"]
            if all(history[-1] != course[-1] for course in courses):
                found.append((sum(epoch["seconds"] for epoch in history), path))
    for old in bag.glob("network.*"):
        old.unlink()
    if not found:
        return None
    _, chosen = max(found)
    state = torch.load(chosen, map_location="cpu", weights_only=True)
    _round_moments(state["optimiser"], torch.bfloat16)
    stream = io.BytesIO()
    torch.save({"stage": chosen.parent.name, "state": state}, stream)
    content = _deflate(stream.getvalue())
    for number, start in enumerate(range(0, len(content), PIECE)):
        with replacing(bag / f"network.{number}") as temporary:
            temporary.write_bytes(content[start : start + PIECE])
    return chosen.parent.name


def take_from_bag(bag: Path, work: Path) -> str | None:
    """Put the network back where its training goes on, unless that has gone on there since; its stage."""
    pieces = sorted(bag.glob("network.*"), key=lambda file: int(file.suffix[1:]))
    if not pieces:
        return None
    content = _inflate(b"".join(piece.read_bytes() for piece in pieces))
    found = torch.load(io.BytesIO(content), weights_only=True)
    stage, state = str(found["stage"]), found["state"]
    if not re.fullmatch(r"[a-z-]+-[0-9a-f]+", stage):
        raise SystemExit(f"{bag} names no stage, but {stage!r}.")
    path = work / "stages" / stage / CHECKPOINT
    if not path.exists():
        _round_moments(state["optimiser"], torch.float32)
        with replacing(path) as temporary:
            torch.save(state, temporary)
    return stage


def _deflate(content: bytes) -> bytes:
    """Fewer bytes that say the same: all first bytes of four, then all second ones, since exponents resemble exponents.

    Of a DenseNet-121 and its moments a quarter is saved, and its new labels fit in beside it.
    """
    padded = content + bytes(-len(content) % 4)
    turned = np.frombuffer(padded, dtype=np.uint8).reshape(-1, 4).T
    return len(content).to_bytes(8, "little") + zlib.compress(turned.tobytes(), 1)


def _inflate(deflated: bytes) -> bytes:
    turned = np.frombuffer(zlib.decompress(deflated[8:]), dtype=np.uint8).reshape(4, -1)
    return turned.T.tobytes()[: int.from_bytes(deflated[:8], "little")]


def _epochs(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _round_moments(optimiser: dict[str, Any], kind: torch.dtype) -> None:
    for moments in optimiser["state"].values():
        for name, value in moments.items():
            if name != "step":
                moments[name] = value.to(kind)
