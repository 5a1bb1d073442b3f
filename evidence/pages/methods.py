"""Write docs/methods-NAME.md and results/methods-NAME-comparison.* from the records of every method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bomd.experiments.grid import BASELINE, Grid, arrange
from bomd.experiments.identity import own_settings
from bomd.experiments.noise_names import NO_NOISE, noise_name
from bomd.experiments.plan import REFERENCE
from bomd.experiments.recorded import Environment, Record
from bomd.files import write_text
from bomd.measure.result import HELD_OUT, held_out
from bomd.methods import METHODS
from bomd.methods.describe import describe
from bomd.reports.comparison import costs_table, missing_runs, verdicts, write_comparison
from bomd.reports.sheet import MISSING, markdown_table
from bomd.tables import NO_FINDING
from evidence import DOCS, RESULTS
from evidence.pages import dot_plots
from evidence.pages.built import built
from evidence.pages.method_settings import USED, chosen, following, notes
from evidence.records import file_of, records_of

# page -> records in results/ -> what there is to compare of them, in results/ too
SOURCES = {
    "methods-demo": {
        "methods-demo": "methods-demo-comparison",
        "methods-demo-30": "methods-demo-30-comparison",  # at 12 epochs a table measures how fast methods learn, too
    },
    "methods-nih": {"nih-64": "methods-nih-comparison"},
}
# The same recipe at different times, the newest last: later files have methods with the settings that they chose.
FILES = {"nih-64": ("nih-64", "successor-nih", "methods-nih")}
COLUMNS = (NO_NOISE, "(0.2, 0.2)", "(0.4, 0.4)", "(0.6, 0.6)")
SEEDS = (0, 1, 2)
TITLES = {"methods-demo": "All methods on generated X-rays", "methods-nih": "All methods on real X-rays"}
IMAGES = "images/methods"  # on the site
COMPARED = "Compared: "  # opens the line that tells a reader, and a test, which methods the page is about
CAVEATS = {"which is not CoOp": "no text model: not CoOp"}  # what a run notes -> what its row is called


def main() -> None:
    for name, sources in SOURCES.items():
        groups = {source: compared(source) for source in sources}
        for source, comparison in sources.items():
            if groups[source]:
                write_comparison(comparisons(groups[source], list(METHODS)), RESULTS / f"{comparison}.csv")
        write_text(DOCS / f"{name}.md", page(groups, list(METHODS), TITLES[name]))


def pictures() -> list[Path]:
    """The dot plots, which the site has under `IMAGES`."""
    sources = [source for group in SOURCES.values() for source in group]
    files = [file_of(file) for source in sources for file in FILES.get(source, (source,))]
    return sorted(built("methods", files, partial(_draw, sources)).glob("*.svg"))


def _draw(sources: Sequence[str], folder: Path) -> None:
    for source in sources:
        for grid in comparisons(compared(source), list(METHODS)):
            dot_plots.write(grid, folder)


def shown(name: str) -> str:
    """The dot plots of an experiment with their numbers, for the site."""
    grids = [
        grid
        for group in SOURCES.values()
        for source in group
        for grid in comparisons(compared(source), list(METHODS))
        if grid.name == name
    ]
    return "\n".join(dot_plots.shown(grid, IMAGES) for grid in grids)


def compared(source: str, results: Path = RESULTS) -> list[Record]:
    """The recorded runs that belong to the comparison; others of the same data are for other tables."""
    return newest(
        [
            record
            for file in FILES.get(source, (source,))
            for record in records_of(file, results)
            if noise_name(record.config.noise) in COLUMNS and record.seed in SEEDS and not _detection_only(record)
        ]
    )


def newest(records: Sequence[Record]) -> list[Record]:
    """Of each method the runs with its newest settings, and of the same run the newest record.

    Args:
        records: From old to new.
    """
    settings = {record.config.method: own_settings(record.written["config"]) for record in records}
    kept = [one for one in records if own_settings(one.written["config"]) == settings[one.config.method]]
    return list({record.identity: record for record in kept}.values())


def _detection_only(record: Record) -> bool:
    """Whether the classifier was cut short, because only the flags before it mattered."""
    return bool(record.config.fit["epochs"] == 1)


def comparisons(records: Sequence[Record], methods: Sequence[str]) -> list[Grid]:
    """What there is of all methods, levels of noise and seeds that were asked for; the rest is missing."""
    return arrange(records, methods, COLUMNS, SEEDS, REFERENCE)


def page(groups: Mapping[str, Sequence[Record]], methods: Sequence[str], title: str = "All methods") -> str:
    """What is known of these methods.

    Args:
        groups: Records by the name of their file; none where it is not there yet.
    """
    found = [one for records in groups.values() for one in comparisons(records, methods)]
    tests = len({(row, column) for one in found for row in one.methods if row != REFERENCE for column in one.noises})
    run = len({row for one in found for row in one.methods if one.records(row)})
    tables = [f"[{name}.csv](../results/{name}.csv)" for group in SOURCES.values() for name in group.values()]
    here = [link for link in tables if any(link.startswith(f"[{_table_of(one)}.") for one in found)]
    return f"""# {title}

