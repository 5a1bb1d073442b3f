"""Write docs/reproduced.md from results/: tables and figures as made, and what they say about the paper's claims."""

from __future__ import annotations

import shutil
from pathlib import Path

from bomd.files import write_text
from bomd.reproduce import ARTEFACTS
from bomd.reproduce.artefact import Setting
from bomd.reproduce.claims import claims, how_certain
from bomd.reproduce.facts import facts
from bomd.reproduce.work import Made, Place, gather, plan
from bomd.reproduce.writing import read_index

ROOT = Path(__file__).parents[1]
RESULTS, DOCS = ROOT / "results", ROOT / "docs"
RECIPES = {
    "phantom": "generated images with known noise",
    "nih-64": "a part of NIH ChestX-ray14 at 64 px, tested on OpenI and NIH-Google",
}
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
    holds = "\n".join(what_holds(recipe, results) for recipe in RECIPES)
    made = "\n".join(shown(recipe, results) for recipe in RECIPES)
    about = "\n".join(f"- `{recipe}`: {words}" for recipe, words in RECIPES.items())
    return f"""# The paper's tables and figures, made anew

Written by `scripts/reproduce_pages.py` from `results/`. `bomd reproduce --list` shows every table and figure with its
label in the paper; `bomd reproduce NAME --recipe RECIPE` does the runs that are missing and writes it. The recipes:

{about}

None of them is a setting of the paper, whose numbers therefore stand in tables of their own.

## What holds here and what does not

{holds}
{made}"""


def what_holds(recipe: str, results: Path = RESULTS) -> str:
    """The paper's claims, and what the records say about each."""
    setting = Setting(recipe)
    place = Place.of(setting, Path("nowhere"), results)
    found = gather(plan([ARTEFACTS["noise-grid"]], setting, Made()), setting, place)["noise-grid"]
    lines = [f"### {recipe}: the claims", ""]
    if not found.records:
        return "\n".join([*lines, f"No run of recipe {recipe} is recorded.", ""])
    lines += [f"The noise grid: {' '.join(facts(found))} {how_certain(found)}", ""]
    for claim in claims(found):
        lines += [f"- **The paper: {claim.paper}**", *(f"    - {sentence}" for sentence in claim.here)]
    return "\n".join([*lines, ""])


def shown(recipe: str, results: Path = RESULTS) -> str:
    """Every table and figure that was made, as it was written."""
    folder = results / "reproduced" / recipe
    index, parts = read_index(folder), [f"## {recipe}: tables and figures", ""]
    for name, artefact in ARTEFACTS.items():
        if name not in index:
            continue
        parts += [f"### {recipe}: {name}", "", f"{artefact.what} In the paper: `{artefact.paper}`.", ""]
        said: set[str] = set()  # notes that several parts of an artefact have in common stand there once
        for stem in index[name]:
            lines = (folder / f"{stem}.md").read_text(encoding="utf-8").splitlines()
            text = "\n".join(line for line in lines if line not in said)
            said |= {line for line in lines if line.startswith("- ")}
            parts += [text.replace(f"]({stem}.svg)", f"]({IMAGES.as_posix()}/{recipe}/{stem}.svg)"), ""]
            forms = [suffix for suffix in (".csv", ".tex", ".png") if (folder / f"{stem}{suffix}").exists()]
            parts += [f"Also as {', '.join(f'`results/reproduced/{recipe}/{stem}{suffix}`' for suffix in forms)}.", ""]
    missing = [name for name in ARTEFACTS if name not in index]
    if missing:
        parts += [f"Not made for recipe {recipe}: {', '.join(missing)}.", ""]
    return "\n".join(parts)


if __name__ == "__main__":
    main()
