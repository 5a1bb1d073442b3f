"""Make a start from generated X-rays once, and keep it for every run on this machine.

starts/phantom-efficientnet_lite0-64-3fa91c0b12de/   model/ with card and metrics, history.json, finished.json

The folder is named by everything that decides about it, the code of the phantoms among it. Processes that want the same
start wait for the one that makes it; interrupted, the next goes on from the last checkpoint.
"""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from torch import nn

from bomd import processes, progress
from bomd.config import Config, FitSettings, ImageSettings
from bomd.data.batches import Images, normalise
from bomd.data.datasets import phantom
from bomd.data.datasets.classes import NIH
from bomd.data.store import pack
from bomd.errors import InputError
from bomd.files import make_private, write_json, writing
from bomd.learn.engine import derive, fit, predict
from bomd.measure.metrics import classification
from bomd.models import card, model
from bomd.networks.backbone import build
from bomd.networks.device import Device
from bomd.pretrain.plan import Plan
from bomd.pretrain.teach import PhantomLearner, lessons, patients
from bomd.runs import Stage, hold
from bomd.tables import LabelTable, Text

PLACE = "BOMD_CACHE"  # the variable that names another folder than the usual one
HELD_OUT = 1500  # phantoms of other patients to measure with, beside at most a quarter of those to learn from
_TIMED = 16  # phantoms that the time is guessed from


@dataclass(frozen=True)
class Start:
    """A start that is there."""

    folder: Path  # the model folder, which `fit.weights` takes
    facts: dict[str, Any]  # plan, seconds, and the mean AUC on other patients of each hospital

    def note(self) -> str:
        """One line about where a network comes from."""
        plan = self.facts["plan"]
        name = "phantom" if plan["base"] == "none" else f"{plan['base']}+phantom"
        scores = [f"{auc:.3f} {hospital}" for hospital, auc in self.facts["auc"].items() if auc is not None]
        judged = f"; AUC on other generated patients: {', '.join(scores)}" if scores else ""
        return f"Start {name!r} {self.facts['key']}: {self.facts['described']}{judged}."


def cache() -> Path:
    """Where starts are kept for all runs of this user."""
    named, usual = os.environ.get(PLACE), os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(named) if named else (Path(usual) if usual else Path.home() / ".cache") / "bomd"
    except RuntimeError as error:  # nobody knows where home is
        raise InputError(f"There is no home folder to keep weights in: set {PLACE} to a folder.") from error


def place_of(plan: Plan) -> Path:
    """The folder of a start, whether it is there or not."""
    return cache() / "starts" / f"{plan.name}-{plan.backbone}-{plan.size}-{plan.key}"


def is_there(plan: Plan) -> bool:
    """Whether a start has been made."""
    return (place_of(plan) / "finished.json").is_file()


def make(plan: Plan, fabric: Device) -> Start:
    """The start of this plan, made now if it is not there yet."""
    place = place_of(plan)
    try:
        make_private(place)
    except InputError as error:
        raise InputError(f"{error} Weights made from phantoms are kept there; set {PLACE} to another folder.") from None
    with hold(place) as stage:
        if not stage.finished:
            _make(plan, fabric, stage)
        return Start(stage.directory / "model", stage.facts())


