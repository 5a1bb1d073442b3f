"""What has to be decided before PyTorch and Triton are imported."""

from __future__ import annotations

import os

# Tests run on all cores at once; threads inside each of them would only wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # the kernels then run on a CPU, slowly
