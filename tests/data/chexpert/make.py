"""Write a tiny CheXpert with the names, folders and headers of the real one.

python tests/data/chexpert/make.py DIR
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from PIL import Image

OBSERVATIONS = (
    "No Finding,Enlarged Cardiomediastinum,Cardiomegaly,Lung Opacity,Lung Lesion,Edema,Consolidation,Pneumonia,"
    "Atelectasis,Pneumothorax,Pleural Effusion,Pleural Other,Fracture,Support Devices"
)
HEADER = f"Path,Sex,Age,Frontal/Lateral,AP/PA,{OBSERVATIONS}"
ROWS = {  # path below the set's folder: age, view, labels in the order of the header
    "train/patient00001/study1/view1_frontal.jpg": (68, "AP", "1.0,,,,,,,,,0.0,,,,"),
    "train/patient00001/study2/view1_frontal.jpg": (68, "AP", ",,1.0,,,-1.0,,,,,,,,"),
    "train/patient00001/study2/view2_lateral.jpg": (68, "", ",,1.0,,,-1.0,,,,,,,,"),
    "train/patient00002/study1/view1_frontal.jpg": (87, "PA", ",,-1.0,1.0,,-1.0,-1.0,,-1.0,,1.0,,1.0,"),
    "train/patient00003/study1/view1_frontal.jpg": (0, "AP", ",,,,,1.0,,,,,,,,"),
    "train/patient00004/study1/view1_frontal.jpg": (41, "PA", ",,,,,,,,-1.0,,,,,"),
    "train/patient00005/study1/view1_frontal.jpg": (41, "PA", ",,0.0,,,,,,,,1.0,,,"),
    "valid/patient64541/study1/view1_frontal.jpg": (
        73,
        "AP",
        "0.0,0.0,1.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0",
    ),
}


def make(root: Path, *, name: str = "CheXpert-v1.0-small") -> Path:
    """Write the set into the folder `name` of `root` and return that folder."""
    folder = root / name
    rng = np.random.default_rng(0)
    for split in ("train", "valid"):
        lines = [HEADER]
        for path, (age, view, labels) in ROWS.items():
            if path.startswith(split):
                lines.append(f"{name}/{path},Male,{age},{'Frontal' if view else 'Lateral'},{view},{labels}")
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(rng.integers(0, 256, (16, 16), dtype=np.uint8)).save(folder / path)
        (folder / f"{split}.csv").write_text("\n".join(lines) + "\n")
    return folder


if __name__ == "__main__":
    make(Path(sys.argv[1]))