def copy_to(start: Start, folder: Path) -> Path:
    """Copy a start's model folder to a place that is free, and return that."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is there already: name another folder.")
    with writing(folder):
        shutil.copytree(start.folder, folder, dirs_exist_ok=True)
    return folder


def _make(plan: Plan, fabric: Device, stage: Stage) -> None:
    progress.say(f"Weights {plan.name!r} for {plan.backbone} are made once, from {plan.describe()}.")
    progress.say(f"That takes {how_long(plan, fabric)}. Interrupted, the next run goes on.")
    began = time.time()
    held_out = max(4 * len(plan.hospitals), min(HELD_OUT, plan.count // 4))
    train = patients(plan.hospitals, plan.count, "train", plan.seed)
    test = patients(plan.hospitals, held_out, "test", plan.seed)
    settings, learner = _settings(plan), PhantomLearner(plan.targets)
    pictures = stage.directory / "pictures"
    with processes.first_before_others():
        drawn, others = (_draw(table, pictures / str(table.ids[0]), plan, fabric) for table in (train, test))
    networks, history = fit(
        learner,
        drawn,
        lessons(train, plan.targets, fabric.device),
        settings,
        outputs=learner.outputs,
        fabric=fabric,
        seed=derive(plan.seed, "phantom start"),
        directory=stage.directory,
        what="learn phantoms",
    )
    scores = LabelTable(test.ids, NIH, predict(learner, networks, others).numpy())
    results: dict[str, dict[str, Any]] = {}
    if processes.first():
        origin = np.asarray([str(name).partition("-")[0] for name in test.ids])
        for hospital in plan.hospitals:
            own = test.take(np.flatnonzero(origin == hospital))
            results[hospital] = classification(own, scores, bootstrap=200).brief()
        config = Config(
            name=f"{plan.name} start",
            method="bce",
            seed=plan.seed,
            images=ImageSettings(size=plan.size),
            train={"dataset": "phantom", "hospitals": list(plan.hospitals), "learnt": ["labels", *plan.targets]},
            fit=settings,
        )
        head = cast(nn.Linear, networks[0].head)
        head.weight, head.bias = (nn.Parameter(part[: len(NIH)]) for part in (head.weight, head.bias))  # labels alone
        facts = card.facts_of(config, {"train": len(train), **dict.fromkeys(results, len(test) // len(results))})
        model.save(stage.directory / "model", networks, NIH, plan.size, metrics=results, **facts)
        write_json(stage.directory / "history.json", history)
        (stage.directory / "checkpoint.pt").unlink(missing_ok=True)
        shutil.rmtree(pictures, ignore_errors=True)  # they can be drawn again
    stage.finish(
        key=plan.key,
        plan=asdict(plan),
        described=plan.describe(),
        auc={name: result["mean_auc"] for name, result in results.items()},
        seconds=round(time.time() - began, 1),
    )


def how_long(plan: Plan, fabric: Device) -> str:
    """About how long making it will take, in words; on a CPU by drawing and learning a few."""
    if fabric.device.type == "cuda":
        return "a minute or a few on this GPU"
    table = patients(plan.hospitals[:1], _TIMED, "train", plan.seed)
    network = build(plan.backbone, len(NIH), weights="none", seed=0).train()
    spent = []
    for _ in range(2):  # the first warms up
        began = time.perf_counter()
        pixels = phantom.render(table.ids, plan.size)
        drawn = time.perf_counter()
        network(normalise(pixels.float(), network.channels)).square().mean().backward()
        spent.append(drawn - began + plan.epochs * (time.perf_counter() - drawn))
    seconds = min(spent) / _TIMED * plan.count
    return f"about {max(1, round(seconds))} seconds" if seconds < 90 else f"about {round(seconds / 60)} minutes"


def _settings(plan: Plan) -> FitSettings:
    return FitSettings(
        backbone=plan.backbone,
        weights=plan.base,
        epochs=plan.epochs,
        batch=min(plan.batch, max(2, plan.count // 4)),
        rate=plan.rate,
        betas=(0.9, 0.999),
        eps=1e-8,
        schedule="onecycle",
        augment="none" if "place" in plan.targets else "light",
    )


def _draw(table: LabelTable, directory: Path, plan: Plan, fabric: Device) -> Images:
    def render(ids: Text, size: int) -> NDArray[np.uint8]:
        return phantom.render(ids, size, device=fabric.device).cpu().numpy()

    return Images(pack(table, directory, plan.size, render=render), table.ids, fabric.device, fabric.resident())
