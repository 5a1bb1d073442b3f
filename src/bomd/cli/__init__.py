"""The command line: parse, call one function, print. Heavy imports sit inside the commands."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from bomd.cli import audit, data, exchange, plain_help, predict, pretrain, reproduce, review
from bomd.cli.options import Jobs, Overrides, Root, Seeds, complain, option, output, say, typed
from bomd.errors import InputError
from bomd.recipes import shipped_recipes

if TYPE_CHECKING:
    from bomd.describe.labelspace import LabelSpace
    from bomd.runs import Run

app = typer.Typer(
    cls=plain_help.Group,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Find wrong labels in a multi-label image set, propose better ones, and train a classifier that does "
    "not swallow the noise.\n\nStart with `bomd audit LABELS --images DIR`, or, without data, with `bomd demo`.",
)

SHIPPED = ", ".join(shipped_recipes())
Recipe = Annotated[
    str, typer.Argument(metavar="RECIPE", help=f"A TOML file, or a recipe that ships with bomd: {SHIPPED}.")
]


def demo(root: Root = Path("runs"), overrides: Overrides = None) -> None:
    """Run everything on generated chest X-rays: noise, cleaning, two classifiers, a report.

    Needs no data, no GPU and no network. Trains on one hospital with wrong labels, tests on another with right ones.
    """
    from bomd import progress
    from bomd.experiments import experiment
    from bomd.experiments.plan import configure
    from bomd.reports.opening import write_demo
    from bomd.reports.outcome import LEARNT, recorded, tables

    configs = [configure("demo", method, None, overrides or ()) for method in LEARNT]
    done = [experiment.run(config, root) for config in progress.track(configs, "runs")]
    record = None if overrides else recorded()  # what was recorded says nothing about other settings
    following = (
        ("Look through what is doubtful", typed("review", done[-1].directory, "--open")),
        ("Your own data", typed("audit", "labels.csv", "--images", "photos")),
    )
    page = root / configs[0].name / "report.html"
    today = write_demo(done, page, record, following)
    Console(emoji=False, highlight=False, soft_wrap=True).print(*tables(today, record), sep="\n")
    for purpose, words in (*following, ("Report", page.resolve().as_uri())):
        say(f"{purpose}: {words}")


def run(
    recipe: Recipe,
    method: Annotated[
        str | None, option("Use this method instead of the recipe's: a name, or package.module:Class for your own.")
    ] = None,
    seed: Annotated[int | None, option("Use this seed instead of the recipe's.")] = None,
    labels: Annotated[
        Path | None, option("Learn from these labels, such as those that `decisions` wrote.", "FILE")
    ] = None,
    loggers: Annotated[
        list[str] | None, option("tensorboard (the default), csv, or module:function (repeatable).", "NAME", "--logger")
    ] = None,
    root: Root = Path("runs"),
    overrides: Overrides = None,
) -> None:
    """Do one experiment. Interrupted or killed, the same command continues where it stopped.

    With `--labels`, what people decided on is learnt as it is: no method flags, changes or softens it. Noise of the
    recipe falls on all other labels as it did without it, and the same patients are held out.

    On several GPUs or machines: `torchrun --nproc-per-node 8 -m bomd.cli run RECIPE`; see docs/gpu.md.
    """
    from bomd import processes
    from bomd.data.datasets.corrected import digest_of
    from bomd.experiments import experiment
    from bomd.experiments.plan import configure
    from bomd.learn.logs import DEFAULT
    from bomd.reports import report

    given = []
    if labels is not None:
        given = [f"train.labels_from={labels.resolve()}", f'train.labels_digest="{digest_of(labels)}"']
    config = configure(recipe, method, seed, [*(overrides or ()), *given])
    done = experiment.run(config, root, loggers or DEFAULT)
    if processes.first():
        _print_results([done], report.write_report([done], done.directory / "report.html"))


def methods(name: Annotated[str | None, typer.Argument(metavar="NAME", help="Show this one in full.")] = None) -> None:
    """List the methods with what they do, the paper, the cost as a factor of plain training, and their settings.

    A setting is given as `--set NAME.KEY=VALUE`, or in the table `[NAME]` of a recipe.
    """
    from bomd.methods import METHODS
    from bomd.methods.describe import describe, in_full, overview

    Console(emoji=False).print(
        overview([describe(known) for known in METHODS]) if name is None else in_full(describe(name))
    )


def benchmark(
    recipes: Annotated[list[str], typer.Argument(metavar="RECIPE", help="TOML files, or names as for `run`.")],
    methods: Annotated[
        str, option("Methods to compare, separated by commas, or all; package.module:Class for one of your own.")
    ] = "bce,bomd",
    seeds: Seeds = "0,1,2",
    cells: Annotated[
        list[str] | None,
        option("One column of the comparison: settings separated by spaces (repeatable).", "'KEY=VALUE ...'", "--cell"),
    ] = None,
    jobs: Jobs = 1,
    results: Annotated[
        Path | None,
        option("Add the runs to this .jsonl (or .jsonl.xz) of records, and write .csv, .md and .tex tables beside it."),
    ] = None,
    reference: Annotated[str, option("The method that tables and page compare the others with.", "METHOD")] = "bomd",
    page: Annotated[bool, typer.Option("--report/--no-report", help="Gather all runs in one HTML page.")] = True,
    root: Root = Path("runs"),
    overrides: Overrides = None,
) -> None:
    """Compare methods over seeds, on one recipe or several; finished runs are not repeated.

    A run that fails does not stop the others; it is listed at the end, and the exit code is 1. The same command
    goes on where it stopped, whatever stopped it.

    For example: bomd benchmark demo --methods bce,bomd --seeds 0,1,2 --cell 'noise.rows=0.2' --cell 'noise.rows=0.4'
    """
    from bomd.experiments import plan
    from bomd.experiments.benchmark import run_all
    from bomd.reports import report as pages
    from bomd.reports.tables import add_results

    names = None if methods == "all" else [name.strip() for name in methods.split(",")]
    configs = plan.grid(recipes, names, reproduce.numbers(seeds), cells or ("",), overrides or ())
    plan.check_reference(reference, (config.method for config in configs), results)
    folder = root if len({config.name for config in configs}) > 1 else root / configs[0].name
    if page:
        pages.check_place(folder / "report.html")
    outcome = run_all(configs, root, jobs, Console(emoji=False, stderr=True), results)
    if outcome.done:
        if results is not None:
            add_results(outcome.done, results, reference, configs)
        failed = outcome.failed
        place = pages.write_report(outcome.done, folder / "report.html", reference, failed=failed) if page else None
        _print_results(outcome.done, place)
    if outcome.failed:
        reasons = [f"\n{name}: {reason}" for name, reason in outcome.failed.items()]
        complain(f"{len(reasons)} of {len(configs)} runs failed:{''.join(reasons)}")
        raise typer.Exit(1)


def report(
    places: Annotated[list[Path], typer.Argument(help="Run directories, or folders that contain them.")],
    page: Annotated[Path, output("The page to write.")] = Path("report.html"),
    reference: Annotated[str, option("The method that the page compares the others with.", "METHOD")] = "bce",
) -> None:
    """Gather finished runs into one HTML page that opens without a network."""
    from bomd import runs
    from bomd.experiments.grid import BASELINE
    from bomd.experiments.plan import check_reference
    from bomd.experiments.recorded import Record
    from bomd.reports import report as pages

    found = runs.find(places)
    check_reference(reference, (Record.of(run).config.method for run in found), None, usual=BASELINE)
    _print_results(found, pages.write_report(found, page, reference))


def tables(
    records: Annotated[Path, typer.Argument(help="A .jsonl or .jsonl.xz file of records; it need not exist yet.")],
    places: Annotated[list[Path] | None, typer.Argument(help="Finished runs to add, or folders of them.")] = None,
    reference: Annotated[str, option("The method that the comparison compares the others with.", "METHOD")] = "bomd",
) -> None:
    """Add finished runs to a file of records, and write its .csv, .md and .tex tables anew.

    Where there are several methods, their comparison is written anew, too, as NAME-comparison.
    """
    from bomd import runs
    from bomd.experiments.plan import check_reference
    from bomd.experiments.recorded import Record
    from bomd.reports.tables import add_results

    done = runs.find(places) if places else []
    check_reference(reference, (Record.of(run).config.method for run in done), records)
    found, written = add_results(done, records, reference)
    print(f"{len(found)} runs: {', '.join(map(str, written))}")


def embed(
    classes: Annotated[list[str], typer.Argument(help="Class names; quote those with spaces.")],
    model: Annotated[
        str,
        option(
            "minilm (ships with bomd), bluebert, biobert, clinicalbert, a folder of a transformers "
            "model, glove, random, a .npy file, or auto."
        ),
    ] = "auto",
    vectors: Annotated[Path | None, option("Word vectors as text, for --model glove.")] = None,
    saved: Annotated[Path | None, output("Save the vectors as .npy here.")] = None,
) -> None:
    """Turn class names into the vectors that descriptors are learnt towards, and show how alike they are."""
    from bomd.describe import labelspace
    from bomd.files import spare

    if saved is not None:  # features of the user's own are .npy as well, and labels nobody gets back
        spare(saved, lambda there: there.with_suffix(".classes.txt").is_file())
    space = labelspace.embed(classes, model, vectors=vectors)
    for line in space.notes:
        Console(emoji=False, stderr=True).print(line, highlight=False, markup=False)
    _print_similarities(space)
    if saved is not None:
        labelspace.save_vectors(space, saved)
        print(f"saved {saved}")


# As `bomd --help` shows them: what most people come for first.
COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    "Clean": (audit.audit, review.review, review.decisions, review.retrain, exchange.convert),
    "Train": (demo, run, methods, pretrain.pretrain, predict.predict, predict.export, report),
    "Benchmark": (benchmark, tables, reproduce.reproduce),
    "Data": (data.example, data.verify, data.labels, data.prepare, embed),
}
for _group, _commands in COMMANDS.items():
    for _command in _commands:
        app.command(cls=plain_help.Command, rich_help_panel=_group)(_command)


def _show_version(asked: bool) -> None:
    if asked:
        from bomd.version import VERSION

        print(f"bomd {VERSION}")
        raise typer.Exit


@app.callback()
def start(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Nothing happens before a command but for the options above."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: bad input is one line and exit code 2, never a traceback."""
    from bomd import processes, progress, threads

    threads.settle()
    if processes.first():
        progress.enable()
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if processes.joined() and given[:1] != ["run"]:
            raise InputError("Only `run` can be started by torchrun; other commands are for one process.")
        code = app(args=given, standalone_mode=False)
    except InputError as error:
        code = _fail(str(error))
    except OSError as error:  # such as a name that is too long for the file system
        place = "" if error.filename is None else f": {str(error.filename)[:200]!r}"  # of what is printed there is none
        code = _fail(f"{error.strerror or error}{place}")
    except typer.Exit as error:
        code = error.exit_code
    except processes.LostProcessError as error:
        complain(str(error))
        code = 1
    except Exception as error:
        if not hasattr(error, "format_message"):  # click's own errors about arguments
            raise
        message = error.format_message()  # empty where the help was shown for want of a command
        code = _fail(message) if message else 2
    except KeyboardInterrupt:
        code = 130
    if code == 130:  # Typer, too, makes this of an interrupt
        Console(emoji=False, stderr=True).print("Interrupted. The same command continues where it stopped.")
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str) -> int:
    complain(f"Error: {message}")
    return 2


def _print_similarities(space: LabelSpace) -> None:
    """Cosines between all pairs of classes, as far as a terminal is wide."""
    numbers = (Column(str(number + 1), justify="right") for number in range(len(space.classes)))
    title = f"How alike the classes are ({space.source}, {space.vectors.shape[1]} numbers each)"
    table = Table("", *numbers, title=title)
    for number, row in enumerate(space.vectors @ space.vectors.T):
        cells = [f"{cosine:.2f}" for cosine in row[: number + 1]]
        table.add_row(f"{number + 1} {escape(space.classes[number])}", *cells)
    Console(emoji=False).print(table)


def _print_results(done: Sequence[Run], page: Path | None) -> None:
    from bomd.reports.summary import summary_table

    Console(emoji=False).print(summary_table(done))
    if page is not None:
        say(f"Report: {page}")
