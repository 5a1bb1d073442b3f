"""Shards: packed apart, joined without a copy, verified, and read like the store that one process packs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bomd.cli import main
from bomd.data import store as store_module
from bomd.data.batches import Images
from bomd.data.images import Chunk, read_chunks
from bomd.data.shards import Shard, join, pack_shard
from bomd.data.store import Pieces, open_store, pack
from bomd.errors import InputError
from bomd.tables import LabelTable

SIZE = 12


@pytest.fixture
def table(tmp_path: Path) -> LabelTable:
    """Eleven pictures, so that no number of shards divides them."""
    rng, paths = np.random.default_rng(3), []
    (tmp_path / "pictures").mkdir()
    for number in range(11):
        paths.append(tmp_path / "pictures" / f"{'x' * number}{number}.png")
        Image.fromarray(rng.integers(0, 256, (20, 20), dtype=np.uint8)).save(paths[-1])
    ids = np.array([path.stem for path in paths])
    return LabelTable(ids, ("A",), np.zeros((11, 1)), np.array([str(path) for path in paths]))


def pack_all(table: LabelTable, place: Path, count: int, **options: bool) -> None:
    for number in range(1, count + 1):
        pack_shard(table, place, SIZE, shard=Shard(number, count), **options)


@pytest.mark.parametrize("count", [1, 3, 11])
@pytest.mark.parametrize("colour", [False, True])
def test_joined_shards_are_the_store_that_one_process_packs(
    tmp_path: Path, table: LabelTable, count: int, colour: bool
) -> None:
    alone = pack(table, tmp_path / "alone", SIZE, colour=colour)
    pack_all(table, tmp_path / "many", count, colour=colour)
    joined = join(table, tmp_path / "many", SIZE, colour=colour)
    assert joined.fingerprint == alone.fingerprint
    assert joined.colour == colour
    assert joined.ids.tolist() == table.ids.tolist()
    np.testing.assert_array_equal(joined.checksums, alone.checksums)
    np.testing.assert_array_equal(joined.original_sizes, alone.original_sizes)
    assert joined.images.shape == alone.images.shape
    for row in range(len(table)):
        np.testing.assert_array_equal(joined.images[row], alone.images[row])
    assert not (tmp_path / "many" / "images.u8").exists()  # nothing was copied
    again = pack(table, tmp_path / "many", SIZE, colour=colour)
    assert isinstance(again.images, Pieces) == (count > 1)
    assert again.directory == tmp_path / "many"
    assert open_store(again.directory, expected=alone.fingerprint, deep=True).broken == ()


def test_batches_come_from_shards_in_any_order(tmp_path: Path, table: LabelTable) -> None:
    alone = pack(table, tmp_path / "alone", SIZE)
    pack_all(table, tmp_path / "many", 4)
    chosen = table.ids[[9, 0, 5, 5 + 1, 2]]
    views = [Images(store, chosen, torch.device("cpu")) for store in (alone, join(table, tmp_path / "many", SIZE))]
    assert views[0].fingerprint == views[1].fingerprint
    order = torch.tensor([4, 1, 0, 3, 2])
    batches = [torch.cat([pixels for _, pixels in view.iterate(order, 2)]) for view in views]
    assert torch.equal(batches[0], batches[1])
    assert torch.equal(views[1].take(slice(1, 3)).batch(torch.tensor([1])), views[0].batch(torch.tensor([2])))


def test_pieces_are_indexed_like_one_array() -> None:
    whole = np.arange(7 * 4, dtype=np.uint8).reshape(7, 2, 2)
    pieces = Pieces([whole[:3], whole[3:4], whole[4:]])
    assert (pieces.shape, pieces.ndim, len(pieces)) == (whole.shape, 3, 7)
    for rows in (0, 2, 3, 6, -1, -7, np.int64(4), slice(2, 5), slice(None), np.array([6, 0, 3]), np.arange(7) % 2 == 0):
        np.testing.assert_array_equal(pieces[rows], whole[rows])
    np.testing.assert_array_equal(np.stack(list(pieces)), whole)  # also ends after the last
    with pytest.raises(IndexError):
        pieces[7]
    with pytest.raises(IndexError):
        pieces[-8]


def test_all_that_is_wrong_with_shards_is_one_line(tmp_path: Path, table: LabelTable) -> None:
    place = tmp_path / "many"
    with pytest.raises(InputError, match=r"No shards in .*--shard NUMBER/COUNT"):
        join(table, place, SIZE)
    for number in (1, 2, 4):
        pack_shard(table, place, SIZE, shard=Shard(number, 5))
    (place / "shard-002-of-005" / "images.u8").write_bytes(bytes(2 * SIZE * SIZE))  # as long as before
    with pytest.raises(InputError) as caught:
        join(table, place, SIZE)
    text = str(caught.value)
    assert "Of 5 shards" in text
    assert "2 is damaged" in text
    assert "3, 5 are missing" in text
    assert "--shard 2/5" in text
    assert "\n" not in text
    assert not (place / "store.json").exists()
    with pytest.raises(InputError, match="not joined"):  # instead of packing for days what is nearly there
        pack(table, place, SIZE)
    pack_all(table, place, 5)
    assert len(join(table, place, SIZE)) == 11


def test_a_source_that_changed_since_its_shard_is_noticed(tmp_path: Path, table: LabelTable) -> None:
    place = tmp_path / "many"
    pack_all(table, place, 3)
    first = join(table, place, SIZE)
    assert table.paths is not None
    Image.fromarray(np.full((20, 20), 9, dtype=np.uint8)).save(str(table.paths[5]))
    with pytest.raises(InputError, match="2 is of other images, or of files that changed since"):
        join(table, place, SIZE)
    pack_shard(table, place, SIZE, shard=Shard(2, 3))
    second = join(table, place, SIZE)
    assert (second.images[5] == 9).all()
    assert not (first.images[5] == 9).all()  # a run that was made from it looks at it again
    assert open_store(first.directory, expected=first.fingerprint).directory != second.directory
    assert pack(table, place, SIZE).fingerprint == second.fingerprint


def test_a_joined_store_that_is_damaged_names_the_way_out(tmp_path: Path, table: LabelTable) -> None:
    place = tmp_path / "many"
    pack_all(table, place, 3)
    join(table, place, SIZE)
    file = place / "shard-003-of-003" / "images.u8"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"shard-003-of-003.* --shard for the damaged shard, then --join"):
        pack(table, place, SIZE)
    file.unlink()
    with pytest.raises(InputError, match="shard-003-of-003"):
        open_store(place)
    pack_shard(table, place, SIZE, shard=Shard(3, 3))
    assert len(join(table, place, SIZE)) == len(pack(table, place, SIZE)) == 11


def test_broken_images_are_left_out_of_their_shard_alone(tmp_path: Path, table: LabelTable) -> None:
    assert table.paths is not None
    Path(str(table.paths[4])).write_bytes(b"no picture")
    place = tmp_path / "many"
    with pytest.raises(InputError, match="1 of 4 images cannot be read"):
        pack_all(table, place, 3)
    with pytest.raises(InputError, match="2 is unfinished; 3 is missing"):
        join(table, place, SIZE)
    pack_all(table, place, 3, skip_broken=True)
    joined = join(table, place, SIZE, skip_broken=True)
    assert [image["id"] for image in joined.broken] == [str(table.ids[4])]
    assert joined.ids.tolist() == np.delete(table.ids, 4).tolist()
    assert joined.fingerprint == pack(table, tmp_path / "alone", SIZE, skip_broken=True).fingerprint
    with pytest.raises(InputError, match="--skip-broken"):
        join(table, place, SIZE)


def test_broken_images_of_all_shards_are_one_error_once_no_shard_is_missing(tmp_path: Path, table: LabelTable) -> None:
    """Of eleven images in four shards of 2, 3, 3 and 3, the third is in shard 2, the sixth and seventh in shard 3."""
    assert table.paths is not None
    for row in (2, 5, 6):
        Path(str(table.paths[row])).write_bytes(b"no picture")
    place = tmp_path / "many"
    pack_all(table, place, 4, skip_broken=True)
    with pytest.raises(InputError, match=r"^3 of 11 images cannot be read, in shards 2, 3: Image ") as caught:
        join(table, place, SIZE)
    assert all(str(table.paths[row]) in str(caught.value) for row in (2, 5, 6))
    assert "--skip-broken" in str(caught.value)
    shutil.rmtree(place / "shard-001-of-004")
    for skip_broken in (False, True):
        with pytest.raises(InputError, match=r"^Of 4 shards in .*, 1 is missing"):
            join(table, place, SIZE, skip_broken=skip_broken)


def test_drawn_images_are_sharded_too(tmp_path: Path, table: LabelTable) -> None:
    def render(ids: np.ndarray, size: int) -> np.ndarray:
        return np.stack([np.full((size, size), len(str(name)), dtype=np.uint8) for name in ids])

    alone = pack(table, tmp_path / "alone", SIZE, render=render)
    for number in (1, 2):
        pack_shard(table, tmp_path / "many", SIZE, shard=Shard(number, 2), render=render)
    joined = join(table, tmp_path / "many", SIZE, render=render)
    assert joined.fingerprint == alone.fingerprint == pack(table, tmp_path / "many", SIZE, render=render).fingerprint


@pytest.mark.parametrize("text", ["0/4", "5/4", "3", "a/b", "1/513", "1/0", "-1/4", "1/4/5"])
def test_impossible_shards_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="NUMBER/COUNT such as 3/16"):
        Shard.read(text)


def test_shares_are_even_and_cover_everything() -> None:
    for images, count in ((11, 4), (16, 16), (1_000_003, 512)):
        parts = [Shard(number, count).rows(images) for number in range(1, count + 1)]
        np.testing.assert_array_equal(np.concatenate(parts), np.arange(images))
        assert {len(part) for part in parts} <= {images // count, images // count + 1}
    with pytest.raises(InputError, match="take fewer"):
        Shard(1, 12).rows(11)


KILLED = """
import sys, time
from pathlib import Path
from bomd.data import images
from bomd.data.shards import Shard, pack_shard
from bomd.tables import LabelTable
real = images.read_image
def slow(path, **options):
    time.sleep(0.01)
    return real(path, **options)
