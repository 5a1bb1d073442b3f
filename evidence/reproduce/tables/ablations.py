"""The paper's ablations of BoMD: language models, stage one, the terms of Eq. 6, and the hyper-parameters.

Every variant is the recipe's BoMD with some settings changed, so that the unchanged one shares its runs with the noise
grid. The paper's ablations are on labels as given; recipes that can add known noise do so at (0.4, 0.4).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bomd.config import Config
from bomd.describe.labelspace import ENCODERS
from bomd.experiments.plan import configure
from bomd.methods.describe import describe
from bomd.reports.sheet import Cell
from evidence.reproduce import paper
from evidence.reproduce.artefact import Artefact, Material, Setting, Sheet, key_of
from evidence.reproduce.figures.gather import plan, show_noise
from evidence.reproduce.tables.entries import HELD_OUT_NOTE, TESTS, as_given, compared, known, mean_auc, tests_of

NOISE = (0.4, 0.4)
METHOD = "bomd"
VECTORS = f"{METHOD}.vectors="
PRETRAINING, TERMS, HYPER = "tab:ablation_pretrain", "tab:ablation_mixup", "tab:ablation"
HYPER_PARAMETERS: dict[str, tuple[str, Sequence[float]]] = {
    "graph_weight": ("lambda", (0.2, 0.4, 0.6, 0.8, 1.0)),
    "uniform": ("gamma", (0.05, 0.15, 0.25, 0.35, 0.45)),
    "descriptors": ("M", (1, 3, 5, 7, 9)),
    "neighbours": ("K", (5, 10, 20, 50, 100)),
}
NOTES = {
    "hyper-parameters": (
        "lambda is the weight of the neighbours' labels (bomd.graph_weight), gamma the uniform share (bomd.uniform), M "
        "the number of descriptors of an image (bomd.descriptors), and K that of its neighbours (bomd.neighbours).",
    ),
    "language-models": (
        "minilm ships with bomd and is what auto takes if it knows every class name. Of the paper's models, GloVe is "
        "run if --set bomd.vectors names its file, and the others if the recipe uses one of them.",
    ),
    "relabelling-terms": ("The first row is label smoothing towards one half, of flagged images only.",),
}
ROWS = {"language-models": "language", "stage-one": "stage"}  # how rows of the paper's one table for both begin
ONE_SIDED = (
    "p is one-sided: how often so large a lead over the variant would be seen if there were none, by the paper's "
    "z-test and by Welch's t-test; not corrected for the number of comparisons."
)


@dataclass(frozen=True)
class Variant:
    """One row of an ablation.

    Attributes:
        label: What it is called in the table.
        settings: "key=value" of the method.
        printed: Its row in the paper's table; None where it has none.
    """

    label: str
    settings: tuple[str, ...] = ()
    printed: str | None = None


def languages(setting: Setting) -> list[Variant]:
    """The recipe's own, random vectors, and of the paper's those that are within reach.

    GloVe is, if a file of vectors is given; the encoders are, if the recipe uses one of them itself.
    """
    own = str(_own(setting, "language"))
    found = {
        own: Variant("auto: minilm where it knows every class name" if own == "auto" else own, (), f"language {own}")
    }
    within_reach = ["random"]
    within_reach += ["minilm"] if own != "auto" else []
    within_reach += ["glove"] if any(text.startswith(VECTORS) for text in setting.overrides) else []
    within_reach += list(ENCODERS) if own in ENCODERS else []
    for name in within_reach:
        found.setdefault(name, Variant(name, (f"language={name}",), f"language {name}"))
    return list(found.values())


def stages(setting: Setting) -> list[Variant]:
    """Descriptors of a self-supervised network, of NVUM, and BoMD's own with one and with several vectors."""
    several = _own(setting, "descriptors")
    return [
        Variant("self-supervised, M = 1", ("stage=self-supervised",), "stage self-supervised"),
        Variant("NVUM, M = 1", ("stage=nvum",), "stage nvum"),
        Variant("BoMD's descriptors, M = 1", ("descriptors=1",), "stage descriptors M=1"),
        Variant(f"BoMD's descriptors, M = {several}", (), f"stage descriptors M={several}"),
    ]


