"""Write docs/reproduced.md from results/: tables and figures as made, and what they say about the paper's claims."""

from __future__ import annotations

import html
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from bomd.files import write_text
from evidence import DOCS, RESULTS
from evidence.reproduce import ARTEFACTS
from evidence.reproduce.artefact import Material, Setting
from evidence.reproduce.claims import against_all, claims, context, how_certain
from evidence.reproduce.claims.words import NO_RUNS
from evidence.reproduce.facts import facts
from evidence.reproduce.work import Made, Place, gather, plan
from evidence.reproduce.writing import read_index

RECIPES = {
    "phantom": "generated images with known noise",
    "nih-64": "a part of NIH ChestX-ray14 at 64 px, tested on OpenI and NIH-Google",
}
# Where other methods were run on like data.
ELSEWHERE = {
    "phantom": (Setting("methods-demo"), "4,000 phantoms; see [here](methods-demo.md)"),
}
FOLDED = (
    "-tests",
    "-paper-",
    "per-finding",
    "-summary",
    "hyper-parameters",
)  # in the names of parts that few will read
PAGE, IMAGES = "reproduced.md", Path("images") / "reproduced"  # pictures lie beside the page, for sites made of docs/


def main() -> None:
    for recipe in RECIPES:
        for picture in pictures(recipe):
            target = DOCS / IMAGES / recipe / picture.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(picture, target)
    write_text(DOCS / PAGE, page())


def pictures(recipe: str, results: Path = RESULTS) -> list[Path]:
    """The drawings that belong to artefacts."""
    folder = results / "reproduced" / recipe
    files = [folder / f"{stem}.svg" for stems in read_index(folder).values() for stem in stems]
    return [file for file in files if file.exists()]


def page(results: Path = RESULTS) -> str:
    about = "\n".join(f"- [`{recipe}`](#{recipe}): {words}" for recipe, words in RECIPES.items())
    parts = "\n".join(part for recipe in RECIPES for part in (what_holds(recipe, results), shown(recipe, results)))
    return f"""# The paper's tables and figures, made anew

Written by `evidence/pages/reproduced.py` from `results/`. `bomd reproduce --list` shows every table and figure with its
label in the paper; `bomd reproduce NAME --recipe RECIPE` does the runs that are missing and writes it. The recipes:

{about}

None of them is a setting of the paper, whose numbers therefore stand in tables of their own. For each recipe, first
what holds of the paper's claims and what does not, then the figures, then the tables. Long tables, tests and the
paper's own numbers are folded: click on a title to see them.

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


def shown(recipe: str, results: Path = RESULTS) -> str:
    """Every figure and table that was made, as it was written."""
    index, parts = read_index(results / "reproduced" / recipe), list[str]()
    for kind in ("figure", "table"):
        parts += [f"### {recipe}: {kind}s", ""]
        for name, artefact in ARTEFACTS.items():
            if artefact.kind == kind and name in index:
                parts += [f"#### {recipe}: {name}", "", f"{artefact.what} In the paper: `{artefact.paper}`.", ""]
                parts += _parts(recipe, index[name], results)
    missing = [name for name in ARTEFACTS if name not in index]
    if missing:
        parts += [f"Not made for recipe {recipe}: {', '.join(missing)}.", ""]
    return "\n".join(parts)


def _parts(recipe: str, stems: Sequence[str], results: Path) -> list[str]:
    """The files of one artefact; what few will read is folded."""
    folder, parts = results / "reproduced" / recipe, list[str]()
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
        parts += [text.replace(f"]({stem}.svg)", f"]({IMAGES.as_posix()}/{recipe}/{stem}.svg)"), ""]
        forms = [suffix[1:] for suffix in (".csv", ".tex", ".png") if (folder / f"{stem}{suffix}").exists()]
        parts += [f"As {' and '.join(forms)}: `results/reproduced/{recipe}/{stem}`.", ""]
        parts += ["</details>", ""] if folded else []
    return parts


def _html(text: str) -> str:
    """A line of Markdown in which characters are escaped, for a place that is not Markdown."""
    return html.escape(re.sub(r"\\(.)", r"\1", html.unescape(text)), quote=False)


if __name__ == "__main__":
    main()
