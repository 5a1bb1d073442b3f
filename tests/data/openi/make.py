"""Write a tiny OpenI with the names, folders and XML elements of the real one.

python tests/data/openi/make.py DIR
"""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

REPORTS = {  # uid: images with their views, major headings, automatic headings
    1: ([("CXR1_1_IM-0001-3001", "Frontal"), ("CXR1_1_IM-0001-4001", "Lateral")], ["normal"], []),
    2: (
        [("CXR2_IM-0652-1001", "Frontal"), ("CXR2_IM-0652-2001", "Lateral")],
        ["Cardiomegaly/borderline", "Pulmonary Atelectasis/base/left"],
        ["Cardiomegaly", "atelectases"],
    ),
    3: ([("CXR3_IM-1384-1001", "Frontal")], ["Pericardial Effusion/mild"], ["pericardial effusion"]),
    4: ([("CXR4_IM-2050-1001", "Frontal")], ["Pleural Effusion/left", "Opacity/lung/base/left"], ["opacity"]),
    5: ([("CXR5_IM-2117-1001", "Frontal")], ["No Indexing"], []),
    6: ([("CXR6_IM-2192-1001", "Frontal")], ["Mass/breast/large", "Thickening/pleura/apex/left"], ["Emphysema"]),
    7: ([], ["normal"], []),
    8: (
        [("CXR8_IM-2333-1001", "Lateral")],
        ["Nodule/heart/left/small", "Granuloma/ribs/right/posterior", "Opacity/ribs/left", "Opacity/thorax/mild"],
        [],
    ),
    9: (
        [("CXR9_IM-2407-1001", "Lateral")],
        [
            "Nodule/pleura/left",
            "Calcified Granuloma/heart/left/small",
            "Opacity/adipose tissue",
            "Granuloma/lung/hilum",
        ],
        [],
    ),
}


def report(uid: int) -> str:
    """One XML report."""
    images, major, automatic = REPORTS[uid]
    headings = [f"<major>{text}</major>" for text in major]
    headings += [f"<automatic>{text}</automatic>" for text in automatic]
    parents = [f'<parentImage id="{name}"><figureId>F1</figureId></parentImage>' for name, _ in images]
    return (
        f'<?xml version="1.0" encoding="utf-8"?><eCitation><uId id="CXR{uid}"/><pmcId id="{uid}"/>'
        f"<MeSH>{''.join(headings)}</MeSH>{''.join(parents)}</eCitation>"
    )


def make(root: Path, *, reports: str = "archive", images: str = "png") -> Path:
    """Write the set.

    Args:
        root: where to.
        reports: "archive" for NLMCXR_reports.tgz, "folder" for its unpacked folder.
        images: "png" (flat, real names), "dcm" (DICOM, one folder per report) or "projections" (the names of
            the set that comes with indiana_projections.csv).
    """
    root.mkdir(parents=True, exist_ok=True)
    if reports == "archive":
        with tarfile.open(root / "NLMCXR_reports.tgz", "w:gz") as archive:
            for uid in REPORTS:
                content = report(uid).encode()
                member = tarfile.TarInfo(f"ecgen-radiology/{uid}.xml")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    else:
        (root / "ecgen-radiology").mkdir()
        for uid in REPORTS:
            (root / "ecgen-radiology" / f"{uid}.xml").write_text(report(uid))
    rng = np.random.default_rng(0)
    lines = ["uid,filename,projection"]
    for uid, (shown, _, _) in REPORTS.items():
        for name, view in shown:
            short = name.removeprefix("CXR").replace("1_1_", "1_", 1)
            file = {"png": f"{name}.png", "dcm": f"{short}.dcm", "projections": f"{short}.dcm.png"}[images]
            lines.append(f"{uid},{file},{view}")
            folder = (
                root / {"png": "images", "dcm": f"NLMCXR_dcm/{uid}", "projections": "images/images_normalized"}[images]
            )
            folder.mkdir(parents=True, exist_ok=True)
            if images == "dcm":
                (folder / file).write_bytes(b"\0" * 128 + b"DICM")  # never decoded by the reader of labels
            else:
                Image.fromarray(rng.integers(0, 256, (16, 16), dtype=np.uint8)).save(folder / file)
    (root / "indiana_projections.csv").write_text("\n".join(lines) + "\n")
    return root


if __name__ == "__main__":
    make(Path(sys.argv[1]))
