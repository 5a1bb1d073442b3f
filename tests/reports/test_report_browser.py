"""The report in a real browser: nothing fetched, nothing logged, nothing wider than the screen."""

from __future__ import annotations

import itertools
import json
import runpy
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bomd.data.datasets import phantom
from bomd.reports.opening import write_demo
from bomd.reports.outcome import recorded
from bomd.reports.report import write_report

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install -e .[dev]")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium and chromedriver are not installed"),
]
SWITCHES = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# What sticks out of the screen without a box of its own to scroll in
OVERFLOW = """
const width = document.documentElement.clientWidth;
return [...document.querySelectorAll("body *")].filter(item => item.getBoundingClientRect().right > width + 1)
  .filter(item => !item.closest(".scroll, pre, svg, .skip")).map(item => item.outerHTML.slice(0, 200));
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page of two runs with hostile names, one of several methods and kinds of noise, an audit, and the demo's."""
    made = runpy.run_path(str(Path(__file__).with_name("test_report.py")))
    root = tmp_path_factory.mktemp("pages")
    hostile = {"classes": made["HOSTILE"], "name": '"><img src=x onerror=alert(1)>', "prefix": "<b onclick='x'>"}
    two = [made["write_run"](root / "two", method, flags=method == "bomd", **hostile) for method in ("bce", "bomd")]
    scores = {f"a-method-with-a-long-name-{place}": [0.7, 0.7] for place in range(6)}
    scores |= {"bce": [0.6, 0.6], "bomd": [0.7, 0.8]}
    grid = made["write_grid"](root / "grid", scores, [made["noise"](0, 0), made["noise"](0.4, 0.4)])
    audit = made["as_audit"](made["write_run"](root / "audit", truth=False, **hostile))
    return {
        "audit": write_report([audit], root / "audit.html"),
        "demo": demo_page(root, made),
        "two": write_report(two, root / "two.html"),
        "grid": write_report(grid, root / "grid.html"),
    }


def demo_page(root: Path, made: dict[str, Any]) -> Path:
    """As the demo writes it, with everything that its page begins with."""
    ids = phantom.read(hospital="north", count=120).ids
    runs = [made["write_run"](root / "demo", method, flags=method != "bce") for method in ("bce", "bomd-plus")]
    for run in runs:
        arrays = dict(np.load(run.directory / "labels.npz"))
        np.savez(run.directory / "labels.npz", **arrays | {"ids": ids, "patients": ids})
    write_demo(runs, root / "demo.html", recorded(), (("Look", "bomd review runs/demo/bomd-plus/seed0 --open"),))
    return root / "demo.html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for switch in (*SWITCHES, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


def show(browser: Any, page: Path, width: int, scheme: str = "light") -> None:
    """Open a page on a screen of this width."""
    metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.get(page.as_uri())


@pytest.mark.parametrize("name", ["two", "grid", "audit", "demo"])
def test_nothing_is_logged_and_nothing_fetched(browser: Any, pages: dict[str, Path], name: str) -> None:
    browser.get_log("performance")
    show(browser, pages[name], 1280)
    assert browser.get_log("browser") == []
    sent = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = {item["params"]["request"]["url"] for item in sent if item["method"] == "Network.requestWillBeSent"}
    assert pages[name].as_uri() in asked
    assert {url for url in asked if not url.startswith("data:")} == {pages[name].as_uri()}
    assert browser.execute_script("return document.scripts.length") == 1  # the one that filters and sorts examples


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("name", ["two", "grid", "audit", "demo"])
def test_nothing_is_wider_than_the_screen(browser: Any, pages: dict[str, Path], name: str, width: int) -> None:
    show(browser, pages[name], width)
    browser.execute_script("document.querySelectorAll('details').forEach(item => item.open = true)")
    assert browser.execute_script(OVERFLOW) == []
    root = "const page = document.documentElement; return page.scrollWidth - page.clientWidth"
    assert browser.execute_script(root) == 0


