"""The documentation builds without a warning, points nowhere in vain, needs no network, and says what the code does."""

from __future__ import annotations

import pkgutil
import re
import tomllib
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from PIL import Image
from typer.main import get_command

import bomd
from bomd.cli import app
from bomd.config import parse
from bomd.data.datasets import folder
from bomd.experiments.experiment import make_method
from bomd.files import read_json
from bomd.methods import METHODS
from evidence import DOCS, ROOT
from evidence.pages import (
    against_cleanlab,
    how_it_works_figures,
    how_it_works_page,
    notebook,
    reference,
    reproduced,
)
from evidence.pages import site as hook

BY_HAND = [
    DOCS / f"{name}.md"
    for name in ("index", "start", "faq", "ten-minutes", "your-data", "review", "models", "gpu", "ecosystem")
]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
LARGEST_PICTURE = 150_000


# ---- what is generated ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "methods.md",
        "paper-and-release.md",
        *(f"reference/{page}.md" for page in ("command-line", "settings", "python", "building")),
    ],
)
def test_generated_pages_are_what_the_code_says(name: str) -> None:
    assert (DOCS / name).read_text() == reference.PAGES[name](), "run: python -m evidence.pages.reference"


def test_every_generated_page_is_tested() -> None:
    assert len(reference.PAGES) == 6


def test_the_comparison_with_cleanlab_is_what_the_results_say() -> None:
    assert (DOCS / "against-cleanlab.md").read_text() == against_cleanlab.page()


def test_how_it_works_says_what_its_numbers_say() -> None:
    numbers = read_json(DOCS / "images" / "how" / "numbers.json")
    assert (DOCS / "how-it-works.md").read_text() == how_it_works_page.page(numbers)


def test_the_new_label_on_the_page_follows_from_the_formula_on_it() -> None:
    """(1 - lambda) y + lambda (gamma + (1 - gamma) v), and 0 where neither the image nor a voter has the class."""
    numbers = read_json(DOCS / "images" / "how" / "numbers.json")
    weight, uniform, example = numbers["graph_weight"], numbers["uniform"], numbers["contradicting"]
    for name, vote, new in zip(numbers["classes"], numbers["vote"], numbers["proposed"], strict=True):
        votes = sum(name in voter["given"] for voter in numbers["voters"])
        assert vote == pytest.approx(votes / numbers["neighbours"])
        given = float(name in example["given"])
        expected = (1 - weight) * given + weight * (uniform + (1 - uniform) * vote) if given or vote else 0
        assert new == pytest.approx(expected, abs=2e-3)


def test_the_margins_on_the_page_follow_from_the_scores_beside_them() -> None:
    numbers = read_json(DOCS / "images" / "how" / "numbers.json")
    for example in (numbers["agreeing"], numbers["contradicting"]):
        scores = dict(zip(numbers["classes"], example["scores"], strict=True))
        lowest = min(scores[name] for name in example["given"])
        highest = max(score for name, score in scores.items() if name not in example["given"])
        assert example["margin"] == pytest.approx(lowest - highest, abs=3e-3)
    assert numbers["agreeing"]["margin"] > 0 >= numbers["contradicting"]["margin"]


def test_the_histogram_counts_every_image_once() -> None:
    numbers = read_json(DOCS / "images" / "how" / "numbers.json")
    changed, unchanged = (sum(numbers["margins"][key]) for key in ("changed", "unchanged"))
    assert changed + unchanged == numbers["images"]
    assert changed / numbers["images"] == pytest.approx(numbers["detection"]["base_rate"], abs=1e-3)


def test_the_figures_of_how_it_works_are_there_and_small() -> None:
    names = set(how_it_works_figures.FIGURES)
    found = {path.stem: path.stat().st_size for path in (DOCS / "images" / "how").glob("*.svg")}
    assert set(found) == names
    assert max(found.values()) < LARGEST_PICTURE
    page = (DOCS / "how-it-works.md").read_text()
    assert all(f"(images/how/{name}.svg)" in page for name in names)


