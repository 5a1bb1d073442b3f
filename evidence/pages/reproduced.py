"""Write docs/reproduced.md, a scorecard of the paper's claims by the records, and docs/paper with the details.

Figures and tables join them when the site is built, see `made`; they follow from the records, and no copy
of them is kept. `python -m evidence.pages.reproduced` also writes the CSV files in results/reproduced.
"""

from __future__ import annotations

import html
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bomd.files import write_text
from bomd.reports.sheet import markdown_table
from evidence import DOCS, RESULTS
from evidence.pages.built import built
from evidence.pages.methods import compared
from evidence.records import file_of
from evidence.reproduce import ARTEFACTS
from evidence.reproduce.artefact import Material, Setting, config_of, key_of
from evidence.reproduce.claims import RULE, VERDICTS, Claim, against_all, all_methods, context, how_certain
from evidence.reproduce.claims import TOPICS as CLAIMS
from evidence.reproduce.claims.words import NO_RUNS
from evidence.reproduce.facts import facts
from evidence.reproduce.figures import descriptor_map
from evidence.reproduce.tables import bootstrap
from evidence.reproduce.work import ALL, Made, Place, choose, gather, make, plan
from evidence.reproduce.writing import read_index


@dataclass(frozen=True)
class Topic:
    """A page of claims that belong together, and the tables and figures that show them.

    Attributes:
        short: In the navigation.
    """

    title: str
    short: str
    artefacts: tuple[str, ...]


TOPICS = {
    "noise": Topic("BoMD, BCE and NVUM as noise grows", "Growing noise", ("noise-curves", "noise-grid")),
    "all-methods": Topic("BoMD against all methods", "All methods", ("main-results", "nih-google", "per-finding")),
    "detection": Topic("Finding images with wrong labels", "Finding wrong images", ("detection",)),
    "labels": Topic("Labels after re-labelling", "New labels", ("label-auc", "label-histogram", "smoothing-toy")),
    "space": Topic("Neighbours and descriptors", "Neighbours", ("votes", "descriptor-distances", "descriptor-map")),
    "ablations": Topic(
        "What each part of BoMD adds",
        "Parts of BoMD",
        ("language-models", "stage-one", "relabelling-terms", "hyper-parameters"),
    ),
}
RECIPES = {"phantom": "generated", "nih-64": "real"}
# Recipes of which a page compares every method, each with the settings that it chose, by runs of later files, too.
COMPARED = {"nih-64": "../methods-nih.md"}
# Where other methods were run on like data.
ELSEWHERE = {"phantom": (Setting("methods-demo"), "4,000 generated X-rays; see [here](../methods-demo.md)")}
ALL_METHODS = "all-methods"
FIRST_RUNS = """\
Above are the runs of [every method]({page}), with the settings that each chose. The tables below have the first runs,
with the settings of the recipe; what is missing in them was run later."""
PAPER = "-paper-"  # in the names of the paper's own numbers
FOLDED = ("-tests", PAPER, "per-finding", "-summary", "hyper-parameters")  # in the names of parts that few will read
PAGE, IMAGES = "reproduced.md", "images/reproduced"  # on the site
NOT_MADE = "It was not made: the runs for it are missing, or the data cannot serve."
SITE_FORMS = (".csv", ".md", ".tex", ".svg")  # all but PNG, which takes as long as the rest


def main() -> None:
    for recipe in RECIPES:
        kept = RESULTS / "reproduced" / recipe
        for file in [*made(recipe).glob("*.csv"), *made(recipe).glob("*.csv.xz")]:
            if PAPER not in file.name:  # which are in one file for all recipes
                shutil.copyfile(file, kept / file.name)
    write_text(DOCS / PAGE, page())
    for name in TOPICS:
        write_text(DOCS / "paper" / f"{name}.md", topic_page(name))


def made(recipe: str) -> Path:
    """The folder with every figure and table that the records of a recipe give."""
    kept = RESULTS / "reproduced" / recipe
    files = [file_of(recipe), *(kept / name for name in (descriptor_map.KEPT, bootstrap.FILE))]
    return built(f"reproduced/{recipe}", files, partial(_make, recipe))