@pytest.mark.parametrize("width", [360, 390, 1280])
def test_headings_of_a_card_do_not_run_together(browser: Any, pages: dict[str, Path], width: int) -> None:
    show(browser, pages["demo"], width)
    overlaps = """return [...document.querySelectorAll(".card thead th")].map(cell => {
      const text = document.createRange();
      text.selectNodeContents(cell);
      return [cell.innerText, text.getBoundingClientRect().width, cell.getBoundingClientRect().width];
    }).filter(([, text, cell]) => text > cell - 2)"""
    assert browser.execute_script("return document.querySelectorAll('.card thead th').length") > 0
    assert browser.execute_script(overlaps) == []


@pytest.mark.parametrize("name", ["two", "grid", "demo"])
def test_the_summary_is_seen_whole_at_a_desk(browser: Any, pages: dict[str, Path], name: str) -> None:
    show(browser, pages[name], 1280)
    size = "const box = document.querySelector('.short .scroll'); return [box.scrollWidth, box.clientWidth]"
    needed, there = browser.execute_script(size)
    assert needed <= there


@pytest.mark.parametrize("name", ["two", "grid", "audit", "demo"])
def test_pictures_load_and_have_words(browser: Any, pages: dict[str, Path], name: str) -> None:
    show(browser, pages[name], 1280)
    browser.execute_script("document.querySelectorAll('details').forEach(item => item.open = true)")
    pictures = browser.execute_script(
        "return Promise.all([...document.images].map(image => image.decode().then("
        "() => [image.naturalWidth, image.alt], () => [0, image.alt])))"
    )
    assert pictures
    assert all(width > 0 and words for width, words in pictures)
    drawn = browser.execute_script(
        "return [...document.querySelectorAll('svg')].map(item => "
        "[item.getBoundingClientRect().width, item.querySelector('title')?.textContent])"
    )
    assert all(width > 200 and words for width, words in drawn)


@pytest.mark.parametrize("name", ["two", "grid", "audit", "demo"])
def test_links_lead_to_their_sections(browser: Any, pages: dict[str, Path], name: str) -> None:
    show(browser, pages[name], 360)
    links = browser.find_elements("css selector", "nav a")
    assert len(links) >= (7 if name == "audit" else 9)
    for link in links:
        link.click()
        place = link.get_attribute("href").split("#")[1]
        seen = browser.execute_script("return document.getElementById(arguments[0]).getBoundingClientRect().top", place)
        left = browser.execute_script(
            "return document.documentElement.scrollHeight - window.scrollY - window.innerHeight"
        )
        assert abs(seen) < 2 or left < 2, place  # the last ones cannot reach the top


@pytest.mark.parametrize("name", ["two", "grid", "audit", "demo"])
def test_tables_have_heads_and_can_be_scrolled_by_keyboard(browser: Any, pages: dict[str, Path], name: str) -> None:
    show(browser, pages[name], 360)
    without = browser.execute_script(
        "return [...document.querySelectorAll('tbody tr')].filter(row => !row.querySelector('th[scope=row]')).length"
        " + [...document.querySelectorAll('table')].filter(table => !table.tHead).length"
        " + document.querySelectorAll('th:not([scope])').length"
    )
    assert without == 0
    boxes = browser.execute_script(
        "return [...document.querySelectorAll('.scroll')].map(box => [box.tabIndex, box.getAttribute('aria-label')])"
    )
    assert boxes
    assert all(index == 0 and words for index, words in boxes)
    levels = browser.execute_script(
        "return [...document.querySelectorAll('h1, h2, h3, h4')].map(item => +item.tagName[1])"
    )
    assert levels[:2] == [1, 2]
    assert all(after - before <= 2 for before, after in itertools.pairwise(levels))


def test_dark_and_light_differ_and_can_be_read(browser: Any, pages: dict[str, Path]) -> None:
    """Contrast of text and page by the definition of WCAG: at least 7 in both schemes."""
    found = []
    for scheme in ("light", "dark"):
        show(browser, pages["two"], 1280, scheme)
        style = "const style = getComputedStyle(document.body); return [style.color, style.backgroundColor]"
        ink, page = (_luminance(colour) for colour in browser.execute_script(style))
        assert (max(ink, page) + 0.05) / (min(ink, page) + 0.05) > 7
        found.append(page)
    assert found[0] > 0.9
    assert found[1] < 0.1


