"""A reviewer in a real browser: accept, edit, undo, reload, filter, a second reviewer, agreement, export.

The pictures in docs/images/review come from here: BOMD_WRITE_SCREENSHOTS=1 writes them anew.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from PIL import Image

from bomd import audit
from bomd.audits.found import Audit
from bomd.review.change_log import write_log
from bomd.review.decisions import FILE, Event, Journal, current, read_events
from bomd.review.evidence import open_evidence
from bomd.review.export import read_reviewed
from bomd.review.queue import plain_labels

pytest.importorskip("selenium", reason="the browser test needs selenium")

from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
PICTURES = Path(__file__).parents[2] / "docs" / "images" / "review"
WRITE = bool(os.environ.get("BOMD_WRITE_SCREENSHOTS"))
DESKTOP, TABLET, PHONE, SMALL = (1280, 800), (820, 1180), (390, 844), (320, 568)
PAGE = 50  # images that the list shows at once

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="chromium or chromedriver is not installed"),
]


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        f"--user-data-dir={tmp_path / 'browser'}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    downloads = {"download.default_directory": str(tmp_path / "downloads"), "download.prompt_for_download": False}
    options.add_experimental_option("prefs", downloads)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(DRIVER)))
    try:
        resize(driver, DESKTOP)
        prefer(driver, "dark")
        yield driver
    finally:
        driver.quit()


def resize(browser: webdriver.Chrome, size: tuple[int, int]) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False},
    )


def prefer(browser: webdriver.Chrome, scheme: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


class Page:
    """The page as a person uses it."""

    def __init__(self, browser: webdriver.Chrome) -> None:
        self.browser = browser

    def at(self, name: str) -> Any:
        return self.browser.find_element(By.ID, name)

    def wait(self, met: Callable[[], Any], what: str) -> Any:
        return WebDriverWait(self.browser, 20, poll_frequency=0.05).until(lambda _: met(), f"no {what}")

    def press(self, *keys: str) -> None:
        ActionChains(self.browser).send_keys(*keys).perform()

    def status(self, text: str) -> None:
        self.wait(lambda: self.at("status").text.startswith(text), f"status {text!r}: {self.at('status').text!r}")
        self.ready()

    def ready(self) -> None:
        self.wait(lambda: "busy" not in self.browser.find_element(By.TAG_NAME, "body").get_attribute("class"), "rest")

    def introduce(self, name: str) -> None:
        self.wait(lambda: self.at("ask-name").is_displayed(), "question for the name")
        self.at("name").clear()
        self.at("name").send_keys(name, Keys.ENTER)
        self.wait(lambda: self.at("image-id").text, "image")
        self.ready()

    def image(self) -> str:
        return str(self.at("image-id").text)

    def toggles(self) -> list[bool]:
        switches = self.browser.find_elements(By.CSS_SELECTOR, "#labels [role=switch]")
        return [switch.get_attribute("aria-checked") == "true" for switch in switches]

    def choose(self, name: str, text: str) -> None:
        Select(self.at(name)).select_by_visible_text(text)

    def listed(self, part: str = "title") -> list[str]:
        script = "return [...document.querySelectorAll(arguments[0])].map((line) => line.textContent)"
        return list(self.browser.execute_script(script, f"#list .{part}"))

    def pictured(self) -> None:
        """Until every picture in sight is there."""
        script = (
            "return [...document.images].filter(i => i.loading !== 'lazy').every(i => i.complete && i.naturalWidth)"
        )
        self.wait(lambda: self.browser.execute_script(script), "pictures")
        time.sleep(0.3)

    def shoot(self, name: str) -> None:
        """A picture for the documentation."""
        self.pictured()
        if WRITE:
            PICTURES.mkdir(parents=True, exist_ok=True)
            Image.open(io.BytesIO(self.browser.get_screenshot_as_png())).save(PICTURES / name, quality=82, method=6)

    def check_console(self) -> None:
        complaints = [entry for entry in self.browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
        assert complaints == []

    def check_requests(self, address: str) -> None:
        """Nothing was asked of anybody but the server."""
        import json

        for entry in self.browser.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                asked = message["params"]["request"]["url"]
                assert asked.startswith((address, "data:", "about:", "chrome:", "chrome-untrusted:")), asked


def shows(page: Page, wanted: set[str]) -> bool:
    """Whether the list holds these images, or as many of them as it shows at once."""
    listed = page.listed()
    return set(listed) <= wanted and len(listed) == min(PAGE, len(wanted))


def standing(run: Path, reviewer: str) -> dict[str, Any]:
    evidence = open_evidence(run)
    return current(read_events(run / FILE, evidence.classes)).get(reviewer, {})


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory, build: Callable[..., Path]) -> Path:
    from bomd.models import model
    from bomd.networks import backbone

    place = tmp_path_factory.mktemp("browser") / "phantom" / "bomd" / "seed0-3fa91c"
    size = 256 if WRITE else 64
    build(place, 120 if WRITE else 40, size)
    classes = open_evidence(place).classes
    model.save(place / "model", [backbone.build("small", len(classes), seed=0)], classes, size)
    return place


def test_a_review_from_first_address_to_export(
    browser: webdriver.Chrome, large: Path, serve: Callable[[Path], Any], tmp_path: Path
) -> None:
    run = large
    served = serve(run)
    evidence = open_evidence(run)
    page = Page(browser)
    browser.get(f"{served.address}?token={served.token}")
    page.introduce("Ada")
    assert "token" not in browser.current_url  # neither the address bar nor the history keeps it
    first = page.image()
    assert first == str(evidence.record.given.ids[evidence.rows[evidence.record.opinion.rank[evidence.rows].argmin()]])

    # The switches show what was given, with the proposal beside them; accepting saves the proposal.
    row = evidence.numbers[first]
    assert page.toggles() == (evidence.given[row] == 1).tolist()
    page.shoot("review.webp")
    page.press("a")
    page.status("Saved: accepted")
    assert standing(run, "Ada")[first].labels == tuple(evidence.proposed[row].tolist())

    # Editing: the second label changed by its key, the twelfth with Shift; accepting would drop that, so it asks.
    second = page.image()
    before = page.toggles()
    assert second != first
    page.press("2")
    ActionChains(browser).key_down(Keys.SHIFT).send_keys("2").key_up(Keys.SHIFT).perform()
    wanted = [value != (column in (1, 11)) for column, value in enumerate(before)]
    assert page.toggles() == wanted
    page.press("a")
    assert "press e" in page.at("status").text
    assert second not in standing(run, "Ada")
    page.press("e")
    if page.at("conflict").is_displayed():  # "No Finding" beside a finding is asked about first
        page.press("e")
    page.status("Saved: edited")
    assert standing(run, "Ada")[second].labels == tuple(int(value) for value in wanted)

    # Undo brings the image back, undecided, with the given labels.
    page.press("u")
    page.status("Undone")
    assert page.image() == second
    assert page.toggles() == before
    assert second not in standing(run, "Ada")
    page.press("k")
    page.status("Saved: kept")
    assert standing(run, "Ada")[second].labels == tuple(evidence.given[evidence.numbers[second]].tolist())

    # Skip, and back and forth.
    third = page.image()
    page.press("s")
    page.status("Saved: skipped")
    fourth = page.image()
    page.press(Keys.ARROW_LEFT)
    page.wait(lambda: page.image() == third, "third image")
    page.ready()
    page.press("n")
    page.wait(lambda: page.image() == fourth, "fourth image")
    page.ready()

    # A reload keeps name, place and progress.
    browser.refresh()
    page.wait(lambda: page.image() == fourth, "same image after a reload")
    page.ready()
    assert page.at("reviewer").text == "Ada"
    assert page.at("progress-text").text == f"2 of {len(evidence.rows)} decided · 1 skipped"

    # Window by dragging, zoom by wheel, reset by key.
    ActionChains(browser).drag_and_drop_by_offset(page.at("canvas"), 60, 30).perform()
    assert page.at("width-text").text == "315"
    assert page.at("level-text").text == "113"
    page.press("+")
    assert page.at("zoom-text").text == "125%"
    page.press("f")
    assert (page.at("width-text").text, page.at("zoom-text").text) == ("255", "100%")

    # Filters.
    page.choose("filter-state", "decided")
    page.wait(lambda: set(page.listed()) == {first, second}, "list of decided images")
    page.choose("filter-state", "undecided")
    page.wait(lambda: len(page.listed()) > 2, "list of undecided images")
    page.choose("filter-kind", "removed")
    removing = [row for row in evidence.rows if evidence.record.removed[row].any()]
    wanted_ids = {str(evidence.record.given.ids[row]) for row in removing} - {first, second}
    page.wait(lambda: shows(page, wanted_ids), "list of images with removed labels")
    assert all("−" in line for line in page.listed("changes"))
    column = int(evidence.record.removed[removing].sum(axis=0).argmax())
    page.choose("filter-class", evidence.classes[column])
    having = {str(evidence.record.given.ids[row]) for row in evidence.rows if evidence.record.removed[row, column]}
    page.wait(lambda: shows(page, having - {first, second}), "list of images that lose this finding")
    page.choose("filter-class", "any")
    page.choose("filter-kind", "any")
    patient = str(evidence.record.given.groups[evidence.numbers[third]])
    page.at("filter-text").send_keys(patient)
    page.wait(lambda: third in page.listed() and len(page.listed()) < 6, "list of a patient's images")
    page.at("filter-text").send_keys(Keys.CONTROL, "a", Keys.NULL, third)
    page.wait(lambda: page.listed() == [third], "list of one image")
    assert page.at("count").text == "1 image"
    page.at("filter-text").send_keys(Keys.CONTROL, "a", Keys.NULL, Keys.DELETE)
    page.wait(lambda: len(page.listed()) > 5, "whole list")
    page.press(Keys.ESCAPE)
    page.ready()

    # The keys, and a comparison with a neighbour.
    page.at("canvas").click()
    page.press("?")
    page.wait(lambda: page.at("keys").is_displayed(), "list of keys")
    page.pictured()
    page.at("keys-close").click()
    browser.find_element(By.CSS_SELECTOR, ".neighbour").click()
    page.wait(lambda: "Esc" in page.at("banner").text, "comparison")
    page.press(Keys.ESCAPE)
    page.wait(lambda: not page.at("banner").is_displayed(), "end of the comparison")

    # A heat map, of a model that has learnt nothing, and none any more; a sign shows while the model is opened.
    page.press("h")
    page.wait(lambda: "Opening the model" in page.at("drawing").text, "sign that a heat map is on its way")
    WebDriverWait(browser, 60).until(lambda _: browser.execute_script("return viewer.heat !== null"), "no heat map")
    assert page.at("heat").get_attribute("value") != ""
    page.wait(lambda: not page.at("drawing").is_displayed(), "end of the sign")
    page.press("h")
    page.wait(lambda: browser.execute_script("return viewer.heat === null"), "end of the heat map")

    # A second reviewer sees nothing of the first one's decisions.
    page.at("reviewer").click()
    page.introduce("Grace")
    assert page.at("progress-text").text == f"0 of {len(evidence.rows)} decided"
    assert page.image() == first
    page.press("a")
    page.status("Saved: accepted")
    for _ in range(9):
        page.press("k")
        page.status("Saved: kept")
    resize(browser, TABLET)
    page.shoot("tablet.webp")
    resize(browser, PHONE)
    prefer(browser, "light")
    page.shoot("phone.webp")
    prefer(browser, "dark")
    resize(browser, DESKTOP)
    page.at("reviewer").click()
    page.introduce("Ada")
    for key in "akaaakaa":
        page.press(key)
        page.status("Saved")
    browser.get(f"{served.home}agreement")
    page.wait(lambda: "kappa is" in page.at("summary").text, "agreement")
    assert {"Ada", "Grace"} <= {cell.text for cell in browser.find_elements(By.CSS_SELECTOR, "#reviewers th")}
    page.shoot("agreement.webp")

    # Export: the file that the browser saves has both people's decisions.
    browser.get(served.home)
    page.wait(lambda: page.image(), "image")
    page.ready()
    page.at("export").click()
    saved = tmp_path / "downloads" / "reviewed.csv"
    page.wait(saved.exists, "downloaded file")
    with saved.open(newline="", encoding="utf-8") as stream:
        lines = {line["id"]: line for line in csv.DictReader(stream)}
    assert len(lines) == len(evidence)
    page.at("details").click()
    details = tmp_path / "downloads" / "reviewed-details.csv"
    page.wait(details.exists, "downloaded details")
    with details.open(newline="", encoding="utf-8") as stream:
        assert {line["reviewers"] for line in csv.DictReader(stream) if line["id"] == first} == {"Ada|Grace"}
    decided = [int(lines[first][name]) for name in evidence.classes]
    assert decided == evidence.proposed[row].tolist()
    page.check_console()
    page.check_requests(served.address)
    with sqlite3.connect(run / FILE) as connection:
        assert connection.execute("SELECT count(*) FROM events WHERE action = 'undo'").fetchone() == (1,)


def test_everybody_can_read_and_reach_every_page_in_light_and_dark_at_any_width(
    browser: webdriver.Chrome, run: Path, serve: Callable[..., Any], faults: Callable[[Any], list[str]]
) -> None:
    served, page = serve(run, "Ada"), Page(browser)
    browser.get(f"{served.address}?token={served.token}")
    page.wait(lambda: page.image(), "image")
    page.ready()
    page.press("a")
    page.status("Saved")
    page.press("1")  # a changed label has a colour of its own
    for scheme in ("light", "dark"):
        prefer(browser, scheme)
        for size in (DESKTOP, PHONE, (360, 740), SMALL):
            resize(browser, size)
            browser.execute_script("document.querySelectorAll('details').forEach(item => item.open = true)")
            assert faults(browser) == []
            assert browser.execute_script("return document.documentElement.scrollWidth") <= size[0]
    page.press(Keys.ESCAPE, "?")
    page.wait(lambda: page.at("keys").is_displayed(), "list of keys")
    assert faults(browser) == []
    browser.get(f"{served.home}agreement")
    page.wait(lambda: page.at("summary").text, "agreement")
    for scheme in ("light", "dark"):
        prefer(browser, scheme)
        for size in (DESKTOP, SMALL):  # on which tables are scrolled, also with the keys
            resize(browser, size)
            assert faults(browser) == []
            assert browser.execute_script("return document.documentElement.scrollWidth") <= size[0]
    page.check_console()


def test_a_chosen_theme_stays_and_decisions_fit_a_phones_first_screen(
    browser: webdriver.Chrome, run: Path, serve: Callable[..., Any]
) -> None:
    ground = "return getComputedStyle(document.body).backgroundColor"
    served, page = serve(run, "Ada"), Page(browser)
    prefer(browser, "light")
    browser.get(f"{served.address}?token={served.token}")
    page.wait(lambda: page.image(), "image")
    page.ready()
    light = browser.execute_script(ground)
    prefer(browser, "dark")
    dark = browser.execute_script(ground)
    assert dark != light  # as the system says, until somebody chooses
    page.at("theme").click()
    assert browser.execute_script(ground) == light
    browser.refresh()
    page.wait(lambda: page.image(), "image")
    assert browser.execute_script(ground) == light
    browser.get(f"{served.home}agreement")
    assert browser.execute_script(ground) == light
    page.at("theme").click()
    assert browser.execute_script(ground) == dark

    resize(browser, PHONE)
    browser.get(served.home)
    page.wait(lambda: page.image(), "image")
    page.ready()
    first = page.image()
    place = "const box = document.getElementById(arguments[0]).getBoundingClientRect(); return [box.top, box.bottom]"
    for name in ("canvas", "accept", "keep", "edit", "skip", "undo"):
        top, bottom = browser.execute_script(place, name)
        assert 0 <= top < bottom <= PHONE[1], name
    browser.execute_script("document.querySelectorAll('#list .item')[3].scrollIntoView()")
    assert browser.execute_script("return window.scrollY") > 0
    page.at("accept").click()  # still there, wherever the page was scrolled to
    page.status("Saved: accepted")
    assert page.image() != first
    assert browser.execute_script("return window.scrollY") == 0  # the next picture is in sight


def test_the_order_follows_from_decisions_and_says_so(
    browser: webdriver.Chrome, run: Path, serve: Callable[..., Any]
) -> None:
    from bomd.review.learning import FIRST

    served, page, evidence = serve(run, "Ada"), Page(browser), open_evidence(run)
    browser.get(f"{served.address}?token={served.token}")
    page.wait(lambda: page.image(), "image")
    page.ready()
    assert page.at("learnt-note").text == "as the run gave it"
    assert page.at("learning-summary").text == "Proposed changes taken: none yet"
    for place in range(FIRST):
        page.press("a" if place % 2 else "k")
        page.status("Saved")
    page.wait(lambda: f"by {FIRST} images" in page.at("learnt-note").text, "word on the update")
    proposed = (evidence.record.added | evidence.record.removed)[:, evidence.record.given.findings].sum(axis=1)
    rows = {
        action: [evidence.numbers[image] for image, event in standing(run, "Ada").items() if event.action == action]
        for action in ("accept", "keep")
    }
    taken, asked = proposed[rows["accept"]].sum(), proposed[rows["accept"] + rows["keep"]].sum()
    assert page.at("learning-summary").text.startswith(f"Proposed changes taken: {taken} of {asked} (")
    page.at("learning-summary").click()
    assert "→" in page.at("lessons").text
    page.choose("filter-basis", "the run")
    page.wait(lambda: page.at("learnt-note").text == "as the run gave it", "order of the run")
    page.ready()
    order = evidence.rows[evidence.record.opinion.rank[evidence.rows].argsort()]
    left = [str(evidence.record.given.ids[row]) for row in order if row not in rows["accept"] + rows["keep"]]
    assert page.listed() == left[:PAGE]


def test_the_gate_of_a_run_leads_to_an_image_and_later_names_the_command(
    browser: webdriver.Chrome, hostile_run: Path, serve: Callable[..., Any]
) -> None:
    ids = [str(name) for name in open_evidence(hostile_run).record.given.ids]
    served, page = serve(hostile_run), Page(browser)
    gate = (hostile_run / "review.html").as_uri()
    browser.get(f"{gate}#image={quote(ids[7], safe='')}")
    page.wait(lambda: page.browser.current_url.startswith(served.home), "review")
    page.introduce("Ada")
    assert page.image() == ids[7]
    browser.execute_script("location.hash = arguments[0]", f"#image={quote(ids[9], safe='')}")
    page.wait(lambda: page.image() == ids[9], "image of another link")
    page.ready()
    browser.execute_script("location.hash = '#image=nobody'")
    page.wait(lambda: "no image of that name" in page.at("status").text, "word on an image that is not there")
    served.process.terminate()
    served.process.wait()
    browser.get(gate)
    assert browser.find_element(By.TAG_NAME, "h1").text == "No review is running"
    assert str(hostile_run) in page.at("command").text
    assert served.token not in browser.page_source


def test_the_page_to_sign_can_be_read_by_everybody_and_fits_the_paper(
    browser: webdriver.Chrome, hostile_run: Path, tmp_path: Path, faults: Callable[[Any], list[str]]
) -> None:
    evidence = open_evidence(hostile_run)
    journal = Journal(hostile_run / FILE, evidence.classes)
    for row in evidence.rows[:8]:
        labels = plain_labels(evidence.proposed[row])
        event = Event("Ada", str(evidence.record.given.ids[row]), "accept", labels, reason=f"<b>{'w' * 290}")
        journal.submit(event).result(timeout=20)
    journal.close()
    _, page = write_log(hostile_run, read_reviewed(hostile_run), tmp_path / "changes.csv")
    for scheme in ("light", "dark"):
        prefer(browser, scheme)
        for size in (DESKTOP, PHONE):
            resize(browser, size)
            browser.get(page.as_uri())
            assert faults(browser) == []
            assert browser.execute_script("return document.documentElement.scrollWidth") <= size[0]
    resize(browser, (688, 1000))  # A4 without its margins
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    edges = "return [...document.querySelectorAll('body *')].map(item => item.getBoundingClientRect().right)"
    assert max(browser.execute_script(edges)) <= 689
    assert browser.title.startswith("Changes to labels")
    assert browser.get_log("browser") == []


def test_keys_decide_whatever_was_clicked_before(
    browser: webdriver.Chrome, run: Path, serve: Callable[[Path], Any]
) -> None:
    served = serve(run)
    page = Page(browser)
    browser.get(f"{served.address}?token={served.token}")
    page.introduce("Ada")

    # A slider that was moved by mouse keeps the focus, but a decision is not typed into it.
    first = page.image()
    page.at("level").click()
    page.press("k")
    page.status("Saved: kept")
    assert page.image() != first

    # A list that was chosen from by mouse gives the focus back: "a" would jump to Atelectasis and filter by it.
    script = (
        "const list = document.getElementById('filter-kind'); list.focus();"
        "list.dispatchEvent(new PointerEvent('pointerdown')); list.value = 'removed';"
        "list.dispatchEvent(new Event('change'));"
    )
    browser.execute_script(script)
    page.wait(lambda: page.listed() and all("−" in line for line in page.listed("changes")), "filtered queue")
    page.ready()
    assert browser.execute_script("return document.activeElement === document.body")

    # Changed labels are neither skipped nor accepted by mistake.
    second = page.image()
    page.press("1")
    for key in ("s", "a", "k"):
        page.press(key)
        assert "press e to save" in page.at("status").text
    assert set(standing(run, "Ada")) == {first}
    page.press(Keys.ESCAPE)
    page.wait(lambda: page.at("status").text == "Changes dropped", "word on that")

    # When the server is gone the page says so, whether a decision is sent or an image is asked for.
    served.process.kill()
    served.process.wait()
    page.press("a")
    page.wait(lambda: page.at("status").text == "Not saved: the server does not answer", "warning")
    page.ready()
    browser.find_elements(By.CSS_SELECTOR, "#list .item")[1].click()
    page.wait(lambda: page.at("status").text == "The server does not answer", "warning about the image")
    assert page.image() == second
    assert set(standing(run, "Ada")) == {first}


def test_a_reason_is_typed_without_deciding_and_comes_back_after_an_undo(
    browser: webdriver.Chrome, run: Path, serve: Callable[..., Any]
) -> None:
    words = "a shadow, k1 = <b>effusion</b>?"  # letters that are keys elsewhere
    served, page = serve(run, "Ada"), Page(browser)
    browser.get(f"{served.address}?token={served.token}")
    page.wait(lambda: page.image(), "image")
    page.ready()
    first, before = page.image(), page.toggles()

    def written() -> str:
        return str(page.at("reason").get_property("value"))

    page.press("r", words, Keys.ENTER)
    assert (written(), page.image(), page.toggles()) == (words, first, before)
    assert standing(run, "Ada") == {}
    page.press("n")  # what is not saved yet waits, and is no other image's
    page.wait(lambda: page.image() != first, "second image")
    page.ready()
    assert written() == ""
    page.press("p")
    page.wait(lambda: page.image() == first, "first image")
    page.ready()
    page.press("a")
    page.status("Saved: accepted")
    assert standing(run, "Ada")[first].reason == words
    second = page.image()
    assert written() == ""
    page.press("k")  # without a reason nothing is asked
    page.status("Saved: kept")
    assert standing(run, "Ada")[second].reason == ""

    # An undo brings the words back with the image, and Escape leaves the field as Enter does.
    for _ in range(2):
        page.press("u")
        page.status("Undone")
    assert (page.image(), written()) == (first, words)
    page.press("r", Keys.END, " No.", Keys.ESCAPE, "k")
    page.status("Saved: kept")
    assert standing(run, "Ada")[first].reason == f"{words} No."

    # Words that were written on a decided image and not saved yet outlast the undo of its decision.
    page.press("p")
    page.wait(lambda: page.image() == first, "first image")
    page.ready()
    page.press("r", " Or yes?", Keys.ENTER, "u")
    page.status("Undone")
    assert (page.image(), written()) == (first, f"{words} No. Or yes?")
    page.press("r", *[Keys.BACKSPACE] * len(" Or yes?"), Keys.ENTER, "k")
    page.status("Saved: kept")
    assert standing(run, "Ada")[first].reason == f"{words} No."

    # Decided once more, and that undone: the earlier decision stands again with its own words, after a reload, too.
    page.press("p")
    page.wait(lambda: page.image() == first, "first image again")
    page.ready()
    page.press("r", Keys.HOME, "Or: ", Keys.ENTER)
    assert page.at("status").text == "Decide once more to save this reason"
    page.press("a")
    page.status("Saved: accepted")
    page.press("u")
    page.status("Undone")
    assert (page.image(), written()) == (first, f"{words} No.")
    browser.refresh()
    page.wait(lambda: page.image() == first, "same image after a reload")
    page.ready()
    assert written() == f"{words} No."
    page.at("reviewer").click()
    page.introduce("Grace")
    assert (page.image(), written()) == (first, "")  # Ada's words are hers
    page.check_console()


def test_a_name_from_the_command_line_beats_one_that_the_browser_kept(
    browser: webdriver.Chrome, run: Path, serve: Callable[..., Any]
) -> None:
    served = serve(run, "Grace")
    page = Page(browser)
    browser.get(f"{served.address}?token={served.token}")
    page.wait(lambda: page.at("reviewer").text == "Grace", "name of the command line")
    browser.execute_script("localStorage.setItem('bomd-reviewer', 'Ada')")  # changed on the page, it stays so
    browser.refresh()
    page.wait(lambda: page.at("reviewer").text == "Ada", "name that was chosen later")
    browser.execute_script("localStorage.setItem('bomd-reviewer-named', 'Ada')")  # as after an earlier command
    browser.refresh()
    page.wait(lambda: page.at("reviewer").text == "Grace", "name of the new command")


def test_nobody_reviews_without_a_name(browser: webdriver.Chrome, run: Path, serve: Callable[[Path], Any]) -> None:
    """Esc closes a dialog whatever a page says to that; then nothing could be decided, and no name be given."""
    served, page = serve(run), Page(browser)
    browser.get(f"{served.address}?token={served.token}")
    page.wait(lambda: page.at("ask-name").is_displayed(), "question for the name")
    for _ in range(3):
        page.press(Keys.ESCAPE)
        page.wait(lambda: page.at("ask-name").is_displayed(), "question for the name")
    page.introduce("Ada")
    page.at("reviewer").click()
    page.press(Keys.ESCAPE)  # somebody who has a name may keep it
    page.wait(lambda: not page.at("ask-name").is_displayed(), "end of the question")
    page.press("a")
    page.status("Saved")
    assert page.at("reviewer").text == "Ada"
    page.check_console()


def test_hostile_names_stay_text(browser: webdriver.Chrome, hostile_run: Path, serve: Callable[[Path], Any]) -> None:
    """Ids, patients, class names and the reviewer's name hold markup; none of it becomes an element or runs."""
    served = serve(hostile_run)
    page = Page(browser)
    browser.get(f"{served.address}?token={served.token}")
    name = "<img src=x onerror=document.title='broken'>"
    page.introduce(name)
    page.pictured()
    assert page.image() in set(open_evidence(hostile_run).record.given.ids.tolist())
    names = [button.get_attribute("title") for button in browser.find_elements(By.CSS_SELECTOR, ".finding")]
    assert names == [*open_evidence(hostile_run).classes]  # of which the long ones are cut
    page.press("a")
    page.status("Saved")
    page.choose("filter-state", "decided")
    page.wait(lambda: page.at("count").text == "1 image", "list of the one image")
    page.ready()
    page.choose("filter-state", "undecided")
    page.ready()
    page.at("reviewer").click()
    page.introduce("Bob")
    page.press("a")
    page.status("Saved")
    browser.get(f"{served.home}agreement")
    page.wait(lambda: page.at("summary").text, "agreement")
    assert "2 people have judged images; 1 image was judged by at least two." in page.at("summary").text
    assert name in [cell.text for cell in browser.find_elements(By.CSS_SELECTOR, "#reviewers th")]
    assert browser.title.startswith("Agreement in")
    assert browser.execute_script("return [...document.querySelectorAll('[onerror], body script')].length") == 0
    page.check_console()