def _make(recipe: str, folder: Path) -> None:
    setting = Setting(recipe)
    place = Place.of(setting, Path("nowhere"), RESULTS)  # runs that happen to be here do not count
    make(gather(plan(choose([ALL]), setting, Made()), setting, place), folder, Made(), SITE_FORMS)


def pictures(recipe: str) -> list[Path]:
    """The drawings, which the site has under `IMAGES`."""
    return sorted(made(recipe).glob("*.svg"))


def page(results: Path = RESULTS) -> str:
    """The scorecard: one word for each claim and kind of images, and how it was measured."""
    found = {recipe: _material(Setting(recipe), results) for recipe in RECIPES}
    rows = []
    for name in TOPICS:
        for claim in _claims(found, name, results):
            if any(side.tally is not None for side in claim.values()):
                words = next(iter(claim.values())).paper
                rows.append([f"[{words}](paper/{name}.md)", *(_verdict(claim.get(recipe)) for recipe in RECIPES)])
    about = "\n".join(f"- [{topic.title}](paper/{name}.md)" for name, topic in TOPICS.items())
    return f"""# The paper's claims

What the paper says of BoMD, and whether it is so here. A claim leads to the page with its numbers, figures and tables.

{markdown_table(["the paper says", *(f"{words} images" for words in RECIPES.values())], rows, marked_up=True)}
{RULE}
The numbers count comparisons as claimed. Where a method must be the best of all, it is compared with the best of the
others, of which some will look better by chance. {how_certain(next(iter(found.values())))}

No experiment here is a setting of the paper: the images are fewer, smaller or generated, and noise goes to all of them.
What fails here may hold there, and the other way round. The paper's own numbers stand in tables of their own.

## The details

{about}

`bomd reproduce --list` shows every table and figure with its label in the paper; `bomd reproduce NAME --recipe RECIPE`
does the runs that are missing and writes it. All numbers are in `results/reproduced/` as CSV.

## How it was measured

{chr(10).join(_measured(recipe, material) for recipe, material in found.items())}"""


def _measured(recipe: str, material: Material) -> str:
    """What stands behind one column of the scorecard."""
    title = f"### {RECIPES[recipe].capitalize()} images: `{recipe}`\n"
    if not material.records:
        return f"{title}\nNo run of recipe {recipe} is recorded.\n"
    told = "\n".join(f"- {note}" for note in context(material))
    return f"{title}\nThe noise grid: {' '.join(facts(material))}\n\n{told}\n"


def _verdict(claim: Claim | None) -> str:
    word = VERDICTS[-1] if claim is None or claim.tally is None else claim.tally.verdict
    badge = f'<span class="verdict {word}">{word}</span>'
    if claim is None or claim.tally is None or not claim.tally.comparisons:
        return badge
    return f"{badge} {claim.tally.as_claimed}&nbsp;of&nbsp;{claim.tally.comparisons}"


def _claims(found: Mapping[str, Material], topic: str, results: Path) -> list[dict[str, Claim]]:
    """The claims of a topic, each with what every recipe says about it."""
    claims: dict[str, dict[str, Claim]] = {}
    for recipe, material in found.items():
        every = topic == ALL_METHODS and recipe in COMPARED
        for claim in _of_every_method(recipe, results) if every else CLAIMS[topic](material):
            if recipe in ELSEWHERE and claim.paper == against_all(material).paper:
                claim = _with_others(claim, *ELSEWHERE[recipe], results)
            claims.setdefault(claim.paper, {})[recipe] = claim
    return list(claims.values())


def _of_every_method(recipe: str, results: Path) -> list[Claim]:
    """What the runs say that the page of all methods compares."""
    records = compared(recipe, results)
    runs = [config_of(record) for record in records]
    keyed = {key_of(config): record for config, record in zip(runs, records, strict=True)}
    return all_methods(Material(Setting(recipe), runs, keyed), runs)


