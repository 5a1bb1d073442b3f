"""One run from images and noisy labels to clean-set numbers: `run` reads, `run_on` is the whole path on one page."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from bomd import processes, progress, runs
from bomd.clean.rates import known_rates
from bomd.config import Config
from bomd.data import datasets
from bomd.data.batches import Images
from bomd.data.colour import Keeping
from bomd.data.datasets import nih_google
from bomd.data.datasets.corrected import Corrections, details_beside
from bomd.data.split import split_by_patient
from bomd.data.store import Store
from bomd.errors import InputError
from bomd.experiments.confirmed import after_noise, count_decided, decided_note, keep_confirmed
from bomd.experiments.inputs import code_of_run, state_of, without_copies, without_shared_patients
from bomd.experiments.noise import add_noise, plan_noise
from bomd.experiments.one_label import Tables, check_one_label, of_one_kind, one_label_note
from bomd.experiments.packing import how_to_keep, pack_images, skipped_images
from bomd.experiments.prepared import prepare
from bomd.experiments.records import label_record
from bomd.experiments.writing import write_run
from bomd.learn.engine import History, fit, predict
from bomd.learn.logs import DEFAULT, find_loggers, log_history
from bomd.measure.metrics import classification, mean_auc
from bomd.measure.result import BEFORE_NOISE, VALIDATION, Result
from bomd.measure.thresholds import choose_thresholds
from bomd.methods import METHODS
from bomd.methods.base import Context, Method, NoiseLevel
from bomd.methods.confirmed import hold_confirmed
from bomd.methods.describe import in_use
from bomd.models import card, model
from bomd.networks.abnormality import share_abnormality
from bomd.networks.backbone import Network, for_colour
from bomd.networks.device import Device, make_fabric
from bomd.pretrain.provide import beneath, provide
from bomd.seeds import derive
from bomd.tables import NO_FINDING, LabelTable
from bomd.typed import arguments

NOBODY_HELD_OUT = 'fit.select = "best" needs held-out patients, and validation is 0: the last epoch was kept.'
NO_SCORE = 'fit.select = "best": no epoch could be scored on the held-out patients, so the last one was kept.'


def run(config: Config, root: Path = Path("runs"), loggers: Sequence[str] = DEFAULT) -> runs.Run:
    """Read the data that a recipe names, and do its experiment; arguments as for `run_on`."""
    find_loggers(loggers)
    tables = read_labels(config)
    return run_on(config, tables, read_decided(config, tables["train"][0]), root, loggers)


@processes.together()
def run_on(
    config: Config,
    tables: Tables,
    decided: Corrections | None = None,
    root: Path = Path("runs"),
    loggers: Sequence[str] = DEFAULT,
) -> runs.Run:
    """Do one experiment, or what is left of it, on data that are read already, and return its directory.

    Args:
        config: All settings; its `train` and `test` are written down and not looked at.
        tables: The labels of the training set, under "train", and of every test set.
        decided: What people decided about the training labels.
        root: Where run directories, packed images and finished stages are kept.
        loggers: Viewers to write the course of training for; see `bomd.learn.logs`.
    """
    started = time.time()
    find_loggers(loggers)
    method = make_method(config)
    method.exclusive = tables["train"][0].exclusive
    fabric = make_fabric(config.device)
    check(config, method, tables["train"][0], decided)
    rehearse(config, {name: table for name, (table, _) in tables.items()}, fabric)
    stages, code = runs.Stages(root / "stages", (METHODS.module(config.method),)), code_of_run(config.method)
    labels_of = with_decided(config, tables, decided)
    data, sources, kept_as = state_of(labels_of), {}, Keeping(False)
    if not processes.agreed(runs.locate(root, config, data).finished):
        kept_as = how_to_keep(config, tables)
        with processes.first_before_others():
            sources = {name: pack_images(*tables[name], config, stages, fabric.device, kept_as) for name in tables}
        data = state_of(labels_of, {name: source.store for name, source in sources.items()})
    with processes.first_before_others():
        this = runs.start(root, config, data, code)
    if processes.agreed(this.finished):
        older = "" if this.code == code else " by other code than today's"
        progress.say(f"{this.directory} is finished already{older}; delete it to run again")
        return this
    progress.say(f"{config.method}, seed {config.seed}: {this.directory}")
    for note in (*kept_as.notes, *one_label_note(config, method)):
        progress.say(note)
    train, remarks = without_copies(sources.pop("train"), sources, config.hold_out_test_patients)
    for remark in remarks:
        progress.say(f"Note: {remark}")
    noise = add_noise(config, train.labels, stages)
    labels = train.labels if noise is None else after_noise(noise.noisy, train.labels)
    # Decisions come after both: the same noise falls on the same labels and the same patients are held out as in the
    # run that people reviewed, so that neither brings true labels back.
    kept, held_out = split_by_patient(labels, config.validation, derive(config.seed, VALIDATION))
    if decided is not None:
        labels = decided.over(labels, decided_only=noise is not None)
    given, validation = labels.take(kept), _certain(labels.take(held_out))
    notes = [] if labels.confirmed is None else [decided_note(given, decided)]
    for note in notes:
        progress.say(note)

    def show(store: Store, table: LabelTable) -> Images:
        return Images(store, table.ids, fabric.device, fabric.resident())

    images = show(train.store, given)
    level = NoiseLevel() if noise is None else NoiseLevel.between(noise.clean.take(kept).values, given.values)
    known = known_rates(config.rates, given.classes)
    asked = replace(config.fit, backbone=for_colour(config.fit.backbone)) if images.colour else config.fit
    training, about_start = provide(asked, images, fabric, stages, derive(config.seed, "start"))
    notes += about_start
    context = Context(images, training, fabric, derive(config.seed, "method"), stages, level, known)
    prepared = keep_confirmed(prepare(method, given, context), given)

    truths = {name: source.labels for name, source in sources.items()}
    views = {name: show(source.store, source.labels) for name, source in sources.items()}
    if len(validation):
        truths[VALIDATION], views[VALIDATION] = validation, show(train.store, validation)
        if noise is not None:
            truths[BEFORE_NOISE], views[BEFORE_NOISE] = noise.clean.take(held_out), views[VALIDATION]

    def score(name: str, networks: Sequence[Network]) -> LabelTable:
        scores = predict(method, networks, views[name]).numpy()
        return with_joint_classes(LabelTable(truths[name].ids, given.classes, scores), truths[name])

    settings = (config.method, config.settings, config.rates, training, config.seed, level, fabric.key, *given.marks())
    labels_of_all = (given.classes, given.values, given.groups, given.confirmed, validation.ids, validation.values)
    inputs = (images.fingerprint, prepared.targets, prepared.weights)
    by = (*stages.by, hold_confirmed.__module__)
    with stages.enter("classifier", *settings, *labels_of_all, *inputs, by=by) as stage:
        networks, history = fit(
            hold_confirmed(method, given, fabric.device),
            images,
            prepared.targets,
            training,
            outputs=len(given.classes),
            fabric=fabric,
            seed=derive(config.seed, "classifier"),
            directory=stage.directory,
            what="train classifier",
            validate=(lambda trained: mean_auc(validation, score(VALIDATION, trained))) if len(validation) else None,
        )
    if config.fit.abnormality:  # "No Finding" is folded into the findings of every network that predicts
        for network in method.deployed(networks):
            logits = predict(method, [network], images, score=lambda own, pixels: own[0](pixels))
            share_abnormality(network, logits, given.classes.index(NO_FINDING), config.fit.abnormality)
    predictions = {name: score(name, networks) for name in truths}
    own = predict(method, networks, images).numpy()
    truths = {name: truth.align(predictions[name].classes) for name, truth in truths.items()}
    if not processes.first():
        processes.wait()  # until the first has written what all computed
        return this

    course = [*prepared.history, *history]
    facts = {
        "settings": in_use(config.method, config.settings),
        "notes": [
            *prepared.notes,
            *notes,
            *remarks,
            *one_label_note(config, method),
            *selection_notes(config, history),
            *kept_as.notes,
            *skipped_images({"train": train, **sources}),
        ],
        "seconds": round(sum(epoch["seconds"] for epoch in course), 1),
        "images_presented": sum(epoch["images"] for epoch in course),
    }

    def save_model(result: Result) -> None:
        model.save(
            this.directory / "model",
            method.deployed(networks),
            given.classes,
            config.images.size,
            thresholds=choose_thresholds(truths[VALIDATION], predictions[VALIDATION]) if len(validation) else None,
            metrics={name: scores.brief() for name, scores in result.tests.items()},
            colour=images.colour,
            exclusive=given.exclusive,
            converts=kept_as.converted,
            **card.facts_of(
                config, result.images, {"train": count_decided(given), VALIDATION: count_decided(validation)}
            ),
        )
        log_history(this.directory, course, loggers)

    write_run(
        this,
        config,
        label_record(given, prepared, noise, own, known),
        train.store,
        facts,
        runs.environment(device_name(fabric), started),
        truths=truths,
        predictions=predictions,
        history=course,
        space=prepared.space,
        save_model=save_model,
    )
    processes.wait()
    return this


def make_method(config: Config) -> Method:
    """The method of a recipe with its settings, every name and type checked."""
    kind = METHODS[config.method]
    inherited = config.settings.get(kind.variant_of or config.method, {})
    return kind(**arguments(kind, inherited | config.settings.get(config.method, {}), config.method))


def read_labels(config: Config) -> dict[str, tuple[LabelTable, datasets.Dataset]]:
    """The labels of the training set, under "train", and of every test set, before anything is spent on images.

    Those of the training set are as the set has them; what people decided about them is read by `read_decided`.
    """
    reserved = {"train", VALIDATION, BEFORE_NOISE} & set(config.test)
    if reserved:
        raise InputError(f"A test set cannot be called {reserved.pop()!r}.")
    undecided = {name: value for name, value in config.train.items() if name not in datasets.CORRECTIONS}
    tables = {name: datasets.read(place, name) for name, place in {"train": undecided, **config.test}.items()}
    tables = of_one_kind(config, tables)
    for name, (table, _) in tables.items():
        if not len(table):
            raise InputError(f"{name}: no image is left after the dataset's filters.")
    train, dataset = tables["train"]
    tests = {name: tables[name][0] for name in config.test}
    sources = {"train": config.train, **config.test}
    train = without_shared_patients(train, tests, sources, config.hold_out_test_patients)
    return {**tables, "train": (train, dataset)}


def data_of(config: Config, tables: Tables | None = None) -> runs.Data:
    """The present state of the labels and image files of a recipe; of its `tables`, where they are read already."""
    tables = read_labels(config) if tables is None else tables
    return state_of(with_decided(config, tables, read_decided(config, tables["train"][0])))


def with_decided(config: Config, tables: Tables, decided: Corrections | None) -> dict[str, LabelTable]:
    """All labels as a run starts from them, with what people decided about the training labels."""
    labels = {name: table for name, (table, _) in tables.items()}
    if decided is not None:
        labels["train"] = decided.over(labels["train"], decided_only=bool(config.noise))
    return labels


def read_decided(config: Config, train: LabelTable) -> Corrections | None:
    """What people decided about the training labels, where the recipe names a file of it."""
    decided = datasets.read_corrections(config.train, train, "train")
    if decided is not None and not decided.detailed and config.noise:
        raise InputError(
            f"{details_beside(decided.file)} is missing, so that labels which people decided on cannot be told from "
            "the noise of the recipe: write both files with `bomd decisions`, or add no noise with --set 'noise={}'."
        )
    return decided


def check(config: Config, method: Method, train: LabelTable, decided: Corrections | None = None) -> None:
    """Find out what cannot work before hours go into images: labels, noise, backbone and weights."""
    check_one_label(config, method, train)
    method.check(train if decided is None else decided.over(train, decided_only=bool(config.noise)))
    known_rates(config.rates, train.classes)
    plan_noise(config, train)
    networks = method.build(len(train.classes), beneath(config.fit), seed=0)
    if config.fit.abnormality:
        if NO_FINDING not in train.classes:
            raise InputError(f'fit.abnormality needs a class "{NO_FINDING}", which these labels do not have.')
        for network in method.deployed(networks):
            share_abnormality(network, torch.zeros(2, len(train.classes)), 0, share=0.0)  # says if it cannot


def rehearse(config: Config, tables: Mapping[str, LabelTable], fabric: Device) -> None:
    """Try what comes after training on made-up scores, so that no error is left to be found when hours are spent."""
    classes = tables["train"].classes
    for name in config.test:
        truth = tables[name]
        guess = LabelTable(truth.ids, classes, np.full((len(truth), len(classes)), 0.5))
        scores = with_joint_classes(guess, truth)
        if not set(scores.classes) & set(truth.classes):
            raise InputError(f"Test set {name!r} has no class in common with the training set: {', '.join(classes)}.")
        try:
            classification(truth, scores, bootstrap=0, minimum_positives=config.minimum_positives)
        except InputError as error:
            raise InputError(f"Test set {name!r} cannot be judged: {error}") from error
    card.facts_of(config, {name: len(table) for name, table in tables.items()})
    runs.environment(device_name(fabric), time.time())
    if config.fit.select == "best" and not config.validation:
        progress.say(f"Note: {NOBODY_HELD_OUT}")


def selection_notes(config: Config, history: History) -> list[str]:
    """Why `select = "best"` kept the last epoch, where it did."""
    if config.fit.select != "best" or any(epoch.get("validation") is not None for epoch in history):
        return []
    return [NO_SCORE if config.validation else NOBODY_HELD_OUT]


def _certain(table: LabelTable) -> LabelTable:
    """The labels that a prediction can be judged by; a probability is neither right nor wrong."""
    return table.replace(np.where(np.isin(table.values, (0, 1)), table.values, np.nan))


def with_joint_classes(predicted: LabelTable, truth: LabelTable) -> LabelTable:
    """Add the score of a class that a test set labels as one and the training set as two."""
    joined = nih_google.NODULE_OR_MASS in truth.classes and {"Mass", "Nodule"} <= set(predicted.classes)
    return nih_google.score_nodule_or_mass(predicted) if joined else predicted


def device_name(fabric: Device) -> str:
    if fabric.device.type == "cuda":
        return str(torch.cuda.get_device_name(fabric.device))
    count = torch.get_num_threads()
    return f"cpu, {count} thread{'s' * (count != 1)}"
