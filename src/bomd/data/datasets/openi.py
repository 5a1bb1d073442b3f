"""OpenI / Indiana: 3,955 reports with MeSH terms and 7,470 images, frontal and lateral.

As downloaded: the reports as `NLMCXR_reports.tgz`, which is read as it is, or as a folder of XML files;
images as PNG or DICOM in any of the usual folders; and, to tell frontal from lateral,
`indiana_projections.csv` (uid, filename, projection) or a CSV of the DICOM headers. The headers are the
poorer source: the view is blank for 2,586 images, and lateral images are among those that say PA.
"""

from __future__ import annotations

import functools
import re
import tarfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bomd.data.datasets.classes import ClassList, Drop, narrow
from bomd.data.datasets.finding_terms import ImageTerms, normalise, terms_behind, whole_terms, with_no_finding
from bomd.data.datasets.layout import Missing, check_folder, index_images, read_csv, with_paths
from bomd.errors import InputError
from bomd.files import reading
from bomd.tables import NO_FINDING, LabelTable, Text, rows_of
from bomd.typed import convert

Split = Literal["test"]
Mesh = Literal["major", "automatic"]
Views = Literal["frontal", "all"]
Unindexed = Literal["no finding", "drop"]

REPORTS = ("NLMCXR_reports.tgz", "NLMCXR_reports", "ecgen-radiology", "reports")
PROJECTIONS = ("indiana_projections.csv", "projections.csv")
HEADERS = ("nlmcxr_dicom_metadata.csv",)
IMAGES = (".", "images", "images/images_normalized", "images_normalized", "NLMCXR_png", "NLMCXR_dcm")
NO_INDEXING = "no indexing"

TERMS = whole_terms("""
Atelectasis: atelectasis; atelectases; pulmonary atelectasis; chronic atelectasis; discoid atelectasis; focal
  atelectasis; obstructive atelectasis; patchy atelectasis; plate-like atelectasis
Cardiomegaly: cardiomegaly; enlarged heart; cardiac shadow/enlarged
Effusion: effusion; pleural effusion; pleural effusions; pleural fluid; bilateral pleural effusion; left-sided pleural
  effusion; right-sided pleural effusion; loculated effusion; pulmonary effusion
Infiltration: infiltrate; infiltrates
Mass: mass; mass/lung; mass/thorax; mass lesion
Nodule: nodule; solitary pulmonary nodule; multiple pulmonary nodules
Pneumonia: pneumonia; acute pneumonia; atypical pneumonias; left lower lobe pneumonia; left upper lobe pneumonia;
  lower lobe pneumonia; multilobar pneumonia; mycoplasma pneumonia; peribronchial pneumonia; pneumonia right lower
  lobe; pneumonia, mycoplasma; pneumonia, viral; postobstructive pneumonia; recurrent pneumonia; right lower lobe
  pneumonia; right upper lobe pneumonia; viral pneumonias
Pneumothorax: pneumothorax; hydropneumothorax; hemopneumothorax
Edema: edema; edemas; pulmonary edema; alveolar edema; chronic edema; interstitial pulmonary edema
Emphysema: emphysema; emphysemas; pulmonary emphysema; bullous emphysema; centrilobular emphysema
Fibrosis: fibrosis; fibroses; pulmonary fibrosis; pulmonary fibroses; chronic fibrosis; diffuse fibrosis; interstitial
  fibrosis
Pleural_Thickening: pleural thickening; thickening/pleura
Hernia: hernia, hiatal; hernia, hiatus; hiatal hernia; hiatus hernia; large hiatal hernia; hernia, diaphragmatic;
  hernias; bochdalek hernia; morgagni hernia
Fracture: fracture; fractures, bone; fracture, comminuted; fracture, pathologic; fractures, pathologic;
  fracture-dislocation; clavicular fracture; comminuted fracture; displaced fractures; fourth rib fracture; humeral
  fracture; humeral fractures; multiple fractures; non-displaced fracture; pathologic fractures; rib fracture; rib
  fractures; rotated fracture; spinal fractures; stable fracture; vertebral fracture
Calcified Granuloma: calcified granuloma
Granuloma: granuloma; granulomas; apical granuloma; lung granuloma; pulmonary granuloma
Lesion: lesion; expansile bone lesions
Opacity: opacity
""")
NATIVE = (*TERMS, NO_FINDING)
PLACED = ("cardiac shadow", "mass", "thickening")  # major headings that mean a class only in some places
OF_THE_LUNG = ("nodule", "granuloma", "calcified granuloma", "opacity")  # and these in all places but
OTHER_ORGANS = ("adipose tissue", "heart", "pleura", "ribs", "thoracic vertebrae")


