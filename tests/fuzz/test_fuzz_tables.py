"""Label files that are broken in every way, through the readers and through the front door."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bomd import exchange
from bomd.data.datasets import folder

CLASSES = ("Mass", "Edema", "No Finding")
CELLS = (
    *("", " ", "0", "1", "0.5", "-1", "2", "1e999", "-1e999", "inf", "nan", "NaN", "NA", "None", "null", "0x1", "1_0"),
    *("１", "½", "1,5", "true", "YES", "no", "Falsch", "=1+1", "+1", "@SUM(A1)", "-2+3", "'1", "1" * 400, "x" * 5000),
    *(
        "a",
        "b",
        "a.png",
        "../a.png",
        "../../etc/passwd",
        "/etc/passwd",
        "..\\a.png",
        "C:\\a.png",
        "./a",
        "images/a.png",
    ),
    *("a/../../b", "%2e%2e/a", "a\nb", "a\rb", 'a"b', "a'b", "|||", "Mass|Edema", "Mass;Edema", "No Finding|Mass"),
    *("[red]x[/red]", "[/]", "{0}", "%s%n", "\x1b[31m", "\x00", "a\x00", "\u202e", "🙂", "e\u0301", "\ufeff", "\u2028"),
)
HEADERS = ("id", "image", "path", "patient", "split", "labels", "Mass", "mass", "", " ", "id ", "age", "flag", "margin")
HEADERS += (
    "proposed: Mass",
    "proposed: ",
    "margin: Mass",
    "Unnamed: 0",
    "is_label_issue",
    "given_label",
    "classes",
    "=1",
)


def plain(draw: np.random.Generator) -> list[list[str]]:
    """A table that is fine: a header and four rows."""
    rows = [[name, f"p{number // 2}", *draw.choice(["0", "1", ""], 3)] for number, name in enumerate("abcd")]
    return [["id", "patient", *CLASSES], *rows]


def quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"' if any(sign in cell for sign in ',"\r\n') else cell


def encoded(rows: list[list[str]], draw: np.random.Generator) -> bytes:
    separator = str(draw.choice([",", ",", ",", ";", "\t", "|"]))
    end = str(draw.choice(["\n", "\n", "\r\n", "\r"]))
    return end.join(separator.join(map(quoted, row)) for row in rows).encode("utf-8", "surrogatepass") + end.encode()


def bad_cells(draw: np.random.Generator) -> bytes:
    rows = plain(draw)
    for _ in range(draw.integers(1, 4)):
        rows[draw.integers(1, 5)][draw.integers(0, 5)] = str(CELLS[draw.integers(len(CELLS))])
    return encoded(rows, draw)


def bad_header(draw: np.random.Generator) -> bytes:
    rows = plain(draw)
    for _ in range(draw.integers(1, 4)):
        rows[0][draw.integers(0, 5)] = str(draw.choice([*HEADERS, *CELLS[-12:]]))
    return encoded(rows, draw)


def bad_shape(draw: np.random.Generator) -> bytes:
    rows = plain(draw)
    kind = draw.integers(8)
    if kind == 0:
        rows[draw.integers(1, 5)] += ["1"] * int(draw.integers(1, 50))
    elif kind == 1:
        rows[draw.integers(1, 5)] = rows[1][: draw.integers(0, 3)]
    elif kind == 2:
        rows = rows[: draw.integers(0, 2)]
    elif kind == 3:
        rows = [row + [f"c{number}" for number in range(300)] for row in rows]
    elif kind == 4:
        rows += [rows[1]] * int(draw.integers(1, 1000))
    elif kind == 5:
        rows = [row[:1] for row in rows]
    elif kind == 6:
        rows = [["x" * 100_000 if cell == "a" else cell for cell in row] for row in rows]
    else:
        rows = [[] for _ in range(draw.integers(1, 100))] + rows
    return encoded(rows, draw)


def bad_quotes(draw: np.random.Generator) -> bytes:
    text = encoded(plain(draw), draw)
    for _ in range(draw.integers(1, 4)):
        place = int(draw.integers(len(text)))
        text = text[:place] + bytes(draw.choice(np.frombuffer(b"\"'\\,\n\r\t;|", np.uint8), 2)) + text[place:]
    return text


def bad_bytes(draw: np.random.Generator) -> bytes:
    text = encoded(plain(draw), draw)
    kind = draw.integers(7)
    if kind == 0:
        return text[: draw.integers(len(text))]
    if kind == 1:
        return draw.bytes(int(draw.integers(1, 2000)))
    if kind == 2:
        place = int(draw.integers(len(text)))
        return text[:place] + b"\x00" * int(draw.integers(1, 20)) + text[place:]
    if kind == 3:
        return bytes(draw.choice([b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf", b"PK\x03\x04", b"\x1f\x8b"])) + text
    if kind == 4:
        encoding = str(draw.choice(["utf-16", "utf-32", "utf-16-le", "utf-7", "cp500"]))
        return text.decode().encode(encoding)
    if kind == 5:
        return text.replace(b"Mass", "Größe".encode("latin-1"))
    array = np.frombuffer(text, np.uint8).copy()
    array[draw.integers(0, len(array), 5)] = draw.integers(0, 256, 5)
    return array.tobytes()


KINDS = (bad_cells, bad_cells, bad_header, bad_shape, bad_quotes, bad_bytes)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("tables")
    (place / "images").mkdir()
    for number, name in enumerate("abcd"):
        Image.new("L", (9, 9), number).save(place / "images" / f"{name}.png")
    return place


def cases(amount: int, seed: int, place: Path) -> list[tuple[str, Path]]:
    """Files, each with the words that make it again."""
    made = []
    for number in range(amount):
        kind = KINDS[number % len(KINDS)]
        file = place / f"case{number}{('.csv', '.csv', '.tsv')[number % 3]}"
        file.write_bytes(kind(np.random.default_rng([seed, number])))
        made.append((f"{kind.__name__} seed [{seed}, {number}]", file))
    return made


@pytest.mark.slow
def test_readers(images: Path, tmp_path: Path, outcomes: Any) -> None:
    """600 files to the dataset `folder`, and as tables and issues of other tools."""
    made = cases(600, 1, tmp_path)
    forms: list[Any] = [
        lambda file: folder.read(images, labels=file),
        lambda file: exchange.read(file, "table"),
        lambda file: exchange.read(file, "cleanlab"),
    ]
    for number, (case, file) in enumerate(made):
        outcomes.call(case, lambda read=forms[number % 3 if number % 4 else 0], file=file: read(file))
    outcomes.check(600)


@pytest.mark.slow
def test_front_door(images: Path, tmp_path: Path, outcomes: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """200 files typed into verify, labels, prepare and convert."""
    for number, (case, file) in enumerate(cases(200, 2, tmp_path)):
        options = ["folder", "--root", str(images), "--set", f"labels={file}"]
        commands: list[list[str]] = [
            ["verify", *options, "--deep"],
            ["labels", *options],
            ["prepare", *options, "--size", "8", "--output", str(tmp_path / "packed")],
            ["convert", str(file), "-o", str(tmp_path / "out.parquet"), "--set", f"images={images / 'images'}"],
        ]
        outcomes.command(f"{commands[number % 4][0]} {case}", commands[number % 4], capsys)
    outcomes.check(200)


def test_places_that_are_no_files(images: Path, tmp_path: Path, outcomes: Any) -> None:
    """Folders, links to themselves, pipes that nobody writes to, names that no file can have."""
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    os.mkfifo(tmp_path / "pipe.csv")
    names = ["folder.csv", "loop.csv", "pipe.csv", "missing.csv", "x" * 300 + ".csv", "nul\x00.csv"]
    readers = [lambda file: folder.read(images, labels=file)]
    readers += [lambda file, form=form: exchange.read(file, form) for form in exchange.EXCHANGES]
    for name in names:
        for read in readers:
            outcomes.call(name[:20], lambda read=read, name=name: read(tmp_path / name))
    outcomes.check(len(names) * len(readers))
    assert outcomes.worked == 0
