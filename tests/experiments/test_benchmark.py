"""Many runs: done once, whatever fails or dies; their records added once and turned into tables without the runs."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bomd import progress, runs, threads
from bomd.cli import main
from bomd.config import Config, parse
from bomd.errors import InputError
from bomd.experiments import experiment
from bomd.experiments.benchmark import run_all
from bomd.experiments.live import Board, cells_of
from bomd.experiments.plan import announce, check_reference, configure, grid
from bomd.experiments.recorded import Record, add_records, read_records
from bomd.experiments.workers import Event, visible_gpus, work
from bomd.files import write_json
from bomd.learn.steps import Steps
from bomd.measure.result import Result
from bomd.methods import METHODS
from bomd.reports.noise_curves import judge
from bomd.reports.summary import gather, summary_table
from bomd.reports.tables import add_results, write_tables
from bomd.reports.words import in_words
from bomd.saved import read_as


def finished_run(place: Path, method: str, seed: int, auc: float, **train: Any) -> runs.Run:
    """A run directory as `experiment.run` leaves it, with as little in it as tables need."""
    settings = {"name": "toy", "method": method, "seed": seed, "train": {"dataset": "folder", **train}}
    run = runs.start(place, parse({**settings, "noise": {"kind": "symmetric", "rows": 0.4, "labels": 0.2}}, METHODS))
    scores = {"mean_auc": auc, "mean_auc_low": auc - 0.1, "mean_auc_high": auc + 0.1, "averaged": ["Mass"]}
    result = {
        **{key: settings[key] for key in ("name", "method", "seed")},
        "images": {"here": 10},
        "tests": {"here": scores},
        "detection": None,
        "labels": None,
        "flagged": None,
        "seconds": 1.0,
        "images_presented": 5,
    }
    write_json(run.directory / "environment.json", runs.environment("cpu", 0.0))
    write_json(run.directory / "result.json", result)
    return run


def test_without_a_test_set_the_summary_shows_the_held_out_patients(tmp_path: Path) -> None:
    run = finished_run(tmp_path, "bce", 0, 0.7)
    both = json.loads((run.directory / "result.json").read_text())
    console = Console(width=100)
    for tests, shown, hidden in (
        ({"here": 0.7, "validation": 0.65}, ("here", "0.700"), "0.650"),
        ({"validation": 0.65, "validation before noise": 0.8}, ("held-out", "patients", "0.650", "0.800"), "here"),
    ):
        scores = {name: {**both["tests"]["here"], "mean_auc": auc} for name, auc in tests.items()}
        write_json(run.directory / "result.json", {**both, "tests": scores, "composition": None})
        with console.capture() as captured:
            console.print(summary_table([run]))
        text = captured.get()
        assert all(part in text for part in shown), text
        assert hidden not in text


def test_records_that_are_added_at_once_are_all_kept(tmp_path: Path) -> None:
    """Eight writers start together, again and again; nobody overwrites what another has just added."""
    done = [finished_run(tmp_path, "bce", seed, 0.5) for seed in range(8)]
    for attempt in range(5):
        path, gate = tmp_path / f"{attempt}.jsonl", threading.Barrier(len(done))

        def add(run: runs.Run, path: Path = path, gate: threading.Barrier = gate) -> None:
            gate.wait()
            add_results([run], path)

        with ThreadPoolExecutor(len(done)) as pool:
            list(pool.map(add, done))
        assert sorted(record.result.seed for record in read_records(path)) == list(range(8))
        assert len(path.with_suffix(".csv").read_text().splitlines()) == 9, "the tables are of the last state, too"


def test_tables_without_records_or_of_something_else_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    path.touch()
    with pytest.raises(InputError, match="There is no run in"):
        add_results([], path)
    for line in ("3", "[]", "{}", '{"config": {}, "result": [], "environment": {}}'):
        path.write_text(line + "\n")
        with pytest.raises(InputError, match=r"Line 1 of .* is not the record of a run"):
            add_results([], path)
    path.write_text('{"config": {"method": "bce", "settings": {}}, "result": {}, "environment": {}}\n')
    with pytest.raises(InputError, match="is damaged"):
        add_results([], path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="a device or a pipe"):
        add_results([], tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize("name", ["paper.csv", "paper.md", "paper.tex", "paper-comparison.tex"])
def test_tables_take_the_place_of_tables_alone(name: str, tmp_path: Path) -> None:
    """Nobody names the tables, and where there are no records yet, what is called so is somebody's own."""
    records, own, runs = tmp_path / "paper.jsonl", tmp_path / name, [finished_run(tmp_path, "bce", 0, 0.5)]
    own.write_text("my own")
    for refused in (lambda: add_results(runs, records), lambda: run_all([], tmp_path, results=records)):
        with pytest.raises(InputError, match=f"{name} is there and no table of"):
            refused()
    assert own.read_text() == "my own"
    assert not records.exists()
    own.unlink()
    for place in (records, records, tmp_path / "paper.jsonl.xz"):  # the same tables, of records that are packed
        add_results([*runs, finished_run(tmp_path, "bomd", 0, 0.5)], place)


