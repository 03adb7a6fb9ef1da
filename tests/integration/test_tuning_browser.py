"""The page of a tuning in a real headless Chromium, opened from disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flows.tune.document import Document, SkipRow, TrialRow, TuningPart
from flows.tune.page import write
from tests.services.chromium import launched, opened

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as made:
        yield made


def trial(key: str, verdict: str, gain: float | None) -> TrialRow:
    numbers: Any = {} if gain is None else {"low": gain - 2, "high": gain + 2, "floor": 1.5}
    return TrialRow(key=key, title=key.title(), settings=(f"pass={key}",), phase="single",
                    verdict=verdict, why="because", gain=gain, **numbers)  # fmt: skip


def part(model: str, **values: object) -> TuningPart:
    told: Any = {
        "target": "mlas_cpu", "conclusion": "gelu is 12.0 % faster", "champion": "gelu",
        "facts": (("baseline", "1.2 ms"),),
        "trials": (trial("gelu", "better", 12.0), trial("conv", "crashed", None),
                   trial("opset", "too noisy", -1.0)),
        "skipped": (SkipRow(key="nhwc", title="NHWC", why="not here", finding="gpu-002"),),
        "operators": ({"name": "Gelu", "what": "5 -> 1 operators", "before_us": 50.0,
                       "after_us": 20.0, "delta_us": -30.0},),
    }  # fmt: skip
    return TuningPart(model=model, **{**told, **values})


def test_the_page_shows_every_trial_with_its_interval(browser: Browser, tmp_path: Path) -> None:
    told = Document(name="night", tunings=(part("our/<b>one</b>"), part("our/two", emulated=True)))
    write(told, tmp_path)
    for page in opened(browser, (tmp_path / "night.html").as_uri()):
        assert page.locator("#overview tbody tr").count() == 2
        first = page.locator(".tuning").first
        assert "our/<b>one</b>@mlas_cpu" in first.inner_text()
        assert first.locator("svg.plot").count() == 2
        assert "+12.0 %" in first.inner_text()
        assert "5 -> 1 operators" in first.inner_text()
        assert "gpu-002" in first.inner_text()
        assert "Emulated" in page.locator(".tuning").nth(1).inner_text()
        assert page.locator("tr.best").count() == 2
        first.locator("summary").first.click()
        assert "pass=gelu" in first.inner_text()


def test_the_page_shows_recordings_that_tell_no_interval(browser: Browser, tmp_path: Path) -> None:
    row = replace(trial("gelu", "too noisy", 6.0), low=None, high=None, floor=None)
    write(Document(name="replay", tunings=(part("our/one", trials=(row,)),)), tmp_path)
    for page in opened(browser, (tmp_path / "replay.html").as_uri()):
        assert "+6.0 %" in page.locator(".tuning").first.inner_text()
        assert page.locator("svg.plot .mark").count() == 1
        assert page.locator("svg.plot .line").count() == 0


@pytest.mark.parametrize("width", [390, 1280])
def test_no_table_is_wider_than_its_card(browser: Browser, tmp_path: Path, width: int) -> None:
    long = "fuse_skip_layer_normalization_with_quantized_attention_and_bias"
    why = f"it is slower by more than the noise floor; {long} of {long}"
    rows = (
        replace(trial(long, "better", 12.0), why=why),
        replace(trial("conv", "worse", -40.0), why=why, settings=(f"{long}={long}",)),
    )
    told = part(f"sentence-transformers/{long}", trials=rows, champion=long,
                skipped=(SkipRow(key=long, title="NHWC", why=why, finding="gpu-002"),),
                operators=({"name": f"/{long}/{long}/Gelu", "what": why, "before_us": 5012345.0,
                            "after_us": 20.0, "delta_us": -30.0},))  # fmt: skip
    write(Document(name="night", tunings=(told, part("our/two"))), tmp_path)
    size = {"width": width, "height": 844}
    for page in opened(browser, (tmp_path / "night.html").as_uri(), viewport=size):
        for one in page.locator("summary").all():
            one.click()
        # What the eye needs of a page is that nothing has to be pushed sideways.
        wider = "[document.documentElement, ...document.querySelectorAll('.wide')]"
        wider += ".filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.innerText)"
        assert page.evaluate(wider) == []
        if width == 390:
            assert page.locator(".blocks td").first.evaluate("one => one.dataset.head")
