"""The documentation in a real browser: everybody can read it, on a desk and on a phone, in light and dark."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from evidence.pages import site as hook

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install -e .[dev]")
WebDriverWait = pytest.importorskip("selenium.webdriver.support.wait").WebDriverWait
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium and chromedriver are not installed"),
]
SWITCHES = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync")
PAGES = ["index.html", *(page.replace(".md", ".html") for page in hook.pages(hook.MENUS))]
# Text and tables, shell, Python and TOML, pictures, verdicts, a notebook, docstrings
KINDS = ("index", "start", "your-data", "review", "reproduced", "paper/detection", "notebook", "reference/python")
OF_EACH_KIND = [f"{name}.html" for name in KINDS]
# Wider than the screen without a box of its own to scroll in
OVERFLOW = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address(documentation: Path) -> Iterator[str]:
    """Search works on a served site only."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(documentation))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for switch in (*SWITCHES, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(switch)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.set_script_timeout(300)  # axe looks at every cell of a long table
    yield driver
    driver.quit()


def show(browser: Any, address: str, width: int, scheme: str) -> None:
    metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    wishes = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}  # no colour is caught half-way
    features = [{"name": name, "value": value} for name, value in wishes.items()]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.get(address)
    loaded = "return location.href.startsWith(arguments[0]) && document.readyState == 'complete' && !!document.body"
    WebDriverWait(browser, 60).until(lambda driver: driver.execute_script(loaded, address))  # a busy machine lags


@pytest.mark.parametrize(("scheme", "pages"), [("light", PAGES), ("dark", OF_EACH_KIND)], ids=["light", "dark"])
def test_no_page_has_a_serious_fault(
    browser: Any, address: str, documentation: Path, scheme: str, pages: list[str], faults: Callable[[Any], list[str]]
) -> None:
    found = {}
    for page in pages:
        if (documentation / page).exists():
            show(browser, f"{address}/{page}", 1280, scheme)
            shown = browser.execute_script("return document.body.dataset.mdColorScheme")
            assert shown == {"light": "default", "dark": "slate"}[scheme]
            found[page] = [fault for fault in faults(browser) if fault.startswith(("serious", "critical"))]
    assert len(found) >= len(OF_EACH_KIND)
    assert {page: faulty for page, faulty in found.items() if faulty} == {}


def test_nothing_is_wider_than_a_phone(browser: Any, address: str, documentation: Path) -> None:
    wide = {}
    for page in PAGES:
        if (documentation / page).exists():
            show(browser, f"{address}/{page}", 390, "light")
            wide[page] = browser.execute_script(OVERFLOW)
    assert {page: by for page, by in wide.items() if by > 0} == {}


def test_names_in_tables_stay_in_one_piece_on_a_phone(browser: Any, address: str) -> None:
    broken = "return [...document.querySelectorAll('table code')].filter(name => name.getClientRects().length > 1)"
    for page in ("architecture", "benchmarks", "reference/command-line"):
        show(browser, f"{address}/{page}.html", 390, "light")
        assert browser.execute_script("return document.querySelectorAll('table code').length") > 10
        assert browser.execute_script(f"{broken}.map(name => name.textContent)") == [], page


def test_the_main_tables_of_the_successor_are_seen_whole_on_a_laptop(browser: Any, address: str) -> None:
    """Text does not grow with them: a line of more than a hundred letters is hard to follow."""
    show(browser, f"{address}/successor.html", 1400, "light")
    hidden = (
        "return [...document.querySelectorAll('table')].filter(table => /none.*sparse/s.test(table.tHead.innerText))"
        ".map(table => table.offsetWidth - table.closest('.md-typeset__scrollwrap').clientWidth)"
    )
    tables = browser.execute_script(hidden)
    assert len(tables) >= 5
    assert max(tables) <= 0
    assert browser.execute_script("return document.querySelector('article > p').offsetWidth") <= 720


def test_search_finds_a_page_and_code_can_be_copied(browser: Any, address: str) -> None:
    show(browser, f"{address}/start.html", 1280, "light")
    assert browser.execute_script("return document.querySelectorAll('.md-content pre button').length") > 0
    browser.execute_script("document.querySelector('[data-md-component=search-query]').focus()")
    browser.switch_to.active_element.send_keys("kappa")
    for _ in range(100):
        found = browser.execute_script(
            "return [...document.querySelectorAll('.md-search-result__link')].map(link => link.getAttribute('href'))"
        )
        if found:
            break
        browser.execute_async_script("setTimeout(arguments[0], 100)")
    assert any("review.html" in link for link in found)