def read(
    root: Path,
    split: Split = "test",
    *,
    classes: ClassList = "nih",
    mesh: Mesh = "major",
    drop: Drop = "rows",
    views: Views = "frontal",
    unindexed: Unindexed = "no finding",
    reports: Path | None = None,
    projections: Path | None = None,
    images: bool = True,
    missing: Missing = "error",
) -> LabelTable:
    """Read the labels, patients, views and image paths of OpenI.

    Args:
        root: the folder as downloaded.
        split: the whole set is a `test` set.
        classes: `nih`: the paper's 14 columns; `chexpert`: its 8; `native`: 18 observations and No Finding,
            with no row dropped.
        mesh: `major` are the headings that people assigned, which is what the paper says it uses;
            `automatic` are those of a program, which is what its code uses. Both are matched as whole terms,
            where the code matches substrings and so counts pericardial effusion as Effusion. A nodule, granuloma
            or opacity of the heart, pleura, ribs, vertebrae or fat is none of the lung and does not count.
        drop: `rows`, as in the paper, drops every image with an observation outside the list, such as
            Opacity; `columns` drops the columns and only images then left without a label.
        views: `frontal` as in the paper, or `all`.
        unindexed: reports that nobody indexed count as `no finding`, as in the released code (they read as
            normal), or are left out (`drop`).
        reports: the archive or folder of reports, where it is not in `root`.
        projections: the CSV of projections or DICOM headers, where it is not in `root`.
        images: False reads labels alone and leaves `paths` out.
        missing: `error` refuses a set of which images are missing; `drop` goes on with those that are there.
    """
    convert(split, Split, "split")
    root = check_folder(root)
    ids, patients, terms = _image_terms(_find_reports(root, reports), mesh)
    labels = with_no_finding(terms.positives(TERMS))
    shown = _views(root, projections, ids)
    kept = np.ones(len(ids), dtype=bool)
    if convert(views, Views, "views") == "frontal":
        if shown is None:
            sources = " or ".join([*PROJECTIONS, *HEADERS])
            raise InputError(f'No {sources} in {root}. Pass one as projections, or views="all".')
        kept &= shown == "Frontal"
    if convert(unindexed, Unindexed, "unindexed") == "drop":
        kept &= ~terms.where(lambda found: NO_INDEXING in found)
    native = LabelTable(ids, NATIVE, labels, patients=patients, views=shown)
    table = narrow(native.take(kept), classes, drop)
    if not images:
        return table
    folders = [folder for name in IMAGES if (folder := root / name).is_dir()]
    folders += [inner for folder in folders for inner in sorted(folder.iterdir()) if inner.name.isdecimal()]
    found = {_image_key(name): path for name, path in index_images(folders).items()}
    names = [_image_key(name) for name in table.ids.tolist()]
    return with_paths(table, names, found, f"{root} or its folder images", missing, root)


def explain(root: Path, class_name: str, split: Split = "test", **options: Any) -> list[tuple[str, int, bool]]:
    """Raw MeSH terms behind a class, as `terms_behind` has them; options as for `read`."""
    table = read(root, split, images=False, **options)
    reports = _find_reports(check_folder(root), options.get("reports"))
    ids, _, terms = _image_terms(reports, options.get("mesh", "major"))
    return terms_behind(table, terms.take(rows_of(ids, table.ids)), TERMS, class_name)


def _find_reports(root: Path, given: Path | None) -> Path:
    for path in [given] if given is not None else [root / name for name in REPORTS]:
        if path.is_dir() and (path / "ecgen-radiology").is_dir():
            return path / "ecgen-radiology"
        if path.exists():
            return path
    looked = given or f"{' or '.join(REPORTS)} in {root}"
    raise InputError(f"No {looked}. Pass the archive or folder of the XML reports as reports.")


