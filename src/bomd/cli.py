"""The command line: parse, call one function, print. Heavy imports sit inside the commands."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bomd.errors import InputError

if TYPE_CHECKING:
    from bomd.config import Config
    from bomd.describe.labelspace import LabelSpace
    from bomd.runs import Run

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Find wrong labels in a multi-label image set, propose better ones, and train a classifier that does "
    "not swallow the noise.\n\nStart with `bomd demo`.",
)

Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one setting, e.g. --set fit.epochs=5 (repeatable)."),
]
Root = Annotated[Path, typer.Option("--runs", help="Where runs, packed images and finished stages are kept.")]
Recipe = Annotated[str, typer.Argument(help="A TOML file, or the name of a recipe that ships with bomd.")]


@app.command()
def demo(root: Root = Path("runs"), overrides: Overrides = None) -> None:
    """Run everything on generated chest X-rays: noise, cleaning, two classifiers, a report.

    Needs no data, no GPU and no network. Trains on one hospital with wrong labels, tests on another with right ones.
    """
    _benchmark("demo", ["bce", "bomd"], [0], root, overrides, root / "demo" / "report.html", None)


@app.command()
def run(
    recipe: Recipe,
    method: Annotated[str | None, typer.Option(help="Use this method instead of the recipe's.")] = None,
    seed: Annotated[int | None, typer.Option(help="Use this seed instead of the recipe's.")] = None,
    root: Root = Path("runs"),
    overrides: Overrides = None,
) -> None:
    """Do one experiment. Interrupted or killed, the same command continues where it stopped."""
    from bomd.measure import experiment, report

    done = experiment.run(_config(recipe, method, seed, overrides), root)
    page = report.write_report([done], done.directory / "report.html")
    _print_results([done], page)


@app.command()
def benchmark(
    recipe: Recipe,
    methods: Annotated[str, typer.Option(help="Methods to compare, separated by commas.")] = "bce,bomd",
    seeds: Annotated[str, typer.Option(help="Seeds, separated by commas.")] = "0,1,2",
    results: Annotated[Path | None, typer.Option(help="Also write the numbers to this CSV.")] = None,
    root: Root = Path("runs"),
    overrides: Overrides = None,
) -> None:
    """Compare methods over seeds on one recipe; finished runs are not repeated."""
    try:
        numbers = [int(seed) for seed in seeds.split(",")]
    except ValueError:
        raise InputError(f"--seeds {seeds!r}: write whole numbers separated by commas.") from None
    names = [name.strip() for name in methods.split(",")]
    _benchmark(recipe, names, numbers, root, overrides, None, results)


@app.command()
def report(
    places: Annotated[list[Path], typer.Argument(help="Run directories, or folders that contain them.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")] = Path("report.html"),
) -> None:
    """Gather finished runs into one HTML page that opens without a network."""
    from bomd import runs
    from bomd.measure import report as pages

    found = runs.find(places)
    _print_results(found, pages.write_report(found, output))


@app.command()
def embed(
    classes: Annotated[list[str], typer.Argument(help="Class names; quote those with spaces.")],
    model: Annotated[
        str,
        typer.Option(
            help="minilm (ships with bomd), bluebert, biobert, clinicalbert, a folder of a transformers "
            "model, glove, random, a .npy file, or auto."
        ),
    ] = "auto",
    vectors: Annotated[Path | None, typer.Option(help="Word vectors as text, for --model glove.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Save the vectors as .npy here.")] = None,
) -> None:
    """Turn class names into the vectors that descriptors are learnt towards, and show how alike they are."""
    from bomd.describe import labelspace

    space = labelspace.embed(classes, model, vectors=vectors)
    for line in space.notes:
        Console(stderr=True).print(line, highlight=False, markup=False)
    _print_similarities(space)
    if output is not None:
        labelspace.save_vectors(space, output)
        print(f"saved {output}")


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="A finished run, or its model folder.")],
    files: Annotated[list[Path], typer.Argument(help="PNG, JPEG or DICOM files, or folders of them.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write a CSV here instead.")] = None,
) -> None:
    """Probabilities of every finding for new images. For research; not a medical device."""
    from bomd.data.images import find_images
    from bomd.learn import model as models

    predicted = models.load(model).predict(find_images(files))
    lines = [",".join(["file", *predicted.classes])]
    for name, row in zip(predicted.ids, predicted.values, strict=True):
        lines.append(",".join([str(name), *(f"{value:.4f}" for value in row)]))
    if output is None:
        print("\n".join(lines))
    else:
        from bomd.files import write_text

        write_text(output, "\n".join(lines) + "\n")
        print(f"{len(predicted)} images: {output}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: bad input is one line and exit code 2, never a traceback."""
    from bomd import progress

    progress.enable()
    try:
        code = app(args=list(arguments) if arguments is not None else None, standalone_mode=False)
    except InputError as error:
        code = _fail(str(error))
    except typer.Exit as error:
        code = error.exit_code
    except Exception as error:
        if not hasattr(error, "format_message"):  # click's own errors about arguments
            raise
        code = _fail(error.format_message())
    except KeyboardInterrupt:
        Console(stderr=True).print("Interrupted. The same command continues where it stopped.")
        code = 130
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str) -> int:
    Console(stderr=True, soft_wrap=True).print(f"Error: {message}", style="red", markup=False, highlight=False)
    return 2


def _config(recipe: str, method: str | None, seed: int | None, overrides: Sequence[str] | None) -> Config:
    from bomd.config import load
    from bomd.methods import METHODS
    from bomd.recipes import find_recipe

    given = [f'method="{method}"'] if method is not None else []
    given += [f"seed={seed}"] if seed is not None else []
    return load(find_recipe(recipe), METHODS, [*(overrides or []), *given])


def _benchmark(
    recipe: str,
    methods: Sequence[str],
    seeds: Sequence[int],
    root: Path,
    overrides: Sequence[str] | None,
    page: Path | None,
    results: Path | None,
) -> None:
    from bomd.measure import benchmark as comparison
    from bomd.measure import report as pages

    configs = [_config(recipe, method, seed, overrides) for seed in seeds for method in methods]
    done = comparison.run_all(configs, root)
    if results is not None:
        comparison.write_results(done, results)
    page = page or root / configs[0].name / "report.html"
    _print_results(done, pages.write_report(done, page))


def _print_similarities(space: LabelSpace) -> None:
    """Cosines between all pairs of classes, as far as a terminal is wide."""
    table = Table(title=f"How alike the classes are ({space.source}, {space.vectors.shape[1]} numbers each)")
    table.add_column("")
    for number in range(len(space.classes)):
        table.add_column(str(number + 1), justify="right")
    for number, row in enumerate(space.vectors @ space.vectors.T):
        cells = [f"{cosine:.2f}" for cosine in row[: number + 1]]
        table.add_row(f"{number + 1} {escape(space.classes[number])}", *cells)
    Console().print(table)


def _print_results(done: Sequence[Run], page: Path) -> None:
    from bomd.measure.report import summary_table

    console = Console()
    console.print(summary_table(done))
    console.print(f"Report: {page}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
