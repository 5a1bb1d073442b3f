"""Two processes that share every batch give what one gives: flags, labels, memory and metrics."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch.distributed as distributed

from bomd import processes
from bomd.cli import main
from bomd.config import parse
from bomd.data.datasets import phantom
from bomd.data.store import pack
from bomd.experiments.experiment import run_on
from bomd.methods import METHODS
from bomd.methods.nearest import find_nearest
from bomd.networks import device
from bomd.runs import Stages

RECIPE = """
name = "shared"
method = "{method}"
validation = 0.2

[images]
size = 32

[train]
dataset = "phantom"
count = 75

[test.south]
dataset = "phantom"
hospital = "south"
split = "test"
count = 31

[noise]
kind = "symmetric"
rows = 0.4
labels = 0.4

[fit]
backbone = "small"
weights = "none"
epochs = 2
batch = 15
rate = 0.002
betas = [0.9, 0.999]
eps = 1e-8
augment = "light"

[bomd]
epochs = 2
batch = 15
rate = 0.003
neighbours = 3

[device]
accelerator = "cpu"
precision = "64-true"
"""


def run(folder: Path, method: str, count: int) -> Path:
    """The real command in `count` processes; the batch of 15 does not divide by two on purpose."""
    folder.mkdir()
    recipe = folder / "recipe.toml"
    recipe.write_text(RECIPE.format(method=method))
    start = [sys.executable, "-m"]
    if count > 1:
        start += ["torch.distributed.run", "--standalone", f"--nproc-per-node={count}", "-m"]
    done = subprocess.run(
        [*start, "bomd.cli", "run", str(recipe), "--runs", str(folder / "runs")],
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"},
    )
    assert done.returncode == 0, done.stderr[-20_000:]  # the launcher's own words are the last, and long
    (result,) = (folder / "runs" / "shared").glob("*/*/result.json")
    return result.parent


def start_two(folder: Path, *command: str) -> list[subprocess.Popen[str]]:
    """As `torchrun` starts them, but without its agent, which ends the second when the first has died."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    shared |= {"OMP_NUM_THREADS": "1"}
    return [
        subprocess.Popen(
            [sys.executable, *command],
            cwd=folder,
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]


EXCHANGES = """
import os, signal
import torch
from bomd import processes, spread
from bomd.config import DeviceSettings
from bomd.networks.device import make_fabric

make_fabric(DeviceSettings(accelerator="cpu"))
processes.wait()
if not processes.first():
    os.kill(os.getpid(), signal.SIGKILL)
weight = torch.nn.Parameter(torch.ones(3))
weight.sum().backward()
for exchange in (
    processes.wait,
    lambda: processes.agreed(True),
    lambda: spread.gather(torch.ones(2, 3), 4),
    lambda: spread.average_gradients([weight]),
    lambda: spread.Together().total(torch.ones(3)),
):
    try:
        exchange()
    except processes.LostProcessError as error:
        print(type(error.__cause__).__name__, "by peer" in str(error.__cause__), str(error))
"""


@pytest.mark.slow
def test_whoever_is_left_is_told_by_every_exchange(tmp_path: Path) -> None:
    left, killed = start_two(tmp_path, "-c", EXCHANGES)
    assert killed.wait(900) == -signal.SIGKILL
    said, problem = left.communicate(timeout=900)
    assert left.returncode == 0, problem
    lines = said.splitlines()
    assert len(lines) == 5
    for line in lines:
        assert re.fullmatch(
            r"RuntimeError True Another process of this run ended or no longer answers \(connection \w+ by peer\)\. "
            r"The same command continues where it stopped\.",
            line,
        )


PATIENT = """
import datetime, time
import torch.distributed.distributed_c10d as library
library.default_pg_timeout = datetime.timedelta(seconds=3)  # half an hour, or ten minutes among GPUs
from bomd import processes
from bomd.config import DeviceSettings
from bomd.networks.device import make_fabric

make_fabric(DeviceSettings(accelerator="cpu"))
with processes.first_before_others():
    if processes.first():
        time.sleep(9)  # as if it packed a large set
print(processes.agreed(True))
"""


@pytest.mark.slow
def test_others_wait_for_the_first_as_long_as_its_work_takes(tmp_path: Path) -> None:
    for process in start_two(tmp_path, "-c", PATIENT):
        said, problem = process.communicate(timeout=900)
        assert (process.returncode, said) == (0, "True\n"), problem


LEAVES = """
import atexit
from pathlib import Path
import torch
from bomd.config import DeviceSettings
from bomd.networks.device import make_fabric

def threads():
    return sorted((thread / "comm").read_text().strip() for thread in Path("/proc/self/task").iterdir())

# What is registered first runs last: after the group was left.
atexit.register(lambda: print([name for name in threads() if "gloo" in name]))
make_fabric(DeviceSettings(accelerator="cpu"))
print([name for name in threads() if "gloo" in name])
weight = torch.nn.Parameter(torch.ones(3))
weight.sum().backward()
torch.optim.Adam([weight]).step()  # a first step imports what would hold the group
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads have names in /proc")
def test_a_group_that_is_left_leaves_no_thread_to_outlive_python(tmp_path: Path) -> None:
    for process in start_two(tmp_path, "-c", LEAVES):
        said, problem = process.communicate(timeout=900)
        assert process.returncode == 0, problem
        during, after = said.splitlines()
        assert "gloo" in during
        assert after == "[]"


@pytest.mark.parametrize(
    ("backend", "fails", "leaves"),
    [("nccl", False, True), ("nccl", True, False), ("gloo", False, True), ("gloo", True, True)],
)
def test_who_has_failed_does_not_wait_for_those_who_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, fails: bool, leaves: bool
) -> None:
    """NCCL's processes leave a group together; one that failed alone, on a full disk, would never end."""
    left: list[str] = []
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_backend", lambda: backend)
    monkeypatch.setattr(distributed, "destroy_process_group", lambda: left.append(backend))
    monkeypatch.setattr(processes, "_in_step", True)
    if fails:
        with pytest.raises(KeyError):  # there are no tables
            run_on(parse({"train": {"dataset": "phantom"}}, METHODS), {}, root=tmp_path)
    else:
        with processes.together():
            assert not processes.in_step()
    device._leave()
    assert left == ([backend] if leaves else [])


SEARCHES = """
import sys
from pathlib import Path
import numpy as np
from bomd import processes
from bomd.config import DeviceSettings
from bomd.filling import Filling
from bomd.methods.nearest import find_nearest
from bomd.networks.device import make_fabric
from bomd.runs import Stages

make_fabric(DeviceSettings(accelerator="cpu"))
add, seen = Filling.add, []

def watched(file, rows):
    processes.wait()  # the other one searches, too
    seen.extend(sorted(place.name for place in file.path.parent.glob("angles*")))
    processes.wait()
    add(file, rows)

Filling.add = watched
vectors = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)
stages = Stages(Path("stages"))
found = find_nearest(vectors, 4, np.arange(40), stages, [vectors], by_angle=True, device="cpu")
left = sorted(place.name for place in Path("stages").glob("*/*") if not place.name.startswith("."))
print(seen, left, found.indices.tolist(), found.distances.tolist())
"""


@pytest.mark.slow
def test_a_search_of_two_takes_the_disk_of_one(tmp_path: Path) -> None:
    """Copies of length one may be as large as the disk has room for, and one is enough for all."""
    vectors = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)
    one = find_nearest(vectors, 4, np.arange(40), Stages(tmp_path / "one"), [vectors], by_angle=True, device="cpu")
    expected = f"['angles.npy'] ['finished.json', 'nearest.npy'] {one.indices.tolist()} {one.distances.tolist()}\n"
    for process in start_two(tmp_path, "-c", SEARCHES):
        said, problem = process.communicate(timeout=900)
        assert (process.returncode, said) == (0, expected), problem


