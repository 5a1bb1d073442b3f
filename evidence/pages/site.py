"""What MkDocs does beside its configuration: see `hooks` in mkdocs.yml.

Figures and tables that follow from recorded runs are made when the site is built, see `evidence.pages.reproduced`.
The navigation is made of the pages that exist, so that a page written by a later command joins by itself. Links that
lead out of docs/ and make sense in the repository only are turned to the page that takes their place, or to plain text.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped]

sys.path.insert(0, str(Path(__file__).parents[2]))  # MkDocs loads this file by its path alone

from evidence import ROOT
from evidence.pages import reproduced, results

# Title and pages of each menu; pages that are not there are left out.
MENUS: dict[str, dict[str, str]] = {
    "Use": {
        "start.md": "Start",
        "ten-minutes.md": "Ten minutes",
        "your-data.md": "Your own data",
        "review.md": "Review flagged images",
        "change-log.md": "The change log",
        "models.md": "Models",
        "backbones.md": "Backbones of others",
        "ecosystem.md": "With other tools",
    },
    "Understand": {
        "how-it-works.md": "How it works",
        "methods.md": "The methods",
        "datasets.md": "The datasets",
        "paper-and-release.md": "Paper against released code",
    },
    "Results": {
        "demo.md": "Demo",
        "nih-small.md": "Real X-rays: NIH to OpenI",
        "methods-demo.md": "All methods on phantoms",
        "methods-nih.md": "All methods on real X-rays",
        "reproduced.md": "The paper's tables and figures",
        "pretraining.md": "Starts from generated X-rays",
        "photos.md": "Colour photographs",
        "single-label.md": "One label per image",
        "speed.md": "Speed",
    },
    "Reference": {
        "reference/command-line.md": "Command line",
        "reference/settings.md": "Settings of a recipe",
        "reference/python.md": "Python",
        "reference/building.md": "For those who extend it",
        "architecture.md": "How the code is laid out",
    },
    "Project": {"contributing.md": "Contributing", "changelog.md": "Changes", "versioning.md": "Versions"},
}
# Files of the repository that are pages of the site, too.
BORROWED = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
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
    menus: list[Any] = [{"Home": "index.md"}]
    for title, pages in MENUS.items():
        menus.append({title: [{name: page} for page, name in pages.items() if page in present]})
    others = present - {"index.md", *(page for pages in MENUS.values() for page in pages)}
    return menus + ([{"More": sorted(others)}] if others else [])


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for page, source in BORROWED.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    files.append(File.generated(config, "stylesheets/code.css", content=code_colours()))
    for recipe in reproduced.RECIPES:
        for picture in reproduced.pictures(recipe):
            place = f"{reproduced.IMAGES}/{recipe}/{picture.name}"
            files.append(File.generated(config, place, abs_src_path=str(picture)))
    return files


LIGHT_CODE, DARK_CODE = "xcode", "lightbulb"  # whose every colour can be read on the grounds that site.css gives code


def code_colours() -> str:
    light = HtmlFormatter(style=LIGHT_CODE).get_style_defs(".highlight")
    dark = HtmlFormatter(style=DARK_CODE).get_style_defs("[data-bs-theme=dark] .highlight")
    unset = "[data-bs-theme=dark] .highlight span { color: inherit; }"  # what the dark style leaves to the text colour
    return f"{light}\n{unset}\n{dark}\n"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    text = re.sub(r"^<!-- (\w+) (\S+) -->$", _made, markdown, flags=re.MULTILINE)
    return with_own_links(text, page.file.src_uri)


def _made(found: re.Match[str]) -> str:
    """What a mark stands for: the table of an experiment, or everything that was reproduced with a recipe."""
    what, name = found[1], found[2]
    if what == "summary":
        return results.summary(name).strip()
    return reproduced.shown(name, reproduced.made(name)) if what == "reproduced" else found[0]


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
    moved = MOVED.get(f"{name}#{anchor}", MOVED.get(name))
    return f"[{text}]({up}{moved})" if moved else f"{text} (`{name}`)" if text != name else f"`{name}`"
