"""A real headless Chromium, and a page in it that may neither complain nor ask the network."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from tests.services.installing import lacking

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


@contextmanager
def launched() -> Iterator[Browser]:
    """The browser of this machine; skips where there is none."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        lacking("Chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


def opened(browser: Browser, address: str, **how: Any) -> Iterator[Page]:
    """A page; whatever the console, a dialog or the network saw fails the test."""
    page = browser.new_page(**{"viewport": {"width": 1400, "height": 900}, **how})
    trouble: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("dialog", lambda dialog: trouble.append(f"dialog {dialog.message}"))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    page.wait_for_selector("html[data-ready]")
    yield page
    page.close()
    assert trouble == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
