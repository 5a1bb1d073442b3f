"""Pack a large set by several processes or machines: each makes a store of its share, and an index joins them.

    images-1a2b/shard-003-of-016/   a store of the third share, see `bomd.data.store`
    images-1a2b/index.npz           of all shares, in order
    images-1a2b/store.json          the store of the whole, which names the shares that its pixels are in

No pixel is copied. What is joined answers the same question, with the same fingerprint, as a store that one process
packed, so that nothing else needs to know.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bomd.data.growing import JOURNAL
from bomd.data.store import (
    FACTS,
    INDEX,
    SHARDS,
    Store,
    beside,
    complete,
    one_at_a_time,
    open_store,
    pack,
    request_of,
)
from bomd.data.wanted import Render, Wanted, wanted
from bomd.errors import InputError
from bomd.files import read_arrays
from bomd.tables import LabelTable

MOST = 512  # each is an open file of whoever reads the images
_NAMED = 8  # shards, or broken images, spelled out in an error


@dataclass(frozen=True)
class Shard:
    """One of `count` shares, from 1."""

    number: int
    count: int

    @classmethod
    def read(cls, text: str) -> Shard:
        """Of "3/16"."""
        found = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text.strip())
        if found is None or not 1 <= int(found[1]) <= int(found[2]) <= MOST:
            raise InputError(f"--shard {text!r}: write NUMBER/COUNT such as 3/16, with at most {MOST} shards.")
        return cls(int(found[1]), int(found[2]))

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"shard-{self.number:03d}-of-{self.count:03d}"

    def rows(self, images: int) -> NDArray[np.intp]:
        """Which of so many images are in it; shares differ by one image at most."""
        if images < self.count:
            raise InputError(f"{images} images cannot be shared by {self.count} shards: take fewer.")
        return np.arange(images * (self.number - 1) // self.count, images * self.number // self.count)


def pack_shard(table: LabelTable, directory: Path, size: int, *, shard: Shard, **how: Any) -> Store:
    """Pack one share of the images of a table, for a store of all of them in a directory; all else as for `pack`."""
    return pack(table.take(shard.rows(len(table))), directory / shard.name, size, **how)


def join(
    table: LabelTable,
    directory: Path,
    size: int,
    *,
    render: Render | None = None,
    skip_broken: bool = False,
    colour: bool = False,
) -> Store:
    """Make one store of all shards; arguments as for `pack`.

    Every pixel is compared with its checksum, and every source file with what it was when it was packed. Shards that
    are missing, unfinished, of other images or damaged are all named in one error. Where there are none, images that
    could not be read are, of all shards.
    """
    count = _count(directory)
    whole = wanted(table, size, render, colour)
    found: dict[int, Store] = {}
    problems: dict[str, list[int]] = defaultdict(list)
    for shard in (Shard(number, count) for number in range(1, count + 1)):
        store = _find(directory / shard.name, whole.part(shard.rows(len(table))))
        if isinstance(store, Store):
            found[shard.number] = store
        else:
            problems[store].append(shard.number)
    if problems:
        raise InputError(_what_to_do(directory, count, problems))
    if not skip_broken:
        _refuse_broken(found, len(table))
    if request_of(directory) not in (None, whole.request):  # runs that were made from it look at it again
        directory = beside(directory, whole.request)
    with one_at_a_time(directory):
        stores = found.values()
        columns = [read_arrays(store.directory / INDEX) for store in stores]
        index = {name: np.concatenate([column[name] for column in columns]) for name in columns[0]}
        broken = [image for store in stores for image in store.broken]
        places = {os.path.relpath(store.directory, directory): len(store) for store in stores}
        complete(directory, whole, index, broken, places)
    return open_store(directory)


def _count(directory: Path) -> int:
    """How many shards there should be: as the folders say, and where they differ, as most of them do."""
    counts = [re.fullmatch(r"shard-\d{3}-of-(\d{3})", folder.name) for folder in directory.glob(SHARDS)]
    said = Counter(int(found[1]) for found in counts if found is not None)
    if not said:
        raise InputError(f"No shards in {directory}: pack them first, each with --shard NUMBER/COUNT.")
    return max(said, key=lambda count: (said[count] / count, -count))


def _find(place: Path, part: Wanted) -> Store | str:
    """The finished store of a shard, or what is wrong with it."""
    for directory in (place, beside(place, part.request)):
        if request_of(directory) == part.request:
            try:
                return open_store(directory, deep=True)
            except InputError:
                return "damaged"
    if (place / JOURNAL).exists():
        return "unfinished"
    return "of other images, or of files that changed since" if (place / FACTS).exists() else "missing"


def _what_to_do(directory: Path, count: int, problems: dict[str, list[int]]) -> str:
    told = []
    for problem, shards in problems.items():
        told.append(f"{_listed(shards)} {'is' if len(shards) == 1 else 'are'} {problem}")
    example = next(iter(problems.values()))[0]
    return (
        f"Of {count} shards in {directory}, {'; '.join(told)}. Run `bomd prepare` for each with --shard, such as "
        f"--shard {example}/{count}, then --join again."
    )


def _refuse_broken(stores: dict[int, Store], count: int) -> None:
    """Say which images, of so many, the shards were packed without."""
    reasons = [image["reason"] for store in stores.values() for image in store.broken]
    if not reasons:
        return
    shards = [number for number, store in stores.items() if store.broken]
    more = f" And {len(reasons) - _NAMED} more." if len(reasons) > _NAMED else ""
    raise InputError(
        f"{len(reasons)} of {count} images cannot be read, in shard{'s' * (len(shards) > 1)} {_listed(shards)}: "
        f"{' '.join(reasons[:_NAMED])}{more} Replace them and run `bomd prepare` for these with --shard, or leave them "
        "out with skip_broken (--skip-broken)."
    )


def _listed(shards: Sequence[int]) -> str:
    more = f" and {len(shards) - _NAMED} more" if len(shards) > _NAMED else ""
    return ", ".join(map(str, shards[:_NAMED])) + more
