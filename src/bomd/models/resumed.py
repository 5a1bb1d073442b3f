"""Predict many files so that an interruption costs one block of them: every block is kept until all are written.

`out.csv.part`, beside the `out.csv` that is to be written, has a line for each block: a checksum, what the block
depends on (the model, the code, and name, length and time of its files), its probabilities and why files could not be
read. The same command takes the lines that still hold, in order, and goes on behind the last of them.
"""

from __future__ import annotations

import base64
import json
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from bomd import progress
from bomd.errors import InputError
from bomd.files import fingerprint, status, writing
from bomd.models.blocks import BATCH, Block, predict_blocks
from bomd.sources import code_of

if TYPE_CHECKING:
    from bomd.models.model import Model

CODE = ("bomd.models.model", "bomd.models.blocks")
_OURS = re.compile(rb"[0-9a-f]{8} \{")  # how every line begins


def part_of(output: Path) -> Path:
    """Where blocks are kept until this file is written."""
    return output.with_name(f"{output.name}.part")


def predict_and_keep(model: Model, files: Sequence[str], part: Path, batch: int = BATCH) -> Iterator[Block]:
    """The same blocks as `predict_blocks`, of which those that were done before are taken from `part`.

    The caller removes it by `forget` when what it makes of the blocks is written. One block is not worth a file.
    """
    if len(files) <= batch:
        yield from predict_blocks(model, files, batch)
        return
    same = _identity(model)
    shares = [files[start : start + batch] for start in range(0, len(files), batch)]
    keys = [fingerprint(same, [_state(file) for file in share]) for share in shares]
    with writing(part):
        part.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)  # a link would have us write somewhere else
        kept = os.fdopen(os.open(part, flags, 0o600), "rb+")
    with kept:
        start = kept.read(10)
        if start and not _OURS.match(start):
            raise InputError(f"{part} is not what an interrupted `bomd predict` leaves: move it elsewhere.")
        kept.seek(0)
        done = end = 0
        for key, share in zip(keys, shares, strict=True):
            block = _read(kept.readline(), key, share, len(model.classes))
            if block is None:
                break
            done, end = done + 1, kept.tell()
            yield block
        kept.seek(end)
        kept.truncate()
        if done:
            progress.say(f"{min(done * batch, len(files)):,} of {len(files):,} images were predicted before.")
        if done == len(shares):
            return
        left = predict_blocks(model, files[done * batch :], batch)
        for key, share, block in zip(keys[done:], shares[done:], left, strict=True):
            _write(kept, key, share, block, part)
            yield block


def forget(part: Path) -> None:
    """Remove what an interruption would have gone on with; a file of somebody else's, as of a download, stays."""
    with writing(part):
        if part.is_symlink() or not part.is_file():
            return
        with part.open("rb") as stream:
            ours = _OURS.match(stream.read(10))
        if ours:
            part.unlink(missing_ok=True)  # another process may have finished the same


def _identity(model: Model) -> str:
    """Changes with anything but the files that a probability depends on."""
    weights = [value.cpu().numpy() for network in model.networks for value in network.state_dict().values()]
    kind = (model.classes, model.size, model.colour, model.exclusive, model.device.type, code_of(*CODE))
    return fingerprint(*kind, *weights)


def _state(file: str) -> tuple[str, int, int]:
    """Name, length and time; a file that is not there has neither of these."""
    found = status(file)
    return (file, -1, -1) if found is None else (file, found.st_size, found.st_mtime_ns)


def _write(kept: BinaryIO, key: str, share: Sequence[str], block: Block, part: Path) -> None:
    rows = {file: row for row, file in enumerate(share)}
    content = {
        "key": key,
        "rows": [rows[file] for file in block.files],
        "values": base64.b64encode(block.values.astype("<f4").tobytes()).decode(),
        "broken": {str(rows[file]): reason for file, reason in block.broken.items()},
    }
    text = json.dumps(content).encode()  # in ASCII: names of files need not be text
    with writing(part):
        kept.write(b"%08x %s\n" % (zlib.crc32(text), text))
        kept.flush()


def _read(line: bytes, key: str, share: Sequence[str], classes: int) -> Block | None:
    """The block of a line; None where it is cut off, damaged, or of another model or other files."""
    checksum, _, text = line.removesuffix(b"\n").partition(b" ")
    if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(text):
        return None
    content = json.loads(text)
    if content["key"] != key:
        return None
    values = np.frombuffer(base64.b64decode(content["values"]), dtype="<f4").astype(np.float32)
    rows, broken = content["rows"], {share[int(row)]: reason for row, reason in content["broken"].items()}
    return Block([share[row] for row in rows], values.reshape(len(rows), classes), broken)
