"""The one training loop: it learns, repeats exactly, and continues after a crash as if nothing had happened."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from bomd.config import DeviceSettings, FitSettings
from bomd.data.augment import draw
from bomd.data.batches import Images
from bomd.data.store import pack
from bomd.errors import InputError
from bomd.learn.engine import Batch, History, fit, make_fabric, predict, rate_factor
from bomd.methods.base import Method, masked_cross_entropy
from bomd.networks.backbone import Network, build
from bomd.networks.dense import DenseNet121
from bomd.seeds import derive
from bomd.tables import LabelTable

SETTINGS = FitSettings(
    backbone="small",
    weights="none",
    epochs=3,
    batch=8,
    rate=2e-3,
    betas=(0.9, 0.999),
    eps=1e-8,
    augment="light",
)
FABRIC = make_fabric(DeviceSettings(accelerator="cpu"))
LABELS = np.tile(np.array([[1, 0], [0, 1]], dtype=np.float32), (20, 1))


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Images:
    """40 images: class 0 is bright above, class 1 is bright below, the rest is noise."""
    random = np.random.default_rng(0)
    pixels = random.integers(0, 100, (40, 32, 32), dtype=np.uint8)
    pixels[0::2, :12] += 120
    pixels[1::2, 20:] += 120
    ids = np.array([f"i{number:02}" for number in range(40)])
    table = LabelTable(ids, ("above", "below"), LABELS)

    def render(names: Sequence[str], size: int) -> np.ndarray:
        return pixels[[int(name[1:]) for name in names]]

    store = pack(table, tmp_path_factory.mktemp("store"), 32, render=render)
    return Images(store, ids, FABRIC.device)


def train(
    images: Images, directory: Path, learner: Method | None = None, seed: int = 0, **changes: object
) -> tuple[list[Network], History]:
    validate = changes.pop("validate", None)
    networks, history = fit(
        learner or Method(),
        images,
        LABELS,
        replace(SETTINGS, **changes),  # type: ignore[arg-type]
        outputs=2,
        fabric=FABRIC,
        seed=seed,
        directory=directory,
        what="test",
        validate=validate,  # type: ignore[arg-type]
    )
    return list(networks), history


def same(one: Sequence[Network], other: Sequence[Network]) -> bool:
    pairs = zip(one[0].state_dict().values(), other[0].state_dict().values(), strict=True)
    return all(torch.equal(first, second) for first, second in pairs)


def test_it_learns(images: Images, tmp_path: Path) -> None:
    networks, history = train(images, tmp_path, epochs=8)
    assert history[-1]["loss"] < history[0]["loss"] / 2
    scores = predict(Method(), networks, images).numpy()
    assert ((scores > 0.5) == LABELS).mean() > 0.95


def test_same_seed_same_weights(images: Images, tmp_path: Path) -> None:
    first, _ = train(images, tmp_path / "a")
    again, _ = train(images, tmp_path / "b")
    other, _ = train(images, tmp_path / "c", seed=1)
    assert same(first, again)
    assert not same(first, other)


def test_where_the_images_lie_changes_nothing(images: Images, tmp_path: Path) -> None:
    resident = Images(images._store, images.ids, FABRIC.device, resident=True)
    assert resident.resident
    assert not images.resident
    assert same(train(images, tmp_path / "read")[0], train(resident, tmp_path / "resident")[0])


def test_without_the_fast_ways_the_kernels_are_off() -> None:
    fabric = make_fabric(DeviceSettings(accelerator="cpu", kernels=False, resident="never"))
    network = build("densenet121", 2, weights="none", seed=0).place(fabric)
    assert isinstance(network.trunk, DenseNet121)
    assert network.trunk.share is False
    assert fabric.resident() is False


class Counting(Method):
    """Remembers how often each image was seen; a crash is asked for at one epoch."""

    def __init__(self, crash_at: int | None = None) -> None:
        self.seen = torch.zeros(40)
        self.crash_at = crash_at

    def buffers(self) -> dict[str, Tensor]:
        return {"seen": self.seen}

    def start_epoch(self, epoch: int, predict: object) -> None:
        if epoch == self.crash_at:
            raise KeyboardInterrupt

    def loss(self, logits: Tensor, targets: Tensor, index: Tensor) -> Tensor:
        self.seen[index] += 1
        return masked_cross_entropy(logits, targets) * self.seen[index].mean()


def test_interrupted_equals_uninterrupted(images: Images, tmp_path: Path) -> None:
    whole_learner = Counting()
    whole, whole_history = train(images, tmp_path / "whole", whole_learner)
    for epoch in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            train(images, tmp_path / "cut", Counting(crash_at=epoch))
    cut_learner = Counting()
    cut, cut_history = train(images, tmp_path / "cut", cut_learner)
    assert same(whole, cut)
    assert torch.equal(whole_learner.seen, cut_learner.seen)
    assert [record["loss"] for record in whole_history] == [record["loss"] for record in cut_history]
    assert whole_learner.seen.sum() == 3 * 40


def test_incomplete_batches_wait_for_another_epoch(images: Images, tmp_path: Path) -> None:
    learner = Counting()
    _, history = train(images, tmp_path / "a", learner, batch=16)
    assert learner.seen.sum() == 3 * 32
    assert history[0]["images"] == 32
    learner = Counting()
    train(images, tmp_path / "b", learner, batch=500, epochs=1)
    assert learner.seen.sum() == 40


def test_best_epoch_is_chosen_by_the_validation_score_alone(images: Images, tmp_path: Path) -> None:
    scores = iter([0.2, 0.9, 0.5])
    best, history = train(images, tmp_path / "best", select="best", validate=lambda nets: next(scores))
    second, _ = train(images, tmp_path / "second", epochs=2)
    last, _ = train(images, tmp_path / "last")
    assert same(best, second)
    assert not same(best, last)
    assert [record["validation"] for record in history] == [0.2, 0.9, 0.5]


def test_epochs_without_a_finite_score_are_never_the_best(images: Images, tmp_path: Path) -> None:
    """NaN first must not win over a later score, and where every score is NaN the last epoch is kept."""
    scores = iter([float("nan"), 0.9, 0.5])
    best, history = train(images, tmp_path / "best", select="best", validate=lambda nets: next(scores))
    second, _ = train(images, tmp_path / "second", epochs=2)
    assert same(best, second)
    assert [record["validation"] for record in history] == [None, 0.9, 0.5]
    unscored, _ = train(images, tmp_path / "unscored", select="best", validate=lambda nets: float("nan"))
    last, _ = train(images, tmp_path / "last")
    assert same(unscored, last)


FULL = """
import sys
from pathlib import Path
import torch
from bomd.errors import InputError
from bomd.learn.engine import save_checkpoint
network = torch.nn.Linear(400, 400)
try: save_checkpoint(Path(sys.argv[1]), network.state_dict())
except InputError as error: print(error); sys.exit(2)
"""


def test_a_full_disk_under_a_checkpoint_is_one_line(tmp_path: Path) -> None:
    """A real refusal by the system: files may not grow beyond 64 kB in the child."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))

    command = [sys.executable, "-c", FULL, str(tmp_path / "checkpoint.pt")]
    done = subprocess.run(command, preexec_fn=limit, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert done.stdout.startswith("Cannot write")
    assert done.stdout.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_diverging_loss_is_reported(images: Images, tmp_path: Path) -> None:
    class Broken(Method):
        def loss(self, logits: Tensor, targets: Tensor, index: Tensor) -> Tensor:
            return logits.sum() * float("nan")

    with pytest.raises(InputError, match="became nan in epoch 1: lower the learning rate"):
        train(images, tmp_path, Broken())


def test_damaged_checkpoint_is_reported(images: Images, tmp_path: Path) -> None:
    (tmp_path / "checkpoint.pt").write_bytes(b"not a checkpoint")
    with pytest.raises(InputError, match="Delete it to start over"):
        train(images, tmp_path)


def test_two_networks_differ_and_are_averaged(images: Images, tmp_path: Path) -> None:
    class Pair(Method):
        networks = 2

    networks, history = train(images, tmp_path, Pair())
    assert not same(networks[:1], networks[1:])
    both = predict(Pair(), networks, images)
    each = [predict(Method(), [network], images) for network in networks]
    torch.testing.assert_close(both, (each[0] + each[1]) / 2)
    assert history[0]["images"] == 80


def test_views_of_a_batch_differ_and_are_normalised(images: Images) -> None:
    pixels = images.batch(torch.arange(4))
    generator = torch.Generator().manual_seed(0)
    motions = [draw(4, "light", generator) for _ in range(2)]
    batch = Batch(torch.arange(4), torch.zeros(4, 2), pixels, 3, motions)
    first, second = batch.view(), batch.view()
    assert first.shape == (4, 3, 32, 32)
    assert not torch.equal(first, second)
    with pytest.raises(ValueError, match="more than 2 views"):
        batch.view()


def test_without_augmentation_a_view_is_the_image(images: Images) -> None:
    pixels = images.batch(torch.arange(4))
    batch = Batch(torch.arange(4), torch.zeros(4, 2), pixels, 1)
    expected = (pixels.float() / 255 - 0.5) / 0.25
    for _ in range(3):  # as often as a step asks
        torch.testing.assert_close(batch.view(), expected[:, None])


def test_schedules() -> None:
    assert [rate_factor("constant", part) for part in (0, 0.5, 1)] == [1, 1, 1]
    assert rate_factor("cosine", 0) == 1
    assert rate_factor("cosine", 0.5) == pytest.approx(0.5)
    assert rate_factor("cosine", 1) == pytest.approx(0)
    assert rate_factor("onecycle", 0) == pytest.approx(0.04)
    assert rate_factor("onecycle", 0.1) == pytest.approx(1)
    assert rate_factor("onecycle", 1) == pytest.approx(0)


def test_purposes_get_unrelated_seeds() -> None:
    assert len({derive(seed, name) for seed in range(20) for name in ("order", "augment")}) == 40


def test_masked_cross_entropy_by_hand() -> None:
    """z = [0, 2], y = [1, 0]: ln 2 and ln(1 + e^2), mean 1.410038; a NaN label does not count."""
    logits, targets = torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 0.0]])
    assert masked_cross_entropy(logits, targets).item() == pytest.approx(1.410038, abs=1e-6)
    wide = torch.tensor([[0.0, 2.0, 9.0]], requires_grad=True)
    loss = masked_cross_entropy(wide, torch.tensor([[1.0, 0.0, float("nan")]]))
    loss.backward()
    assert loss.item() == pytest.approx(1.410038, abs=1e-6)
    assert wide.grad is not None
    assert wide.grad[0, 2] == 0
    assert masked_cross_entropy(torch.ones(1, 1), torch.full((1, 1), float("nan"))).item() == 0


def test_missing_gpu_is_said() -> None:
    if torch.cuda.is_available():
        assert make_fabric(DeviceSettings(accelerator="cuda")).device.type == "cuda"
    else:
        with pytest.raises(InputError, match="sees no GPU"):
            make_fabric(DeviceSettings(accelerator="cuda"))