def test_no_finding_beside_a_finding_is_saved_only_when_meant(
    browser: webdriver.Chrome, run: Path, serve: Callable[[Path], Any]
) -> None:
    served, evidence = serve(run), open_evidence(run)
    page = Page(browser)
    browser.get(f"{served.address}?token={served.token}")
    page.introduce("Ada")
    first = page.image()
    nothing = evidence.classes.index("No Finding")
    given = evidence.given[evidence.numbers[first]]
    page.wait(lambda: page.toggles(), "switches")
    switches = browser.find_elements(By.CSS_SELECTOR, "#labels [role=switch]")
    other = 0 if given[nothing] == 1 else nothing
    assert not page.at("conflict").is_displayed()
    switches[other].click()
    page.wait(lambda: page.at("conflict").is_displayed(), "warning")
    assert "No Finding together with" in page.at("conflict").text
    page.press("e")
    assert page.at("status").text.startswith("Not saved yet: press e again to save No Finding together with")
    assert standing(run, "Ada") == {}
    page.press("e")
    page.status("Saved: edited")
    wanted = given.copy()
    wanted[other] = 1 - wanted[other]  # what was given, and the one change; nothing of the proposal
    assert standing(run, "Ada")[first].labels == tuple(wanted.tolist())


def test_files_are_shown_with_what_is_known_about_them(
    browser: webdriver.Chrome, run: Path, serve: Callable[[Path], Any], tmp_path: Path
) -> None:
    """Originals of 128 px where the run packed 32 px; no patient is made up; a file that changed is not shown."""
    from dataclasses import replace

    import numpy as np

    from bomd.data.datasets import phantom
    from bomd.data.store import pack
    from bomd.experiments.records import LabelRecord

    record = LabelRecord.load(run / "labels.npz")
    evidence = open_evidence(run)
    order = evidence.rows[np.argsort(-evidence.suspicion[evidence.rows], kind="stable")]
    files = [tmp_path / f"{name}.png" for name in record.given.ids]
    for file, pixels in zip(files, np.asarray(phantom.render(record.given.ids, 128)), strict=True):
        Image.fromarray(pixels).save(file)
    given = replace(record.given, paths=np.asarray([str(file) for file in files]), patients=record.given.ids)
    replace(record, given=given).save(run / "labels.npz")
    shutil.rmtree(run / "images")
    pack(given, run / "images", 32)
    Image.new("L", (90, 90), 255).save(files[order[1]])
    served = serve(run)
    page = Page(browser)
    browser.get(f"{served.address}?token={served.token}")
    page.introduce("Ada")
    assert page.image() == str(given.ids[order[0]])
    assert browser.execute_script("return viewer.source.width") == 128
    assert page.at("image-facts").text.startswith("place")
    assert page.at("filter-text-name").text == "Image"
    page.press("n")
    page.wait(lambda: page.image() == str(given.ids[order[1]]), "second image")
    page.ready()
    assert browser.execute_script("return viewer.source.width") == 32
    assert "packed picture, 32 px" in page.at("image-facts").text
    assert "has changed since the run" in page.at("picture-note").text
    page.check_console()


