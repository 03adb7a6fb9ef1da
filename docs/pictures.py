"""Takes the pictures of the report: `python docs/pictures.py REPORT.html`, with a Chromium."""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).resolve().parent / "images"
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def main(report: Path) -> None:
    """Light and dark; the whole, and a cell of the last cause of failures."""
    program = next(filter(None, map(shutil.which, NAMES)))
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            page = browser.new_page(
                viewport={"width": 1440, "height": 900},
                color_scheme=scheme,
                reduced_motion="reduce",
            )
            page.goto(report.absolute().as_uri())
            page.wait_for_selector("html[data-ready]")
            page.screenshot(path=IMAGES / f"report-{scheme}.png")
            page.locator("#causes tbody tr").last.locator("button").first.click()
            page.keyboard.press("n")
            page.wait_for_selector("#p-title")
            page.screenshot(path=IMAGES / f"report-{scheme}-cell.png")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