@pytest.mark.parametrize("name", ["mine.csv", "mine.md", "mine.tex"])
def test_records_are_never_kept_where_a_table_goes(name: str, tmp_path: Path) -> None:
    """The table took the place of the records, which were lost."""
    place = tmp_path / name
    with pytest.raises(InputError, match=rf"{name} cannot hold records, .* name a .jsonl or .jsonl.xz file"):
        add_results([finished_run(tmp_path, "bce", 0, 0.5)], place)
    with pytest.raises(InputError, match="cannot hold records"):
        run_all([], tmp_path, results=place)
    assert not place.exists()
    packed = place.with_suffix(f"{place.suffix}.xz")
    add_results([finished_run(tmp_path, "bce", 0, 0.5)], packed)
    assert len(read_records(packed)) == 1


def test_records_are_added_once_and_replaced_when_repeated(tmp_path: Path) -> None:
    path = tmp_path / "toy.jsonl"
    first, second = finished_run(tmp_path, "bce", 0, 0.7), finished_run(tmp_path, "bce", 1, 0.9)
    assert len(add_records([first], path)) == 1
    assert len(add_records([first, second], path)) == 2
    finished_run(tmp_path, "bce", 0, 0.8)
    add_records([first], path)
    assert [record.result.auc("here") for record in read_records(path)] == [0.8, 0.9]


def test_tables_state_mean_spread_and_noise(tmp_path: Path) -> None:
    """0.7 and 0.9: mean 0.8, sample standard deviation 0.1414."""
    found = add_records(
        [finished_run(tmp_path, "bce", 0, 0.7), finished_run(tmp_path, "bce", 1, 0.9)], tmp_path / "toy.jsonl"
    )
    write_tables(found, tmp_path / "toy.jsonl")
    text = (tmp_path / "toy.md").read_text()
    assert "| bce | (0.4, 0.2) | here | 2 | 0.800 ± 0.141 |" in text
    rows = list(csv.DictReader((tmp_path / "toy.csv").open()))
    assert [row["mean_auc"] for row in rows] == ["0.7", "0.9"]
    assert all(row["device"] == "cpu" for row in rows)


def test_records_do_not_say_where_the_data_lay(tmp_path: Path) -> None:
    run = finished_run(tmp_path, "bce", 0, 0.7, root="/home/somebody/secret/nih")
    add_records([run], tmp_path / "toy.jsonl")
    text = (tmp_path / "toy.jsonl").read_text()
    assert "somebody" not in text
    assert json.loads(text)["config"]["train"]["root"] == "nih"
    assert json.loads(text)["config"]["fit"]["eps"] == 0.1


def test_unfinished_and_damaged_are_refused(tmp_path: Path) -> None:
    run = finished_run(tmp_path, "bce", 0, 0.7)
    (run.directory / "result.json").unlink()
    with pytest.raises(InputError, match="not finished"):
        add_records([run], tmp_path / "toy.jsonl")
    (tmp_path / "bad.jsonl").write_text("{")
    with pytest.raises(InputError, match="Cannot read"):
        read_records(tmp_path / "bad.jsonl")