def audited_animals(folder: Path) -> Audit:
    """Pictures in colour with one label each, of which six are wrong."""
    (folder / "images").mkdir()
    random, lines = np.random.default_rng(0), ["file,label"]
    features = np.zeros((60, 3), dtype=np.float32)
    for row in range(60):
        Image.fromarray(random.integers(0, 255, (16, 16, 3), dtype=np.uint8)).save(folder / f"images/{row:02}.png")
        lines.append(f"{row:02}.png,{('cat', 'cow', 'dog')[(row + (row < 6)) % 3]}")
        features[row, row % 3] = 1
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    np.save(folder / "features.npy", features)
    return audit(folder / "labels.csv", folder / "images", features=folder / "features.npy", output=folder / "o")


def test_pictures_in_colour_are_shown_in_colour(
    browser: webdriver.Chrome, tmp_path: Path, serve: Callable[[Path], Any]
) -> None:
    """Window, level and inversion take every channel by itself."""
    served = serve(audited_animals(tmp_path).run.directory)
    page = Page(browser)
    browser.get(f"{served.address}?token={served.token}")
    page.introduce("Ada")
    own = np.asarray(Image.open(tmp_path / "images" / page.image())).astype(int)

    def shown() -> Any:
        script = "return [...viewer.shown.getContext('2d').getImageData(0, 0, 16, 16).data]"
        return np.reshape(browser.execute_script(script), (16, 16, 4))[..., :3]

    assert abs(shown() - own).max() <= 1  # the middle of 255 steps lies between two of them
    page.press("i")
    assert abs(shown() - (255 - own)).max() <= 1
    browser.execute_script("viewer.setWindow(100, 60)")
    narrow = np.clip(255 * ((own - 60) / 100 + 0.5), 0, 255)
    assert abs(shown() - (255 - narrow)).max() <= 1


def test_of_one_label_per_image_a_choice_takes_the_place_of_the_other(
    browser: webdriver.Chrome, tmp_path: Path, serve: Callable[[Path], Any]
) -> None:
    found = audited_animals(tmp_path)
    served = serve(found.run.directory)
    page = Page(browser)
    browser.get(f"{served.address}?token={served.token}")
    page.introduce("Ada")
    first, before = page.image(), page.toggles()
    assert sum(before) == 1
    other = (before.index(True) + 1) % 3
    page.press(str(other + 1))
    page.wait(lambda: page.toggles() != before, "another choice")
    assert [place for place, on in enumerate(page.toggles()) if on] == [other]
    page.press(str(other + 1))  # choosing it again does not leave an image without a class
    assert [place for place, on in enumerate(page.toggles()) if on] == [other]
    page.press("e")
    page.status("Saved")
    assert list(standing(found.run.directory, "Ada")[first].labels) == [int(place == other) for place in range(3)]
    page.check_console()