{run} methods learn from the same images, noise and splits in the same loop. Noise (rows, labels) flips each
label of a share of the training images with some probability: at (0.4, 0.4), 40 % of the images, and each of their
labels with probability 0.4. A dot is the mean AUC over seeds, which redraw noise, split and networks; a bar is the
standard deviation. Methods are sorted by their mean over all levels of noise. *Held-out patients* are of the training
set, and are judged by the labels before noise. What each method is: [the methods](methods.md).

Every number, with p-values of the differences from {REFERENCE}: {", ".join(here) or "none yet"}.

{chr(10).join([*(section(one) for one in found), *lengths(found)])}
## What was run

{COMPARED}{", ".join(methods)}.

{chr(10).join(setting(one) for one in found)}
{chr(10).join(origin(source, records, methods) for source, records in groups.items())}

## How to read the numbers

Differences are called by Welch's t-test, one-sided at 0.05, which with three seeds finds large ones only. Nothing is
corrected for the number of comparisons: of {tests} on each test set, about {tests / 20:.0f} would be called by
chance if no method differed. The CSV also has the paper's z-test, which ignores the number of seeds and the spread of
{REFERENCE} itself, and is there to be compared with the paper.

Training time is the mean of all runs, some of which shared the device with others ("runs at once" is the most that
did), so that it compares methods only roughly. Images presented count every image that went through a network in an
epoch of training or between two, with or without a gradient, relative to {BASELINE} with the same data; single passes
before or after a training are not counted. Memory is the largest peak of any run.
"""


def _table_of(grid: Grid) -> str:
    """The file in results/ that has the numbers of an experiment."""
    return next((table for group in SOURCES.values() for name, table in group.items() if name == grid.name), "")


def origin(source: str, records: Sequence[Record], methods: Sequence[str]) -> str:
    """Where the numbers of one file come from, or that there are none."""
    if not records:
        return f"- Records of `{source}`: no run is in yet; `make methods` does them."
    wanted = sum(len(one.methods) * len(one.noises) * len(one.seeds) for one in comparisons(records, methods))
    return f"- Records of `{source}`: {len(records)} of {wanted} runs are in. {devices(records)}"


def lengths(found: Sequence[Grid]) -> list[str]:
    """The same methods after a short and after a long training, where there are both."""
    if len(found) < 2:
        return []
    test = found[0].judged[0]
    columns = [column for column in found[0].noises if all(column in one.noises for one in found)]
    heads = [f"{column}, {epochs(one)} epochs" for column in columns for one in found]
    body = []
    for row in found[0].methods:
        samples = [one.score(row, column, test) for column in columns for one in found]
        body.append([row, *(MISSING if sample is None else f"{sample.mean:.3f}" for sample in samples)])
    title = f"## How much the length of the training matters\n\nAUC on {test}, mean over seeds.\n\n"
    folded = f'<details markdown="1"><summary>{len(body)} methods after short and long training</summary>\n\n'
    return [title + folded + markdown_table(["method", *heads], body) + "\n</details>\n"]


def epochs(found: Grid) -> int:
    return int(first_of(found).config.fit["epochs"])


def first_of(found: Grid) -> Record:
    """One record that stands for all."""
    return next(iter(found.groups.values())).first


def section(found: Grid) -> str:
    """Everything about one experiment: a mark for its pictures, who is better than whom, costs, and what runs used."""
    told = "*The dots are on the site, which `make docs` builds.*"
    parts = [f"## After {epochs(found)} epochs\n", f"{told} <!-- methods {found.name} -->\n", differences(found)]
    details = {
        "Cost": _named(found, costs_table(found)) + "\n" + costs(found),
        "Settings that follow the noise": following(found),
        "Settings of the recipe": chosen(found, any(found.name in group for group in SOURCES.values())),
        "Notes of the runs": remarks(found),
        "Missing runs": missing_runs(found),
    }
    folded = (
        f'<details markdown="1"><summary>{title}</summary>\n\n{text}\n</details>\n' for title, text in details.items()
    )
    return "\n".join([*parts, *folded])


def differences(found: Grid) -> str:
    """Which methods are better or worse than the reference and than plain training, on each test set."""
    there = {group.method for group in found.groups.values()}
    against = [method for method in dict.fromkeys((found.reference, BASELINE)) if method and method in there]
    return (
        "\n".join(
            f"- On {test}: {sentence[0].lower()}{sentence[1:]}"
            for test in found.judged
            for method in against
            for sentence in verdicts(found, test, method)
        )
        + "\n"
    )


def _named(found: Grid, table: str) -> str:
    """A table whose rows say where a method is not what its name says."""
    for row in found.methods:
        caveats = [words for said, words in CAVEATS.items() if any(said in note for note in notes(found, row))]
        if caveats:
            table = table.replace(f"| {row} |", f"| {row} ({'; '.join(caveats)}) |")
    return table


def remarks(found: Grid) -> str:
    """What else the runs noted."""
    lines = []
    for row in found.methods:
        others = [note for note in notes(found, row) if not USED.match(note)]
        more = f" (and {len(others) - 1} like it)" if len(others) > 1 else ""
        lines += [f"- {row}: {others[0]}{more}"] if others else []
    return "\n".join(lines or ["None."]) + "\n"


def costs(found: Grid) -> str:
    """Which methods cost another number of images than `bomd methods` says."""
    told = []
    for row in found.methods:
        here, documented = found.presented(row), describe(row.split(" ")[0]).cost
        if here is not None and documented is not None and abs(here / documented - 1) > 0.1:
            told.append(f"{row} ({here:.2f} here, {documented:g} there)")
    words = "`bomd methods` gives the cost of 30 epochs with the default settings. It is more than a tenth off for"
    return f"{words}: {', '.join(told) or 'no method'}.\n"


def setting(found: Grid) -> str:
    """What was trained on what, in a few words; one record stands for all."""
    record = first_of(found)
    config, images = record.config, record.result.images
    tests = ", ".join(f"{sizes(found, test)} of {test}" for test in found.judged if test in images)
    train = f"{images['train']:,} training images ({config.train['dataset']}) at {config.images['size']} px"
    return (
        f"**{found.name}**: {train}, {describe_fit(config.fit)}; test images: {tests or 'none'}. Means are over "
        f"findings with at least {config.minimum_positives} positives: {averaged(record)}.\n"
    )


def sizes(found: Grid, test: str) -> str:
    """How many images a test set has; where it was read differently over time, how many for which rows."""
    rows: dict[int, list[str]] = {}
    for row in found.methods:
        for count in {record.result.images[test] for record in found.records(row) if test in record.result.images}:
            rows.setdefault(count, []).append(row)
    common = max(rows, key=lambda count: len(rows[count]))
    others = [f"{count:,} for {', '.join(rows[count])}" for count in sorted(rows) if count != common]
    return f"{common:,}{f' (but {chr(59).join(others)})' if others else ''}"


def averaged(record: Record) -> str:
    """How many findings stand behind the mean of each test set, by name where they are few."""
    own = record.result.scores(HELD_OUT)
    parts = []
    for test, scores in record.result.tests.items():
        if held_out(test):
            continue
        known = {one.name for one in (own or scores).classes} - {NO_FINDING}
        names = f" ({', '.join(scores.averaged)})" if len(scores.averaged) < len(known) else ""
        parts.append(f'"{test}" is {len(scores.averaged)} of {len(known)}{names}')
    return "; ".join(parts)


def describe_fit(fit: dict[str, Any]) -> str:
    start = "random weights" if fit["weights"] == "none" else f"{fit['weights']} weights"
    return f"{fit['backbone']} from {start}, {fit['epochs']} epochs in batches of {fit['batch']}"


def devices(records: Sequence[Record]) -> str:
    places = [record.environment for record in records]
    found = sorted({place.place for place in places})
    commits = sorted({commit(place) for place in places})
    mixed = " Rows of different states of the code do not compare exactly." if len(commits) > 1 else ""
    return f"Run on {'; '.join(found)}; code: {', '.join(commits)}.{mixed}"


def commit(environment: Environment) -> str:
    """Its first letters, and whether the code differed from it."""
    name = (environment.commit or "no commit")[:7]
    return f"{name} with changes not yet committed" if environment.uncommitted else name


if __name__ == "__main__":
    main()