def test_records_of_the_same_run_replace_each_other_wherever_the_data_lay(tmp_path: Path) -> None:
    """Other folders, and settings of methods that the run does not use, make no other experiment."""
    path = tmp_path / "toy.jsonl"
    add_records([finished_run(tmp_path / "here", "bce", 0, 0.7, root="/data/nih")], path)
    add_records([finished_run(tmp_path / "there", "bce", 0, 0.8, root="/mnt/copy")], path)
    assert [record.result.auc("here") for record in read_records(path)] == [0.8]
    add_records([finished_run(tmp_path / "there", "bce", 0, 0.9, split="train")], path)
    assert len(read_records(path)) == 2


def test_columns_that_no_record_has_are_left_out(tmp_path: Path) -> None:
    found = add_records([finished_run(tmp_path, "bce", 0, 0.7)], tmp_path / "toy.jsonl")
    write_tables(found, tmp_path / "toy.jsonl")
    heads = (tmp_path / "toy.csv").read_text().splitlines()[0].split(",")
    assert "runs_at_once" in heads
    assert "peak_gpu_memory_mb" not in heads
    with_gpu = json.loads(json.dumps(found[0].written))
    with_gpu["environment"]["peak_gpu_memory_mb"] = 512.0
    write_tables([Record(with_gpu, "toy")], tmp_path / "toy.jsonl")
    (row,) = csv.DictReader((tmp_path / "toy.csv").open())
    assert row["peak_gpu_memory_mb"] == "512.0"


def test_data_of_several_recipes_stays_apart(tmp_path: Path) -> None:
    found = add_records([finished_run(tmp_path, "bce", 0, 0.7)], tmp_path / "toy.jsonl")
    other = json.loads(json.dumps(found[0].written))
    other["config"]["name"] = other["result"]["name"] = "other"
    other["result"]["tests"]["here"]["mean_auc"] = 0.9
    write_tables([*found, Record(other, "other")], tmp_path / "toy.jsonl")
    text = (tmp_path / "toy.md").read_text()
    assert "| toy | bce | (0.4, 0.2) | here | 1 | 0.700 |" in text
    assert "| other | bce | (0.4, 0.2) | here | 1 | 0.900 |" in text


TINY = {
    "images": {"size": 32},
    "train": {"dataset": "phantom", "count": 60},
    "fit": {"backbone": "small", "weights": "none", "epochs": 1, "batch": 16, "rate": 0.001, "eps": 1e-8},
}

# Does what a worker does without training anything: seed 1 is killed, 2 fails, 3 fails so that nothing works after it.
STAND_IN = """
import json, os, signal, sys
from pathlib import Path
from bomd import runs
from bomd.config import parse
from bomd.files import write_json
for line in sys.stdin:
    task = json.loads(line)
    config, root = parse(task["config"], ["bce", "bomd", "bomd-paper"]), Path(task["root"])
    with (root / "order.txt").open("a") as order:
        print(os.getpid(), config.method, config.seed, os.environ.get("CUDA_VISIBLE_DEVICES"), file=order)
    reason = {2: "no images", 3: "CUDA error"}.get(config.seed)
    if config.seed == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if config.seed == 4:
        import time; time.sleep(60)
    if reason is None:
        run = runs.start(root, config)
        scores = {"mean_auc": 0.5 + config.seed / 100, "mean_auc_low": 0, "mean_auc_high": 1, "averaged": []}
        result = {"tests": {"here": scores}, "images": {"here": 9}, "seconds": 2.0, "images_presented": 3}
        result |= {"name": config.name, "method": config.method, "seed": config.seed}
        write_json(run.directory / "environment.json", runs.environment("none", 0.0))
        write_json(run.directory / "result.json", result | {"detection": None, "labels": None, "flagged": None})
    print(json.dumps({"reason": reason, "usable": config.seed != 3}), flush=True)
"""
COMMAND = (sys.executable, "-c", STAND_IN)


def tiny(method: str, seed: int, **more: Any) -> Config:
    return parse({**TINY, "name": "tiny", "method": method, "seed": seed, **more}, METHODS)


def order(root: Path) -> list[list[str]]:
    """Process, method and seed of every run that was begun."""
    return [line.split()[:3] for line in (root / "order.txt").read_text().splitlines()]