images.read_image = slow
pack_shard(LabelTable.load(Path(sys.argv[1])), Path(sys.argv[2]), 12, shard=Shard(1, 1))
"""


def test_a_killed_shard_goes_on_where_it_stopped(
    tmp_path: Path, table: LabelTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert table.paths is not None
    many = LabelTable(
        np.array([f"{number:04d}" for number in range(200)]),
        ("A",),
        np.zeros((200, 1)),
        np.resize(table.paths, 200),
    )
    many.save(tmp_path / "table.npz")
    script, place = tmp_path / "killed.py", tmp_path / "many"
    script.write_text(KILLED)
    journal = place / "shard-001-of-001" / "journal.jsonl"
    process = subprocess.Popen([sys.executable, script, tmp_path / "table.npz", place])
    while not (journal.exists() and journal.read_text().count("\n") >= 1):
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert 1 <= journal.read_text().count("\n") < 4
    with pytest.raises(InputError, match="1 is unfinished"):
        join(many, place, SIZE)
    done, asked = journal.read_text().count("\n"), []

    def watched(paths: np.ndarray, size: int, starts: list[int], *rest: int, **more: bool) -> Generator[Chunk]:
        asked.extend(starts)
        return read_chunks(paths, size, starts, *rest, **more)

    monkeypatch.setattr(store_module, "read_chunks", watched)
    pack_shard(many, place, SIZE, shard=Shard(1, 1))
    assert len(asked) == 4 - done  # of four chunks of 64
    monkeypatch.undo()
    assert join(many, place, SIZE).fingerprint == pack(many, tmp_path / "alone", SIZE).fingerprint


def test_the_command_packs_shards_and_joins_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def prepare(*more: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["prepare", "phantom", "--size", "16", "--set", "count=20", "-o", str(tmp_path / "stages"), *more])
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    assert prepare("--shard", "1/2")[0] == 0
    code, _, problem = prepare("--join")
    assert code == 2
    assert "2 is missing" in problem
    code, said, _ = prepare("--shard", "2/2")
    assert code == 0
    assert "shard 2/2: 10 images at 16 x 16" in said
    code, said, _ = prepare("--join")
    assert code == 0
    assert "20 images at 16 x 16" in said
    assert prepare("--join", "--shard", "1/2")[0] == 2
    assert prepare("--shard", "7")[0] == 2
    code, again, _ = prepare()  # as `bomd run` asks
    assert (code, again) == (0, said)
