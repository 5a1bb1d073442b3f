"""A step in a group of processes: each works on its share, the sums are exact, and nothing makes the host wait.

A group of one goes through every exchange that a larger one does, in this process; two processes are started for real
where it matters who reads what.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
import torch
import torch.distributed as distributed
from torch import Tensor, nn

from bomd import processes, spread
from bomd.config import DeviceSettings, FitSettings
from bomd.data.batches import Images
from bomd.data.datasets import phantom
from bomd.data.store import pack
from bomd.learn.engine import fit, make_fabric
from bomd.methods.base import Method
from bomd.methods.dividemix import DivideMix
from bomd.networks.backbone import Network, build
from bomd.networks.dense import DenseNet121
from bomd.networks.device import Device
from bomd.networks.whole_norm import WholeBatchNorm
from tests.methods.test_methods import NoCopies, NoWaiting

EXACT = DeviceSettings(accelerator="cpu", precision="64-true")
OWN_DEVICE = DeviceSettings(accelerator="cpu")
OWN_NORMS = DeviceSettings(accelerator="cpu", whole_batch_norm=False)
SETTINGS = FitSettings(backbone="small", weights="none", epochs=2, batch=5, rate=2e-3, betas=(0.9, 0.999), eps=1e-8)


@contextmanager
def group_of_one(folder: Path, backend: str = "gloo") -> Iterator[None]:
    """As `torchrun --nproc-per-node 1` would start it."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0"}.items():
            patch.setenv(name, value)
        store = distributed.FileStore(str(folder / "group"), 1)
        distributed.init_process_group(backend, store=store, rank=0, world_size=1)
        try:
            yield
        finally:
            distributed.destroy_process_group()


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Images:
    table = phantom.read(count=12)
    store = pack(
        table, tmp_path_factory.mktemp("store"), 32, render=lambda ids, size: phantom.render(ids, size).numpy()
    )
    return Images(store, table.ids, torch.device("cpu"))


def train(images: Images, folder: Path, settings: DeviceSettings) -> tuple[Network, list[float]]:
    targets, device = phantom.read(count=12).values, make_fabric(settings)
    images = Images(images._store, images.ids, device.device)
    (network,), history = fit(
        Method(), images, targets, SETTINGS, outputs=14, fabric=device, seed=0, directory=folder, what="t"
    )
    return network, [record["loss"] for record in history]


def gradients(network: nn.Module) -> list[Tensor]:
    return [weight.grad for weight in network.parameters() if weight.grad is not None]


def test_shares_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten rows over three processes: 3, 3 and 4; images of the whole batch by rows of one's own."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    monkeypatch.setenv("WORLD_SIZE", "3")
    together = spread.Together()
    together.images = 10
    assert spread.part_sizes(10) == [3, 3, 4]
    assert together.shares == [0.3, 0.3, 0.4]
    for rank, (start, stop) in enumerate([(0, 3), (3, 6), (6, 10)]):
        monkeypatch.setenv("RANK", str(rank))
        assert spread.own_part(10) == slice(start, stop)
        assert together.rows((stop - start) * 49) == 490


def test_exchanged_gradients_cost_no_digit(images: Images, tmp_path: Path) -> None:
    """A group of one that averages gradients and gathers features ends with the weights of no group at all."""
    alone, losses = train(images, tmp_path / "alone", OWN_NORMS)
    with group_of_one(tmp_path):
        joined, again = train(images, tmp_path / "joined", OWN_NORMS)
    assert losses == again
    assert all(torch.equal(one, other) for one, other in zip(alone.parameters(), joined.parameters(), strict=True))


def test_exchanged_norms_are_batch_norms(images: Images, tmp_path: Path) -> None:
    alone, losses = train(images, tmp_path / "alone", EXACT)
    with group_of_one(tmp_path):
        joined, again = train(images, tmp_path / "joined", EXACT)
    assert sum(isinstance(part, WholeBatchNorm) for part in joined.modules()) == 1 + 4 * 3
    assert again == pytest.approx(losses, rel=1e-9)
    for (name, one), other in zip(alone.state_dict().items(), joined.state_dict().values(), strict=True):
        torch.testing.assert_close(other, one, rtol=1e-7, atol=1e-9, msg=name)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_records_exchanges(images: Images, tmp_path: Path) -> None:
    """The fourth step of each is recorded: three are taken before."""
    gpu = DeviceSettings(accelerator="cuda", precision="32-true")
    _, losses = train(images, tmp_path / "alone", gpu)
    with group_of_one(tmp_path, "nccl"):
        _, again = train(images, tmp_path / "joined", gpu)
    assert again == pytest.approx(losses, rel=1e-3)


