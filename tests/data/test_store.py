"""The packed store: right pixels, resumable after kill -9, never stale, never silently incomplete."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bomd.data import store as store_module
from bomd.data.images import fit_square, read_chunks, read_image
from bomd.data.store import Store, open_store, pack
from bomd.errors import InputError
from bomd.tables import LabelTable

REAL = Path(__file__).parents[2] / "../shared/data/nih/images"

# Without a guard for `__main__`, as people write scripts: processes must not run it again.
PACK_SCRIPT = """
import resource, signal, sys
from pathlib import Path
from bomd.data.store import pack
from bomd.errors import InputError
from bomd.tables import LabelTable

table, target, size, workers, limit = sys.argv[1:]
if int(limit):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
try:
    pack(LabelTable.load(Path(table)), Path(target), int(size), workers=int(workers))
except InputError as error:
    print(error)
    sys.exit(2)
"""


def make_images(folder: Path, count: int, side: int = 24) -> LabelTable:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1)
    paths = []
    for number in range(count):
        pixels = rng.integers(0, 256, (side + number % 3, side), dtype=np.uint8)
        paths.append(folder / f"{number:04d}.png")
        Image.fromarray(pixels).save(paths[-1], compress_level=1)
    ids = [path.stem for path in paths]
    return LabelTable(np.array(ids), ("A",), np.zeros((count, 1)), np.array([str(path) for path in paths]))


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != ".lock"}


def start_packing(
    tmp_path: Path, table: LabelTable, target: Path, size: int, workers: int, limit: int = 0
) -> subprocess.Popen[str]:
    script = tmp_path / "pack_script.py"
    script.write_text(PACK_SCRIPT)
    table.save(tmp_path / "table.npz")
    command = [sys.executable, script, tmp_path / "table.npz", target, str(size), str(workers), str(limit)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_rows_hold_the_resized_images_and_their_facts(tmp_path: Path) -> None:
    table = make_images(tmp_path / "images", 11)
    store = pack(table, tmp_path / "store", 16)
    assert store.images.shape == (11, 16, 16)
    assert store.images.dtype == np.uint8
    assert not store.images.flags.writeable
    assert store.ids.tolist() == table.ids.tolist()
    assert table.paths is not None
    for row, path in enumerate(table.paths):
        pixels = read_image(Path(path))
        np.testing.assert_array_equal(store.images[row], fit_square(pixels, 16))
        assert tuple(store.original_sizes[row]) == pixels.shape
    assert store.rows(["0007", "0002"]).tolist() == [7, 2]
    with pytest.raises(InputError, match="absent"):
        store.rows(["absent"])
    assert set(content(tmp_path / "store")) == {"images.u8", "index.npz", "store.json"}
    assert len(open_store(tmp_path / "store", deep=True)) == 11


@pytest.mark.slow
def test_processes_give_the_same_bytes_as_one(tmp_path: Path) -> None:
    table = make_images(tmp_path / "images", 200)
    pack(table, tmp_path / "one", 16, workers=1)
    pack(table, tmp_path / "many", 16, workers=2)
    assert content(tmp_path / "one") == content(tmp_path / "many")


def test_a_matching_store_is_reused_without_decoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_images(tmp_path / "images", 5)
    first = pack(table, tmp_path / "store", 16)
    monkeypatch.setattr(store_module, "read_chunks", None)  # any call would fail
    again = pack(table, tmp_path / "store", 16)
    assert again.fingerprint == first.fingerprint
    np.testing.assert_array_equal(again.images, first.images)


def test_changed_sources_size_or_ids_are_packed_anew(tmp_path: Path) -> None:
    table = make_images(tmp_path / "images", 5)
    first = pack(table, tmp_path / "store", 16)
    assert table.paths is not None
    bright = np.full((24, 24), 250, dtype=np.uint8)
    Image.fromarray(bright).save(table.paths[3])
    changed = pack(table, tmp_path / "store", 16)
    assert changed.fingerprint != first.fingerprint
    assert (changed.images[3] == 250).all()
    np.testing.assert_array_equal(changed.images[:3], first.images[:3])  # and an open old map stays readable
    assert not (first.images[3] == 250).all()
    assert changed.directory != first.directory  # runs that were made from the first look at it again
    assert pack(table, tmp_path / "store", 16).directory == changed.directory
    assert open_store(first.directory, expected=first.fingerprint).fingerprint == first.fingerprint
    with pytest.raises(InputError, match="other images than this run was made from"):
        open_store(changed.directory, expected=first.fingerprint)
    assert pack(table, tmp_path / "store", 8).images.shape == (5, 8, 8)
    assert pack(table.take([4, 0]), tmp_path / "store", 8).ids.tolist() == ["0004", "0000"]


def test_touching_a_source_is_noticed_even_if_the_length_stays(tmp_path: Path) -> None:
    table = make_images(tmp_path / "images", 2)
    first = json.loads((pack(table, tmp_path / "store", 16).directory / "store.json").read_text())
    assert table.paths is not None
    os.utime(table.paths[0], ns=(1, 1))
    second = json.loads((pack(table, tmp_path / "store", 16).directory / "store.json").read_text())
    assert first["request"] != second["request"]


def break_three(table: LabelTable) -> None:
    assert table.paths is not None
    cut = Path(str(table.paths[2]))
    cut.write_bytes(cut.read_bytes()[:-200])
    Path(str(table.paths[5])).write_text("not an image")
    Path(str(table.paths[70])).unlink()


def test_broken_images_are_all_named_and_nothing_looks_complete(tmp_path: Path) -> None:
    table = make_images(tmp_path / "images", 80)
    break_three(table)
    with pytest.raises(InputError, match=r"^3 of 80 images") as error:
        pack(table, tmp_path / "store", 16)
    for name in ("0002.png", "0005.png", "0070.png", "skip_broken"):
        assert name in str(error.value)
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="interrupted, run it again"):
        open_store(tmp_path / "store")


def test_many_broken_images_are_counted_not_listed(tmp_path: Path) -> None:
    table = make_images(tmp_path / "images", 12)
    assert table.paths is not None
    for path in table.paths[:9]:
        Path(str(path)).unlink()
    with pytest.raises(InputError, match="And 4 more") as error:
        pack(table, tmp_path / "store", 16)
    assert str(error.value).count(".png") == 5


def test_skip_broken_drops_and_lists_them(tmp_path: Path) -> None:
    table = make_images(tmp_path / "images", 80)
    whole = np.array(pack(table, tmp_path / "whole", 16).images)
    break_three(table)
    store = pack(table, tmp_path / "store", 16, skip_broken=True)
    kept = [row for row in range(80) if row not in (2, 5, 70)]
    assert store.ids.tolist() == table.ids[kept].tolist()
    np.testing.assert_array_equal(store.images, whole[kept])
    assert [image["id"] for image in store.broken] == ["0002", "0005", "0070"]
    assert "damaged" in store.broken[0]["reason"]
    assert set(content(store.directory)) == {"images.u8", "index.npz", "store.json"}
    assert len(open_store(store.directory, deep=True)) == 77
    with pytest.raises(InputError, match=r"^3 of 80 images"):  # without the flag the gaps are not accepted
        pack(table, tmp_path / "store", 16)
    assert len(open_store(store.directory)) == 77  # and the store survives the question


def test_repairing_a_broken_image_completes_the_store(tmp_path: Path) -> None:
    table = make_images(tmp_path / "images", 80)
    whole = np.array(pack(table, tmp_path / "whole", 16).images)
    assert table.paths is not None
    victim = Path(str(table.paths[70]))
    good = victim.read_bytes()
    victim.write_bytes(good[:50])
    with pytest.raises(InputError):
        pack(table, tmp_path / "store", 16)
    victim.write_bytes(good)
    np.testing.assert_array_equal(pack(table, tmp_path / "store", 16).images, whole)


def test_nothing_readable_is_an_error_even_when_skipping(tmp_path: Path) -> None:
    table = make_images(tmp_path / "images", 3)
    assert table.paths is not None
    for path in table.paths:
        Path(str(path)).write_text("x")
    with pytest.raises(InputError, match="3 of 3"):
        pack(table, tmp_path / "store", 16, skip_broken=True)


def damage(store: Store, how: str) -> str:
    images = store.directory / "images.u8"
    if how == "flipped pixel":
        content = bytearray(images.read_bytes())
        content[-1] ^= 1
        images.write_bytes(content)
        return "0029.*changed"
    if how == "short":
        os.truncate(images, 1000)
        return "1,000 bytes"
    if how == "no images":
        images.unlink()
        return "not whole"
    if how == "other index":
        index = store.directory / "index.npz"
        index.write_bytes(index.read_bytes() + b"x")
        return "index.npz has changed"
    facts = json.loads((store.directory / "store.json").read_text())
    facts["format"] = 99
    (store.directory / "store.json").write_text(json.dumps(facts) if how == "format" else "{")
    return "format 99" if how == "format" else "Cannot read"


@pytest.mark.parametrize("how", ["flipped pixel", "short", "no images", "other index", "format", "half json"])
def test_a_damaged_store_is_refused_on_open_and_packed_anew(tmp_path: Path, how: str) -> None:
    table = make_images(tmp_path / "images", 30)
    store = pack(table, tmp_path / "store", 16)
    before = content(store.directory)
    message = damage(store, how)
    with pytest.raises(InputError, match=message):
        open_store(tmp_path / "store", deep=True)
    pack(table, tmp_path / "store", 16)
    assert content(store.directory) == before


def test_deep_finds_what_a_spot_check_may_miss(tmp_path: Path) -> None:
    store = pack(make_images(tmp_path / "images", 30), tmp_path / "store", 16)
    content = bytearray((store.directory / "images.u8").read_bytes())
    content[1 * 256] ^= 1
    (store.directory / "images.u8").write_bytes(content)
    open_store(store.directory)
    with pytest.raises(InputError, match="0001"):
        open_store(store.directory, deep=True)


@pytest.mark.parametrize("row", [1, 2500, 4998])
def test_reuse_compares_every_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: int) -> None:
    """A bit that flips in one of 5,000 images, which several threads look through, does not go into a run."""
    monkeypatch.setattr(store_module, "_LOOKED_AT", 1 << 18)
    table = LabelTable(np.array([str(i) for i in range(5000)]), ("A",), np.zeros((5000, 1)))

    def render(ids: np.ndarray, size: int) -> np.ndarray:
        return np.stack([np.full((size, size), int(name) % 251, np.uint8) for name in ids])

    store = pack(table, tmp_path / "store", 32, render=render)
    whole = np.array(store.images[row])
    with (store.directory / "images.u8").open("r+b") as stream:
        stream.seek(row * 32 * 32 + 7)
        stream.write(b"\xff")
    open_store(store.directory)
    with pytest.raises(InputError, match=f"'{row}'.*has changed on disk"):
        open_store(store.directory, deep=True)
    again = pack(table, tmp_path / "store", 32, render=render)
    np.testing.assert_array_equal(again.images[row], whole)
    assert again.directory == store.directory


def test_a_store_knows_the_picture_that_it_packed(tmp_path: Path) -> None:
    table = make_images(tmp_path / "images", 3)
    store = pack(table, tmp_path / "store", 16)
    assert table.paths is not None
    pictures = [read_image(Path(str(path))) for path in table.paths]
    assert [store.shows(row, picture) for row, picture in enumerate(pictures)] == [True] * 3
    assert not store.shows(0, pictures[1])


def draw(seed: int):
    calls: list[int] = []

    def render(ids: np.ndarray, size: int) -> np.ndarray:
        calls.append(len(ids))
        return np.stack(
            [np.random.default_rng([seed, int(name)]).integers(0, 256, (size, size), np.uint8) for name in ids]
        )

    return render, calls


def test_rendered_images_are_drawn_once_and_anew_when_the_drawing_changes(tmp_path: Path) -> None:
    table = LabelTable(np.array([str(i) for i in range(40)]), ("A",), np.zeros((40, 1)))
    render, calls = draw(0)
    store = pack(table, tmp_path / "store", 8, render=render)
    np.testing.assert_array_equal(store.images, render(table.ids, 8))
    assert (store.original_sizes == 8).all()
    calls.clear()
    assert pack(table, tmp_path / "store", 8, render=render).fingerprint == store.fingerprint
    assert sum(calls) <= 16
    other, _ = draw(1)
    np.testing.assert_array_equal(pack(table, tmp_path / "store", 8, render=other).images, other(table.ids, 8))
    with pytest.raises(ValueError, match="render gave"):
        pack(table, tmp_path / "wrong", 8, render=lambda ids, size: np.zeros((len(ids), size, size)))


def test_rendering_goes_on_after_an_interruption(tmp_path: Path) -> None:
    table = LabelTable(np.array([str(i) for i in range(2500)]), ("A",), np.zeros((2500, 1)))
    render, calls = draw(0)
    pack(table, tmp_path / "whole", 4, render=render)

    def interrupted(ids: np.ndarray, size: int) -> np.ndarray:
        if len(ids) > 16 and int(ids[0]) >= 2048:
            raise KeyboardInterrupt
        return render(ids, size)

    with pytest.raises(KeyboardInterrupt):
        pack(table, tmp_path / "store", 4, render=interrupted)
    calls.clear()
    pack(table, tmp_path / "store", 4, render=render)
    assert sum(calls) == 16 + 2500 - 2048
    assert content(tmp_path / "store") == content(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_killed_in_the_middle_it_goes_on_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    table = make_images(tmp_path / "images", 320, side=192)
    pack(table, tmp_path / "whole", 32, workers=1)
    target = tmp_path / "store"
    kills = 0
    for _ in range(5):
        process = start_packing(tmp_path, table, target, 32, workers)
        journal = target / "journal.jsonl"
        lines = journal.read_text().count("\n") if journal.exists() else 0
        while process.poll() is None and not (journal.exists() and journal.read_text().count("\n") > lines):
            time.sleep(0.01)
        children = children_of(process.pid)
        process.kill()
        process.communicate()
        wait_for_end(children)
        if (target / "store.json").exists():
            break
        kills += 1
        if kills == 3 - workers:
            break
    assert kills, "the process always finished before it could be killed"
    read: list[int] = []

    def watched(paths, size, starts, step, workers, **rest):
        read.extend(starts)
        return read_chunks(paths, size, starts, step, workers, **rest)

    monkeypatch.setattr(store_module, "read_chunks", watched)
    store = pack(table, target, 32, workers=1)
    assert len(read) < 320 / 64, "nothing of what was done before the kill was used"
    assert content(target) == content(tmp_path / "whole")
    assert len(open_store(store.directory, deep=True)) == 320


def children_of(parent: int) -> list[int]:
    children = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            children.append(int(status.parent.name))
    return children


def wait_for_end(processes: list[int]) -> None:
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{process}").exists() for process in processes):
        assert time.monotonic() < deadline, "a decoding process outlived its killed parent"
        time.sleep(0.05)


def test_a_torn_journal_and_damaged_chunk_are_not_trusted(tmp_path: Path) -> None:
    table = make_images(tmp_path / "images", 200)
    pack(table, tmp_path / "whole", 16)
    assert table.paths is not None
    victim = Path(str(table.paths[190]))
    good, times = victim.read_bytes(), victim.stat()
    victim.write_bytes(good[:50])
    with pytest.raises(InputError):
        pack(table, tmp_path / "store", 16)
    victim.write_bytes(good)
    os.utime(victim, ns=(times.st_atime_ns, times.st_mtime_ns))
    journal = tmp_path / "store" / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    assert len(lines) == 3
    journal.write_text("".join(lines[:2]) + lines[2][:40])
    with (tmp_path / "store" / "images.part").open("r+b") as part:
        part.seek(5 * 256)
        part.write(b"\0" * 256)
    pack(table, tmp_path / "store", 16)
    assert content(tmp_path / "store") == content(tmp_path / "whole")


def test_what_was_packed_before_an_interruption_counts_only_while_its_file_is_the_same(tmp_path: Path) -> None:
    """The first chunk is in place when image 190 turns out to be broken; then image 3 of that chunk is replaced."""
    table = make_images(tmp_path / "images", 200)
    assert table.paths is not None
    broken, replaced = (Path(str(table.paths[number])) for number in (190, 3))
    good = broken.read_bytes()
    broken.write_bytes(good[:50])
    with pytest.raises(InputError):
        pack(table, tmp_path / "store", 16)
    assert (tmp_path / "store" / "journal.jsonl").exists()
    broken.write_bytes(good)
    Image.fromarray(np.full((24, 24), 77, dtype=np.uint8)).save(replaced)
    store = pack(table, tmp_path / "store", 16)
    assert (store.images[store.rows(["0003"])] == 77).all()
    assert not (store.images[store.rows(["0004"])] == 77).all()


def test_killed_after_the_rename_it_still_finishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_images(tmp_path / "images", 20)
    pack(table, tmp_path / "whole", 16)

    def stop(path: Path, value: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store_module, "write_json", stop)
        with pytest.raises(KeyboardInterrupt):
            pack(table, tmp_path / "store", 16)
    assert not (tmp_path / "store" / "images.part").exists()
    with pytest.raises(InputError, match="interrupted"):
        open_store(tmp_path / "store")
    monkeypatch.setattr(store_module, "read_chunks", lambda paths, size, starts, *rest, **more: iter_nothing(starts))
    pack(table, tmp_path / "store", 16)
    assert content(tmp_path / "store") == content(tmp_path / "whole")


def iter_nothing(starts: list[int]):
    assert starts == []
    yield from ()


def test_a_real_file_size_limit_is_one_line_and_leaves_nothing_complete(tmp_path: Path) -> None:
    table = make_images(tmp_path / "images", 100)
    process = start_packing(tmp_path, table, tmp_path / "store", 64, 1, limit=200_000)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 2, errors
    assert "Cannot write" in output
    assert output.count("\n") == 1
    with pytest.raises(InputError, match="No packed images"):
        open_store(tmp_path / "store")
    assert len(pack(table, tmp_path / "store", 64)) == 100


def test_a_full_disk_in_the_middle_is_one_line_and_can_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_images(tmp_path / "images", 200)
    pack(table, tmp_path / "whole", 16)
    real = Path.open

    class Full:
        def __init__(self, stream):
            self.stream, self.left = stream, 100 * 256

        def write(self, content):
            if len(content) > self.left:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.left -= len(content)
            return self.stream.write(content)

        def __getattr__(self, name):
            return getattr(self.stream, name)

    def open_full(path: Path, *arguments, **options):
        stream = real(path, *arguments, **options)
        return Full(stream) if path.name == "images.part" else stream

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", open_full)
        with pytest.raises(InputError, match="No space left on device") as error:
            pack(table, tmp_path / "store", 16)
    assert "images.part" in str(error.value)
    assert len((tmp_path / "store" / "journal.jsonl").read_text().splitlines()) == 1
    pack(table, tmp_path / "store", 16)
    assert content(tmp_path / "store") == content(tmp_path / "whole")


def test_free_space_is_checked_before_anything_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_images(tmp_path / "images", 3)
    monkeypatch.setattr(store_module, "read_chunks", None)
    with pytest.raises(InputError, match=r"Packing needs 300,000,000\.0 MB .* MB are free"):
        pack(table, tmp_path / "store", 10_000_000)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"size": 0}, "size of 0"), ({"size": 8, "workers": 0}, "0 processes")],
)
def test_impossible_settings_are_refused(tmp_path: Path, options: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        pack(make_images(tmp_path / "images", 1), tmp_path / "store", **options)


def test_tables_without_rows_or_files_are_refused(tmp_path: Path) -> None:
    table = make_images(tmp_path / "images", 2)
    with pytest.raises(InputError, match="empty"):
        pack(table.take(np.zeros(2, dtype=bool)), tmp_path / "store", 8)
    with pytest.raises(InputError, match="no image files"):
        pack(LabelTable(table.ids, table.classes, table.values), tmp_path / "store", 8)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="Cannot write"):
        pack(table, tmp_path / "file", 8)
    with pytest.raises(InputError, match="pack them first"):
        open_store(tmp_path / "absent")


@pytest.mark.slow
def test_two_processes_take_turns(tmp_path: Path) -> None:
    table = make_images(tmp_path / "images", 100)
    both = [start_packing(tmp_path, table, tmp_path / "store", 32, 1) for _ in range(2)]
    for process in both:
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 0, output + errors
    assert len(open_store(tmp_path / "store", deep=True)) == 100


@pytest.mark.skipif(not REAL.is_dir(), reason="needs the real images in ../shared/data/nih")
def test_real_radiographs_pack_exactly(tmp_path: Path) -> None:
    paths = sorted(REAL.iterdir())[:100]
    table = LabelTable(
        np.array([path.name for path in paths]),
        ("A",),
        np.zeros((100, 1)),
        np.array([str(path) for path in paths]),
    )
    store = pack(table, tmp_path / "store", 128)
    np.testing.assert_array_equal(store.images[99], np.asarray(Image.open(paths[99]).convert("L")))
    assert (store.original_sizes == 128).all()
