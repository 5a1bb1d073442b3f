"""Event files hold what the loop recorded, once; a viewer that is missing or fails costs no run."""

from __future__ import annotations

import csv
import struct
import sys
import types
from pathlib import Path

import pytest
from rich.console import Console

from bomd import progress
from bomd.errors import InputError
from bomd.learn.logs import find_loggers, log_history

HISTORY = [
    {"stage": "learn descriptors", "epoch": 1, "loss": 14.5, "images": 64, "seconds": 0.5},
    {"stage": "train classifier", "epoch": 1, "loss": 0.75, "images": 64, "seconds": 1.5, "validation": 0.625},
    {"stage": "train classifier", "epoch": 2, "loss": 0.25, "images": 64, "seconds": 1.0, "validation": None},
]
EXPECTED = {
    ("learn_descriptors/loss", 1): 14.5,
    ("learn_descriptors/seconds", 1): 0.5,
    ("train_classifier/loss", 1): 0.75,
    ("train_classifier/loss", 2): 0.25,
    ("train_classifier/seconds", 1): 1.5,
    ("train_classifier/seconds", 2): 1.0,
    ("train_classifier/validation_AUC", 1): 0.625,
}


def events(folder: Path) -> dict[tuple[str, int], float]:
    """Scalars by tag and step, read record by record: length, checksum, event, checksum."""
    pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    (path,) = folder.glob("events.out.tfevents.*")
    content, found = path.read_bytes(), {}
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        event = pb2.Event.FromString(content[12 : 12 + length])
        for value in event.summary.value:
            assert (value.tag, event.step) not in found
            found[value.tag, event.step] = value.simple_value
        content = content[16 + length :]
    return found


def test_event_files_hold_the_history_once(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    for _ in range(2):  # a run that was killed behind this point does it again
        log_history(tmp_path, HISTORY)
    assert events(tmp_path / "tensorboard") == EXPECTED
    assert [path.name for path in tmp_path.iterdir()] == ["tensorboard"]


def test_csv(tmp_path: Path) -> None:
    for _ in range(2):
        log_history(tmp_path, HISTORY, ["csv"])
    rows = list(csv.DictReader((tmp_path / "csv" / "metrics.csv").open()))
    found = {
        (tag, int(row["step"])): float(value) for row in rows for tag, value in row.items() if tag != "step" and value
    }
    assert found == EXPECTED


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> pytest.CaptureFixture[str]:
    progress.enable(Console(stderr=True, width=300))
    yield capsys
    progress.disable()


def test_a_missing_package_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)  # as Python treats what cannot be imported
    log_history(tmp_path, HISTORY)
    message = said.readouterr().err
    assert message.count("\n") == 1
    assert "No tensorboard logs" in message
    assert not list(tmp_path.rglob("events*"))


class Kept:
    """A logger of the user's own."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.found, self.status = directory, {}, ""
        KEPT.append(self)

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.found |= {(tag, step): value for tag, value in metrics.items()}

    def save(self) -> None: ...

    def finalize(self, status: str) -> None:
        self.status = status


KEPT: list[Kept] = []


def fails(directory: Path) -> Kept:
    raise OSError(f"no network\nin {directory}")


def test_loggers_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: pytest.CaptureFixture[str]) -> None:
    module = types.ModuleType("own_loggers")
    module.kept, module.fails = Kept, fails
    monkeypatch.setitem(sys.modules, "own_loggers", module)
    log_history(tmp_path, HISTORY, ["own_loggers:fails", "own_loggers:kept"])
    message = said.readouterr().err
    assert message.startswith("No own_loggers:fails logs: OSError: no network in ")
    assert message.count("\n") == 1
    (kept,) = KEPT
    assert kept.found == EXPECTED
    assert (kept.status, kept.directory) == ("success", tmp_path)


@pytest.mark.parametrize(
    ("name", "message"),
    [("wandb", "use tensorboard, csv, or module:function"), ("nowhere:x", "nowhere"), ("json:x", "no attribute 'x'")],
)
def test_a_wrong_name_is_found_before_training(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        find_loggers(["csv", name])
