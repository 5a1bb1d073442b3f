"""What is downloaded stays small: the repository, and what is built of it."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
REPOSITORY, SOURCES, WHEEL = 8_000_000, 1_000_000, 1_000_000  # bytes
PICTURE = 150_000
PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".svg")


@pytest.fixture(scope="module")
def tracked() -> dict[str, int]:
    """Every file that the repository holds, with its size."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("this is no checkout")
    files = {name: ROOT / name for name in listed.stdout.decode().split("\0") if name}
    return {name: path.stat().st_size for name, path in files.items() if path.is_file()}


def test_the_repository_is_small(tracked: dict[str, int]) -> None:
    largest = sorted(tracked, key=lambda name: -tracked[name])[:5]
    assert sum(tracked.values()) < REPOSITORY, f"the largest: {', '.join(largest)}"


def test_pictures_are_small_and_each_is_kept_once(tracked: dict[str, int]) -> None:
    pictures = {name: size for name, size in tracked.items() if name.endswith(PICTURES)}
    assert [name for name, size in pictures.items() if size > PICTURE] == [], "save them as WebP"
    contents = [(ROOT / name).read_bytes() for name in pictures]
    assert len(set(contents)) == len(contents) > 5


def test_no_records_are_kept_uncompressed(tracked: dict[str, int]) -> None:
    records = [name for name in tracked if name.startswith("results/") and ".jsonl" in name]
    assert records
    assert [name for name in records if not name.endswith(".jsonl.xz")] == [], "run: make records"


def test_what_is_built_is_small_and_holds_the_package_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (sources,), (wheel,) = tmp_path.glob("*.tar.gz"), tmp_path.glob("*.whl")
    assert sources.stat().st_size < SOURCES
    assert wheel.stat().st_size < WHEEL
    package = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src" / "bomd").rglob("*.*")}
    package = {name for name in package if "__pycache__" not in name}
    with zipfile.ZipFile(wheel) as archive:
        files = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert files == package
    with tarfile.open(sources) as archive:
        shipped = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in package} <= shipped
    assert {"README.md", "LICENSE", "pyproject.toml", "CHANGELOG.md"} <= shipped
    assert {name.partition("/")[0] for name in shipped if "/" in name} == {"src"}
