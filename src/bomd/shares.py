"""A file that several processes fill, each with a share of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bomd import processes, spread
from bomd.files import mapped_array, read_array
from bomd.filling import Filling, filling


@contextmanager
def own_share(path: Path, shape: tuple[int, ...], key: str, dtype: str = "float32") -> Iterator[Filling]:
    """Fill the rows of `spread.own_part`, and go on with them after an interruption; arguments as of `filling`.

    Every process fills a file of its own. When all of them have, the first joins these to a `.npy` file of this shape;
    a single process fills just that.
    """
    rows = spread.own_part(shape[0])
    # Before an interruption there may have been more processes or fewer: shares with as many rows, but not with these.
    own = f"{key} from row {rows.start}"
    with filling(_part(path), (rows.stop - rows.start, *shape[1:]), own, dtype) as file:
        yield file
    processes.wait()
    if processes.first():
        left = [f"{path.stem}.part*"]  # also what more processes than these began
        if processes.count() > 1:
            _join(path, shape, dtype)
            left += [f"{path.name}.*"]  # also what a single one began
        for pattern in left:
            for begun in path.parent.glob(pattern):
                begun.unlink()
    processes.wait()


def _join(path: Path, shape: tuple[int, ...], dtype: str) -> None:
    """Write the rows of all shares, in order."""
    with mapped_array(path, shape, dtype) as values:
        place = 0
        for rank in range(processes.count()):
            part = read_array(_part(path, rank), mapped=True)
            values[place : place + len(part)] = part
            place += len(part)


def _part(path: Path, rank: int | None = None) -> Path:
    """Where one of several processes writes its share; a single process writes the whole."""
    if processes.count() == 1:
        return path
    return path.with_suffix(f".part{processes.rank() if rank is None else rank}.npy")
