"""A file that several processes fill, each with a share of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bomd import processes, spread
from bomd.files import mapped_array, read_array
from bomd.filling import Filling, drop, filling


@contextmanager
def own_share(path: Path, shape: tuple[int, ...], key: str, dtype: str = "float32") -> Iterator[Filling]:
    """Fill the rows of `spread.own_part`, and go on with them after an interruption; arguments as of `filling`.

    Every process fills a file of its own. When all of them have, the first joins these to a `.npy` file of this shape;
    a single process fills just that.
    """
    rows = spread.own_part(shape[0])
    with filling(_part(path), (rows.stop - rows.start, *shape[1:]), key, dtype) as file:
        yield file
    processes.wait()
    if processes.count() > 1 and processes.first():
        with mapped_array(path, shape, dtype) as values:
            place = 0
            for rank in range(processes.count()):
                part = read_array(_part(path, rank), mapped=True)
                values[place : place + len(part)] = part
                place += len(part)
        for rank in range(processes.count()):
            drop(_part(path, rank))
    processes.wait()


def _part(path: Path, rank: int | None = None) -> Path:
    """Where one of several processes writes its share; a single process writes the whole."""
    if processes.count() == 1:
        return path
    return path.with_suffix(f".part{processes.rank() if rank is None else rank}.npy")
