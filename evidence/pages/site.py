"""What MkDocs does beside its configuration: see `hooks` in mkdocs.yml.

Figures and tables that follow from recorded runs are made when the site is built, see `evidence.pages.reproduced`.
The navigation is made of the pages that exist, so that a page written by a later command joins by itself. Links that
lead out of docs/ and make sense in the repository only are turned to the page that takes their place, or to plain text.
"""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parents[2]))  # MkDocs loads this file by its path alone

from evidence import RESULTS, ROOT
from evidence.pages import methods, reproduced, results

# Title and pages of each menu, in the order in which a reader walks them; a menu may hold menus. Pages that are not
# there are left out, so that a line may wait for its page.
MENUS: dict[str, Any] = {
    "Start": {
        "start.md": "Install",
        "demo.md": "The demo",
        "ten-minutes.md": "Clean your dataset",
        "notebook.md": "The same in a notebook",
        "faq.md": "Questions and answers",
    },
    "Guides": {
        "your-data.md": "Your own data",
        "single-label.md": "One label per image",
        "large-sets.md": "Large sets",
        "review.md": "Review flagged images",
        "change-log.md": "The change log",
        "models.md": "Models",
        "backbones.md": "Backbones of others",
        "pretraining.md": "A start that knows chests",
        "gpu.md": "GPU and cluster",
        "ecosystem.md": "Other tools",
    },
    "Method": {
        "successor.md": "How bomd-plus works",
        "how-it-works.md": "How BoMD works",
        "against-cleanlab.md": "Against cleanlab",
        "limits.md": "Limits",
        "choose.md": "Choose a method",
        "paper-and-release.md": "Paper and released code",
    },
    "Benchmarks": {
        "benchmarks.md": "Overview",
        "methods-demo.md": "Generated X-rays",
        "Real images": {
            "methods-nih.md": "All methods on NIH",
            "nih-small.md": "NIH at twice the size",
            "photos.md": "Colour photographs",
        },
        "The paper's claims": {
            "reproduced.md": "Scorecard",
            **{f"paper/{name}.md": topic.short for name, topic in reproduced.TOPICS.items()},
        },
        "speed.md": "Speed",
        "add-yours.md": "Add yours",
    },
    "Reference": {
        "reference/command-line.md": "Command line",
        "reference/settings.md": "Settings of a recipe",
        "reference/python.md": "Python",
        "methods.md": "The methods",
        "datasets.md": "The datasets",
        "versioning.md": "Versions",
        "For developers": {
            "reference/building.md": "What to build on",
            "architecture.md": "How the code is laid out",
            "contributing.md": "Contributing",
            "changelog.md": "Changes",
        },
    },
}
# Files of the repository that are pages of the site, too.
BORROWED = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
# Where the site shows what is made of records; what stands before it says where it is to those who read the repository.
MARK = re.compile(r"^(?:\*.*\* )?<!-- (\w+) (\S+) -->$", flags=re.MULTILINE)
_BAR = "\\|"
DATA = "data"  # where the tables of results/ are on the site
# Where a link into the repository leads on the site.
MOVED = {
    "README.md#your-own-data": "your-data.md",
    "README.md": "index.md",
    **{source: page for page, source in BORROWED.items()},
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.nav = navigation(Path(config.docs_dir))
    return config


def navigation(docs: Path) -> list[Any]:
    """Every page once, under its menu; those that no menu names come last, under their own titles."""
    present = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")} | set(BORROWED)
    others = present - {"index.md", *pages(MENUS)}
    return [{"Home": "index.md"}, *_menus(MENUS, present), *([{"More": sorted(others)}] if others else [])]


def pages(menus: dict[str, Any]) -> list[str]:
    """Every page that a menu names, in order."""
    return [page for key, value in menus.items() for page in (pages(value) if isinstance(value, dict) else [key])]


def _menus(menus: dict[str, Any], present: set[str]) -> list[Any]:
    """Menus as MkDocs wants them, of the pages that are there."""
    found: list[Any] = []
    for key, value in menus.items():
        if not isinstance(value, dict):
            found += [{value: key}] if key in present else []
        elif inside := _menus(value, present):
            found.append({key: inside})
    return found


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for page, source in BORROWED.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    for table in RESULTS.glob("*.csv"):
        files.append(File.generated(config, f"{DATA}/{table.name}", abs_src_path=str(table)))
    for picture in methods.pictures():
        files.append(File.generated(config, f"{methods.IMAGES}/{picture.name}", abs_src_path=str(picture)))
    for recipe in reproduced.RECIPES:
        for picture in reproduced.pictures(recipe):
            place = f"{reproduced.IMAGES}/{recipe}/{picture.name}"
            files.append(File.generated(config, place, abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["navigation", "toc"]  # it is short, and has a way to everything itself
    text = MARK.sub(_made, markdown)
    text = re.sub(r"(?<=\d) ± (?=\d)", "\u00a0±\u00a0", text)  # in one piece
    return with_own_links(re.sub(r"^\|.*$", _bars, text, flags=re.MULTILINE), page.file.src_uri)


def _bars(row: re.Match[str]) -> str:
    """A row of a table in which escaped bars in code are bars; Python-Markdown would show the backslash."""
    return re.sub(
        r"`([^`]*\\\|[^`]*)`", lambda code: f"<code>{html.escape(code[1]).replace(_BAR, '&#124;')}</code>", row[0]
    )


def _made(found: re.Match[str]) -> str:
    """What a mark stands for: the table of an experiment, or a table or figure of the paper."""
    what, name = found[1], found[2]
    if what == "summary":
        return results.summary(name).strip()
    if what == "methods":
        return methods.shown(name)
    if what == "reproduced":
        recipe, _, artefact = name.partition("/")
        return reproduced.shown(recipe, artefact, reproduced.made(recipe))
    return found[0]


def with_own_links(text: str, here: str) -> str:
    """Turn the links of a page that lead out of docs/."""
    return re.sub(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)", lambda found: _link(found, here), text)


def _link(found: re.Match[str], page: str) -> str:
    text, target = found[1], found[2]
    if target.startswith(("http:", "https:", "#", "mailto:")):
        return found[0]
    folder = ROOT if page in BORROWED else (ROOT / "docs" / page).parent
    path, _, anchor = target.partition("#")
    place = (folder / path).resolve()
    if not place.is_relative_to(ROOT):
        return found[0]
    name = place.relative_to(ROOT).as_posix()
    up = "../" * page.count("/")
    if name.startswith("docs/"):
        return (
            f"[{text}]({up}{name.removeprefix('docs/')}{'#' * bool(anchor)}{anchor})" if page in BORROWED else found[0]
        )
    table = f"{DATA}/{place.name}" if place.parent == RESULTS and place.suffix == ".csv" else None
    moved = MOVED.get(f"{name}#{anchor}", MOVED.get(name, table))
    return f"[{text}]({up}{moved})" if moved else f"{text} (`{name}`)" if text != name else f"`{name}`"
