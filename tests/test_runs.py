"""Run directories and stages: complete or not, of this version or not, and never stale."""

from __future__ import annotations

import ntpath
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bomd import runs, sources
from bomd.config import Config
from bomd.errors import InputError
from bomd.files import read_json, write_json


def test_same_settings_same_directory_and_any_change_another(tmp_path: Path) -> None:
    first = runs.start(tmp_path, Config(name="x", method="bce"))
    assert runs.start(tmp_path, Config(name="x", method="bce")).directory == first.directory
    assert runs.start(tmp_path, Config(name="x", method="bce", validation=0.2)).directory != first.directory
    assert first.directory.parent == tmp_path / "x" / "bce"


def test_a_run_counts_once_its_result_is_there(tmp_path: Path) -> None:
    run = runs.start(tmp_path, Config())
    assert not run.finished
    with pytest.raises(InputError, match="not finished"):
        run.result()
    write_json(run.directory / "result.json", {"format": 1})
    assert run.finished
    assert run.result() == {"format": 1}


def test_other_versions_are_refused(tmp_path: Path) -> None:
    run = runs.start(tmp_path, Config())
    write_json(run.directory / "config.json", {"format": 99, "config": {}})
    with pytest.raises(InputError, match="another version of bomd"):
        run.config()
    with pytest.raises(InputError, match="another version of bomd"):
        runs.start(tmp_path, Config())


def test_changed_code_finds_no_old_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever edits a method and runs again must not be handed the numbers of the old one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    own = tmp_path / "own_stage_of_a_test.py"
    own.write_text("rate = 1\n")
    stages = runs.Stages(tmp_path, (own.stem,))
    with stages.enter("descriptors", 1) as stage:
        stage.finish(images=3)
    with stages.enter("descriptors", 1) as again:
        assert again.finished
        assert again.facts() == {"images": 3}
    with stages.enter("descriptors", 2) as other, stages.enter("descriptors", 1, by=("bomd.seeds",)) as shared:
        assert not other.finished
        assert not shared.finished
    own.write_text("rate = 2\n")
    with stages.enter("descriptors", 1) as loaded:
        assert loaded.finished  # this process still runs what it has begun with
    sources._read.cache_clear()
    with stages.enter("descriptors", 1) as edited:
        assert not edited.finished


@pytest.mark.parametrize("content", ["[]", "3", "null", '"text"', "{}", '{"format": 1}', '{"format": 1, "config": 3}'])
def test_json_of_another_type_is_one_line(tmp_path: Path, content: str) -> None:
    run = runs.start(tmp_path, Config())
    (run.directory / "config.json").write_text(content)
    with pytest.raises(InputError, match=r"damaged|another version"):
        run.config()
    run = runs.start(tmp_path, Config(name="other"))
    for name, read in (("result.json", run.result), ("environment.json", run.environment)):
        (run.directory / name).write_text(content)
        if not content.startswith("{"):
            with pytest.raises(InputError, match=f"{name} is damaged"):
                read()


HOLD = """
import sys, time
from pathlib import Path
from bomd.runs import Stages
with Stages(Path(sys.argv[1])).enter("slow", 1) as stage:
    print("found" if stage.finished else "made")
    time.sleep(0.3)
    stage.finish()
"""


def test_two_processes_never_compute_the_same_stage(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [child.communicate(timeout=120)[0].strip() for child in children]
    assert sorted(said) == ["found", "made"]


def test_finished_runs_are_found_below_folders(tmp_path: Path) -> None:
    run = runs.start(tmp_path, Config())
    with pytest.raises(InputError, match="No finished run"):
        runs.find([tmp_path])
    write_json(run.directory / "result.json", {})
    assert runs.find([tmp_path]) == [run]
    assert runs.find([run.directory]) == [run]
    with pytest.raises(InputError, match="No such run"):
        runs.find([tmp_path / "nowhere"])


def test_environment_names_versions_device_and_code() -> None:
    found = runs.environment("cpu", time.time())
    assert found["device"] == "cpu"
    assert found["versions"]["torch"]
    assert found["peak_memory_mb"] > 10


def test_packed_images_on_another_drive_of_windows_are_named_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, relative = runs.Run(tmp_path / "run"), ntpath.relpath
    runs.remember_images(run, tmp_path / "store", 8, "state")
    assert read_json(run.directory / "images.json")["store"] == "../store"
    monkeypatch.setattr(os.path, "relpath", lambda path, start: relative(f"D:{path}", f"C:{start}"))
    runs.remember_images(run, tmp_path / "store", 8, "state")
    assert read_json(run.directory / "images.json")["store"] == str((tmp_path / "store").resolve())
