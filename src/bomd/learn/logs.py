"""The course of training for TensorBoard and other viewers; a run's own record is `metrics.jsonl`.

Everything is written when training is over, from what the loop has recorded anyway, so that no step waits for a viewer.
A viewer that is missing or fails costs one line on the screen and never a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from bomd import outside, progress
from bomd.errors import InputError
from bomd.files import write_text
from bomd.learn.learner import History

DEFAULT = ("tensorboard",)
LOGGED = {"loss": "loss", "validation": "validation_AUC", "seconds": "seconds"}  # what an epoch's record has


class Logger(Protocol):
    """What a logger must do; those of Lightning do."""

    def log_metrics(self, metrics: dict[str, float], step: int) -> Any:
        """Take numbers of one epoch by their names."""

    def save(self) -> Any:
        """Write what was taken."""

    def finalize(self, status: str) -> Any:
        """Close; the status is always "success", since nothing is logged before."""


class _TensorBoard:
    """TensorBoard's event files."""

    def __init__(self, directory: Path) -> None:
        from tensorboardX import SummaryWriter

        folder = directory / "tensorboard"
        for old in folder.glob("events.out.tfevents.*"):  # of a run that was killed after it had written them
            old.unlink()
        self._writer: Any = SummaryWriter(str(folder))

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def save(self) -> None:
        self._writer.flush()

    def finalize(self, status: str) -> None:
        self._writer.close()


class _Csv:
    """One row for each epoch of each stage; numbers that it does not have are empty."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "csv" / "metrics.csv"
        self._rows: list[Mapping[str, float]] = []

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self._rows.append({"step": step, **metrics})

    def save(self) -> None:
        import pandas as pd

        write_text(self._path, pd.DataFrame(self._rows).to_csv(index=False, lineterminator="\n"))

    def finalize(self, status: str) -> None:
        """Nothing is left to do."""


LOGGERS: dict[str, Callable[[Path], Logger]] = {"tensorboard": _TensorBoard, "csv": _Csv}


def find_loggers(names: Sequence[str]) -> dict[str, Callable[[Path], Logger]]:
    """What makes the logger of each name; call it before training, so that a wrong name costs nothing.

    Args:
        names: Keys of `LOGGERS`, or `module:function` for one of your own: the function gets the run directory and
            returns a `Logger`, such as Weights & Biases' or MLflow's of Lightning.
    """
    for name in names:
        if name not in LOGGERS and not outside.names(name):
            raise InputError(f"No logger {name!r}: use {', '.join(LOGGERS)}, or module:function for one of your own.")
    return {name: LOGGERS[name] if name in LOGGERS else outside.find(name, "logger") for name in names}


def log_history(directory: Path, history: History, names: Sequence[str] = DEFAULT) -> None:
    """Write loss, validation AUC and time of every epoch of a run, in its folder and wherever loggers write."""
    for name, make in find_loggers(names).items():
        try:
            logger = make(directory)
            for step, values in _points(history):
                logger.log_metrics(values, step)
            logger.save()
            logger.finalize("success")
        except ModuleNotFoundError:
            progress.say(f"No {name} logs: its package is not installed. Training is not affected.")
        except Exception as error:  # somebody else's code, at the end of hours of work that is already safe
            progress.say(f"No {name} logs: {type(error).__name__}: {' '.join(str(error).split())[:200]}")


def _points(history: History) -> Iterator[tuple[int, dict[str, float]]]:
    """Each epoch with its numbers, such as "train_classifier/loss"; what was not measured is left out."""
    for record in history:
        stage = str(record.get("stage", "train")).replace(" ", "_")
        found = {f"{stage}/{name}": record.get(key) for key, name in LOGGED.items()}
        yield int(record["epoch"]), {tag: float(value) for tag, value in found.items() if value is not None}
