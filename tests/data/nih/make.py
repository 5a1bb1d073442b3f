"""Write a tiny ChestX-ray14 with the names, folders and headers of the real one.

python tests/data/nih/make.py DIR
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from PIL import Image

HEADER = (
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
    "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y]"
)
ROWS = [  # name, labels, patient, view, list
    ("00000001_000.png", "Cardiomegaly", 1, "PA", "train_val_list.txt"),
    ("00000001_001.png", "Cardiomegaly|Effusion|Consolidation", 1, "AP", "train_val_list.txt"),
    ("00000002_000.png", "No Finding", 2, "PA", "train_val_list.txt"),
    ("00000003_000.png", "Consolidation", 3, "PA", "train_val_list.txt"),
    ("00000004_000.png", "Hernia|Nodule", 4, "AP", "test_list.txt"),
]


def make(root: Path, *, layout: str = "images", labels: str = "Data_Entry_2017_v2020.csv") -> Path:
    """Write the set; `layout` is "images" for one folder or "parts" for images_001, images_002 and so on."""
    root.mkdir(parents=True, exist_ok=True)
    end = "," if labels == "Data_Entry_2017.csv" else ""  # the older file ends every line with a comma
    lines = [HEADER + end]
    lines += [f"{name},{found},0,{who},58,M,{view},2682,2749,0.143,0.143{end}" for name, found, who, view, _ in ROWS]
    (root / labels).write_text("\n".join(lines) + "\n")
    for name in ("train_val_list.txt", "test_list.txt"):
        (root / name).write_text("".join(f"{row[0]}\n" for row in ROWS if row[4] == name))
    rng = np.random.default_rng(0)
    for number, row in enumerate(ROWS):
        folder = root / "images" if layout == "images" else root / f"images_{number % 3 + 1:03}" / "images"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (16, 16), dtype=np.uint8)).save(folder / row[0])
    return root


if __name__ == "__main__":
    make(Path(sys.argv[1]))
