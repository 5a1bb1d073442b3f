"""Files that a review writes: over nothing but what a review wrote there before."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bomd.audits.given import Source
from bomd.data.datasets.corrected import details_beside
from bomd.errors import InputError
from bomd.files import PACKED, checksum, is_stream, read_text, write_text


@dataclass(frozen=True)
class Output:
    """A file to be written."""

    option: str  # that says where
    path: Path
    text: str
    begins: str  # the first line of every file of this kind, or a line near its beginning
    told_by: Path | None = None  # written together with it: tells it from the user's own, which begin alike

    def replaces_its_like(self) -> bool:
        """Whether nothing is there yet, or a file of this kind."""
        if not self.path.exists() or is_stream(self.path) or self.path.stat().st_size == 0:
            return True
        ours = self.told_by is None or self.told_by.is_file()
        return ours and f"\n{self.begins}" in f"\n{self._start()}"

    def _start(self) -> str:
        """Enough of the file that is there to tell what it is; nothing of one that cannot be read."""
        with suppress(InputError, OSError):
            if self.path.suffix in PACKED:
                return read_text(self.path)
            with self.path.open("rb") as file:
                return file.read(1024 + len(self.begins.encode())).decode(errors="replace")
        return ""


def write(outputs: Sequence[Output], source: Source | None) -> None:
    """Write files, but none if one of them would take the place of anything else.

    Args:
        source: The user's own file that labels came from, if there is one: it is never overwritten.
    """
    taken: dict[Path, str] = {}
    for output in outputs:
        if is_stream(output.path):
            continue
        real, option = output.path.resolve(), output.option
        if real.is_dir():
            raise InputError(f"{output.path} is a folder: name a file in it as {option}.")
        if real in taken:
            raise InputError(f"{output.path} cannot be both {taken[real]} and {option}: name another file.")
        taken[real] = option
        if source is not None and _is_source(real, source):
            raise InputError(
                f"{output.path} is the table of the given labels, never overwritten: name another {option}."
            )
        if not output.replaces_its_like():
            raise InputError(f"{output.path} is there and holds something else: name another {option}, or remove it.")
    for output in reversed(outputs):  # what tells another comes after it in the list, and has to be there before it
        write_text(output.path, output.text)


def _is_source(path: Path, source: Source) -> bool:
    """Whether this is the user's own file, where it was or, with its content, elsewhere.

    Reviewed labels may have the same content, as long as nobody changed any, and are told by their details.
    """
    if path == Path(source.file).resolve():
        return True
    return path.is_file() and checksum(path) == source.digest and not details_beside(path).exists()