# ---- what is written by hand ------------------------------------------------------------------------------------


def test_every_public_name_is_in_the_reference() -> None:
    listed = [name for names in reference.PUBLIC.values() for name in names]
    assert sorted(listed) == sorted(bomd.__all__)


ONE_WORD = {  # what is said elsewhere of the same thing -> what we say
    r"held-out NIH\b(?! patients)|validation patients": "held-out patients",
    r"AUROC as a ranking|AUROC of the margin": "detection AUROC",
    r"\bp_s\b|\bp_l\b|p\\_s|p\\_l": "noise (rows, labels)",
}


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.parent in (DOCS, DOCS / "paper")], ids=lambda page: page.name
)
def test_one_word_for_one_thing(page: Path) -> None:
    text = re.sub(r"^```.*?^```$|`[^`]*`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for other, ours in ONE_WORD.items():
        assert re.findall(other, text) == [], f"say: {ours}"


def commands_in(text: str) -> list[list[str]]:
    """The words after `bomd` of every command in a Markdown page, in a block of its own or in a line."""
    blocks = r"^```(console|sh|bash|text|)\n(.*?)^```$"
    lines = [line for _, block in re.findall(blocks, text, re.MULTILINE | re.DOTALL) for line in block.splitlines()]
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    lines += [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose)]
    lines = [line.removeprefix("$ ").removeprefix(".venv/bin/").partition(" #")[0] for line in lines]
    return [line.split()[1:] for line in lines if re.match(r"bomd [a-z]", line)]


def test_commands_are_found_in_blocks_and_in_lines() -> None:
    text = "```console\n$ bomd run a --seed 1  # --why\n```\n\nUse `bomd report\n--out b`.\n```python\nbomd = 1\n```\n"
    assert commands_in(text) == [["run", "a", "--seed", "1"], ["report", "--out", "b"]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_options_in_the_pages_exist(page: Path) -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    for name, *words in commands_in(page.read_text()):
        assert name in commands, f"bomd {name}"
        known = {flag for one in commands[name].params for flag in (*one.opts, *one.secondary_opts)} | {"--help"}
        options = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert options <= known, f"bomd {name} has no {options - known}"


def python_names_in(text: str) -> set[str]:
    """Dotted names of this project in a page: those of `bomd.X.y`, of imports, and of `python -m evidence.X`."""
    found = set(re.findall(r"(?<![\w/.-])((?:bomd|evidence)(?:\.[A-Za-z_]\w*)+)", text))
    for module, names in re.findall(r"from (bomd[\w.]*) import ([\w, ]+)", text):
        found |= {f"{module}.{name.strip()}" for name in names.split(",")}
    return {name for name in found if not name.endswith((".NAME", ".md"))}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_names_in_the_pages_exist(page: Path) -> None:
    settings = re.findall(r"^\| `(bomd\.\w+)`", (DOCS / "methods.md").read_text(), flags=re.MULTILINE)
    for name in python_names_in(page.read_text()) - set(settings):
        assert pkgutil.resolve_name(name) is not None


def test_what_the_pages_run_as_a_module_can_be_run() -> None:
    for page in PAGES:
        for name in set(re.findall(r"python -m (evidence[\w.]*)", page.read_text())) - {"evidence.NAME"}:
            place = ROOT.joinpath(*name.split("."))
            file = place / "__main__.py" if place.is_dir() else place.with_suffix(".py")
            assert file.is_file(), f"{page.name}: {name}"
            assert place.is_dir() or '__name__ == "__main__"' in file.read_text(), f"{page.name}: {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_the_pages_name_exist(page: Path) -> None:
    """Those of the project's own folders, and modules by their room, such as `clean/graph.py`."""
    rooms = [folder.name for folder in (ROOT / "src" / "bomd").iterdir() if folder.is_dir() and folder.name[0] != "_"]
    folders = ("src", "evidence", "tests", "results", "scripts", "docs")
    text = re.sub(r"\S+ of commit", "", page.read_text())  # which may be gone since
    named = re.findall(rf"(?<![\w/.-])((?:{'|'.join(folders)})/[\w./-]*\w)", text)
    named += re.findall(rf"`((?:{'|'.join(rooms)})/[\w/]+\.py)", text)
    gone = [name for name in named if not any((top / name).exists() for top in (ROOT, ROOT / "src" / "bomd"))]
    assert [name for name in gone if not re.search("yours|NAME|reproduced/RECIPE", name)] == []


def test_every_benchmark_says_where_its_numbers_are() -> None:
    text = (DOCS / "benchmarks.md").read_text()
    asked, told = text.split("## Where the numbers are")
    pages = set(re.findall(r"^\| \[[^]]*\]\((\S+\.md)\)", asked, flags=re.MULTILINE))
    lines = re.findall(r"^\| \[[^]]*\]\((\S+\.md)\)[^|]*\|([^|]*)\|([^|]*)\|$", told, flags=re.MULTILINE)
    assert {page for page, _, _ in lines} == pages
    assert all("`results/" in numbers for _, numbers, _ in lines)


def test_what_the_pages_make_can_be_made() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"(?:`|^)make ([a-z-]+)", page.read_text(), re.MULTILINE)}
    assert {"demo", "test", "results"} <= named <= targets


