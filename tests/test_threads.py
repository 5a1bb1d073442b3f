"""Threads are settled before PyTorch is loaded, and several processes never want more cores than there are."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bomd import threads
from evidence.bench import waiting

NAMES = ("OMP_WAIT_POLICY", "OMP_NUM_THREADS")


def asked(script: str, **more: str) -> object:
    """What a fresh process prints as JSON, without the settings of this one."""
    kept = {name: value for name, value in os.environ.items() if name not in threads.settings(1)}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={**kept, **more}
    )
    return json.loads(done.stdout)


LOOK = f"import json, os, sys; print(json.dumps([os.environ.get(name) for name in {NAMES}] + ['torch' in sys.modules]))"


def test_a_command_settles_them_before_torch_is_loaded() -> None:
    script = f"""
import contextlib, io
from bomd.cli import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main(["methods", "bce"])
{LOOK}"""
    assert asked(script) == ["PASSIVE", str(threads.cores()), False]
    assert asked(script, OMP_NUM_THREADS="7", OMP_WAIT_POLICY="ACTIVE") == ["ACTIVE", "7", False]


def test_python_settles_them_where_it_still_can() -> None:
    assert asked(f"import bomd; bomd.LabelTable\n{LOOK}") == [None, None, False]
    assert asked(f"import bomd; bomd.nearest_images\n{LOOK}") == ["PASSIVE", str(threads.cores()), True]


def test_parts_of_the_evidence_settle_them_as_well() -> None:
    """Nothing there goes through the command line."""
    assert asked(f"import evidence\n{LOOK}") == ["PASSIVE", str(threads.cores()), False]


@pytest.mark.parametrize(("beside", "expected"), [("1", "8"), ("4", "2"), ("16", "1")])
def test_processes_of_one_machine_divide_its_cores(beside: str, expected: str) -> None:
    """Of MKL, too, whose number PyTorch's launcher leaves alone."""
    script = (
        "import json, os; from bomd import threads; threads.cores = lambda: 8; threads.settle();"
        "print(json.dumps([os.environ[name] for name in ('OMP_NUM_THREADS', 'MKL_NUM_THREADS')]))"
    )
    group = {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "32", "RANK": "0", "LOCAL_WORLD_SIZE": beside}
    assert asked(script, **group) == [expected, expected]
    assert asked(script, **group, OMP_NUM_THREADS="1") == ["1", expected]
    assert asked(script, LOCAL_WORLD_SIZE="4") == ["8", "8"]  # a cluster's own


@pytest.mark.slow
@pytest.mark.skipif(threads.cores() < 2, reason="one thread waits for no other")
def test_on_a_busy_machine_training_slows_in_proportion() -> None:
    """By seconds of processors: those on the clock grow with whatever other tests do meanwhile.

    Threads that spin use up the processors while the ones that they wait for cannot run: eighty times as much.
    """
    with waiting.training("small", 64, 16, 40) as train:
        alone = min(train()[1] for _ in range(2))
        with waiting.busy(2 * threads.cores()):
            assert min(train()[1] for _ in range(2)) < 10 * alone


@pytest.mark.parametrize("late", [0, 1])
def test_other_programs_end_with_whoever_asked_for_them(late: int) -> None:
    """Also one that begins to look when whoever asked is gone: it would keep a core, and its output, for ever."""
    script = (
        "import os, signal; from evidence.bench import waiting\n"
        f"waiting.OTHER = 'import time; time.sleep({late})\\n' + waiting.OTHER\n"
        "print(waiting.other_program().pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    other = Path("/proc") / done.stdout.strip() / "cmdline"
    limit = time.monotonic() + 30
    while other.exists() and other.read_bytes() and time.monotonic() < limit:
        time.sleep(0.05)
    assert done.returncode == -signal.SIGKILL
    assert not other.exists() or not other.read_bytes()  # an orphan that nobody has asked after has no words left


def test_whoever_says_how_threads_wait_has_said_how_long_they_look() -> None:
    script = (
        "import json, os; from bomd import threads; threads.settle(); print(json.dumps(os.environ.get(threads.LOOKS)))"
    )
    assert asked(script) == threads.WAITING[threads.LOOKS]
    assert asked(script, **{threads.LOOKS: "7"}) == "7"
    assert asked(script, **{threads.POLICY: "ACTIVE"}) is None


def test_what_would_not_be_noticed_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", sys)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    threads.settle()
    assert "OMP_WAIT_POLICY" not in os.environ


def test_a_worker_gets_its_share_and_no_more() -> None:
    given = threads.for_worker(2, {"PATH": "here", "OMP_NUM_THREADS": "8", "OMP_WAIT_POLICY": "ACTIVE"})
    assert given["OMP_NUM_THREADS"] == given["MKL_NUM_THREADS"] == given[threads.SHARE] == "2"
    assert (given["PATH"], given["OMP_WAIT_POLICY"]) == ("here", "ACTIVE")
    assert threads.for_worker(4, {"OMP_NUM_THREADS": "1"})["OMP_NUM_THREADS"] == "1"
    assert threads.for_worker(0, {})["OMP_NUM_THREADS"] == "1"
    assert threads.LOOKS not in given
    inherited = threads.settings(8) | {threads.LOOKS: "7"}
    assert threads.for_worker(2, inherited) == inherited | threads.settings(2) | {
        threads.LOOKS: "7",
        threads.SHARE: "2",
    }


def test_a_share_counts_for_everything_that_asks_for_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(threads.SHARE, raising=False)
    all_of_them = threads.cores()
    monkeypatch.setenv(threads.SHARE, "1")
    assert threads.cores() == 1
    monkeypatch.setenv(threads.SHARE, "100000")
    assert threads.cores() == all_of_them


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ({"": "max 100000"}, None),
        ({"": "150000 100000"}, 1.5),
        ({"": "400000 100000", "job": "max 100000", "job/step": "50000 100000"}, 0.5),
        ({}, None),
        ({"": "nonsense"}, None),
    ],
)
def test_the_quota_of_a_container_is_the_tightest_of_its_groups(
    groups: dict[str, str], expected: float | None, tmp_path: Path
) -> None:
    for name, limit in groups.items():
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "cpu.max").write_text(limit)
    assert threads.quota(tmp_path, "job/step") == expected


def test_the_quota_of_older_systems(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    for allowed, expected in ((-1, None), (300_000, 3.0)):
        (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(f"{allowed}\n")
        assert threads.quota(tmp_path, "") == expected
