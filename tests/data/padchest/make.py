"""Write a tiny PadChest with the names, folders and headers of the real one.

python tests/data/padchest/make.py DIR
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
from PIL import Image

LABELS = "PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv"
HEADER = (
    ",ImageID,ImageDir,StudyDate_DICOM,StudyID,PatientID,PatientBirth,PatientSex_DICOM,ViewPosition_DICOM,Projection,"
    "MethodProjection,Pediatric,MethodLabel,Labels,Localizations"
)
MANUAL, NETWORK = "Manual review of DICOM fields", "resnet-50.t7"
ROWS = [  # image, folder, patient, birth, projection, how the projection and the labels came about, labels
    ("a_1.png", 0, "A", 1930, "PA", MANUAL, "Physician", "['normal']"),
    ("a_2.png", 0, "A", 1930, "PA", MANUAL, "Physician", "['cardiomegaly']"),
    ("b_1.png", 1, "B", 1950, "PA", MANUAL, "Physician", "['laminar atelectasis', ' pleural effusion']"),
    ("c_1.png", 1, "C", 1960, "AP", MANUAL, "Physician", "['pericardial effusion', 'pseudonodule']"),
    ("d_1.png", 1, "D", 1960, "PA", MANUAL, "Physician", "['cardiomegaly', 'scoliosis']"),
    ("e_1.png", 54, "E", 2004, "PA", MANUAL, "Physician", "['normal']"),
    ("f_1.png", 54, "F", 1940, "L", MANUAL, "Physician", "['normal']"),
    ("g_1.png", 54, "G", 1940, "PA", NETWORK, "Physician", "['normal']"),
    ("h_1.png", 54, "H", 1940, "PA", MANUAL, "RNN_model", "['normal']"),
    ("i_1.png", 54, "I", 1940, "PA", MANUAL, "Physician", "['exclude']"),
    ("j_1.png", 54, "J", 1940, "PA", MANUAL, "Physician", "['nodule', 'COPD signs']"),
]


def make(root: Path, *, layout: str = "folders") -> Path:
    """Write the set; `layout` is "folders" for the numbered folders of the archives or "flat" for one folder."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / LABELS).open("w", newline="") as stream:
        stream.write(f"{HEADER}\n")
        writer = csv.writer(stream)
        for number, (image, folder, who, birth, view, how, by, found) in enumerate(ROWS):
            writer.writerow(
                [
                    number,
                    image,
                    folder,
                    20140915,
                    number,
                    who,
                    f"{birth}.0",
                    "F",
                    "PA",
                    view,
                    how,
                    "No",
                    by,
                    found,
                    "[]",
                ]
            )
    rng = np.random.default_rng(0)
    for row in ROWS:
        folder = root / str(row[1]) if layout == "folders" else root
        folder.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 65536, (16, 16), dtype=np.uint16)).save(folder / row[0])
    return root


if __name__ == "__main__":
    make(Path(sys.argv[1]))