def test_the_pages_show_the_commands_that_people_need() -> None:
    seen = {words[0] for page in BY_HAND for words in commands_in(page.read_text())}
    assert {"demo", "audit", "review", "run", "report", "predict", "export", "convert"} <= seen


def test_every_page_has_its_place() -> None:
    present = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    menus = hook.navigation(DOCS)
    assert "More" not in {title for menu in menus for title in menu}, "give it a line in evidence/pages/site.py"
    assert sorted(pages_of(menus)) == sorted(present | set(hook.BORROWED))


def test_the_first_page_leads_into_every_menu() -> None:
    named = set(re.findall(r"\]\(([\w/-]+\.md)\)", (DOCS / "index.md").read_text()))
    for menu in hook.navigation(DOCS)[1:]:
        assert named & set(pages_of([menu])), menu.keys()


def test_the_page_of_the_notebook_shows_its_cells() -> None:
    """All of them, in order; what they gave was seen when evidence/pages/notebook.py ran them."""
    page, place = (DOCS / "notebook.md").read_text(), 0
    for kind, text in notebook.cells():
        place = page.index(f"```python\n{text}\n```" if kind == "code" else text, place if kind == "code" else 0)
    assert page.count('<div class="output">') == sum(kind == "code" for kind, _ in notebook.cells())


def test_extras_are_those_that_there_are() -> None:
    text = (DOCS / "start.md").read_text()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE)) == set(extras) - {"dev"}


def test_the_recipe_of_your_own_data_is_one() -> None:
    (recipe,) = re.findall(r"```toml\n(.*?)```", (DOCS / "your-data.md").read_text(), flags=re.DOTALL)
    config = parse(tomllib.loads(recipe), METHODS)
    make_method(config)
    assert config.train["dataset"] == "folder"


def test_settings_named_in_the_pages_exist() -> None:
    known = set(re.findall(r"^\| `(\w+\.\w+)`", (DOCS / "reference" / "settings.md").read_text(), flags=re.MULTILINE))
    known |= set(re.findall(r"^\| `(\w+\.\w+)`", (DOCS / "methods.md").read_text(), flags=re.MULTILINE))
    assert {"fit.epochs", "bomd.neighbours"} <= known
    named = {key for page in BY_HAND for key in re.findall(r"`((?:bomd|fit|images|device)\.\w+)", page.read_text())}
    python = {f"bomd.{name}" for name in (*bomd.__all__, *(path.stem for path in (ROOT / "src" / "bomd").iterdir()))}
    assert named - python
    assert named - python <= known


