"""A table of labels that is compressed with gzip is read like the plain one, by every command that reads one."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import bomd
from bomd.audits import kept
from bomd.cli import main
from bomd.data import records
from bomd.data.datasets import folder
from bomd.errors import InputError
from bomd.files import checksum, read_json
from bomd.runs import run_of_audit

IMAGES = 24


def run(*words: object) -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return int(stop.value.code or 0)


def table(separator: str = ",") -> str:
    """Half of the images show one thing and half the other; the header has a letter that encodings differ in."""
    rows = [("image", "Mass", "Ödem"), *((f"i{row}.png", row % 2, 1 - row % 2) for row in range(IMAGES))]
    return "".join(separator.join(map(str, row)) + "\r\n" for row in rows)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with photos and features, but no table yet."""
    rng = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    for row in range(IMAGES):
        pixels = rng.integers(0, 256, (32, 32), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / f"i{row}.png")
    kinds = np.eye(2)[np.arange(IMAGES) % 2]
    np.save(tmp_path / "features.npy", kinds + 0.05 * rng.standard_normal((IMAGES, 2)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def audited(name: str, output: str) -> Path:
    """The folder of an audit of that table by features."""
    assert run("audit", name, "--images", "photos", "--features", "features.npy", "--multi-label", "-o", output) == 0
    return Path(output)


@pytest.mark.parametrize(
    ("suffix", "separator", "encoding"),
    [(".csv", ",", "utf-8"), (".tsv", "\t", "utf-8-sig"), (".csv", ";", "utf-16"), (".csv", ",", "cp1252")],
)
def test_an_audit_finds_the_same_and_keeps_the_same(place: Path, suffix: str, separator: str, encoding: str) -> None:
    content = table(separator).encode(encoding)
    (place / f"labels{suffix}").write_bytes(content)
    (place / f"labels{suffix}.gz").write_bytes(gzip.compress(content))
    plain, packed = audited(f"labels{suffix}", "plain"), audited(f"labels{suffix}.gz", "packed")
    assert (packed / "labels_clean.csv").read_bytes() == (plain / "labels_clean.csv").read_bytes()
    one, two = (run_of_audit(found) for found in (plain, packed))
    assert one is not None
    assert two is not None
    assert (two / kept.TABLE).read_bytes() == (one / kept.TABLE).read_bytes()
    for kept_in, file in ((one, place / f"labels{suffix}"), (two, place / f"labels{suffix}.gz")):
        assert read_json(kept_in / kept.FORM)["source"] == {"file": str(file), "digest": checksum(file)}
    assert read_json(two / kept.FORM) | {"source": None} == read_json(one / kept.FORM) | {"source": None}
    assert read_json(two / kept.FORM)["suffix"] == suffix  # reviewed labels go back as such a file
    assert read_json(two / kept.FORM)["digest"] == checksum(two / kept.TABLE)
    assert read_json(packed / "audit.json")["given"] == f"labels{suffix}.gz"
    assert f"labels{suffix}.gz" in (packed / "report.html").read_text(encoding="utf-8")
    assert run("decisions", packed, "-o", "reviewed.csv.gz") == 0
    assert gzip.decompress(Path("reviewed.csv.gz").read_bytes()) == (two / kept.TABLE).read_bytes()
    assert Path("reviewed-details.csv").is_file()


def test_names_are_those_of_the_table_within(place: Path) -> None:
    """The folder of results, and the file that says who decided what in an earlier review."""
    (place / "labels.csv.gz").write_bytes(gzip.compress(table().encode()))
    details = "id,class,given,decided,reviewers,time,unresolved\ni1.png,Mass,0,1,ann,2026-01-01,\n"
    (place / "labels-details.csv").write_text(details)
    found = bomd.audit(place / "labels.csv.gz", place / "photos", features=place / "features.npy", per_image="multi")
    assert found.directory == Path("labels-audit")
    confirmed = found.record.given.confirmed
    assert confirmed is not None
    assert confirmed[1, 0]
    assert confirmed[:, :2].sum() == 1


def test_a_folder_with_one_is_verified_prepared_and_converted(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "labels.csv.gz").write_bytes(gzip.compress(table().encode()))
    assert run("verify", "folder", "--root", place) == 0
    assert f"labels: {IMAGES} rows of {place / 'labels.csv.gz'}" in capsys.readouterr().err
    assert run("prepare", "folder", "--root", place, "--size", 16, "-o", "store") == 0
    assert run("convert", "labels.csv.gz", "-o", "out.tsv.gz") == 0
    written = gzip.decompress(Path("out.tsv.gz").read_bytes()).decode()
    assert written.splitlines()[1] == "i0.png\t0\t1"
    assert run("convert", "out.tsv.gz", "-o", "back.csv") == 0
    assert pd.read_csv("back.csv").equals(pd.read_csv(io.StringIO(table())).rename(columns={"image": "id"}))
    (place / "labels.csv").write_text(table(), encoding="utf-8")
    with pytest.raises(InputError, match=r"holds back.csv, labels.csv, labels.csv.gz, out.tsv.gz: pass labels"):
        folder.read(place)


def test_one_that_is_damaged_or_unpacks_without_end_is_one_line(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it is damaged: at its start, in the middle of the rows, or in its last bytes."""

    def refused(content: bytes, name: str = "labels.csv.gz") -> str:
        (place / name).write_bytes(content)
        assert run("audit", name, "--images", "photos") == 2
        (line,) = [line for line in capsys.readouterr().err.splitlines() if line.strip()]
        assert name in line
        return line

    rng = np.random.default_rng(0)
    rows = "".join(f"{number}.png,{number % 2}\n" for number in rng.permutation(40_000).tolist())
    whole = gzip.compress(f"image,Mass\n{rows}".encode())
    middle = len(whole) // 2
    for content in (whole[:5], whole[:middle], whole[:-3], whole[:middle] + bytes(64) + whole[middle + 64 :]):
        assert "Cannot read" in refused(content)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        tar.addfile(tarfile.TarInfo("labels.csv"), io.BytesIO(b""))
    assert "unpack it" in refused(archive.getvalue(), "labels.tar.gz")
    monkeypatch.setattr(records, "LARGEST", 1 << 20)
    for start in (b"image,Mass\n", "\ufeffimage,Mass\n".encode()):  # with a mark nothing is read to guess the encoding
        bomb = gzip.compress(start + b"0.png,0\n" * (1 << 21))
        assert len(bomb) < 1 << 17
        assert "unpacks to more than 1,048,576 bytes" in refused(bomb)