FEW = """
from pathlib import Path
import torch
from bomd.config import DeviceSettings
from bomd.data.batches import Images
from bomd.data.datasets import phantom
from bomd.data.store import open_store
from bomd.describe.written import write_all
from bomd.files import read_array
from bomd.learn.engine import make_fabric, predict
from bomd.methods.base import Method
from bomd.networks.backbone import build

device = make_fabric(DeviceSettings(accelerator="cpu"))
ids = phantom.read(count=1).ids
images = Images(open_store(Path("store")), ids, device.device)
network = build("small", 3, weights="none", seed=0).place(device)
write_all(Path("said.npy"), images, [network], network, what="say")
print(predict(Method(), [network], images).shape, read_array(Path("said.npy")).shape)
"""


@pytest.mark.slow
def test_there_may_be_more_processes_than_images(tmp_path: Path) -> None:
    pack(phantom.read(count=1), tmp_path / "store", 32, render=phantom.render)
    for process in start_two(tmp_path, "-c", FEW):
        said, problem = process.communicate(timeout=900)
        assert (process.returncode, said) == (0, "torch.Size([1, 3]) (1, 3)\n"), problem


def test_an_error_of_an_exchange_that_has_another_cause_stays_what_it_is() -> None:
    with pytest.raises(RuntimeError, match="out of memory"), processes.exchange():
        raise RuntimeError("CUDA out of memory")