def _with_others(claim: Claim, setting: Setting, link: str, results: Path) -> Claim:
    """A claim with what was found where more methods were run."""
    more = against_all(_material(setting, results))
    told = [f"{sentence} ({link})" for sentence in more.here if sentence != NO_RUNS]
    assert claim.tally is not None
    assert more.tally is not None
    return Claim(claim.paper, (*claim.here, *told), claim.tally + more.tally)


def topic_page(name: str, results: Path = RESULTS) -> str:
    """Claims of one kind with what is found here, and marks where figures and tables join."""
    topic = TOPICS[name]
    parts = [f"# {topic.title}", "", "[The scorecard](../reproduced.md) says how each verdict is reached.", ""]
    found = {recipe: _material(Setting(recipe), results) for recipe in RECIPES}
    for claim in _claims(found, name, results):
        words = next(iter(claim.values()))
        says = f"The paper: {words.paper}" if words.tally is not None else f"Beside the paper: {words.paper}"
        parts += [f"**{says}**", ""]
        for recipe, kind in RECIPES.items():
            side = claim.get(recipe)
            told = side.here if side else (NO_RUNS,)
            mark = f" {_verdict(side)}" if words.tally is not None else ""
            parts += [f"- {kind.capitalize()} images:{mark}", *(f"    - {sentence}" for sentence in told)]
        parts += [""]
    for recipe, kind in RECIPES.items():
        parts += [f"## {kind.capitalize()} images", ""]
        parts += [FIRST_RUNS.format(page=COMPARED[recipe]), ""] if name == ALL_METHODS and recipe in COMPARED else []
        for artefact in topic.artefacts:
            place = f"On the site, which `make docs` builds; numbers: [{recipe}](../../results/reproduced/{recipe})."
            rest = place if any((results / "reproduced" / recipe).glob(f"{artefact}*")) else NOT_MADE
            parts += [f"*{ARTEFACTS[artefact].what} {rest}* <!-- reproduced {recipe}/{artefact} -->", ""]
    return "\n".join(parts)


def _material(setting: Setting, results: Path) -> Material:
    """The noise grid of a recipe, with all records of it."""
    place = Place.of(setting, Path("nowhere"), results)
    return gather(plan([ARTEFACTS["noise-grid"]], setting, Made()), setting, place)["noise-grid"]


def shown(recipe: str, name: str, folder: Path) -> str:
    """A figure or table that was made, as it was written.

    Args:
        folder: Where; see `made`.
    """
    index, artefact = read_index(folder), ARTEFACTS[name]
    head = [f"### {artefact.what.rstrip('.')}", ""]
    if name not in index:
        return "\n".join([*head, NOT_MADE, ""])
    return "\n".join([*head, f"In the paper: `{artefact.paper}`.", "", *_parts(recipe, index[name], folder)])


def _parts(recipe: str, stems: Sequence[str], folder: Path) -> list[str]:
    """The files of one artefact; what few will read is folded."""
    parts = list[str]()
    said: set[str] = set()  # notes that several parts of an artefact have in common stand there once
    for stem in stems:
        lines = (folder / f"{stem}.md").read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines if line not in said]
        said |= {line for line in lines if line.startswith("- ")}
        title = kept[0].strip("*")
        folded = any(mark in stem for mark in FOLDED)
        if folded:
            parts += [f'<details markdown="1"><summary>{_html(title)}</summary>', ""]
            kept = kept[1:]
        text = "\n".join(kept).strip()
        parts += [text.replace(f"]({stem}.svg)", f"](../{IMAGES}/{recipe}/{stem}.svg)"), ""]
        forms = [form for form in (".csv", ".csv.xz") if (folder / f"{stem}{form}").exists() and PAPER not in stem]
        parts += [text for form in forms for text in (f"Numbers: `results/reproduced/{recipe}/{stem}{form}`.", "")]
        parts += ["</details>", ""] if folded else []
    return parts


def _html(text: str) -> str:
    """A line of Markdown in which characters are escaped, for a place that is not Markdown."""
    return html.escape(re.sub(r"\\(.)", r"\1", html.unescape(text)), quote=False)


if __name__ == "__main__":
    main()