def test_the_tables_of_your_own_data_are_read_as_the_page_says(tmp_path: Path) -> None:
    wide, listed = re.findall(r"```csv\n(.*?)```", (DOCS / "your-data.md").read_text(), flags=re.DOTALL)
    for name in ("a17.png", "b02.dcm", "c03.png"):  # what is in them is not looked at before images are needed
        Image.fromarray(np.zeros((8, 8), dtype=np.uint8)).save(tmp_path / name, "PNG")
    (tmp_path / "labels.csv").write_text(wide)
    table = folder.read(tmp_path)
    assert table.classes == ("Effusion", "Mass", "No Finding")
    np.testing.assert_array_equal(table.values, [[1, 0, 0], [0, np.nan, 0], [0, 0, 1]])
    assert table.patients is not None
    assert table.patients.tolist() == ["p1", "p2", "p2"]
    (tmp_path / "labels.csv").write_text(listed)
    np.testing.assert_array_equal(folder.read(tmp_path).values, [[1, 1, 0], [0, 1, 0], [0, 0, 1]])


# ---- how the site is put together -------------------------------------------------------------------------------


def pages_of(menus: list[object]) -> list[str]:
    """Every page in a navigation, in order."""
    found: list[str] = []
    for item in menus:
        if isinstance(item, str):
            found.append(item)
        elif isinstance(item, dict):
            for value in item.values():
                found += pages_of(value) if isinstance(value, list) else [value]
    return found


def test_the_navigation_is_made_of_the_pages_that_exist(tmp_path: Path) -> None:
    for name in ("index.md", "start.md", "new-page.md", "reference/python.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("# Title\n")
    pages = pages_of(hook.navigation(tmp_path))
    assert pages == ["index.md", "start.md", "reference/python.md", "contributing.md", "changelog.md", "new-page.md"]
    assert [title for menu in hook.navigation(tmp_path) for title in menu] == ["Home", "Start", "Reference", "More"]


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("datasets.md", "[folder](../README.md#your-own-data)", "[folder](your-data.md)"),
        ("reference/python.md", "[top](../../README.md)", "[top](../index.md)"),
        ("start.md", "[how](../CONTRIBUTING.md)", "[how](contributing.md)"),
        ("start.md", "[table](../results/demo.csv)", "[table](data/demo.csv)"),
        ("paper/noise.md", "[table](../../results/demo.csv)", "[table](../data/demo.csv)"),
        ("start.md", "[records](../results/demo.jsonl.xz)", "records (`results/demo.jsonl.xz`)"),
        ("contributing.md", "[speed](docs/speed.md#a)", "[speed](speed.md#a)"),
        ("start.md", "[demo](demo.md#b)", "[demo](demo.md#b)"),
        ("start.md", "[web](https://example.org/README.md)", "[web](https://example.org/README.md)"),
        ("start.md", "![picture](images/phantom.webp)", "![picture](images/phantom.webp)"),
    ],
)
def test_links_out_of_the_pages_lead_to_their_place_on_the_site(page: str, link: str, expected: str) -> None:
    assert hook.with_own_links(link, page) == expected


@dataclass
class Html(HTMLParser):
    """Where a page points, what it loads, and which places in it can be pointed at."""

    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag == "link" and "href" in found:
            self.loaded.append(found["href"])
        self.loaded += [found[name] for name in ("src", "data", "poster", "srcset") if name in found]
        self.loaded += re.findall(r"url\(([^)]*)\)", found.get("style", ""))


@pytest.fixture(scope="module")
def site(documentation: Path) -> dict[Path, Html]:
    """Every page of the built site, read."""
    pages = {}
    for path in documentation.rglob("*.html"):
        pages[path] = Html()
        pages[path].feed(path.read_text())
    return pages


