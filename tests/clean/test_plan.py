"""What a search takes, on paper and under a limit that the system enforces."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bomd.clean.graph import nearest_images
from bomd.clean.plan import plan


def test_nih_on_paper():
    """83,672 images of 3 x 1024 on a large GPU: all rounded at once, 3 x 1,032 numbers of 2 bytes each.

    A batch is 32,768 rows of 8 x 3,072 + 128 x 64 bytes; a strip 1,024 rows of 4 x (12 x 16,384 + 3 x 83,672)
    + 32 x 3,072; a tile is read in 32 x 16,384 x 3,072 bytes.
    """
    sizes = plan(83_672, 83_672, 3, 3, 1024, candidates=64, memory=60e9)
    assert (sizes.block, sizes.batch, sizes.strip, sizes.tile, sizes.passes) == (83_672, 32_768, 1024, 16_384, 1)
    parts = (83_672 * 3 * 1032 * 2, 32_768 * 32_768, 1024 * (4 * (196_608 + 251_016) + 98_304), 32 * 16_384 * 3072)
    assert sizes.peak == sum(parts)


def test_a_million_images():
    """80 GB hold all rounded vectors, 6.2 GB; 4 GB take a sixth of them at a time, and read all for every batch."""
    large, small = (plan(10**6, 10**6, 3, 3, 1024, candidates=64, memory=1e9 * size) for size in (80, 4))
    assert large.block == 10**6
    assert large.passes == 1
    assert small.block == int(1e9 / 6192)
    assert small.batch == int(1e9 / 32_768)
    assert small.passes == 33
    assert small.peak <= 4e9


@given(
    targets=st.integers(1, 10**7),
    queries=st.integers(0, 10**7),
    bag=st.integers(1, 8),
    query_bag=st.integers(1, 8),
    width=st.integers(1, 4096),
    candidates=st.integers(1, 2000),
    memory=st.floats(1, 2e11),
    device=st.sampled_from(["cpu", "cuda"]),
    dtype=st.sampled_from([torch.bfloat16, torch.float32, torch.float64]),
)
def test_what_is_more_than_one_fits(targets, queries, bag, query_bag, width, candidates, memory, device, dtype):
    """More memory never means smaller parts, and what is not down to a single row, bag or pair keeps to the memory."""
    options = {"candidates": candidates, "dtype": dtype, "device": device}
    sizes = plan(queries, targets, query_bag, bag, width, memory=memory, **options)
    if min(sizes.batch, sizes.block, sizes.strip, sizes.tile) > 1:
        assert sizes.peak <= memory or 24 * (query_bag + bag) * width > memory / 4
    assert sizes.tile <= sizes.block <= targets
    assert sizes.strip <= sizes.batch
    assert sizes.passes * sizes.batch >= queries or sizes.block == targets


SEARCH = """
import json, resource, sys
import numpy as np, torch
from bomd.clean.graph import nearest_images
shape, memory, given = (2000, 2, 2048), 0.006, {}
nearest_images(np.ones((50, *shape[1:]), dtype=np.float16), 3, device="cpu", memory=memory)
(data,) = [line for line in open("/proc/self/status") if line.startswith("VmData")]
limit = int(data.split()[1]) * 1024 + int(1e9 * memory) + 2**21
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
given["float16"] = np.load(sys.argv[1] + "/float16.npy", mmap_mode="r")
flat = torch.from_file(sys.argv[1] + "/bfloat16", shared=True, size=int(np.prod(shape)), dtype=torch.bfloat16)
given["bfloat16"] = flat.view(shape)
found = {}
for name, values in given.items():
    near = nearest_images(values, 5, rows=np.arange(0, 2000, 100), device="cpu", memory=memory)
    found[name] = near.indices.tolist()
try:
    np.array(given["float16"])
except MemoryError:
    print(json.dumps(found))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of memory are Linux's")
def test_files_larger_than_the_memory_are_streamed(tmp_path):
    """16 MB of float16 or bfloat16 are searched under a hard limit: the 6 MB that were granted, and 2 to spare."""
    values = torch.from_numpy(np.random.default_rng(1).standard_normal((2000, 2, 2048), dtype=np.float32))
    np.save(tmp_path / "float16.npy", values.half().numpy())
    (tmp_path / "bfloat16").write_bytes(values.bfloat16().view(torch.int16).numpy().tobytes())
    # What is freed is given back at once, so that the limit counts what is in use.
    options = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536"}
    words = [sys.executable, "-c", SEARCH, str(tmp_path)]
    told = subprocess.run(words, capture_output=True, text=True, check=False, env=options)
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)  # nothing is said where the limit does not keep a file from being loaded
    for name, kept in (("float16", values.half()), ("bfloat16", values.bfloat16())):
        expected = nearest_images(kept, 5, rows=np.arange(0, 2000, 100), device="cpu")
        assert found[name] == expected.indices.tolist()
