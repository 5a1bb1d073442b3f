"""The page about starts says what its table says, and what is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bomd.experiments.recorded import Record
from bomd.files import write_text
from bomd.reports.sheet import rows_to_csv
from evidence import ROOT
from evidence.pages import pretraining as pages


def record(start: str, seed: int, auc: float, noise: dict[str, Any] | None = None, **fit: Any) -> Record:
    tests = {"validation": {"mean_auc": 0.1 if noise else auc}}
    if noise:
        tests["validation before noise"] = {"mean_auc": auc}
    written = {
        "run": f"{start}-{seed}",
        "config": {
            "name": "nih-64",
            "method": "bce",
            "seed": seed,
            "noise": noise or {"kind": "none"},
            "fit": {"backbone": "efficientnet_lite0", "weights": start, **fit},
        },
        "result": {"tests": tests},
        "environment": {},
    }
    return Record(written, "made up")


def test_the_page_is_what_the_table_says() -> None:
    assert (ROOT / "docs" / "pretraining.md").read_text() == pages.page(pages.read_scores(pages.TABLE))


def test_numbers_by_hand(tmp_path: Path) -> None:
    """Gaps .03, .04, .05: mean .04, and t(.975, 2) = 4.303 times .01 / sqrt(3) is .025. Labels before noise decide."""
    noise = {"kind": "symmetric", "rows": 0.4, "labels": 0.4}
    records = [
        record("imagenet", 0, 0.60, noise),
        record("imagenet", 1, 0.62, noise),
        record("imagenet+phantom", 0, 0.63, noise),
        record("imagenet+phantom", 1, 0.67, noise),
        record("imagenet", 2, 0.61, noise),
        record("imagenet+phantom", 2, 0.65, noise),
        record("densenet-phantom", 0, 0.55, backbone="densenet121"),
        record("imagenet", 1, 0.62, noise),  # twice in two files counts once
    ]
    rows = pages.rows_of(records)
    assert len(rows) == 7
    write_text(tmp_path / "t.csv", rows_to_csv(rows))
    text = pages.page(pages.read_scores(tmp_path / "t.csv"))
    assert "| bce | imagenet | not run | not run | 0.610 ± 0.010 | not run |" in text
    assert "| bce | *imagenet+phantom less imagenet* | not run | not run | +0.040 ± 0.025 * | not run |" in text
    assert (
        "imagenet+phantom against imagenet, held-out NIH patients: higher in 1 of 1 cells, +0.040 on average." in text
    )
    assert "| held-out NIH patients | phantom | 0.550 (one seed) | not run |" in text
    assert "Not run, 46 of 48 cells: bce (none with none, " in text
    assert "; bomd (all); bomd-plus (all)." in text
    assert "| bomd |" not in text, "a line without a number"


def test_without_any_run_the_page_says_so(tmp_path: Path) -> None:
    assert "None of these cells has been run yet." in pages.page(pages.read_scores(tmp_path / "nothing.csv"))


def test_the_trial_makes_starts_before_runs_and_asks_for_each_cell_once(tmp_path: Path) -> None:
    """The command is replaced by one that writes down how it was called."""
    log = tmp_path / "log.jsonl"
    fake = tmp_path / "bomd.py"
    fake.write_text(
        "import json, sys\n"
        f"with open({str(log)!r}, 'a') as stream:\n"
        "    stream.write(json.dumps(sys.argv[1:]) + chr(10))\n"
    )
    settings = {
        "BOMD": f"{sys.executable} {fake}",
        "PARTS": "main densenet variants self",
        "JOBS": "16",
        "SEEDS": "0,1",
    }
    done = subprocess.run(
        ["bash", str(ROOT / "evidence" / "studies" / "pretrain_trial.sh"), str(tmp_path / "out")],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    calls = [json.loads(line) for line in log.read_text().splitlines()]
    kinds = [call[0] for call in calls]
    assert kinds == sorted(kinds, reverse=True), "all of pretrain before any benchmark"
    assert kinds.count("pretrain") == 6
    jobs, cells = {}, {}
    for call in calls[6:]:
        name = Path(call[call.index("--results") + 1]).stem
        jobs[name] = int(call[call.index("--jobs") + 1])
        cells[name] = [call[place + 1] for place, word in enumerate(call) if word == "--cell"]
    assert {name: len(found) for name, found in cells.items()} == {
        "main-bce": 16,
        "main-bomd": 16,
        "main-bomd-plus": 16,
        "densenet": 4,
        "variants": 6,
        "self": 2,
    }
    assert "fit.weights=imagenet+phantom noise.kind=report_mining noise.share=0.2" in cells["main-bce"]
    assert sum(jobs[name] for name in ("main-bce", "main-bomd", "main-bomd-plus", "densenet")) == 16