@pytest.mark.slow
def test_every_page_is_on_the_site(site: dict[Path, Html]) -> None:
    built = {path.name for path in site}
    assert {path.with_suffix(".html").name for path in DOCS.rglob("*.md")} <= built
    assert "contributing.html" in built


@pytest.mark.slow
def test_what_is_made_of_records_is_on_the_site_though_not_in_the_repository(site: dict[Path, Html]) -> None:
    pages = {path.name: (path, page) for path, page in site.items()}
    drawn, tables = set[str](), 0
    for name in reproduced.TOPICS:
        (path,) = [path for path in site if path.parts[-2:] == ("paper", f"{name}.html")]
        drawn |= {target for target in site[path].loaded if "images/reproduced/" in target}
        assert "<!-- reproduced" not in path.read_text()
        tables += path.read_text().count("<table>")
    assert {Path(target).parent.name for target in drawn} == {"phantom", "nih-64"}
    assert len(drawn) >= 16
    assert tables > 40
    assert "detection AUROC" in pages["start.html"][0].read_text()
    for name, tests in {"methods-demo": 4, "methods-nih": 3}.items():
        assert len({target for target in pages[f"{name}.html"][1].loaded if "images/methods/" in target}) == tests
    assert [path.name for path in site if "which <code>make docs</code> builds" in path.read_text()] == []


def test_readers_of_the_repository_are_told_where_the_rest_is() -> None:
    """A mark that the site fills is no gap: words before it, which the site leaves out, say what is missing."""
    for page in PAGES:
        lines = [line for line in page.read_text().splitlines() if hook.MARK.fullmatch(line)]
        assert [line for line in lines if line.startswith("<!--")] == [], page.name
    assert hook.MARK.sub("table", "Before.\n\n*It is on the site.* <!-- summary demo -->\n\nAfter.") == (
        "Before.\n\ntable\n\nAfter."
    )


@pytest.mark.slow
def test_no_page_is_longer_than_a_reader_bears(site: dict[Path, Html]) -> None:
    """Words that are not folded; what is looked up by name, and the history, may be long."""
    looked_up = ("reference", "changelog.html", "methods.html", "datasets.html", "contributing.html")
    for path in site:
        if not any(name in path.parts for name in looked_up):
            article = re.sub(r"<(details|nav|script|style|svg)\b.*?</\1>", " ", path.read_text(), flags=re.DOTALL)
            words = len(re.sub(r"<[^>]*>", " ", article).split())
            assert words < 6000, f"{path.name} has {words:,} words"


@pytest.mark.slow
def test_links_and_pictures_of_the_site_lead_somewhere(site: dict[Path, Html]) -> None:
    checked = 0
    for path, page in site.items():
        if path.name == "404.html":
            continue  # its addresses start at the root, for it may be shown anywhere
        for target in [*page.links, *page.loaded]:
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = unquote(target).partition("#")
            place = (path.parent / name).resolve() if name else path
            assert place.is_file(), f"{path.name} points to {target}"
            if anchor and place in site:
                assert anchor in site[place].anchors, f"{path.name} points to {target}"
            checked += 1
    assert checked > 500


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site: dict[Path, Html]) -> None:
    for path, page in site.items():
        assert [target for target in page.loaded if re.match(r"(https?:)?//", target)] == [], path.name
    folder_of_site = min(site, key=lambda path: len(path.parts)).parent
    for sheet in folder_of_site.rglob("*.css"):
        text = sheet.read_text()
        assert not re.search(r"url\(\s*[\"']?(https?:)?//", text), sheet.name
        assert "@import" not in text, sheet.name


@pytest.mark.slow
def test_the_site_is_small(site: dict[Path, Html]) -> None:
    folder_of_site = min(site, key=lambda path: len(path.parts)).parent
    assert sum(path.stat().st_size for path in folder_of_site.rglob("*") if path.is_file()) < 12_000_000
