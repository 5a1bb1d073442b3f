"""Many runs: do what is missing, several at once, and keep a record of each as soon as it is finished."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from bomd import progress, runs, threads
from bomd.config import Config
from bomd.errors import InputError
from bomd.experiments import workers
from bomd.experiments.live import Board
from bomd.experiments.noise import plan_noise
from bomd.experiments.plan import announce, cost
from bomd.experiments.recorded import Record, check_name, merge, read_records, record_of
from bomd.files import fingerprint


@dataclass(frozen=True)
class Outcome:
    """What came of many runs: those that finished, in the order asked for, and why the others did not."""

    done: list[runs.Run]
    failed: dict[str, str]  # name of the run -> reason


def run_all(
    configs: Sequence[Config],
    root: Path,
    jobs: int = 1,
    console: Console | None = None,
    results: Path | None = None,
    command: Sequence[str] = workers.COMMAND,
) -> Outcome:
    """Do every run that is not finished yet, several at once if asked; small runs leave a GPU mostly idle.

    Names and settings of all are checked before the first starts, and that every dataset is there. The most expensive
    runs start first, so that none of them is left over at the end. A run that fails does not stop the others.

    Args:
        jobs: Runs at the same time; never more than there are cores.
        results: A file of records to add each run to as soon as it is finished.
    """
    from bomd.experiments import experiment  # PyTorch with it, which tables of records can do without

    if results is not None:
        check_name(results)
    if jobs > threads.cores():  # more would only wait for one another
        jobs = threads.cores()
        progress.say(f"{jobs} at a time, one for each core that may be used here.")
    for config in configs:
        experiment.make_method(config)
    states, wrong = _states(configs)
    located = {place: runs.locate(root, config, states[_data_of(config)]) for place, config in enumerate(configs)}
    finished = {place: run for place, run in located.items() if run.finished}
    waiting = [place for place in located if place not in finished]
    waiting.sort(key=lambda place: -cost(configs[place]))
    for place in waiting:
        if states[_data_of(configs[place])] is None:
            experiment.read_labels(configs[place])  # says why it cannot be read
        if (problem := wrong.get(_noise_of(configs[place]))) is not None:
            raise problem
    board, failed = Board(configs, console), {}
    for place, run in finished.items():
        board.run_finished(place, Record.of(run).result, already=True)
    if console is not None:
        console.print(announce(configs, finished, jobs), highlight=False, markup=False, soft_wrap=True)
    before = read_records(results) if results is not None and results.exists() else []
    records = {place: record_of(run) for place, run in finished.items() if results is not None}
    with board.shown(), closing(workers.work([configs[place] for place in waiting], root, jobs, command)) as events:
        for event in events:
            place = waiting[event.place]
            if event.state == "running":
                board.run_started(place)
            elif event.state == "failed":
                failed[board.name(place)] = event.reason
                board.run_failed(place, event.reason)
            else:
                run = runs.locate(root, configs[place], states[_data_of(configs[place])])
                finished[place] = run
                board.run_finished(place, Record.of(run).result)
                if results is not None:
                    records[place] = record_of(run)
                    merge(before, [records[known] for known in sorted(records)], results)
    return Outcome([finished[place] for place in sorted(finished)], failed)


def _data_of(config: Config) -> str:
    return fingerprint(config.train, config.test, config.hold_out_test_patients)


def _noise_of(config: Config) -> str:
    return fingerprint(_data_of(config), config.noise)


def _states(configs: Sequence[Config]) -> tuple[dict[str, runs.Data | None], dict[str, InputError]]:
    """The present state of each data set, and what is wrong with the noise of a recipe there.

    None where a set cannot be read, which only matters to runs not done yet.
    """
    from bomd.experiments import experiment

    states: dict[str, runs.Data | None] = {}
    wrong: dict[str, InputError] = {}
    for data, config in {_data_of(config): config for config in reversed(configs)}.items():
        states[data] = None
        with suppress(InputError):
            tables = experiment.read_labels(config)
            for noise, asked in {_noise_of(one): one for one in configs if _data_of(one) == data}.items():
                try:
                    plan_noise(asked, tables["train"][0])
                except InputError as error:
                    wrong[noise] = error
            states[data] = experiment.data_of(config, tables)
    return states, wrong
