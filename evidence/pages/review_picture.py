"""Draw the review page of a finished run as it looks in a browser, for the README.

    bomd run demo --set bomd-plus.shown=5
    python -m evidence.pages.review_picture runs/demo/bomd-plus/seed0-...

Opens the page, gives a name, and takes the first image with labels to add and to remove. Needs Chrome or Chromium.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
from pathlib import Path

from PIL import Image
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait

from evidence import DOCS

PICTURE = DOCS / "images" / "review" / "demo.webp"
SIZE = {"width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": False}
LOADED = """const shown = [...document.images].filter(one => one.getBoundingClientRect().top < innerHeight);
return shown.length > 10 && shown.every(one => one.complete);"""
DARK = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a finished run that kept nearest images")
    run = parser.parse_args().run
    command = [sys.executable, "-m", "bomd.cli", "review", str(run)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert server.stdout is not None
        address = next(found[0] for line in server.stdout if (found := re.search(r"http://\S+", line)))
        picture = Image.open(io.BytesIO(photograph(address))).convert("RGB")
        picture.save(PICTURE, quality=80, method=6)
    finally:
        server.terminate()


def photograph(address: str) -> bytes:
    """The page as PNG, once the first image and its neighbours are there."""
    options = webdriver.ChromeOptions()
    for option in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(option)
    browser = webdriver.Chrome(options=options)
    try:
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", SIZE)
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", DARK)
        browser.get(address)
        wait = WebDriverWait(browser, 60)
        wait.until(lambda page: page.find_element(By.CSS_SELECTOR, "dialog[open] input")).send_keys("Ada\n")
        Select(browser.find_element(By.ID, "filter-kind")).select_by_value("both")
        wait.until(lambda page: page.execute_script(LOADED))
        return browser.get_screenshot_as_png()
    finally:
        browser.quit()


if __name__ == "__main__":
    main()
