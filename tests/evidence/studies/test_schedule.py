"""The long schedule goes on after its time is over, with what is on the machine or, on another one, with its bag."""

from __future__ import annotations

import csv
import datetime
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from bomd.config import Config
from bomd.experiments.workers import Event
from bomd.learn import engine
from evidence import ROOT
from evidence.rows import read_rows
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
    assert (row["date"], row["jobs"]) == (datetime.datetime.now(datetime.UTC).date().isoformat(), "1")
    assert "train classifier" in row["seconds_training"]
    before = (tmp_path / "schedule.csv").read_bytes()
    shutil.rmtree(tmp_path / "work")
    code, said = sit(tmp_path, "--methods", method)
    assert (code, said[-1]) == (0, f"{method}-symmetric is in {tmp_path / 'schedule.csv'}.")
    assert (tmp_path / "schedule.csv").read_bytes() == before
    (tmp_path / "schedule.csv").write_text(before.decode().replace(row["device"], "another device"))
    assert sit(tmp_path, "--methods", method)[1][-1] == f"{method}-symmetric is done."
    assert 0 <= float(row["auc_north"]) <= 1
    assert 0 < float(row["wrong_labels_ap"]) <= 1
    assert ("learnt" in row["said"] or "softened" in row["said"]) == (method == "bomd-plus")


@pytest.mark.slow
def test_several_at_once_end_with_their_time_and_go_on(tmp_path: Path) -> None:
    """The time is over as soon as one is done; epochs that the other had until then are not trained again."""
    both = ["--methods", "bce,bomd", "--length", "0.4", "--images", "80", "--size", "32", "--jobs", "2"]

    def wait_and_ring() -> None:
        while not (tmp_path / "schedule.csv").exists():
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGALRM)

    threading.Thread(target=wait_and_ring, daemon=True).start()
    code, said = sit(tmp_path, *both)
    assert code == 3
    assert said[:2] == ["bce-symmetric is under way.", "bomd-symmetric is under way."]
    assert any(re.match("worker[01]: .*, seed 0: ", line) for line in said)
    assert re.fullmatch(r"The time is over; into the bag: (no network|(classifier|descriptors)-[0-9a-f]+)", said[-1])
    (first,) = read_rows(tmp_path / "schedule.csv")
    packed = [log.read_text().count("Packing images") for log in tmp_path.glob("work/logs/*.log")]
    assert sum(packed) == 3, "images to learn from and of two tests, once each"
    kept = [torch.load(path, weights_only=True)["history"] for path in tmp_path.glob("work/stages/*/checkpoint.pt")]

    code, said = sit(tmp_path, *both)
    assert code == 0
    assert f"{first['method']}-symmetric is in {tmp_path / 'schedule.csv'}." in said
    rows = read_rows(tmp_path / "schedule.csv")
    assert rows[0] == first
    found = {row["method"]: row for row in rows}
    assert found.keys() == {"bce", "bomd"}
    assert {row["jobs"] for row in rows} == {"2"}, "the second sitting had one alone, the first two"
    assert all(float(row["peak_mb"]) > 100 for row in rows)
    after = {}
    for path in tmp_path.glob("work/*/*/*/metrics.jsonl"):
        method = path.parents[2].name.removesuffix("-symmetric")
        after[method] = [json.loads(line) for line in path.read_text().splitlines()]
    assert {method: len(epochs) for method, epochs in after.items()} == {"bce": 12, "bomd": 8 + 12}
    trained = [*after["bce"], *after["bomd"]]
    assert all(epoch in trained for history in kept for epoch in history), "an epoch was trained again"
    taken = sum(epoch["seconds"] for epoch in after["bce"])
    assert found["bce"]["seconds_training"] == f"train classifier {taken:.1f}"


def test_a_run_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def work(configs: Sequence[Config], *_: object) -> Iterator[Event]:
        assert [config.method for config in configs] == ["bce", schedule.OURS["bomd"]]
        yield Event(0, "running")
        yield Event(0, "failed", "out of memory")

    monkeypatch.setattr(schedule, "work", work)
    code, said = sit(tmp_path, "--methods", "bce,bomd", "--jobs", "2")
    assert (code, said[-1]) == (1, "bce-symmetric failed: out of memory")


def test_a_row_knows_of_earlier_sittings_how_many_ran_at_once(tmp_path: Path) -> None:
    assert bag.most_at_once(tmp_path, "one", 1) == 1
    assert not list(tmp_path.iterdir())
    assert bag.most_at_once(tmp_path, "one", 3) == 3
    assert bag.most_at_once(tmp_path, "one", 2) == 3
    assert bag.most_at_once(tmp_path, "another", 1) == 1


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 1002])
def test_what_is_deflated_is_the_same_again(length: int) -> None:
    content = bytes(number * 7 % 256 for number in range(length))
    assert bag._inflate(bag._deflate(content)) == content


def test_numbers_that_resemble_each_other_take_less() -> None:
    weights = (0.05 * torch.randn(50_000, generator=torch.Generator().manual_seed(0))).numpy().tobytes()
    assert len(bag._deflate(weights)) < 0.9 * len(weights)
    assert len(bag._deflate(weights)) < len(zlib.compress(weights))


