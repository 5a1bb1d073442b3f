"""The course of training for TensorBoard and other viewers; a run's own record is `metrics.jsonl`.

Everything is written when training is over, from what the loop has recorded anyway, so that no step waits for a viewer.
A viewer that is missing or fails costs one line on the screen and never a run.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from lightning_fabric.loggers.csv_logs import CSVLogger
from lightning_fabric.loggers.logger import Logger
from lightning_fabric.loggers.tensorboard import TensorBoardLogger

from bomd import progress
from bomd.errors import InputError
from bomd.learn.learner import History

DEFAULT = ("tensorboard",)
LOGGED = {"loss": "loss", "validation": "validation AUC", "seconds": "seconds"}  # what an epoch's record has


def _tensorboard(directory: Path) -> Logger:
    folder = directory / "tensorboard"
    for old in folder.glob("events.out.tfevents.*"):  # of a run that was killed after it had written them
        old.unlink()
    return TensorBoardLogger(root_dir=folder, name="", version="")


def _csv(directory: Path) -> Logger:
    folder = directory / "csv"
    (folder / "metrics.csv").unlink(missing_ok=True)
    return CSVLogger(root_dir=folder, name="", version="")


LOGGERS: dict[str, Callable[[Path], Logger]] = {"tensorboard": _tensorboard, "csv": _csv}


def find_loggers(names: Sequence[str]) -> dict[str, Callable[[Path], Logger]]:
    """What makes the logger of each name; call it before training, so that a wrong name costs nothing.

    Args:
        names: Keys of `LOGGERS`, or `module:function` for one of your own: the function gets the run directory and
            returns a `lightning_fabric.loggers.Logger`, such as Weights & Biases' or MLflow's of Lightning.
    """
    return {name: LOGGERS[name] if name in LOGGERS else _own(name) for name in names}


def log_history(directory: Path, history: History, names: Sequence[str] = DEFAULT) -> None:
    """Write loss, validation AUC and time of every epoch, in `directory/tensorboard` and wherever others write.

    Args:
        directory: Of the run.
        history: One record per epoch, of one or several stages.
        names: See `find_loggers`.
    """
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
        found = {f"{stage}/{LOGGED[key].replace(' ', '_')}": record.get(key) for key in LOGGED}
        yield int(record["epoch"]), {tag: float(value) for tag, value in found.items() if value is not None}


def _own(name: str) -> Callable[[Path], Logger]:
    module, colon, function = name.partition(":")
    if not colon:
        raise InputError(f"No logger {name!r}: use {', '.join(LOGGERS)}, or module:function for one of your own.")
    try:
        made: Callable[[Path], Logger] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise InputError(f"Cannot import logger {name!r}: {error}.") from error
    return made
