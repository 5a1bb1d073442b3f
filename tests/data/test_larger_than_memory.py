"""Packing, reading and judging by features, each under a limit of memory that what it works on would exceed.

The limit is on what a process may allocate beyond what it has when everything is imported. Files that are mapped to be
read do not count: the system drops their pages when it needs room.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bomd.data.datasets import phantom
from bomd.data.images import fit_square, read_image
from bomd.data.store import pack
from bomd.tables import LabelTable

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")

IMAGES, SIDE = 320, 1024  # packed: 320 MB
WIDE = (50_000, 768)  # features: 150 MB

# `%s` is what runs under the limit; at the end it is shown that the limit would not let the whole be read.
LIMITED = """
import resource, sys
from pathlib import Path
import numpy as np, torch
import bomd.audits.audit, bomd.audits.plan, bomd.experiments.experiment, bomd.models.model
from bomd.cli import main
from bomd.data.store import open_store

torch.set_num_threads(1)
torch.zeros(64, 64) @ torch.zeros(64, 64)  # starts what libraries start when they are first used
held = next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (held + int(sys.argv[1]),) * 2)
place = Path(sys.argv[2])
%s
try:
    whole = np.array(%s)
except MemoryError:
    print("would not fit")
"""


def limited(tmp_path: Path, megabytes: int, work: str, whole: str) -> str:
    words = [sys.executable, "-c", LIMITED % (work, whole), str(megabytes << 20), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.rstrip().endswith("would not fit"), done.stdout[-2000:]
    return done.stdout


@pytest.fixture
def table(tmp_path: Path) -> LabelTable:
    """One small picture under many names, since it is what they are packed to that is large."""
    (tmp_path / "images").mkdir()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (16, 16), dtype=np.uint8)).save(tmp_path / "one.png")
    paths = [tmp_path / "images" / f"{row:05}.png" for row in range(IMAGES)]
    for path in paths:
        path.hardlink_to(tmp_path / "one.png")
    ids = np.array([path.stem for path in paths])
    return LabelTable(ids, ("A",), np.zeros((IMAGES, 1)), np.array([str(path) for path in paths]))


@pytest.mark.slow
def test_shards_larger_than_the_limit_are_packed_joined_and_read(tmp_path: Path, table: LabelTable) -> None:
    table.save(tmp_path / "table.npz")
    work = f"""
from bomd.data.batches import Images
from bomd.data.shards import Shard, join, pack_shard
from bomd.tables import LabelTable
table = LabelTable.load(place / "table.npz")
for number in (1, 2):
    pack_shard(table, place / "store", {SIDE}, shard=Shard(number, 2))
store = join(table, place / "store", {SIDE})
order = torch.randperm(len(store), generator=torch.Generator().manual_seed(0))
seen = sum(int(pixels.sum()) for _, pixels in Images(store, store.ids, torch.device("cpu")).iterate(order, 8))
print(len(store), seen)
"""
    said = limited(tmp_path, 200, work, "store.images[:]")
    one = fit_square(read_image(tmp_path / "one.png"), SIDE)
    assert said.splitlines()[-2] == f"{IMAGES} {IMAGES * int(one.sum())}"


@pytest.mark.slow
def test_heads_are_fitted_on_features_larger_than_the_limit(tmp_path: Path) -> None:
    """Some of many features tell the class, and one label in twenty is wrong: the heads know better."""
    rows, width = WIDE
    rng = np.random.default_rng(0)
    truth = rng.random(rows) < 0.4
    noise = rng.normal(size=(5000, width)).astype(np.float32)
    features = np.lib.format.open_memmap(tmp_path / "features.npy", mode="w+", dtype=np.float32, shape=WIDE)
    for start in range(0, rows, 5000):
        features[start : start + 5000] = noise + truth[start : start + 5000, None] * (np.arange(width) < 50)
    features.flush()
    wrong = rng.random(rows) < 0.05
    np.save(tmp_path / "labels.npy", (truth ^ wrong)[:, None].astype(np.float32))
    work = """
from bomd.audits.arrays import read_features
from bomd.clean import heads
heads.FITTED = 5000  # turned features of so many are in memory
labels = np.load(place / "labels.npy")
ids = np.arange(len(labels)).astype(str)
features = read_features(place / "features.npy", ids, range(len(ids)), len(ids))
np.save(place / "scores.npy", heads.cross_fit_heads(features, labels, np.arange(len(ids)) // 2))
"""
    limited(tmp_path, 120, work, "features.values")
    scores = np.load(tmp_path / "scores.npy")[:, 0]
    assert ((scores > 0) == truth).mean() > 0.98


@pytest.mark.slow
def test_what_a_network_says_may_be_larger_than_the_limit(tmp_path: Path) -> None:
    """Descriptors, or features by which images are near one another: 128 kB of each image, for twice the limit."""
    table = phantom.read(count=2000)
    pack(table, tmp_path / "store", 32, render=phantom.render)
    table.save(tmp_path / "table.npz")
    work = """
from bomd.data.batches import Images
from bomd.describe.written import write_all
from bomd.networks.backbone import build
from bomd.tables import LabelTable
table, network = LabelTable.load(place / "table.npz"), build("small", 2, weights="none", seed=0)
images = Images(open_store(place / "store"), table.ids, torch.device("cpu"))
say = lambda views: network(views)[:, :1] * torch.arange(2**15)
write_all(place / "said.npy", images, [network], say, what="say", batch=50)
found = np.load(place / "said.npy", mmap_mode="r")
print(found.shape, (found[:, 2] == 2 * found[:, 1]).all(), len(np.unique(found[:, 1])) > 1900)
"""
    assert limited(tmp_path, 120, work, "found").startswith("(2000, 32768) True True")
