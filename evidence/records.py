"""The files of records in results/: one for each experiment, compressed. `python -m evidence.records` packs new ones.

A benchmark may write NAME.jsonl, which people can look into, or add to NAME.jsonl.xz itself. Packing leaves out what is
half of a record and drawn from a few experiments alone: the distances in the space of descriptors.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bomd.errors import InputError
from bomd.experiments.recorded import Record, merge, read_records
from bomd.files import beside
from evidence import RESULTS

ENDING = ".jsonl.xz"
ENDINGS = (ENDING, ".jsonl.gz", ".jsonl")
DRAWN = ("demo", "phantom", "nih-64", "nih-small")  # of these, figures of the paper show distances of descriptors
# Experiments of few runs, each of which has a row in NAME.csv. Of others there are means and comparisons; `bomd tables`
# writes the rows of their runs, too.
EVERY_RUN = ("demo", "demo-short", "demo-clean", "nih-small")


def file_of(name: str, results: Path = RESULTS) -> Path:
    """Where the records of an experiment are, or where they will be."""
    found = [path for ending in ENDINGS if (path := results / f"{name}{ending}").exists()]
    if len(found) > 1:
        names = " and ".join(path.name for path in found)
        raise InputError(f"{results} has {names}: make them one, with: python -m evidence.records {results}")
    return found[0] if found else results / f"{name}{ENDING}"


def records_of(name: str, results: Path = RESULTS) -> list[Record]:
    """What is recorded of an experiment; nothing where there is no file yet."""
    path = file_of(name, results)
    return read_records(path) if path.exists() else []


def names(results: Path = RESULTS) -> list[str]:
    """The experiments that have records."""
    return sorted({beside(path, "").name for ending in ENDINGS for path in results.glob(f"*{ending}")})


def pack(results: Path = RESULTS) -> list[Path]:
    """Turn every file of records into a compressed one, adding to what that holds; the newer record of a run counts."""
    packed = []
    for name in names(results):
        target = results / f"{name}{ENDING}"
        for ending in ENDINGS[1:]:
            loose = results / f"{name}{ending}"
            if loose.exists():
                merge(None, read_records(loose), target)
                loose.unlink()
                packed.append(target)
        held = read_records(target)
        if name not in DRAWN and any("space" in record.written["result"] for record in held):
            merge(None, [_without_space(record) for record in held], target)
            packed.append(target)
    return list(dict.fromkeys(packed))


def _without_space(record: Record) -> Record:
    result = {key: value for key, value in record.written["result"].items() if key != "space"}
    return replace(record, written={**record.written, "result": result})


def main(arguments: list[str]) -> None:
    for path in pack(Path(arguments[0]) if arguments else RESULTS):
        print(path)


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
