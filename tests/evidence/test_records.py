"""Records lie in results/ once for each experiment; nothing is lost when new ones are packed."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from bomd.errors import InputError
from bomd.experiments.recorded import Record, read_records
from bomd.files import write_text
from bomd.reports.tables import add_results
from evidence import RESULTS, records


def write(path: Path, found: list[Record]) -> None:
    write_text(path, "".join(json.dumps(record.written) + "\n" for record in found))


@pytest.fixture(scope="module")
def demo() -> list[Record]:
    return records.records_of("demo")


@pytest.mark.parametrize("ending", records.ENDINGS)
def test_records_are_found_in_every_form(demo: list[Record], tmp_path: Path, ending: str) -> None:
    assert records.records_of("toy", tmp_path) == []
    assert records.file_of("toy", tmp_path) == tmp_path / "toy.jsonl.xz"
    write(tmp_path / f"toy{ending}", demo)
    assert records.file_of("toy", tmp_path) == tmp_path / f"toy{ending}"
    assert records.records_of("toy", tmp_path) == demo
    assert records.names(tmp_path) == ["toy"]


@pytest.mark.parametrize("ending", records.ENDINGS)
def test_tables_are_written_beside_them(demo: list[Record], tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"toy{ending}"
    write(path, demo)
    assert add_results([], path)[0] == demo
    assert read_records(path) == demo
    assert (tmp_path / "toy.csv").read_text() == (RESULTS / "demo.csv").read_text()
    assert (tmp_path / "toy-comparison.csv").read_text() == (RESULTS / "demo-comparison.csv").read_text()
    made = {path.name, *(f"toy{part}.{kind}" for part in ("", "-comparison") for kind in ("csv", "md", "tex"))}
    assert {file.name for file in tmp_path.iterdir() if not file.name.endswith(".lock")} == made


def test_new_records_are_packed_with_those_that_are_there(demo: list[Record], tmp_path: Path) -> None:
    again = copy.deepcopy(demo[1])
    again.written["result"]["seconds"] = 12345.0
    write(tmp_path / "toy.jsonl.xz", demo[:2])
    write(tmp_path / "toy.jsonl", [again, demo[2]])
    write(tmp_path / "other.jsonl.gz", demo[3:5])
    with pytest.raises(InputError, match=r"toy\.jsonl\.xz and toy\.jsonl: make them one"):
        records.records_of("toy", tmp_path)
    records.main([str(tmp_path)])
    packed = records.records_of("toy", tmp_path) + records.records_of("other", tmp_path)
    assert [record.run for record in packed] == [record.run for record in (*demo[:3], *demo[3:5])]
    for found, record in zip(packed, [demo[0], again, demo[2], *demo[3:5]], strict=True):
        kept = {key: value for key, value in record.written["result"].items() if key != "space"}
        assert found.written == {**record.written, "result": kept}
    assert {file.name for file in tmp_path.glob("[!.]*")} == {"toy.jsonl.xz", "other.jsonl.xz"}


def test_damaged_records_are_not_packed_away(tmp_path: Path) -> None:
    (tmp_path / "toy.jsonl").write_text("{")
    with pytest.raises(InputError, match="Cannot read"):
        records.pack(tmp_path)
    assert (tmp_path / "toy.jsonl").read_text() == "{"


def test_distances_of_descriptors_stay_where_they_are_drawn(demo: list[Record], tmp_path: Path) -> None:
    assert any("space" in record.written["result"] for record in demo)
    for name in ("demo", "toy"):
        write(tmp_path / f"{name}.jsonl", demo)
    records.main([str(tmp_path)])
    assert records.records_of("demo", tmp_path) == demo
    assert not any("space" in record.written["result"] for record in records.records_of("toy", tmp_path))
    assert records.pack(tmp_path) == []


def test_every_file_of_records_is_packed() -> None:
    for name in records.names():
        if name not in records.DRAWN:
            assert not any("space" in record.written["result"] for record in records.records_of(name)), name
