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
from evidence.pages.pretraining_numbers import rows_of, start_name, tally


def record(
    start: str, seed: int, auc: float, noise: dict[str, Any] | None = None, size: int = 64, **fit: Any
) -> Record:
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
            "images": {"size": size},
            "fit": {"backbone": "efficientnet_lite0", "weights": start, **fit},
        },
        "result": {"tests": tests},
        "environment": {},
    }
    return Record(written, "made up")


def test_the_page_is_what_the_table_says() -> None:
    assert (ROOT / "docs" / "pretraining.md").read_text() == pages.page(pages.read_scores(pages.TABLE), pages.POINTING)


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
        record("none", 0, 0.5, backbone="densenet121"),
        record("imagenet", 1, 0.62, noise),  # twice in two files counts once
        record("imagenet", 0, 0.64, size=128),
        record("imagenet+phantom-128px", 0, 0.66, size=128),
        record("imagenet+phantom-16k-2", 0, 0.62, noise),
    ]
    rows = rows_of(records)
    assert len(rows) == 11
    write_text(tmp_path / "t.csv", rows_to_csv(rows))
    text = pages.page(pages.read_scores(tmp_path / "t.csv"), tmp_path / "nothing.csv")
    assert "| bce | imagenet | not run | not run | 0.610 ± 0.010 | not run |" in text
    assert "| bce | *imagenet+phantom less imagenet* | not run | not run | +0.040 ± 0.025 * | not run |" in text
    assert (
        "- imagenet+phantom against imagenet, held-out NIH patients: higher in 1 of 1 settings, "
        "+0.040 on average (three seeds)." in text
    )
    assert (
        "On top of ImageNet weights this raised the mean AUC on held-out NIH patients in 1 of 1 settings of method and "
        "noise, by 0.040 on average (three seeds; beyond chance in 1)." in " ".join(text.split())
    )
    assert "| held-out NIH patients | imagenet+phantom | 0.660 (one seed) | +0.020 (one seed) | not run |" in text
    assert "| held-out NIH patients | 16,000, twice: what a CPU makes | not run | not run | 0.620 (one seed) |" in text
    assert "Images of 64 and 128 pixels" in text
    assert "a CPU makes is worth its minutes" not in text, "it was run"
    assert "| held-out NIH patients | phantom | 0.550 (one seed) | " in text
    assert "Not run, 46 of 48 cells: bce (none with none, " in text
    assert "; bomd (all); bomd-plus (all)." in text
    assert "| bomd |" not in text, "a line without a number"


def test_without_any_run_the_page_says_so(tmp_path: Path) -> None:
    text = pages.page(pages.read_scores(tmp_path / "nothing.csv"), tmp_path / "nothing.csv")
    assert "has not been measured" in text
    assert "None of these cells has been run yet." in text


def test_settings_with_the_same_numbers_count_once(tmp_path: Path) -> None:
    """Plain training and bomd-plus are one thing where nothing was changed; a loss is a loss, and two seeds are few."""
    records = [
        Record({**one.written, "config": {**one.written["config"], "method": method}}, "made up")
        for method in ("bce", "bomd-plus")
        for seed in (0, 1)
        for one in (record("imagenet", seed, 0.7), record("imagenet+phantom", seed, 0.68 + seed / 100))
    ]
    write_text(tmp_path / "t.csv", rows_to_csv(rows_of(records)))
    scores = pages.read_scores(tmp_path / "t.csv")
    found = tally(scores, "imagenet+phantom", "imagenet", "held-out patients")
    assert found is not None
    assert (found.settings, found.higher, found.clearly_lower, found.seeds) == (1, 0, 0, (2, 2))
    assert "lowered the mean AUC" in pages.finding(scores)
    assert "too few to be certain" in pages.finding(scores)


