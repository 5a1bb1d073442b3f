"""The bench of processes runs on a CPU at a tiny size and keeps what it measured; its page counts as by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as distributed

from bomd import processes
from bomd.networks.backbone import build
from evidence.bench import several_gpus as bench
from evidence.pages import several_gpus as page
from evidence.rows import read_rows


@pytest.mark.slow
def test_every_way_trains_the_same_and_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "TINY", (bench.Case("small", 32, 4, 2),))
    bench.main([str(tmp_path), "--quick", "--rounds", "1", "--epochs", "1"])  # the rate of two steps says nothing
    rows = read_rows(tmp_path / "several-gpus.csv")
    assert [row["way"] for row in rows] == [way.name for way in bench.WAYS]
    assert [row["parameters"] for row in rows] == ["691694"] * 5
    losses = {row["way"]: float(row["loss"]) for row in rows}
    assert losses["group, norms apart"] == losses["alone"]
    assert losses["group"] == pytest.approx(losses["alone"], rel=1e-3)
    assert not distributed.is_initialized()
    assert not processes.joined()


@pytest.mark.slow
def test_turns_that_ended_are_kept_when_the_next_one_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fit, called = bench.fit, 0

    def interrupted(*given: Any, **named: Any) -> Any:
        nonlocal called
        called += 1
        if called == 3:
            raise KeyboardInterrupt
        return fit(*given, **named)

    monkeypatch.setattr(bench, "fit", interrupted)
    monkeypatch.setattr(bench, "TINY", (bench.Case("small", 32, 4, 2),))
    with pytest.raises(KeyboardInterrupt):
        bench.main([str(tmp_path), "--quick", "--rounds", "1", "--epochs", "1"])
    assert [row["way"] for row in read_rows(tmp_path / "several-gpus.csv")] == ["alone", "group"]
    assert not distributed.is_initialized()


def test_no_turn_begins_when_the_time_is_up(tmp_path: Path) -> None:
    assert bench.main([str(tmp_path / "out"), "--quick", "--seconds", "0"]) == 0
    assert not (tmp_path / "out").exists()


def test_recorded_ways_of_all_networks_have_their_turns_first(tmp_path: Path) -> None:
    benches = [bench.Bench(bench.Case(name, 32, 4, 2), tmp_path / name, 1) for name in ("large", "small")]
    order = [(one.case.backbone, way.name) for one, way in bench.turns(benches, bench.WAYS, 2)]
    recorded = ["alone", "group", "group, norms apart"]
    assert order[:12] == [(name, way) for name in ("large", "small") for way in 2 * recorded]
    assert {way for _, way in order[12:]} == {"alone, not recorded", "group, not recorded"}
    assert len(order) == 20


def a_row(**changes: object) -> bench.Measured:
    facts = {"backbone": "densenet121", "size": 224, "batch": 64, "processes": 1, "way": "alone", "parameters": 8}
    facts |= {"images_per_second": 4000.0, "share": 1.0, "loss": 0.5}
    return bench.Measured("GPU", "2026-01-01", "2", **(facts | changes))  # type: ignore[arg-type]


def test_rows_of_another_number_of_processes_stay(tmp_path: Path) -> None:
    path = tmp_path / "kept.csv"
    bench.keep([a_row(), a_row(way="group", share=0.98)], path)
    bench.keep([a_row(processes=8, way="group", share=None), a_row(way="group", share=0.99)], path)
    kept = [(row["processes"], row["way"], row["share"]) for row in read_rows(path)]
    assert kept == [("1", "alone", "1.0"), ("8", "group", ""), ("1", "group", "0.99")]


def test_a_slow_group_and_another_loss_are_complained_about() -> None:
    rows = [a_row(), a_row(way="group", share=0.96), a_row(way="group, norms apart", share=0.98, loss=0.52)]
    slow, other = bench.complaints([*rows, a_row(way="group, not recorded", share=0.2, loss=0.505)])
    assert slow == "densenet121, group: 96.0% of the rate alone, less than 97%"
    assert other == "densenet121, group, norms apart: a loss of 0.5200, not 0.5000"


def test_parameters_and_norms_are_those_of_the_network() -> None:
    """The stem and four blocks of 6, 12, 24 and 16 layers: 1 + 4 + 2 x 58."""
    assert sum(weight.numel() for weight in build("densenet121", 14, weights="none").parameters()) == page.PARAMETERS
    assert page.NORMS == 121


def test_efficiency_by_hand() -> None:
    """Four of 8 bytes each over 2 bytes a second: 2 x 3/4 x 32 / 2 = 24 s beside a step of 72 s; alone nothing."""
    assert page.seconds_of_gradients(4, 2.0, parameters=8, width=4) == 24.0
    assert page.seconds_of_gradients(1, 2.0) == 0.0
    assert page.efficiency(72.0, 24.0, 0) == 0.75
    assert page.efficiency(1e-3, 0.0, 50) == pytest.approx(0.5)


def test_the_page_says_what_was_reached_and_what_was_missed(tmp_path: Path) -> None:
    path = tmp_path / "kept.csv"
    rows = [a_row(), a_row(way="group", share=0.9), a_row(way="group, norms apart", share=0.98)]
    bench.keep([*rows, a_row(way="group, not recorded", share=0.5)], path)
    text = "\n".join(page.measurements(read_rows(path)))
    ends = [line.split("|")[-2].strip() for line in text.splitlines() if line.startswith("| densenet121")]
    assert ends == ["", "**missed**", "reached", ""]


def test_the_page_says_by_how_much_a_step_was_too_slow(tmp_path: Path) -> None:
    """64 images at 3,200 a second are 20 ms; at 2,560 they are 25 ms, where 20 / .97 = 20.62 ms were asked for."""
    path = tmp_path / "kept.csv"
    alone = a_row(batch=64, images_per_second=3200.0)
    bench.keep([alone, replace(alone, way="group", images_per_second=2560.0, share=0.8)], path)
    text = "\n".join(page.measurements(read_rows(path)))
    assert "takes 20.00 ms alone and 5.00 ms more in a group: too much by 4.38 ms." in text
    bench.keep([replace(alone, way="group", images_per_second=3168.0, share=0.99)], path)
    assert "too much" not in "\n".join(page.measurements(read_rows(path)))