def _luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["two", "grid", "audit", "demo"])
def test_everybody_can_read_and_reach_everything(
    browser: Any, pages: dict[str, Path], name: str, scheme: str, faults: Callable[[Any], list[str]]
) -> None:
    for width in (1280, 390):
        show(browser, pages[name], width, scheme)
        browser.execute_script("document.querySelectorAll('details').forEach(item => item.open = true)")
        assert faults(browser) == []


@pytest.mark.parametrize("name", ["two", "grid", "audit", "demo"])
def test_what_is_printed_fits_the_paper(browser: Any, pages: dict[str, Path], name: str) -> None:
    """A4 without its margins, in the colours of paper, with nothing left in a box that could be scrolled."""
    show(browser, pages[name], 695, "dark")
    browser.execute_script("document.querySelectorAll('details').forEach(item => item.open = true)")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        out = browser.execute_script(
            "const width = document.documentElement.clientWidth;"
            "const items = [...document.querySelectorAll('body *')].filter(item => !item.closest('svg, .skip'));"
            "return items.filter(item => item.getBoundingClientRect().right > width + 1)"
            ".map(item => item.outerHTML.slice(0, 120))"
        )
        assert out == []
        style = "return getComputedStyle(document.body).backgroundColor"
        assert browser.execute_script(style) == "rgb(255, 255, 255)"
        hidden = "return [...document.querySelectorAll('nav, .finder')].every(item => !item.getClientRects().length)"
        assert browser.execute_script(hidden)
        touching = (
            "return [...document.querySelectorAll('.card thead th')]"
            ".filter(head => head.scrollWidth > head.clientWidth).map(head => head.textContent)"
        )
        assert browser.execute_script(touching) == []
        alone = (
            "return [...document.querySelectorAll('h2, h3, h4, .legend, h2 + p, h3 + p, h4 + p')]"
            ".filter(item => getComputedStyle(item).breakAfter != 'avoid').map(item => item.outerHTML.slice(0, 120))"
        )
        assert browser.execute_script(alone) == []
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_examples_are_filtered_and_sorted(browser: Any, pages: dict[str, Path]) -> None:
    show(browser, pages["audit"], 1280)
    cards = browser.execute_script("return [...document.querySelectorAll('.card')].map(card => ({...card.dataset}))")
    assert cards

    def choose(name: str, value: str) -> list[str]:
        browser.execute_script(
            "const field = document.querySelector(`.finder [name=${arguments[0]}]`);"
            "field.value = arguments[1]; field.dispatchEvent(new Event('input'));",
            name,
            value,
        )
        cards = "[...document.querySelectorAll('.card')].filter(card => card.offsetParent)"
        return list(browser.execute_script(f"return {cards}.map(card => card.dataset.id)"))

    column = next(card["added"] for card in cards if card["added"]).split()[0]
    wanted = {card["id"] for card in cards if column in card["added"].split()}
    choose("change", "added")
    assert set(choose("finding", column)) == wanted
    said = browser.execute_script("return document.querySelector('.finder output').textContent")
    assert said == f"{len(wanted)} of {len(cards)} examples"
    choose("finding", "")
    assert set(choose("change", "none")) == {card["id"] for card in cards if not card["added"] + card["removed"]}
    choose("change", "any")
    by_number = choose("order", "expected")
    expected = {card["id"]: float(card["expected"]) for card in cards}
    boxes = browser.execute_script("return [...document.querySelectorAll('.cards')].map(box => box.children.length)")
    at = 0
    for count in boxes:
        numbers = [expected[name] for name in by_number[at : at + count]]
        assert numbers == sorted(numbers, reverse=True)
        at += count
    assert choose("text", cards[0]["id"]) == [card["id"] for card in cards if cards[0]["id"] in card["id"]]


def test_a_card_leads_to_the_command_while_no_review_runs(browser: Any, pages: dict[str, Path]) -> None:
    show(browser, pages["audit"], 1280)
    link = browser.find_element("css selector", ".to-review a")
    browser.get(link.get_attribute("href"))
    assert browser.find_element("css selector", "h1").text == "No review is running"
    command = browser.find_element("id", "command").text
    assert command.startswith("bomd review ")
    place = Path(shlex.split(command)[2])
    assert (place / "labels.npz").is_file()
    assert browser.get_log("browser") == []