@pytest.mark.parametrize("backbone", ["small", "densenet121"])
def test_a_recording_can_hold_every_exchange(backbone: str, tmp_path: Path) -> None:
    """Forward and backward through the norms, the gathered features and the averaged gradients."""
    with group_of_one(tmp_path):
        network = build(backbone, 3, weights="none", seed=0).place(make_fabric(OWN_DEVICE))
        if isinstance(network.trunk, DenseNet121):
            network.trunk.share = True  # the formulas of the kernels
        network.batch, views = 4, torch.randn((4, network.channels, 32, 32))
        for watched in (False, True):
            network.zero_grad()
            with NoWaiting() if watched else nullcontext(), NoCopies() if watched else nullcontext():
                network(views).square().mean().backward()
                spread.average_gradients(list(network.parameters()))
        assert network.shown == 8
        assert all(bool(gradient.isfinite().all()) for gradient in gradients(network))


def test_dense_blocks_in_a_group_of_one_are_those_of_no_group(tmp_path: Path) -> None:
    views, found = torch.randn((2, 3, 32, 32), generator=torch.Generator().manual_seed(0)), []
    for joined in (False, True):
        with group_of_one(tmp_path) if joined else nullcontext():
            network = build("densenet121", 3, weights="none", seed=0).place(make_fabric(OWN_DEVICE))
            assert isinstance(network.trunk, DenseNet121)
            network.trunk.share = True
            logits = network(views)
            logits.square().sum().backward()
            if joined:
                spread.average_gradients(list(network.parameters()))
            found.append([logits, *gradients(network), *network.buffers()])
    assert len(found[0]) > 700
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_averaged_gradients_lie_as_their_weights_do(tmp_path: Path) -> None:
    convolution = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    convolution(torch.randn(2, 3, 5, 5)).square().sum().backward()
    before = [gradient.clone() for gradient in gradients(convolution)]
    with group_of_one(tmp_path):
        spread.average_gradients(list(convolution.parameters()))
    after = gradients(convolution)
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert [part.stride() for part in after] == [part.stride() for part in before]
    assert after[0].untyped_storage().data_ptr() == after[1].untyped_storage().data_ptr()


def test_rows_are_filled_in_place(tmp_path: Path) -> None:
    with group_of_one(tmp_path):
        together, rows = spread.Together(), torch.arange(6.0).view(2, 3)
        assert together.fill(rows).data_ptr() == rows.data_ptr()
        assert together.gather(rows).tolist() == [rows.tolist()]
        assert together.total(rows).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_whoever_mixes_images_has_to_say_so(tmp_path: Path) -> None:
    assert DivideMix.mixes
    with group_of_one(tmp_path):
        network = build("small", 3, weights="none", seed=0).place(make_fabric(OWN_DEVICE))
        network.batch = 4
        with pytest.raises(ValueError, match="mixes = True"):
            network(torch.randn(8, 1, 32, 32))


def test_all_processes_call_a_stage_by_the_same_name() -> None:
    keys = {Device(torch.device("cuda", rank), "32-true", DeviceSettings()).key for rank in range(3)}
    assert len(keys) == 1


SCRIPT = """
import json, sys
from pathlib import Path
import torch
from bomd import processes
from bomd.data.batches import Images
from bomd.data.store import open_store
from bomd.data.datasets import phantom
from bomd.config import DeviceSettings, FitSettings
from bomd.learn.engine import fit, make_fabric
from bomd.methods.base import Method

class Watched(Images):
    def _gather(self, positions):
        read.append(positions.tolist())
        return super()._gather(positions)

read, folder = [], Path(sys.argv[1])
device = make_fabric(DeviceSettings(accelerator="cpu", precision="64-true"))
table = phantom.read(count=12)
images = Watched(open_store(folder / "store"), table.ids, device.device)
settings = FitSettings(backbone="small", weights="none", epochs=2, batch=5, rate=2e-3, betas=(0.9, 0.999), eps=1e-8)
(network,), history = fit(Method(), images, table.values, settings, outputs=14, fabric=device, seed=0,
                          directory=folder / str(processes.count()), what="t")
weights = [float(weight.sum()) for weight in network.state_dict().values()]
found = {"read": read, "loss": [record["loss"] for record in history], "weights": weights}
(folder / f"{processes.count()}-{processes.rank()}.json").write_text(json.dumps(found))
"""


@pytest.mark.slow
def test_each_of_two_processes_reads_its_share_and_learns_the_same(tmp_path: Path) -> None:
    table = phantom.read(count=12)
    pack(table, tmp_path / "store", 32, render=lambda ids, size: phantom.render(ids, size).numpy())
    (tmp_path / "script.py").write_text(SCRIPT)
    for count in (1, 2):
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"] if count > 1 else []
        command = [sys.executable, *launcher, str(tmp_path / "script.py"), str(tmp_path)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=900, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        assert done.returncode == 0, done.stderr[-3000:]
    one, first, second = (json.loads((tmp_path / name).read_text()) for name in ("1-0.json", "2-0.json", "2-1.json"))
    assert [len(batch) for batch in first["read"]] == [2] * 4
    assert [len(batch) for batch in second["read"]] == [3] * 4
    assert [left + right for left, right in zip(first["read"], second["read"], strict=True)] == one["read"]
    assert first["loss"] == second["loss"] == pytest.approx(one["loss"], rel=1e-9)
    assert first["weights"] == second["weights"] == pytest.approx(one["weights"], rel=1e-6, abs=1e-9)
    assert processes.count() == 1
