"""The page of a trace in a real headless Chromium, opened from disk."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flows.trace.traces import write
from tests.services.chromium import launched, opened
from workers.measure.trace.result import Trace

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SAMPLE = Path(__file__).parents[2] / "docs" / "samples" / "trace.json"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as made:
        yield made


@pytest.mark.parametrize("compared", [False, True])
def test_the_page_shows_every_operator(browser: Browser, tmp_path: Path, compared: bool) -> None:
    trace = Trace.from_json(json.loads(SAMPLE.read_text("utf-8")))
    first = replace(trace.operators[0], dram_read_bytes=1_500_000, dram_write_bytes=0)
    trace = replace(trace, operators=(first, *trace.operators[1:]))
    write(trace, tmp_path / "trace.html", trace if compared else None)
    for page in opened(browser, (tmp_path / "trace.html").as_uri()):
        text = page.inner_text("#operators")
        assert page.locator("#operators tbody tr").count() == len(trace.operators)
        assert "1.5 MB" in page.inner_text("body")
        assert first.name.rpartition("/")[2] in text
        assert "(emulated)" in page.inner_text("h1")
        page.set_viewport_size({"width": 390, "height": 844})
        fits = "(one) => one.scrollWidth <= one.clientWidth"
        assert all(one.evaluate(fits) for one in page.locator(".wide").all())
        assert page.locator("#difference").is_visible() is compared
        page.fill("#search", "no such operator")
        assert page.locator("#operators tbody tr").count() == 0