@pytest.mark.slow
def test_a_run_whose_other_process_was_killed_ends_with_a_line_and_goes_on(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE.format(method="bce").replace("epochs = 2", "epochs = 8", 1))
    command = ("-m", "bomd.cli", "run", str(recipe))
    left, killed = start_two(tmp_path, *command)
    while not list(tmp_path.glob("runs/stages/*/checkpoint.pt")):
        assert left.poll() is None
        assert killed.poll() is None
        time.sleep(0.02)
    killed.kill()
    _, problem = left.communicate(timeout=900)
    assert left.returncode == 1
    assert "Traceback" not in problem
    assert problem.rstrip().splitlines()[-1].startswith("Another process of this run ended")
    assert not list(tmp_path.glob("runs/shared/*/*/result.json"))
    again = start_two(tmp_path, *command)
    assert [(process.communicate(timeout=900), process.returncode)[1] for process in again] == [0, 0]
    assert len(list(tmp_path.glob("runs/shared/*/*/result.json"))) == 1


def test_a_cluster_s_own_variables_do_not_make_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("RANK", "3")
    assert (processes.count(), processes.rank(), processes.first()) == (1, 0, True)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "torchrun sets it")
    assert (processes.count(), processes.rank(), processes.first()) == (8, 3, False)


def test_other_commands_are_for_one_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"WORLD_SIZE": "2", "RANK": "0", "TORCHELASTIC_RUN_ID": "x"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as left:
        main(["methods"])
    assert left.value.code == 2
    assert "Only `run`" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("method", ["bomd", "bomd-plus", "elr", "dividemix"])  # the last mixes images
def test_two_processes_give_what_one_gives(tmp_path: Path, method: str) -> None:
    """In float64, where another order of the same sums changes no flag and no digit that is compared."""
    one, two = (run(tmp_path / str(count), method, count) for count in (1, 2))
    labels = [np.load(place / "labels.npz", allow_pickle=False) for place in (one, two)]
    assert set(labels[0].files) == set(labels[1].files)
    for name in labels[0].files:
        first, second = (part[name] for part in labels)
        if first.dtype.kind == "f":
            np.testing.assert_allclose(second, first, rtol=1e-5, atol=1e-6, err_msg=name)
        else:
            np.testing.assert_array_equal(second, first, err_msg=name)
    predictions = [np.load(place / "predictions.npz", allow_pickle=False) for place in (one, two)]
    for name in predictions[0].files:
        first, second = (part[name] for part in predictions)
        assert first.shape == second.shape
        if first.dtype.kind == "f":
            np.testing.assert_allclose(second, first, rtol=1e-5, atol=1e-6, err_msg=name)
    results = [json.loads((place / "result.json").read_text()) for place in (one, two)]
    for name, scores in results[0]["tests"].items():
        assert results[1]["tests"][name]["mean_auc"] == pytest.approx(scores["mean_auc"], abs=1e-9)
    losses = [
        [json.loads(line)["loss"] for line in (place / "metrics.jsonl").read_text().splitlines()]
        for place in (one, two)
    ]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-9)
