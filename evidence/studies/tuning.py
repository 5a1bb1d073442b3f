"""Give every method the same small budget of tuning, on generated X-rays that no page reports.

    python -m evidence.studies.tuning --jobs 15     # do the runs that are missing, then choose
    python -m evidence.studies.tuning --choose      # choose again from results/tuning.csv alone

Each method may try three settings, the first of which is what it has without tuning. They are judged on patients of
another seed, at every level of noise that the pages show. The best one goes into the recipe `methods-demo`, which is
the recipe `demo` with a table for each method; results/tuning.csv has every run and results/tuning.md the choices.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from bomd import recipes
from bomd.config import Config
from bomd.errors import InputError
from bomd.experiments.benchmark import run_all
from bomd.experiments.noise_names import noise_name
from bomd.experiments.plan import configure
from bomd.experiments.recorded import record_of
from bomd.files import write_text
from bomd.methods import METHODS
from bomd.reports.sheet import MISSING, markdown_table, rows_to_csv
from bomd.runs import Run, locate
from evidence import RESULTS

TABLE = RESULTS / "tuning.csv"
DEMO = Path(recipes.__file__).parent / "demo.toml"
RECIPE = DEMO.with_name("methods-demo.toml")
TEST = "south"
OTHER_DATA = ("train.seed=1", f"test.{TEST}.seed=1")  # the pages' phantoms are of seed 0
CELLS = ("noise.rows=0.0", *(f"noise.rows={level} noise.labels={level}" for level in (0.2, 0.4, 0.6)))
SEED = 0
AS_IT_IS = ""  # no setting of its own, or what the recipe `demo` says

# What each method may try beside what it has: the setting that its paper tunes, or that matters most in a short run.
CANDIDATES: dict[str, tuple[str, ...]] = {
    "ls": ("smoothing=0.1", "smoothing=0.3"),
    "gls": ("smoothing=-0.4", "warmup=0.6"),
    "ols": ("weight=0.25", "weight=0.75"),
    "ols-sample": ("smoothing=0.25", "momentum=0.7"),
    "elr": ("weight=1.0", "momentum=0.7"),
    "nvum": ("weight=0.5", "momentum=0.7"),
    "ncr": ("weight=0.5", "warmup=0.6"),
    "npc": ("trust=2.0", "weight=0.3"),
    "dividemix": ("warmup=0.7", "per_label=true"),
    "fine": ("warmup=0.5", "per_label=true"),
    "co-teaching": ("ramp=0.6", "per_label=true"),
    "decoupling": ("warmup=0.3", "warmup=0.8"),
    "mentornet": ("burn_in=0.6", "early_dropout=0.05"),
    "f-correction": ("trim=0.003", "trim=0.1"),
    "xue": ("warmup=0.7", "weight=0.3"),
    "can": ("focus=0.0", "attention=1.0"),
    "hermoza": ("width=128", "hidden=64"),
    "coop": ("rate=0.001", "rate=0.003"),
    "bomd": ("graph_weight=0.9", "neighbours=30"),
    "bomd-plus": ("votes=0.3", "folds=4"),
    "asl": ("negative_focus=2.0", "margin=0.0"),
    "auc-margin": ("warmup=0.75", "margin=0.5"),
    "hlc": ("warmup=0.5", "threshold=0.2"),
    "balancemix": ("warmup=0.75", "mixing=0.5"),
    "li-transition": ("threshold=0.8", "fewest=20"),
    "cleanlab": ("folds=3", 'action="flip"'),
    "small-loss": ("share=1.0", "threshold=0.2"),
}


def main(words: Sequence[str] | None = None) -> None:
    options = parser().parse_args(words)
    try:
        if not options.choose:
            tune(options.methods.split(",") if options.methods else list(METHODS), options)
        rows = read(options.table)
        chosen = best(rows)
        write_text(options.table.with_suffix(".md"), page(rows))
        if options.recipe is not None:
            write_text(options.recipe, recipe(chosen))
        for method, setting in chosen.items():
            print(f"{method}: {setting or 'as it is'}")
    except InputError as error:
        sys.exit(str(error))


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    found.add_argument("--jobs", type=int, default=1, help="runs at the same time; small ones leave a GPU mostly idle")
    found.add_argument("--methods", help="only these, separated by commas")
    found.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for all runs, as for a trial")
    found.add_argument("--runs", type=Path, default=Path("runs"), help="where runs are kept")
    found.add_argument("--table", type=Path, default=TABLE, help="CSV with one row per run")
    found.add_argument("--recipe", type=Path, default=RECIPE, help="the recipe to write the choices into")
    found.add_argument("--choose", action="store_true", help="do no runs, choose from those in the table")
    return found


def tune(methods: Sequence[str], options: argparse.Namespace) -> None:
    """Do what is missing and write every run that is finished as a row; a run that failed is named at the end."""
    planned = plan(methods, options.set)
    tried = {locate(options.runs, config).directory: candidate for (_, candidate, _), config in planned.items()}
    outcome = run_all(list(planned.values()), options.runs, options.jobs, Console(stderr=True))
    found = [row(run, tried[run.directory]) for run in outcome.done]
    before = read(options.table) if options.table.exists() else []
    unique = {(one["method"], one["setting"], one["noise"]): one for one in [*before, *found]}
    if unique:
        write_text(options.table, rows_to_csv(list(unique.values())))
    for name, reason in outcome.failed.items():
        print(f"failed: {name}: {reason}", file=sys.stderr)


def plan(methods: Sequence[str], extra: Sequence[str] = ()) -> dict[tuple[str, str, str], Config]:
    """Every run by method, setting and cell.

    Args:
        extra: "key=value" for all runs, such as fewer images for a trial.
    """
    unknown = [method for method in methods if method not in METHODS]
    if unknown:
        raise InputError(f"No method {unknown[0]!r}: use one of {', '.join(METHODS)}.")
    return {
        (method, candidate, cell): configure(
            str(DEMO),
            method,
            SEED,
            ["name=tuning", *OTHER_DATA, *extra, *([f"{method}.{candidate}"] if candidate else []), *cell.split()],
        )
        for method in methods
        for candidate in (AS_IT_IS, *CANDIDATES.get(method, ()))
        for cell in CELLS
    }


def row(run: Run, setting: str) -> dict[str, Any]:
    """One finished run as a row."""
    record = record_of(run)
    config, environment = record.config, record.environment
    return {
        "method": config.method,
        "setting": setting,
        "noise": noise_name(config.noise),
        "seed": config.seed,
        "auc": record.result.auc(TEST),
        "images": record.result.images["train"],
        "epochs": config.fit["epochs"],
        "run": run.directory.name,
        "commit": (environment.commit or "unknown")[:7],
        "device": environment.device,
    }


def read(table: Path) -> list[dict[str, Any]]:
    """The rows of a table of runs; one whose test set has too few positives for an AUC is as good as missing."""
    if not table.exists():
        raise InputError(f"No runs yet at {table}: leave --choose away to do them.")
    with table.open(encoding="utf-8", newline="") as stream:
        return [{**one, "auc": float(one["auc"])} for one in csv.DictReader(stream) if one["auc"]]


def means(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Mean AUC over the levels of noise by method and setting; a setting counts once it ran at all of them."""
    levels = {one["noise"] for one in rows}
    found: dict[str, dict[str, dict[str, float]]] = {}
    for one in rows:
        found.setdefault(one["method"], {}).setdefault(one["setting"], {})[one["noise"]] = one["auc"]
    return {
        method: {
            setting: statistics.fmean(by_level.values())
            for setting, by_level in tried.items()
            if by_level.keys() == levels
        }
        for method, tried in found.items()
    }


