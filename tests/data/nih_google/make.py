"""Write tiny NIH-Google labels with the names and headers of the real ones, beside images of ChestX-ray14.

python tests/data/nih_google/make.py DIR
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from PIL import Image

HEADER = (
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
    "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y],Fracture,Pneumothorax,Airspace opacity,Nodule or mass"
)
ROWS = [  # name, patient, answers, set
    ("00000013_008.png", 13, "NO,NO,YES,NO", "test"),
    ("00000013_026.png", 13, "NO,YES,NO,YES", "test"),
    ("00000211_006.png", 211, "YES,NO,NO,NO", "validation"),
]


def make(root: Path) -> Path:
    """Write both label files into `four_findings_expert_labels` and the images into `images`."""
    folder = root / "four_findings_expert_labels"
    folder.mkdir(parents=True, exist_ok=True)
    (root / "images").mkdir(exist_ok=True)
    for split in ("test", "validation"):
        rows = [row for row in ROWS if row[3] == split]
        lines = [f"{name},No Finding,8,{who},60,M,AP,3056,2544,0.139,0.139,{said}" for name, who, said, _ in rows]
        (folder / f"{split}_labels.csv").write_text("\n".join([HEADER, *lines]) + "\n")
    rng = np.random.default_rng(0)
    for row in ROWS:
        Image.fromarray(rng.integers(0, 256, (16, 16), dtype=np.uint8)).save(root / "images" / row[0])
    return root


if __name__ == "__main__":
    make(Path(sys.argv[1]))
