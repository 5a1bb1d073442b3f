"""Names that torchvision's import asks for and a PyTorch without CUDA lacks, for `pytest -p undefined_operators`.

The compiled half of torchvision's public wheels needs a PyTorch with CUDA. Beside the CPU build it is not loaded, and
the import stops at two operators for detection which it wants to describe. They are declared here, without any code:
whoever called one would get an error. Everything else is the real timm and the real torchvision.
"""

from __future__ import annotations

import torch

DECLARED = torch.library.Library("torchvision", "DEF")
for name in ("nms", "qnms"):
    DECLARED.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
