"""Which files of a folder are images, and which of them a name means."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bomd.errors import InputError

DICOM_SUFFIXES = (".dcm", ".dicom")
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", *DICOM_SUFFIXES)
KINDS = "PNG, JPEG, BMP, TIFF, WebP and DICOM"

_MARKER = b"DICM"  # at byte 128 of a DICOM file, whatever it is called
_CONTENTS = "dicomdir"  # the list of the files on a disc of DICOM files, which is one itself
_NAMED = 3  # files of other kinds that are spelled out


@dataclass(frozen=True)
class FoundImages:
    """The files at some places, each once."""

    images: tuple[str, ...]
    others: tuple[str, ...]  # those in folders that are no images, hidden ones apart
    missing: Mapping[str, str] = field(default_factory=dict)  # why there is no image, by place


def find_images(places: Sequence[Path]) -> FoundImages:
    """Image files among these files and, at any depth, in these folders.

    An image is known by its suffix, or as DICOM by its content: archives write files without one. Linked folders are
    not entered. Files that are named directly are taken whatever they are called.
    """
    images: dict[str, None] = {}
    others: dict[str, None] = {}
    missing: dict[str, str] = {}
    for place in places:
        if not place.exists():
            missing[str(place)] = f"No image or folder {place}."
            continue
        try:
            found = _images_in(place) if place.is_dir() else FoundImages((str(place),), ())
        except InputError as error:
            missing[str(place)] = str(error)
            continue
        images.update(dict.fromkeys(found.images))
        others.update(dict.fromkeys(found.others))
    return FoundImages(tuple(images), tuple(name for name in others if name not in images), missing)


def told(others: Sequence[str]) -> str:
    """How many files are of other kinds and what they are, in words."""
    kinds = Counter(os.path.splitext(name)[1].lower() or "without a suffix" for name in others)  # noqa: PTH122  (many)
    counted = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common(5)) + (
        " ..." if len(kinds) > 5 else ""
    )
    examples = ", ".join(map(repr, others[:_NAMED])) + (" ..." if len(others) > _NAMED else "")
    what = "file is no image and was" if len(others) == 1 else "files are no images and were"
    return f"{len(others):,} other {what} skipped ({counted}): {examples}"


class ImageIndex:
    """Finds the images under a folder by relative path, by name or by stem.

    Paths are plain text here: there may be hundreds of thousands, and `Path` is slow to make.
    """

    def __init__(self, folder: Path):
        found = _images_in(folder)
        self.folder, self.paths, self.others = folder, found.images, found.others
        self._above = f"{folder.as_posix()}/"
        self._by_path: dict[str, str] = {}
        self._by_name: dict[str, list[str]] = {}
        for path in self.paths:
            relative = self._below(path)
            stem, dot, _ = relative.rpartition(".")
            for whole in (relative, stem) if dot and _has_suffix(relative) else (relative,):
                self._by_path.setdefault(whole, path)
                self._by_name.setdefault(whole.rpartition("/")[2], []).append(path)

    def knows(self, name: str) -> bool:
        """Whether any file has this name or stem, in whatever folder."""
        return name.replace("\\", "/").rpartition("/")[2] in self._by_name

    def find(self, name: str) -> str | None:
        """The file of that name, or None; a name with folders in it must be the whole path under the folder."""
        wanted = name.replace("\\", "/")
        if ".." in wanted.split("/") or (wanted.startswith("/") and not wanted.startswith(self._above)):
            raise InputError(f"{name[:100]!r} lies outside the images folder {self.folder}; pass the right folder.")
        if "/" in wanted:
            below = self._below(wanted).removeprefix("./")
            return self._by_path.get(below) or self._by_path.get(below.removeprefix(f"{self.folder.name}/"))
        files = self._by_name.get(wanted, [])
        if len(files) > 1:
            raise InputError(f"{name!r} may be {files[0]} or {files[1]}: name it with its folder.")
        return files[0] if files else None

    def alike(self, names: Sequence[str]) -> list[tuple[str, str]]:
        """Of these names, those that a file has but for upper and lower case, each with what the file is called."""
        folded = {name.casefold(): name for name in (*self._by_path, *self._by_name)}
        found = ((name, folded.get(self._below(name.replace("\\", "/")).casefold())) for name in names)
        return [(name, other) for name, other in found if other is not None]

    def hint(self, absent: Sequence[str]) -> str:
        """What to do about names without a file, where files are there whose names differ in upper and lower case."""
        found = self.alike(absent)
        if not found:
            return ""
        return (
            f"{len(found)} of them are there in other upper or lower case, such as {found[0][1]!r} "
            f"for {found[0][0]!r}: write the names as the files have them"
        )

    def _below(self, path: str) -> str:
        return path.replace(os.sep, "/").removeprefix(self._above)


def _images_in(folder: Path) -> FoundImages:
    images, others = [], []
    for place, _, names in os.walk(folder):
        for name in names:
            path = f"{place}{os.sep}{name}"
            if _has_suffix(name) or _is_dicom(path, name):
                images.append(path)
            elif not name.startswith("."):
                others.append(path)
    if not images:
        skipped = f"; {told(sorted(others))}" if others else ""
        raise InputError(f"No images in {folder}: looked for {', '.join(IMAGE_SUFFIXES)} and DICOM{skipped}.")
    return FoundImages(tuple(sorted(images)), tuple(sorted(others)))


def _has_suffix(name: str) -> bool:
    return name.lower().endswith(IMAGE_SUFFIXES)


def _is_dicom(path: str, name: str) -> bool:
    if name.lower() == _CONTENTS or not os.path.isfile(path):  # noqa: PTH113  (many; reading a pipe waits for ever)
        return False
    try:
        with open(path, "rb") as stream:  # noqa: PTH123
            return stream.read(132)[128:] == _MARKER
    except OSError:
        return False