def test_rows_that_two_processes_add_at_once_are_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("who\nearlier\n")
    script = (
        "import sys; from pathlib import Path; from evidence.rows import add_row;"
        "[add_row(Path(sys.argv[1]), {'who': sys.argv[2], 'number': number}) for number in range(20)]"
    )
    commands = [[sys.executable, "-c", script, str(path), who] for who in ("a", "b")]
    running = [subprocess.Popen(command, cwd=ROOT) for command in commands]
    assert [process.wait() for process in running] == [0, 0]
    wanted = {("earlier", "")} | {(who, str(number)) for who in ("a", "b") for number in range(20)}
    rows = read_rows(path)
    assert len(rows) == 41
    assert {(row["who"], row["number"]) for row in rows} == wanted


def test_of_several_networks_the_bag_takes_the_one_under_way_that_was_trained_longest(tmp_path: Path) -> None:
    def train(stage: str, *seconds: float) -> list[dict[str, Any]]:
        history = [{"epoch": number + 1, "seconds": taken} for number, taken in enumerate(seconds)]
        state = {"networks": [], "optimiser": {"state": {}}, "history": history}
        engine.save_checkpoint(tmp_path / "work" / "stages" / stage / "checkpoint.pt", state)
        return history

    (tmp_path / "bag").mkdir()
    assert bag.put_into_bag(tmp_path / "work", tmp_path / "bag") is None
    train("classifier-0a", 3.0, 3.0)
    train("descriptors-0b", 7.0)
    train("fold-0c", 9.0)
    (tmp_path / "work" / "stages" / "fold-0c" / "finished.json").write_text("{}")
    tested = train("classifier-0d", 8.0, 8.5)
    run = tmp_path / "work" / "bce-symmetric" / "bce" / "seed0-0e"
    run.mkdir(parents=True)
    (run / "metrics.jsonl").write_text("".join(json.dumps(epoch) + "\n" for epoch in tested))
    for name, history in (("0f", tested[:1]), ("0g", [{"epoch": 1, "seconds": 4.0}])):
        (tmp_path / "bag" / f"prepared-bomd-{name}.npz").touch()
        (tmp_path / "bag" / f"prepared-bomd-{name}.json").write_text(json.dumps({"history": history}))
    assert bag.put_into_bag(tmp_path / "work", tmp_path / "bag") == "classifier-0d", "it is not tested yet"
    assert len(list((tmp_path / "bag").glob("prepared-*"))) == 4
    (run / "result.json").write_text("{}")
    assert bag.put_into_bag(tmp_path / "work", tmp_path / "bag") == "descriptors-0b"
    kept = {path.name for path in (tmp_path / "bag").iterdir()}
    assert kept == {"network.0", "prepared-bomd-0g.npz", "prepared-bomd-0g.json"}, "labels of a finished run are not"


def test_a_checkpoint_comes_out_of_the_bag_as_it_went_in_but_for_rounded_moments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bag, "PIECE", 1000)
    network = torch.nn.Linear(20, 20)
    optimiser = torch.optim.Adam(network.parameters())
    network(torch.ones(1, 20)).sum().backward()
    optimiser.step()
    path = tmp_path / "here" / "stages" / "classifier-0a" / "checkpoint.pt"
    before = {
        "networks": [network.state_dict()],
        "optimiser": optimiser.state_dict(),
        "history": [{"epoch": 1, "seconds": 2.0}],
    }
    engine.save_checkpoint(path, before)
    (tmp_path / "bag").mkdir()
    assert bag.put_into_bag(tmp_path / "here", tmp_path / "bag") == "classifier-0a"
    assert all(piece.stat().st_size <= 1000 for piece in (tmp_path / "bag").iterdir())
    assert bag.take_from_bag(tmp_path / "bag", tmp_path / "there") == "classifier-0a"
    after = torch.load(tmp_path / "there" / "stages" / "classifier-0a" / "checkpoint.pt", weights_only=True)
    assert after["history"] == before["history"]
    assert torch.equal(after["networks"][0]["weight"], before["networks"][0]["weight"])
    for old, new in zip(before["optimiser"]["state"].values(), after["optimiser"]["state"].values(), strict=True):
        assert new["step"] == old["step"]
        assert new["exp_avg"].dtype == torch.float32
        torch.testing.assert_close(new["exp_avg"], old["exp_avg"], rtol=2**-8, atol=0)


def test_it_is_the_recipe_of_the_paper_but_for_what_phantoms_need() -> None:
    config = schedule.Task("bomd", "report mining").config(100, 64, 1.0, {"batch": 32})
    assert (config.fit.epochs, config.settings["bomd"]["epochs"]) == (30, 20)
    assert config.settings["bomd"]["neighbours"] == 10
    assert config.noise == {"kind": "report_mining"}
    assert config.validation == 0
    assert schedule.epochs_of(0.1) == {"fit": 3, "bomd": 2}
    short = schedule.Task("bomd", "symmetric").config(100, 64, 0.2, {"backbone": "small", "batch": 64})
    assert (short.fit.epochs, short.settings["bomd"]["epochs"], short.fit.backbone) == (6, 4, "small")
    assert (short.noise["rows"], short.noise["labels"]) == (0.2, 0.2)