def _read_reports(path: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of every XML report of an archive or a folder; nothing is unpacked to disk."""
    if path.is_dir():
        for file in sorted(path.glob("*.xml")):
            yield str(file), file.read_bytes()
        return
    with reading(f"the reports in {path}", EOFError, tarfile.TarError), tarfile.open(path) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.name.endswith(".xml") else None
            if content is not None:
                yield f"{path}: {member.name}", content.read()


def _image_terms(reports: Path, mesh: Mesh) -> tuple[Text, Text, ImageTerms]:
    """Ids, patients and MeSH terms of all images; every report is of another patient."""
    files = [reports] if reports.is_file() else sorted(reports.glob("*.xml"))
    states = ((state.st_mtime_ns, state.st_size) for state in map(Path.stat, files))
    return _parse_reports(reports, convert(mesh, Mesh, "mesh"), tuple(states))


@functools.lru_cache(maxsize=2)
def _parse_reports(reports: Path, mesh: Mesh, _: tuple[tuple[int, int], ...]) -> tuple[Text, Text, ImageTerms]:
    """Reports as they were at that time: parsing takes seconds, which many runs in one process need not repeat."""
    ids, patients, terms = [], [], []
    for name, content in _read_reports(reports):
        try:
            report = ElementTree.fromstring(content)  # noqa: S314  (expat refuses entity bombs since 2.4.1)
        except ElementTree.ParseError as error:
            raise InputError(f"Report {name} is not XML: {error}.") from error
        major = {normalise(heading.text or "") for heading in report.findall("MeSH/major")}
        every = frozenset(_term(heading.text or "") for heading in report.findall(f"MeSH/{mesh}"))
        uid = report.find("uId")
        for image in report.findall("parentImage"):
            ids.append(image.get("id", ""))
            patients.append("" if uid is None else uid.get("id", ""))
            terms.append(every | ({NO_INDEXING} & major))
    if not ids:
        raise InputError(f"No XML reports with images in {reports}.")
    return np.asarray(ids, dtype=np.str_), np.asarray(patients, dtype=np.str_), ImageTerms.of(terms)


def _term(heading: str) -> str:
    """The heading without its qualifiers, but for the place where the place decides what it means."""
    parts = [normalise(part) for part in heading.split("/")]
    elsewhere = parts[0] in OF_THE_LUNG and parts[1:2] and parts[1] in OTHER_ORGANS
    return "/".join(parts[:2] if parts[0] in PLACED or elsewhere else parts[:1])


def _image_key(name: str) -> str:
    """What the names of one image share: CXR1_1_IM-0001-3001.png, 1_IM-0001-3001.dcm, ...3001.dcm.png."""
    stem = re.sub(r"(\.(dcm|dicom|png|jpe?g|bmp|tiff?|webp))+$", "", name.removeprefix("CXR"), flags=re.IGNORECASE)
    return re.sub(r"^(\d+)_\1_", r"\1_", stem)


def _views(root: Path, given: Path | None, ids: Text) -> Text | None:
    """(N) Frontal, Lateral or "", from projections or else from DICOM headers; None without both."""
    names = [f"{name}{suffix}" for name in (*PROJECTIONS, *HEADERS) for suffix in ("", ".gz")]
    path = given or next((root / name for name in names if (root / name).is_file()), None)
    if path is None:
        return None
    if path.name.startswith(HEADERS):
        frame = read_csv(path, ["imageid", "View Position"])
        meant = {"PA": "Frontal", "AP": "Frontal", "": ""}
        keys, views = frame["imageid"].tolist(), [meant.get(view, "Lateral") for view in frame["View Position"]]
    else:
        frame = read_csv(path, ["filename", "projection"])
        keys, views = frame["filename"].tolist(), frame["projection"].tolist()
    known = dict(zip(map(_image_key, keys), views, strict=True))
    shown = np.asarray([known.get(_image_key(name), "") for name in ids.tolist()], dtype=np.str_)
    if not (shown == "Frontal").any():
        raise InputError(f"{path} names no frontal image of the reports. Is it the right file?")
    return shown
