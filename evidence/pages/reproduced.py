"""Write docs/reproduced.md: what the records say about the paper's claims.

The figures and tables themselves join it when the site is built, see `made`; they follow from the records, and no copy
of them is kept. `python -m evidence.pages.reproduced` also writes the CSV files in results/reproduced.
"""

from __future__ import annotations

import hashlib
import html
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import matplotlib

from bomd.files import locked, write_text
from evidence import DOCS, RESULTS, ROOT
from evidence.records import file_of
from evidence.reproduce import ARTEFACTS
from evidence.reproduce.artefact import Material, Setting
from evidence.reproduce.claims import against_all, claims, context, how_certain
from evidence.reproduce.claims.words import NO_RUNS
from evidence.reproduce.facts import facts
from evidence.reproduce.figures import descriptor_map
from evidence.reproduce.tables import bootstrap
from evidence.reproduce.work import ALL, Made, Place, choose, gather, make, plan
from evidence.reproduce.writing import read_index

RECIPES = {
    "phantom": "generated images with known noise",
    "nih-64": "a part of NIH ChestX-ray14 at 64 px, tested on OpenI and NIH-Google",
}
# Where other methods were run on like data.
ELSEWHERE = {
    "phantom": (Setting("methods-demo"), "4,000 phantoms; see [here](methods-demo.md)"),
}
PAPER = "-paper-"  # in the names of the paper's own numbers
FOLDED = ("-tests", PAPER, "per-finding", "-summary", "hyper-parameters")  # in the names of parts that few will read
PAGE, IMAGES = "reproduced.md", "images/reproduced"  # on the site
BUILD = ROOT / "build" / "reproduced"
SITE_FORMS = (".csv", ".md", ".tex", ".svg")  # all but PNG, which takes as long as the rest
CODE = ("evidence/**/*.py", "evidence/**/*.csv", "src/bomd/**/*.py", "src/bomd/**/*.toml")


def main() -> None:
    for recipe in RECIPES:
        kept = RESULTS / "reproduced" / recipe
        for file in [*made(recipe).glob("*.csv"), *made(recipe).glob("*.csv.xz")]:
            if PAPER not in file.name:  # which are in one file for all recipes
                shutil.copyfile(file, kept / file.name)
    write_text(DOCS / PAGE, page())


def made(recipe: str) -> Path:
    """The folder with every figure and table that the records of a recipe give; made anew where anything changed."""
    folder, state = BUILD / recipe, _state(recipe)
    stamp = folder / "made-of.txt"
    with locked(folder):  # tests build the site while others look at the same files
        if not stamp.exists() or stamp.read_text(encoding="utf-8") != state:
            shutil.rmtree(folder, ignore_errors=True)
            setting = Setting(recipe)
            place = Place.of(setting, Path("nowhere"), RESULTS)  # runs that happen to be here do not count
            make(gather(plan(choose([ALL]), setting, Made()), setting, place), folder, Made(), SITE_FORMS)
            write_text(stamp, state)
    return folder


def _state(recipe: str) -> str:
    """A hash of all that a figure or table may depend on."""
    digest = hashlib.sha256(matplotlib.__version__.encode())
    files = [path for pattern in CODE for path in sorted(ROOT.glob(pattern))]
    files += [
        file_of(recipe),
        *(RESULTS / "reproduced" / recipe / name for name in (descriptor_map.KEPT, bootstrap.FILE)),
    ]
    for path in files:
        if path.exists():
            digest.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return digest.hexdigest()


def pictures(recipe: str) -> list[Path]:
    """The drawings, which the site has under `IMAGES`."""
    return sorted(made(recipe).glob("*.svg"))


def page(results: Path = RESULTS) -> str:
    about = "\n".join(f"- [`{recipe}`](#{recipe}): {words}" for recipe, words in RECIPES.items())
    parts = "\n".join(f"{what_holds(recipe, results)}\n<!-- reproduced {recipe} -->\n" for recipe in RECIPES)
    return f"""# The paper's tables and figures, made anew

Written by `evidence/pages/reproduced.py` from `results/`. `bomd reproduce --list` shows every table and figure with its
label in the paper; `bomd reproduce NAME --recipe RECIPE` does the runs that are missing and writes it. The recipes:

{about}

None of them is a setting of the paper, whose numbers therefore stand in tables of their own. For each recipe, first
what holds of the paper's claims and what does not, then the figures, then the tables. Long tables, tests and the
paper's own numbers are folded: click on a title to see them. Figures and tables are made of the records when the site
is built (`make docs`); their numbers are in `results/reproduced/` as CSV.

{parts}"""


def what_holds(recipe: str, results: Path = RESULTS) -> str:
    """The paper's claims, and what the records say about each."""
    found = _material(Setting(recipe), results)
    lines = [f"## {recipe}", "", f"### {recipe}: what holds and what does not", ""]
    if not found.records:
        return "\n".join([*lines, f"No run of recipe {recipe} is recorded.", ""])
    lines += [f"The noise grid: {' '.join(facts(found))} {how_certain(found)}", "", "To be kept in mind:", ""]
    lines += [f"- {note}" for note in context(found)]
    lines += ["", "What the paper says, and what is found here:", ""]
    for claim in claims(found):
        lines += [f"- **The paper: {claim.paper}**", *(f"    - {sentence}" for sentence in claim.here)]
        if recipe in ELSEWHERE and claim.paper == against_all(found).paper:
            setting, link = ELSEWHERE[recipe]
            others = against_all(_material(setting, results)).here
            lines += [f"    - {sentence} ({link})" for sentence in others if sentence != NO_RUNS]
    return "\n".join([*lines, ""])


def _material(setting: Setting, results: Path) -> Material:
    """The noise grid of a recipe, with all records of it."""
    place = Place.of(setting, Path("nowhere"), results)
    return gather(plan([ARTEFACTS["noise-grid"]], setting, Made()), setting, place)["noise-grid"]


def shown(recipe: str, folder: Path) -> str:
    """Every figure and table that was made, as it was written.

    Args:
        folder: Where; see `made`.
    """
    index, parts = read_index(folder), list[str]()
    for kind in ("figure", "table"):
        parts += [f"### {recipe}: {kind}s", ""]
        for name, artefact in ARTEFACTS.items():
            if artefact.kind == kind and name in index:
                parts += [f"#### {recipe}: {name}", "", f"{artefact.what} In the paper: `{artefact.paper}`.", ""]
                parts += _parts(recipe, index[name], folder)
    missing = [name for name in ARTEFACTS if name not in index]
    if missing:
        parts += [f"Not made for recipe {recipe}: {', '.join(missing)}.", ""]
    return "\n".join(parts)


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
        parts += [text.replace(f"]({stem}.svg)", f"]({IMAGES}/{recipe}/{stem}.svg)"), ""]
        forms = [form for form in (".csv", ".csv.xz") if (folder / f"{stem}{form}").exists() and PAPER not in stem]
        parts += [text for form in forms for text in (f"Numbers: `results/reproduced/{recipe}/{stem}{form}`.", "")]
        parts += ["</details>", ""] if folded else []
    return parts


def _html(text: str) -> str:
    """A line of Markdown in which characters are escaped, for a place that is not Markdown."""
    return html.escape(re.sub(r"\\(.)", r"\1", html.unescape(text)), quote=False)


if __name__ == "__main__":
    main()
