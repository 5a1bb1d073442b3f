"""What a run is made from: changed data make another run, and nobody is tested on who was learnt from."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bomd import runs
from bomd.config import Config, parse
from bomd.data.store import open_store
from bomd.errors import InputError
from bomd.experiments import experiment
from bomd.experiments.benchmark import run_all
from bomd.methods import METHODS
from bomd.review.evidence import open_evidence

FIT = {"backbone": "small", "weights": "none", "epochs": 1, "batch": 8, "rate": 1e-3, "eps": 1e-8, "augment": "none"}
COUNT = 24


def write_set(folder: Path, seed: int = 0, patients: str = "p") -> Path:
    """Two images of each patient, with random pixels and labels."""
    random = np.random.default_rng(seed)
    (folder / "images").mkdir(parents=True)
    lines = ["id,patient,Mass,Edema"]
    for row in range(COUNT):
        Image.fromarray(random.integers(0, 256, (16, 16), np.uint8)).save(folder / "images" / f"{row:03}.png")
        lines.append(f"{row:03}.png,{patients}{row // 2},{row % 2},{row // 2 % 2}")
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return folder


def config(root: Path | str, **changes: Any) -> Config:
    values = {"name": "own", "method": "bce", "images": {"size": 16}, "validation": 0.0, "fit": FIT}
    return parse({**values, "train": {"dataset": "folder", "root": str(root)}, **changes}, METHODS)


def repaint(file: Path) -> None:
    """Another picture in a file of the same name."""
    Image.fromarray(np.full((16, 16), 200, np.uint8)).save(file)


def swap_labels(folder: Path) -> None:
    lines = (folder / "labels.csv").read_text().splitlines()
    lines[1] = "000.png,p0,1,1"
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")


def test_a_finished_run_is_done_again_when_labels_or_images_change(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "data")
    settings = config(folder)
    first = experiment.run(settings, tmp_path / "runs")
    assert experiment.run(settings, tmp_path / "runs").directory == first.directory
    swap_labels(folder)
    second = experiment.run(settings, tmp_path / "runs")
    repaint(folder / "images" / "003.png")
    third = experiment.run(settings, tmp_path / "runs")
    places = [run.directory for run in (first, second, third)]
    assert len(set(places)) == 3, "every run keeps its directory, with what people decided in it"
    assert all(run.finished for run in (first, second, third))
    assert experiment.run(settings, tmp_path / "runs").directory == third.directory
    assert runs.find([tmp_path / "runs"]) == [third], "reports show what was asked for last"
    (folder / "labels.csv").write_text((folder / "labels.csv").read_text().replace("000.png,p0,1,1", "000.png,p0,0,0"))
    shutil.rmtree(folder / "images")
    write_set(tmp_path / "again")
    shutil.copytree(tmp_path / "again" / "images", folder / "images")
    back = experiment.run(settings, tmp_path / "runs")
    assert back.directory == first.directory, "pixels decide, however old their files are"
    assert runs.find([tmp_path / "runs"]) == [first]


def test_a_benchmark_does_runs_again_when_data_change(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "data")
    done = experiment.run(config(folder), tmp_path / "runs")
    assert runs.locate(tmp_path / "runs", config(folder), experiment.data_of(config(folder))) == done
    swap_labels(folder)
    assert not runs.locate(tmp_path / "runs", config(folder), experiment.data_of(config(folder))).finished
    shutil.rmtree(folder)
    assert run_all([config(folder)], tmp_path / "runs").done == [done], "what is finished needs no data"


def test_a_run_that_does_not_say_what_it_was_made_from_is_believed(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "data")
    done = experiment.run(config(folder), tmp_path / "runs")
    file = done.directory / "config.json"
    saved = json.loads(file.read_text())
    del saved["data"]
    file.write_text(json.dumps(saved))
    swap_labels(folder)
    assert experiment.run(config(folder), tmp_path / "runs").directory == done.directory
    assert "data" not in json.loads(file.read_text())


def test_review_shows_what_the_run_judged_or_nothing(tmp_path: Path) -> None:
    """A repacked store is another directory; one whose files were exchanged by hand is refused."""
    folder = write_set(tmp_path / "data")
    noise = {"kind": "symmetric", "rows": 0.8, "labels": 0.5}
    settings = config(folder, method="ols", noise=noise)
    run = experiment.run(settings, tmp_path / "runs")
    before = np.array(judged(run.directory).images)
    repaint(folder / "images" / "003.png")
    labels, dataset = experiment.read_labels(settings)["train"]
    stages = runs.Stages(tmp_path / "runs" / "stages")
    packed = experiment.pack_images(labels, dataset, settings, stages, experiment.make_fabric(settings.device).device)
    np.testing.assert_array_equal(judged(run.directory).images, before)
    shutil.rmtree(judged(run.directory).directory)
    facts = json.loads((run.directory / "images.json").read_text())
    shutil.copytree(packed.store.directory, run.directory / facts["store"])
    with pytest.raises(InputError, match="other images than this run was made from"):
        open_evidence(run.directory)


def judged(directory: Path) -> Any:
    facts = json.loads((directory / "images.json").read_text())
    return open_store(directory / facts["store"], expected=facts["fingerprint"])


@pytest.mark.parametrize("spelling", ["slash", "dots", "relative", "link", "below"])
def test_the_same_patients_are_found_under_every_spelling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    folder = write_set(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(folder)
    shutil.copytree(folder, tmp_path / "copy")
    other = {
        "slash": f"{folder}/",
        "dots": f"{folder}/../data",
        "relative": "data",
        "link": str(tmp_path / "link"),
        "below": str(folder / "images"),
    }[spelling]
    if spelling == "below":
        shutil.copy(folder / "labels.csv", folder / "images" / "labels.csv")
    test = {"here": {"dataset": "folder", "root": other}}
    with pytest.raises(InputError, match="12 patients of test set 'here' are in the training set too"):
        experiment.read_labels(config(folder, test=test))


def test_copied_pictures_are_found_by_their_pixels(tmp_path: Path) -> None:
    """Five images elsewhere, under other names and of other patients, lead to the five patients who have them."""
    folder = write_set(tmp_path / "data")
    other = write_set(tmp_path / "other", seed=1, patients="q")
    for row in range(0, 10, 2):
        shutil.copy(folder / "images" / f"{row:03}.png", other / "images" / f"{row + 10:03}.png")
    test = {"there": {"dataset": "folder", "root": str(other)}}
    with pytest.raises(InputError, match=r"5 patients have pictures .* test set 'there' too, such as '000"):
        experiment.run(config(folder, test=test), tmp_path / "runs")
    done = experiment.run(config(folder, test=test, hold_out_test_patients=True), tmp_path / "runs")
    assert done.result()["images"]["train"] == COUNT - 10
    assert any("have the same ids and other pixels" in note for note in done.result()["notes"])


def test_other_pictures_of_the_same_names_are_no_copies(tmp_path: Path) -> None:
    folder, other = write_set(tmp_path / "data"), write_set(tmp_path / "other", seed=1)
    done = experiment.run(config(folder, test={"there": {"dataset": "folder", "root": str(other)}}), tmp_path / "runs")
    assert done.result()["images"] == {"train": COUNT, "there": COUNT}


def test_runs_are_private(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        done = experiment.run(config(write_set(tmp_path / "data")), tmp_path / "runs")
    finally:
        os.umask(before)
    for place in (done.directory, done.directory.parent, tmp_path / "runs", *(tmp_path / "runs" / "stages").iterdir()):
        assert place.stat().st_mode & 0o077 == 0, place
    assert (done.directory / "labels.npz").stat().st_mode & 0o077 == 0
