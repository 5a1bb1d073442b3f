"""The long schedule goes on after its time is over, with what is on the machine or, on another one, with its bag."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from bomd.learn import engine
from evidence.pages import schedule as page
from evidence.studies import bag, schedule

TINY = ["--images", "40", "--size", "16", "--backbone", "small", "--length", "0.1", "--noise", "symmetric"]


def sit(folder: Path, *more: str) -> tuple[int, list[str]]:
    said: list[str] = []
    places = ["--work", str(folder / "work"), "--bag", str(folder / "bag"), "--out", str(folder / "schedule.csv")]
    return schedule.main([*places, *TINY, *more], say=said.append), said


@pytest.mark.slow
@pytest.mark.parametrize("method", ["bomd", "bomd-plus"])
def test_on_another_machine_it_goes_on_from_the_bag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Stopped in the second epoch of the classifier; then images and descriptors are gone, and only the bag is left."""
    save = engine.save_checkpoint

    def stopping(path: Path, *state: Any) -> None:
        save(path, *state)
        if path.parent.name.startswith("classifier-"):
            raise schedule.TimeUp

    with monkeypatch.context() as patched:
        patched.setattr(engine, "save_checkpoint", stopping)
        code, said = sit(tmp_path, "--methods", method)
    assert code == 3
    assert "classifier-" in said[-1]
    assert not (tmp_path / "schedule.csv").exists()
    shutil.rmtree(tmp_path / "work")
    code, said = sit(tmp_path, "--methods", method)
    assert code == 0
    assert said[0].startswith("From the bag: classifier-")
    assert not list((tmp_path / "work" / "stages").glob("descriptors-*")), "descriptors were learnt again"
    assert not list((tmp_path / "work" / "stages").glob("fold-*")), "labels were judged again"
    assert len(list((tmp_path / "work" / "stages").glob("classifier-*"))) == 1, "it began another classifier"
    with (tmp_path / "schedule.csv").open(newline="") as stream:
        (row,) = csv.DictReader(stream)
    assert row["method"] == method
    assert "train classifier" in row["seconds_training"]
    before = (tmp_path / "schedule.csv").read_bytes()
    shutil.rmtree(tmp_path / "work")
    code, said = sit(tmp_path, "--methods", method)
    assert (code, said[-1]) == (0, f"{method}-symmetric is in {tmp_path / 'schedule.csv'}.")
    assert (tmp_path / "schedule.csv").read_bytes() == before
    (tmp_path / "schedule.csv").write_text(before.decode().replace(row["device"], "another device"))
    assert sit(tmp_path, "--methods", method)[1][-1] == f"{method}-symmetric is done."
    assert 0 <= float(row["auc_north"]) <= 1
    shown = page.section([row, {**row, "length": "1"}])
    assert "with 10% of its epochs" in shown
    assert "at its full length" in shown
    assert "Not run: bce under symmetric, " in shown
    assert f"| symmetric | {method} | " in shown


def test_a_checkpoint_comes_out_of_the_bag_as_it_went_in_but_for_rounded_moments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bag, "PIECE", 1000)
    network = torch.nn.Linear(20, 20)
    optimiser = torch.optim.Adam(network.parameters())
    network(torch.ones(1, 20)).sum().backward()
    optimiser.step()
    path = tmp_path / "here" / "classifier-0a" / "checkpoint.pt"
    before = {
        "networks": [network.state_dict()],
        "optimiser": optimiser.state_dict(),
        "history": [{"epoch": 1, "seconds": 2.0}],
    }
    engine.save_checkpoint(path, before)
    (tmp_path / "bag").mkdir()
    assert bag.put_into_bag(tmp_path / "here", tmp_path / "bag", 30) == "classifier-0a"
    assert all(piece.stat().st_size <= 1000 for piece in (tmp_path / "bag").iterdir())
    assert bag.take_from_bag(tmp_path / "bag", tmp_path / "there") == "classifier-0a"
    after = torch.load(tmp_path / "there" / "classifier-0a" / "checkpoint.pt", weights_only=True)
    assert after["history"] == before["history"]
    assert torch.equal(after["networks"][0]["weight"], before["networks"][0]["weight"])
    for old, new in zip(before["optimiser"]["state"].values(), after["optimiser"]["state"].values(), strict=True):
        assert new["step"] == old["step"]
        assert new["exp_avg"].dtype == torch.float32
        torch.testing.assert_close(new["exp_avg"], old["exp_avg"], rtol=2**-8, atol=0)


def test_it_is_the_recipe_of_the_paper_but_for_what_phantoms_need() -> None:
    config = schedule.Task("bomd", "report mining").config(100, 64, 1.0, {})
    assert (config.fit.epochs, config.settings["bomd"]["epochs"]) == (30, 20)
    assert config.settings["bomd"]["neighbours"] == 10
    assert config.noise == {"kind": "report_mining"}
    assert config.validation == 0
    short = schedule.Task("bomd", "symmetric").config(100, 64, 0.2, {"backbone": "small"})
    assert (short.fit.epochs, short.settings["bomd"]["epochs"], short.fit.backbone) == (6, 4, "small")
    assert (short.noise["rows"], short.noise["labels"]) == (0.2, 0.2)