def best(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The setting of the highest mean for each method; what it has already where nothing is better or known."""
    return {
        method: max(tried, key=lambda setting: (tried[setting], setting == AS_IT_IS), default=AS_IT_IS)
        for method, tried in means(rows).items()
    }


def recipe(chosen: Mapping[str, str]) -> str:
    """The recipe `demo` with another name and head, and what was chosen in the table of each method."""
    values = tomllib.loads(DEMO.read_text(encoding="utf-8"))
    tables = {name: dict(value) for name, value in values.items() if name in METHODS}
    for method, setting in chosen.items():
        if setting:
            tables[method] = tables.get(method, {}) | tomllib.loads(setting)
    plain = {name: value for name, value in values.items() if name not in METHODS} | {"name": "methods-demo"}
    return HEAD + toml(plain) + "".join(f"\n[{name}]\n{toml(table)}" for name, table in tables.items() if table)


def toml(values: Mapping[str, Any], within: str = "") -> str:
    """Nested settings as TOML: plain values first, then a table for each of the others."""
    plain = {key: value for key, value in values.items() if not isinstance(value, dict)}
    lines = "".join(f"{key} = {spelt(value)}\n" for key, value in plain.items())
    for key, table in values.items():
        if isinstance(table, dict):
            name = f"{within}{key}"
            head = f"\n[{name}]\n" if any(not isinstance(value, dict) for value in table.values()) else ""
            lines += head + toml(table, f"{name}.")
    return lines


def spelt(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    return f"[{', '.join(map(spelt, value))}]" if isinstance(value, list) else repr(value)


def page(rows: Sequence[Mapping[str, Any]]) -> str:
    """What was tried and chosen, as Markdown."""
    chosen, scores = best(rows), means(rows)
    levels = list(dict.fromkeys(one["noise"] for one in rows))
    places = sorted({f"{one['device']}, commit {one['commit']}" for one in rows})
    sizes = sorted({f"{int(one['images']):,} images, {one['epochs']} epochs" for one in rows})
    auc_of = {(one["method"], one["setting"], one["noise"]): one["auc"] for one in rows}
    lines = [
        "# What every method tried",
        "",
        "Written by `evidence/studies/tuning.py` from `results/tuning.csv`. Every method that has settings tries",
        "three, the first of which is what it has without tuning; `bomd-paper` takes those of `bomd`. Each is trained",
        f"once at every level of noise on phantoms of seed 1 ({'; '.join(sizes)}) and judged by the mean AUC on",
        f"`{TEST}` phantoms of seed 1; pages report phantoms of seed 0. Run on {'; '.join(places)}.",
        "",
    ]
    body = []
    for method, tried in dict.fromkeys((one["method"], one["setting"]) for one in rows):
        cells = [auc_of.get((method, tried, level)) for level in levels]
        shown = [MISSING if cell is None else f"{cell:.3f}" for cell in (*cells, scores[method].get(tried))]
        mark = "yes" if chosen[method] == tried else ""
        body.append([method, f"`{tried}`" if tried else "as it is", *shown, mark])
    heads = ["method", "setting", *levels, "mean", "chosen"]
    return "\n".join([*lines, markdown_table(heads, body, marked_up=True)])


HEAD = """\
# bomd benchmark methods-demo --methods all --jobs 8 --cell noise.rows=0.0 \\
#     --cell 'noise.rows=0.2 noise.labels=0.2' --results results/methods-demo.jsonl.xz
# Every method side by side: the recipe demo, with what each method chose of three settings on phantoms of another seed.
# Written by evidence/studies/tuning.py; results/tuning.md has what was tried. What came out: docs/methods-demo.md.
"""


if __name__ == "__main__":
    main()