def test_where_heat_maps_point(tmp_path: Path) -> None:
    """Gaps .2, .3, .4 over three seeds: mean .3, half of the interval 4.303 x .1 / sqrt(3)."""
    lines = ["start,labels,seed,test,images,hits,chance"]
    for seed, (plain, ours) in enumerate([(0.1, 0.3), (0.1, 0.4), (0.2, 0.6)]):
        lines.append(f'imagenet,no noise,{seed},"phantoms, south",200,{plain},0.05')
        lines.append(f'imagenet+phantom,no noise,{seed},"phantoms, south",200,{ours},0.05')
    lines.append('imagenet+phantom-place,as it was made,0,"phantoms, south",200,0.8,0.05')
    (tmp_path / "p.csv").write_text("\n".join(lines) + "\n")
    text = pages.pointing_table(tmp_path / "p.csv")
    assert "200 findings" in text
    assert "would hit 0.050" in text
    assert "| imagenet |  | 0.133 ± 0.058 |  | not run |  |" in text
    assert "| imagenet+phantom |  | 0.433 ± 0.153 | +0.300 ± 0.248 * | not run | not run |" in text
    assert "| imagenet+phantom-place | 0.800 | not run |" in text


def test_lines_of_a_smaller_table_have_the_same_seeds(tmp_path: Path) -> None:
    """The reference has a third seed, which is much worse, and which says nothing about the others."""
    records = [record("imagenet", seed, auc) for seed, auc in enumerate((0.7, 0.72, 0.2))]
    records += [record("imagenet+self", seed, auc) for seed, auc in enumerate((0.71, 0.73))]
    write_text(tmp_path / "t.csv", rows_to_csv(rows_of(records)))
    text = pages.smaller(pages.read_scores(tmp_path / "t.csv"), pages.OWN, "imagenet")
    assert "| held-out NIH patients | imagenet | 0.710 ± 0.014 |  | not run |  |" in text
    assert "| held-out NIH patients | imagenet+self | 0.720 ± 0.014 | +0.010 (two seeds) | not run | not run |" in text
    assert text.startswith("Two seeds. On held-out NIH patients no difference is beyond chance. Not run: ")


def test_names_of_starts() -> None:
    assert start_name("densenet-phantom", 64) == "phantom"
    assert start_name("imagenet+phantom-128px", 128) == "imagenet+phantom, 128 px"
    assert start_name("imagenet+phantom-30k-3", 64) == "imagenet+phantom-30k-3"


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
        "PYTHON": f"{sys.executable} {fake}",
        "PARTS": "main densenet variants amount sizes self pointing",
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
    assert kinds == sorted(kinds, reverse=True), "all of pretrain before any benchmark, and heat maps at the end"
    assert kinds.count("pretrain") == 11
    assert kinds.count("-m") == 1
    jobs, cells = {}, {}
    for call in calls[11:-1]:
        name = Path(call[call.index("--results") + 1]).stem
        jobs[name] = int(call[call.index("--jobs") + 1])
        cells[name] = [call[place + 1] for place, word in enumerate(call) if word == "--cell"]
    assert {name: len(found) for name, found in cells.items()} == {
        "main-bce": 16,
        "main-bomd": 16,
        "main-bomd-plus": 16,
        "densenet": 4,
        "variants": 6,
        "amount": 8,
        "sizes": 4,
        "self": 4,
        "pointing": 6,
    }
    assert list(cells)[-1] == "pointing", "it may need the runs of the others"
    many = next(call for call in calls if call[-1].endswith("imagenet+phantom-360k-1"))
    assert many[many.index("--count") : many.index("--count") + 4] == ["--count", "360000", "--epochs", "1"]
    assert all(cell.startswith("images.size=128 ") for cell in cells["sizes"])
    assert "fit.weights=imagenet+phantom noise.kind=report_mining noise.share=0.2" in cells["main-bce"]
    assert sum(jobs[name] for name in ("main-bce", "main-bomd", "main-bomd-plus", "densenet")) == 16