class TestWorkers:
    def test_one_process_does_run_after_run_until_it_cannot(self, tmp_path: Path) -> None:
        """A run that fails by itself leaves the process alone; a killed or spoilt one is replaced."""
        events = list(work([tiny("bce", seed) for seed in (0, 2, 5, 1, 6, 3, 7)], tmp_path, 1, COMMAND))
        assert [event.state for event in events[::2]] == ["running"] * 7
        ends = {(event.place, event.state) for event in events[1::2]}
        finished = {(0, "finished"), (2, "finished"), (4, "finished"), (6, "finished")}
        assert ends == {*finished, (1, "failed"), (3, "failed"), (5, "failed")}
        reasons = {event.place: event.reason for event in events if event.state == "failed"}
        assert reasons[1] == "no images"
        assert "killed" in reasons[3]
        assert reasons[5].startswith("CUDA error")
        processes = [pid for pid, _, _ in order(tmp_path)]
        assert len({*processes[:4]}) == len({*processes[4:6]}) == 1
        assert len({processes[0], processes[4], processes[6]}) == 3

    def test_when_the_caller_stops_so_do_they(self, tmp_path: Path) -> None:
        """Seed 4 would take a minute."""
        running = work([tiny("bce", 4), tiny("bce", 5)], tmp_path, 2, COMMAND)
        assert Event(1, "finished") in [next(running) for _ in range(3)]
        while len(order(tmp_path)) < 2:
            time.sleep(0.05)
        running.close()
        for pid, _, _ in order(tmp_path):
            with pytest.raises(ProcessLookupError):
                os.kill(int(pid), 0)

    def test_every_worker_is_shown_one_gpu(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
        list(work([tiny("bce", seed) for seed in range(5, 9)], tmp_path, 4, COMMAND))
        assert sorted(line.split()[3] for line in (tmp_path / "order.txt").read_text().splitlines()) == [
            "5",
            "5",
            "7",
            "7",
        ]
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
        assert visible_gpus() == ["0", "1"]

    def test_a_command_that_does_not_exist_fails_every_run(self, tmp_path: Path) -> None:
        events = list(work([tiny("bce", 0)], tmp_path, 1, ("/nowhere/python",)))
        assert events[-1].state == "failed"
        assert "/nowhere/python" in events[-1].reason


class TestRunAll:
    def test_dear_runs_start_first_and_failures_stop_nothing(self, tmp_path: Path) -> None:
        configs = [tiny(method, seed) for method in ("bce", "bomd") for seed in (0, 1, 2, 5)]
        said, path = io.StringIO(), tmp_path / "tiny.jsonl"
        outcome = run_all(configs, tmp_path, 1, Console(file=said, width=200), path, COMMAND)
        assert [method for _, method, _ in order(tmp_path)] == ["bomd"] * 4 + ["bce"] * 4
        names = [(run.directory.parent.name, run.directory.name[:5]) for run in outcome.done]
        assert names == [("bce", "seed0"), ("bce", "seed5"), ("bomd", "seed0"), ("bomd", "seed5")]
        assert list(outcome.failed) == ["bomd, seed 1", "bomd, seed 2", "bce, seed 1", "bce, seed 2"]
        assert outcome.failed["bce, seed 2"] == "no images"
        records = [(record.config.method, record.seed) for record in read_records(path)]
        assert records == [("bce", 0), ("bce", 5), ("bomd", 0), ("bomd", 5)]
        lines = said.getvalue().splitlines()
        assert lines[0] == "8 runs, of which 0 are finished already"
        assert "finished: bce, seed 5: AUC 0.550 on here, 2 s" in lines
        assert "failed: bomd, seed 2: no images" in lines

    def test_what_is_finished_is_not_done_again(self, tmp_path: Path) -> None:
        run_all([tiny("bce", 5)], tmp_path, command=COMMAND)
        said = io.StringIO()
        configs = [tiny("bce", seed) for seed in (5, 6, 7)]
        outcome = run_all(configs, tmp_path, 2, Console(file=said, width=200), tmp_path / "tiny.jsonl", COMMAND)
        assert sorted(seed for _, _, seed in order(tmp_path)) == ["5", "6", "7"]
        assert len(outcome.done) == 3
        assert [record.seed for record in read_records(tmp_path / "tiny.jsonl")] == [5, 6, 7]
        assert "3 runs, of which 1 are finished already" in said.getvalue()
        assert "2 to do, as much work as 2 of bce; going by those that are finished, about 2 s" in said.getvalue()

    def test_records_are_kept_as_soon_as_there_are_any(self, tmp_path: Path) -> None:
        """Whatever kills the benchmark, what was finished is in the file."""
        path, kept = tmp_path / "tiny.jsonl", []

        class Watching(io.StringIO):
            def write(self, text: str) -> int:
                kept.append(len(read_records(path)) if path.exists() else 0)
                return len(text)

        run_all([tiny("bce", seed) for seed in (5, 6)], tmp_path, 1, Console(file=Watching()), path, COMMAND)
        assert 1 in kept

    def test_no_more_runs_at_once_than_cores(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each worker writes down its number, and what it may use."""
        monkeypatch.setenv(threads.SHARE, "2")
        monkeypatch.setattr(threads.os, "sched_getaffinity", lambda _: range(64), raising=False)
        monkeypatch.setattr(threads, "quota", lambda *_: None)
        outcome = run_all([tiny("bce", seed) for seed in (5, 6, 7, 8)], tmp_path, 16, command=COMMAND)
        assert len(outcome.done) == 4
        assert len({process for process, _, _ in order(tmp_path)}) <= 2
        assert len(list((tmp_path / "logs").glob("worker*.log"))) <= 2

    def test_mistakes_are_found_before_anything_starts(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="unknown key 'neighbors'"):
            run_all([tiny("bce", 0), tiny("bomd", 0, bomd={"neighbors": 3})], tmp_path, command=COMMAND)
        with pytest.raises(InputError, match="nowhere"):
            run_all([tiny("bce", 0, train={"dataset": "nih", "root": "/nowhere"})], tmp_path, command=COMMAND)
        cells = [tiny("bce", 0), tiny("bce", 0, noise={"kind": "symmetric", "row": 0.4})]
        with pytest.raises(InputError, match="noise: unknown key 'row'"):
            run_all(cells, tmp_path, command=COMMAND)
        assert not (tmp_path / "order.txt").exists()


@pytest.mark.slow
def test_runs_in_workers_equal_a_run_in_this_process(tmp_path: Path) -> None:
    """And one that cannot work is told by its one line, also by a real worker."""
    configs = [tiny("bce", 0), tiny("bce", 1), tiny("bomd", 0, bomd={"neighbours": 500})]
    outcome = run_all(configs, tmp_path / "together", 2)
    assert len(outcome.done) == 2
    assert outcome.failed["bomd, seed 0"].startswith("bomd.neighbours is 500")
    alone = experiment.run(configs[0], tmp_path / "alone")
    scores = [run.result()["tests"]["validation"]["mean_auc"] for run in (alone, outcome.done[0])]
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)
    environment = json.loads((outcome.done[0].directory / "environment.json").read_text())
    assert environment["runs_at_once"] == 2
    assert "train classifier: " in (tmp_path / "together" / "logs" / "worker0.log").read_text()
    assert environment["peak_memory_mb"] > 10


@pytest.mark.slow
def test_a_run_that_fails_at_its_end_keeps_what_it_has_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Like a full disk when the model is saved: the next attempt trains nothing."""
    config, save, steps = tiny("bce", 0), experiment.model.save, []
    train = Steps.run

    def counted(*given: Any) -> Any:
        steps.append(1)
        return train(*given)

    def fails(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device", "model")

    monkeypatch.setattr(Steps, "run", counted)
    monkeypatch.setattr(experiment.model, "save", fails)
    with pytest.raises(OSError, match="No space"):
        experiment.run(config, tmp_path)
    assert len(steps) == config.fit.epochs
    monkeypatch.setattr(experiment.model, "save", save)
    assert experiment.run(config, tmp_path).finished
    assert len(steps) == config.fit.epochs


# A worker whose disk is full when the model is saved, after the training.
FULL_DISK = """
from bomd.experiments import experiment, workers
def fails(*given, **more):
    raise OSError(28, "No space left on device", "model")
experiment.model.save = fails
workers.main()
"""


@pytest.mark.slow
def test_runs_of_a_benchmark_that_fail_at_their_end_keep_what_they_have_trained(tmp_path: Path) -> None:
    configs = [tiny("bce", seed) for seed in (0, 1)]
    outcome = run_all(configs, tmp_path, 2, command=(sys.executable, "-c", FULL_DISK))
    assert len(outcome.failed) == 2
    assert all("No space left" in reason for reason in outcome.failed.values())

    def trained() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in (tmp_path / "stages").glob("classifier-*/checkpoint.pt")}

    before = trained()
    assert len(before) == 2
    assert len(run_all(configs, tmp_path, 2).done) == 2
    assert trained() == before


def test_peak_memory_is_that_of_one_run(tmp_path: Path) -> None:
    """In a process of its own: 200 MB are taken and left in a circle, then forgotten."""
    script = (
        "from bomd import runs; taken = [bytearray(200 * 2**20)]; taken.append(taken); del taken;"
        "print(runs.environment('cpu', 0.0)['peak_memory_mb']); runs.measure_anew(3);"
        "found = runs.environment('cpu', 0.0); print(found['peak_memory_mb'], found['runs_at_once'])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    before, after, at_once = done.stdout.split()
    assert float(before) > 200 > float(after)
    assert at_once == "3"


class TestPlan:
    def test_every_combination_once(self) -> None:
        configs = grid(["demo"], ["bce", "bomd"], [0, 1], ["noise.rows=0.2", "noise.rows=0.4"], ["fit.epochs=3"])
        assert len(configs) == 8
        assert {(config.method, config.seed, config.noise["rows"]) for config in configs} == {
            (method, seed, rows) for method in ("bce", "bomd") for seed in (0, 1) for rows in (0.2, 0.4)
        }
        assert {config.fit.epochs for config in configs} == {3}
        assert {config.method for config in grid(["demo"], None, [0])} == set(METHODS)

    def test_settings_of_others_make_no_other_run(self) -> None:
        configs = grid(["demo"], ["bce", "bomd", "bomd-paper"], [0], ["bomd.neighbours=5", "bomd.neighbours=7"])
        assert [config.method for config in configs] == ["bce", "bomd", "bomd-paper", "bomd", "bomd-paper"]
        assert configure("demo", "bce").key == configure("demo", "bce", overrides=["bomd.epochs=3"]).key
        assert experiment.make_method(configs[2]).neighbours == 5  # type: ignore[attr-defined]

    def test_a_typing_error_in_the_settings_of_another_method_is_found(self) -> None:
        with pytest.raises(InputError, match="unknown key 'neighbors'"):
            configure("demo", "bce", overrides=["bomd.neighbors=5"])

    def test_a_reference_must_be_among_the_methods(self) -> None:
        methods = ["bce", "elr"]
        check_reference("elr", methods, None)
        check_reference("bomd", methods, None)  # by default; tables say that it is missing
        with pytest.raises(InputError, match=r"--reference 'erl' is none of the methods.*Did you mean 'elr'"):
            check_reference("erl", methods, None)

    def test_a_reference_may_be_recorded_already(self, tmp_path: Path) -> None:
        path = tmp_path / "toy.jsonl"
        check_reference("elr", ["elr"], path)  # not there yet
        add_records([finished_run(tmp_path, "bce", 0, 0.7)], path)
        check_reference("bce", ["elr"], path)
        with pytest.raises(InputError, match=r"none of the methods that are run or recorded in .*toy.jsonl"):
            check_reference("nvum", ["elr"], path)

    def test_a_page_refuses_a_reference_that_nobody_ran(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """It compared with plain training instead, without a word."""
        finished_run(tmp_path, "elr", 0, 0.7)
        with pytest.raises(SystemExit) as ended:
            main(["report", str(tmp_path), "--reference", "erl", "-o", str(tmp_path / "page.html")])
        assert ended.value.code == 2
        said = " ".join(capsys.readouterr().err.split())
        assert "--reference 'erl' is none of the methods that are run. Did you mean 'elr'?" in said
        check_reference("bce", ["elr"], None, usual="bce")  # by default

    def test_costs_are_summed_up(self) -> None:
        text = announce([tiny("bce", 0), tiny("bce", 1), tiny("bce", 2)], {}, 1)
        assert "3 to do, as much work as 3 of bce" in text
        assert "bce 3 x 1" in text

    def test_runs_by_other_code_are_counted_by_method(self, tmp_path: Path) -> None:
        run = finished_run(tmp_path, "elr", 0, 0.7)  # by no code that is known
        text = announce([tiny("bce", 0), tiny("elr", 0)], {1: run}, 1)
        assert "2 runs, of which 1 are finished already, 1 by other code than today's (elr 1): delete them" in text


def test_a_mean_over_runs_of_different_code_says_so(tmp_path: Path) -> None:
    """A method was edited between two seeds, and the tables had one mean of both without a word."""
    done = [finished_run(tmp_path, "elr", seed, 0.7) for seed in (0, 1, 2)]
    console = Console(width=200)

    def told() -> tuple[str, list[str]]:
        with console.capture() as captured:
            console.print(summary_table(done))
        return " ".join(captured.get().split()), [point["lead"] for point in in_words(judge(gather(done))[0])]

    page, leads = told()
    assert "same code" not in page + "".join(leads)
    saved = done[1].directory / "config.json"
    write_json(saved, json.loads(saved.read_text()) | {"code": "another"})
    sentence = "Not all seeds are by the same code: elr (seeds 0, 2 | 1)."
    page, leads = told()
    assert sentence in page
    assert sentence in leads


class TestLiveTable:
    def drawn(self, configs: Sequence[Config], height: int = 30) -> tuple[Board, Console]:
        console = Console(force_terminal=True, width=120, height=height, file=io.StringIO())
        return Board(configs, console), console

    def text(self, board: Board, console: Console) -> str:
        with console.capture() as captured:
            console.print(board)
        return captured.get()

    def result(self, auc: float | None) -> Result:
        tests = {"south": {"mean_auc": auc}, "validation": {"mean_auc": 0.1}}
        return read_as(Result, {"tests": tests, "seconds": 3.0}, "result.json")

    def test_a_row_says_what_is_finished_running_and_failed(self) -> None:
        noise = {"kind": "symmetric", "labels": 0.4}
        board, console = self.drawn(
            [tiny("bce", seed, noise={**noise, "rows": rows}) for rows in (0.2, 0.4) for seed in (0, 1, 2, 3)]
        )
        board.run_finished(0, self.result(0.7), already=True)
        for place in (1, 2, 3):
            board.run_started(place)
        board.run_finished(1, self.result(0.9))
        board.run_failed(2, "no images")
        text = self.text(board, console)
        assert "2 of 8 runs finished, 1 running, 1 failed" in text
        (row,) = [line for line in text.splitlines() if "(0.2, 0.4)" in line]
        for part in ("bce", "2 of 4", "seed 3", "0.800 ± 0.141"):
            assert part in row
        (other,) = [line for line in text.splitlines() if "(0.4, 0.4)" in line]
        assert "0 of 4" in other
        assert "AUC south" in text

    def test_a_log_hears_of_it_while_nothing_ends(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(progress, "EVERY", 0.01)
        said = io.StringIO()
        board = Board([tiny("bce", 0), tiny("bce", 1)], Console(file=said, width=200))
        with board.shown():
            board.run_started(0)
            deadline = time.monotonic() + 10
            while "0 of 2 runs finished, 1 running, 0 failed" not in said.getvalue() and time.monotonic() < deadline:
                time.sleep(0.01)
        assert "0 of 2 runs finished, 1 running, 0 failed" in said.getvalue()
        told = said.getvalue()
        time.sleep(0.05)
        assert said.getvalue() == told

    def test_more_rows_than_lines_keep_what_is_running_in_sight(self) -> None:
        configs = [tiny("bce", 0, validation=round(share / 100, 2)) for share in range(40)]
        board, console = self.drawn(configs, height=20)
        board.run_started(33)
        text = self.text(board, console)
        assert "validation=0.33" in text
        assert len(text.splitlines()) < 20
        assert "more rows do not fit" in text

    def test_undefined_scores_and_names_are_shown_as_they_are(self) -> None:
        board, console = self.drawn([tiny("bce", 0)])
        board.run_finished(0, self.result(None))
        assert "1 of 1" in self.text(board, console)

    def test_cells_are_named_by_what_differs(self) -> None:
        one, other = tiny("bce", 0), tiny("bce", 1)
        assert cells_of([one, other]) == ["", ""]
        noisy = tiny("bce", 0, noise={"kind": "symmetric", "rows": 0.4})
        assert cells_of([one, noisy]) == ["no noise", "symmetric rows=0.4"]
        assert cells_of([one, parse({**TINY, "name": "big", "method": "bce"}, METHODS)]) == ["tiny", "big"]