def terms(_: Setting) -> list[Variant]:
    """The terms of Eq. 6: uniform share, neighbours' labels, and the mask."""
    return [
        Variant("uniform", ("use_graph=false", "use_mask=false", "uniform=0.5"), "uniform"),
        Variant("uniform, neighbours", ("use_mask=false",), "uniform, neighbours"),
        Variant("neighbours, mask", ("uniform=0.0",), "neighbours, mask"),
        Variant("uniform, neighbours, mask", (), "uniform, neighbours, mask"),
    ]


def hyper_parameters(_: Setting) -> list[Variant]:
    return [
        Variant(f"{symbol} = {value:g}", (f"{name}={value}",), f"{name}={value}")
        for name, (symbol, values) in HYPER_PARAMETERS.items()
        for value in values
    ]


def runs_of(setting: Setting, variant: Variant) -> list[Config]:
    """A variant with every seed; word vectors go with GloVe alone."""
    if "language=glove" not in variant.settings and _own(setting, "language") != "glove":
        setting = replace(setting, overrides=[text for text in setting.overrides if not text.startswith(VECTORS)])
    changed = [f"{METHOD}.{text}" for text in variant.settings]
    if setting.recipe in paper.TRAINED_ON:
        return as_given(replace(setting, overrides=[*setting.overrides, *changed]), [METHOD])
    return plan(setting, [METHOD], [NOISE], " ".join(changed))


def table(name: str, label: str, what: str, head: str, variants: Callable[[Setting], list[Variant]]) -> Artefact:
    """An ablation as a table: a row for each variant, and how sure its distance from the recipe's BoMD is."""

    def plan_variants(setting: Setting) -> list[Config]:
        runs = [config for variant in variants(setting) for config in runs_of(setting, variant)]
        return list({key_of(config): config for config in runs}.values())

    def make(material: Material) -> list[Sheet]:
        setting, rows, differences = material.setting, [], []
        theirs, tests = paper.beside(setting, [label]), tests_of(setting)
        printed = {test for _, _, test in theirs}
        own = runs_of(setting, Variant("the recipe's own"))
        for variant in variants(setting):
            row: list[Cell] = [variant.label]
            configs = runs_of(setting, variant)
            same = {key_of(config) for config in configs} == {key_of(config) for config in own}
            for test in tests:
                score = mean_auc(material, configs, test)
                row.append(score)
                row += [theirs.get((variant.printed or "", "", test))] if test in printed else []
                if not same:
                    differences.append([test, variant.label, *compared(mean_auc(material, own, test), score)])
            rows.append(row)
        heads = [head]
        for test in tests:
            heads += [test, *([f"{test}, the paper's"] if test in printed else [])]
        noise = "labels as given" if setting.recipe in paper.TRAINED_ON else f"noise {show_noise(NOISE)}"
        title = f"{what} Mean AUC, recipe {setting.recipe}, {noise}; mean and sample standard deviation over seeds."
        against = f"Mean AUC of the recipe's own BoMD minus that of the variant, recipe {setting.recipe}, {noise}."
        return [
            Sheet(name, title, heads, rows, [*NOTES.get(name, ()), HELD_OUT_NOTE]),
            Sheet("tests", against, ["test set", head, *TESTS], known(differences, 2), [ONE_SIDED]),
            *paper.sheets(setting, [label], head, lambda number: number.row.startswith(ROWS.get(name, ""))),
        ]

    return Artefact(name, "table", label, what, plan_variants, make)


def _own(setting: Setting, name: str) -> object:
    """A setting of the recipe's BoMD, or the method's default."""
    given = configure(setting.recipe, METHOD, overrides=setting.overrides).settings.get(METHOD, {})
    return given.get(name, next(known.default for known in describe(METHOD).settings if known.name == name))


TABLES = [
    table(
        "language-models",
        PRETRAINING,
        "BoMD with class vectors from other language models.",
        "language model",
        languages,
    ),
    table("stage-one", PRETRAINING, "BoMD with other ways to describe images in stage one.", "stage one", stages),
    table("relabelling-terms", TERMS, "BoMD without some of the terms of Eq. 6.", "terms", terms),
    table(
        "hyper-parameters",
        HYPER,
        "BoMD with other values of lambda, gamma, M and K, one at a time.",
        "setting",
        hyper_parameters,
    ),
]
