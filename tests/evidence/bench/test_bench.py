"""The timings' own arithmetic, and that the CPU's table runs from end to end at tiny sizes."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from bomd.clean.graph import nearest_images
from bomd.errors import InputError
from evidence.bench import __main__ as bench
from evidence.bench import cpu, gpu, released, table


def test_ratios_and_shares_by_hand() -> None:
    """2 s against 10 s and a floor of 1 s: five times faster, half of what is possible; rates the other way round."""
    time = table.Row("a", "s", 2.0, alternative=10.0, floor=1.0, target=3.0)
    assert (time.ratio, time.share_of_floor, time.reached) == (5.0, 0.5, True)
    rate = table.Row("b", "images/s", 50.0, alternative=10.0, floor=100.0, target=60.0)
    assert (rate.ratio, rate.share_of_floor, rate.reached) == (5.0, 0.5, False)
    assert table.Row("c", "s", 1.0).reached is None


def test_slope_of_a_square_is_two() -> None:
    assert table.slope([10, 20, 40, 80], [3, 12, 48, 192]) == pytest.approx(2.0)


def test_rows_of_the_same_item_are_replaced_and_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "speed.csv"
    table.keep([table.Row("a", "s", 1.0), table.Row("b", "s", 2.0)], "one", path)
    table.keep([table.Row("a", "s", 3.0)], "one", path)
    table.keep([table.Row("a", "s", 4.0)], "two", path)
    with path.open() as stream:
        rows = [(row["device"], row["item"], float(row["ours"])) for row in csv.DictReader(stream)]
    assert rows == [("one", "b", 2.0), ("one", "a", 3.0), ("two", "a", 4.0)]


def test_bytes_of_densenet_by_an_independent_count() -> None:
    """Listed layer by layer for 512 px: sides 128, 64, 32, 16 and widths from 64, 128, 256, 512 in steps of 32."""
    total = 11 * 64 * 256**2
    for side, first, layers in ((128, 64, 6), (64, 128, 12), (32, 256, 24), (16, 512, 16)):
        for width in range(first, first + 32 * layers, 32):
            total += (9 * width + 14 * 128) * side**2
    assert gpu.training_bytes(512) == pytest.approx(2 * total)


def test_the_released_search_finds_the_nearest() -> None:
    """With one descriptor each, the smallest rank sum is the nearest image."""
    bags = torch.tensor([[[0.0]], [[1.0]], [[3.0]], [[7.0]]])
    assert released.neighbours_by_rank_sum(bags, range(4), lists=4, keep=2) == [[1, 2], [0, 2], [1, 0], [2, 1]]


def test_three_ways_to_the_same_neighbours() -> None:
    """Those that the search is compared with find what it finds, and a file that is streamed gives no others."""
    bags, rows = cpu.descriptors(200, 16), np.arange(0, 200, 7)
    found = nearest_images(bags, cpu.NEIGHBOURS, device="cpu").indices
    assert (cpu.by_scikit_learn(bags, cpu.NEIGHBOURS) == found).all()
    assert (gpu.by_difference(bags, rows) == found[rows]).all()
    row = cpu.search_a_file(200, 16, 1e-4, torch.device("cpu"))
    assert re.search(r"(99\.\d\d|100\.00)% of the neighbours", row.remark)  # float16 has three digits


@pytest.mark.slow
def test_the_cpu_table_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench.main(["cpu", "--quick", "--results", str(tmp_path / "speed.csv")])  # tiny sizes may miss targets
    with (tmp_path / "speed.csv").open() as stream:
        items = [row["item"] for row in csv.DictReader(stream)]
    assert len(set(items)) == 13
    assert "ranking loss" in capsys.readouterr().out


def test_a_missing_gpu_is_said() -> None:
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="no GPU"):
            bench.main(["gpu"])
