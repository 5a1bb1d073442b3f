"""The study of growth uses the same images in every step; what is done is neither lost nor done again."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from bomd.cli import main as bomd
from bomd.data.store import open_store
from evidence.studies import scale


def read(table: Path) -> list[dict[str, str]]:
    with table.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.slow
def test_training_reads_the_shards_that_were_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both counts use one drawing; done steps are not done again; no step begins when the time is up."""
    monkeypatch.setattr(scale, "cores", lambda: 2)
    table, work = tmp_path / "scale.csv", tmp_path / "work"
    given = ["--images", "12", "8", "--size", "32", "--work", str(work), "--out", str(table)]
    scale.main([*given, "--steps", "draw,files,pack"], say=lambda _: None)
    assert [(row["step"], row["images"]) for row in read(table)] == [
        ("files", "8"), ("pack", "8"), ("draw", "12"), ("files", "12"), ("pack", "12"),
    ]  # fmt: skip
    (packed,) = (work / "8" / "runs" / "stages").glob("images-*")
    assert len(open_store(packed)) == 8
    assert len(list(packed.glob("shard-*"))) == 2
    monkeypatch.chdir(tmp_path)
    again = ["prepare", "folder", "--root", str(work / "8" / "set"), "--size", "32", "-o", str(work / "8/runs/stages")]
    with pytest.raises(SystemExit, match="0"):
        bomd(again)
    assert [packed] == list((work / "8" / "runs" / "stages").glob("images-*")), "a run would pack the images again"
    kept = work / "8" / "pack.json"
    said: list[str] = []
    written = kept.stat().st_mtime_ns
    scale.main([*given, "--seconds", "0"], say=said.append)
    assert kept.stat().st_mtime_ns == written
    assert not (work / "12" / "train.json").exists()
    assert not json.loads(kept.read_text())["resumed"]


@pytest.mark.parametrize("size", ["24", "36"])
def test_a_size_that_the_last_step_would_refuse_is_refused_first(
    size: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        scale.main(["--images", "8", "--size", size, "--work", str(tmp_path / "work")])
    assert "a multiple of 8, or below 32" in capsys.readouterr().err
    assert not (tmp_path / "work").exists()


def test_a_classifier_of_the_fewest_images_predicts_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = []

    def measured(place: scale.Place, step: str) -> scale.Line:
        done.append((place.images, step, place.steps()[step][0][0][1] if step == "predict" else ""))
        return {"seconds": 1.0}

    monkeypatch.setattr(scale, "measure", measured)
    list(scale.measure_all(tmp_path, [90, 30], 16, ["train", "predict"], borrow=True))
    run = str(tmp_path / "30" / "runs" / "scale")
    assert done == [(30, "train", ""), (30, "predict", run), (90, "predict", run)]  # it has to be there first


def a_row(device: str, images: int, step: str, seconds: float) -> scale.Line:
    line = {"images": images, "size": 64, "step": step, "seconds": seconds, "processor_seconds": seconds}
    line |= {"peak_mb": 300, "peak_gpu_mb": 20, "parts": {"learn descriptors": 3.5, "Nearest images": 1.0}}
    return scale.to_rows([line | {"resumed": False}], device)[0]


def test_rows_of_a_gpu_stay_and_those_of_a_cpu_are_of_one_run(tmp_path: Path) -> None:
    table = tmp_path / "scale.csv"
    scale.record([a_row("a GPU", 1000, "train", 9.0), a_row("a GPU", 1000, "audit", 5.0)], table)
    scale.record([a_row("cpu", 500, "pack", 1.0), a_row("cpu", 1000, "pack", 2.0)], table)
    scale.record([a_row("a GPU", 2000, "train", 17.0), a_row("a GPU", 1000, "train", 8.0)], table)
    scale.record([a_row("cpu", 9000, "pack", 3.0) | {"size": 24}], table)
    scale.record([a_row("cpu", 4000, "pack", 1.0)], table)
    found = [(row["device"], row["images"], row["step"], row["seconds"]) for row in read(table)]
    assert found == [
        ("cpu", "4000", "pack", ""),
        ("cpu", "9000", "pack", ""),  # smaller images
        ("a GPU", "1000", "train", "8.0"),
        ("a GPU", "1000", "audit", "5.0"),
        ("a GPU", "2000", "train", "17.0"),
    ]
    assert read(table)[2]["parts"] == "learn descriptors 3.5; Nearest images 1.0"


def test_parts_are_read_from_what_progress_leaves_behind() -> None:
    log = "bomd, seed 0: runs/x\n\rlearn descriptors: 14 in 18.0 s\nReport: 3 in /x s\nNearest images: 2 in 8.8 s\n"
    assert scale.lasted(log) == {"learn descriptors": 18.0, "Nearest images": 8.8}
