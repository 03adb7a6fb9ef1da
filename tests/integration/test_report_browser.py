"""The report in a real headless Chromium, opened from disk."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flows.output.quantity import show_duration
from flows.report.page import write
from matrix.status import FailureClass, Status
from state.records import CellRow, Facts, StageRun
from state.state import open_state
from tests.services.chromium import launched, opened
from tests.states.reported import reported
from tests.states.samples import ALIVE, TREE

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

MODELS = 456
TARGETS = ("qnn_npu", "qnn_gpu", "ov_cpu", "ov_npu", "ov_gpu", "mlas_cpu", "dml_gpu", "vitisai_npu")
MOST_ROWS = 60
"""Rows that may exist as elements, of 456; a window of 900 pixels shows about 15."""
RUNGS = [
    {"name": name, "passed": True, "detail": "1 file"} for name in ("integrity", "policy", "loads")
]
RATES = {
    target: "51/60 · 85% loads" if target.endswith("npu") else "60/60 · 100% loads"
    for target in TARGETS
}
BAD = "org/model-007:task-1@ov_npu"


def large_sweep(folder: Path) -> Path:
    """456 models x 8 targets with every kind of end, through the state's own interface."""
    names = [f"org/model-{number:03}:task-{number % 3}" for number in range(MODELS)]
    rows = [
        CellRow(f"{name}@{target}", name, target, "w8a16", "pkg", f"v-{name}-{target}")
        for name in names
        for target in TARGETS
    ]
    models = dict.fromkeys(names, 0.0)
    with open_state(folder / "state.db") as state:
        info = state.begin("20260609", "dir:feed", rows, models, {}, {})
        for name in names[:60]:
            lease = state.lease(info.id, ALIVE, 600.0)
            assert lease is not None
            assert lease.model == name
            for target in TARGETS:
                cell = f"{name}@{target}"
                state.record(lease, info.id, cell, Status.BUILDING)
                if int(name[10:13]) % 7 == 0 and target.endswith("npu"):
                    facts = Facts(
                        failure=FailureClass.QUANTIZE,
                        stage="quantize",
                        message="no scale <script>document.title='owned'</script>",
                        hint="set another precision",
                        log_tail="last words",
                    )
                    state.record(lease, info.id, cell, Status.BUILD_FAILED, facts)
                    continue
                stage = StageRun(cell, target, "optimize", "k" + target, {}, seconds=1.5, bytes=10)
                facts = Facts(
                    tree=TREE,
                    bytes=1000,
                    seconds=2.0,
                    evidence={"rungs": RUNGS},
                )
                state.record(lease, info.id, cell, Status.BUILT, facts, [stage])
                state.record(lease, info.id, cell, Status.PUBLISHED)
            state.release(lease, done=True)
        write(reported(state, info), folder / "report.html")
    return folder / "report.html"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return large_sweep(tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as made:
        yield made


@pytest.fixture
def page(browser: Browser, report: Path) -> Iterator[Page]:
    """The report, opened; whatever the console or the network saw fails the test."""
    yield from opened(browser, report.as_uri())


def shown(page: Page) -> str:
    return page.inner_text("#shown")


def tick(page: Page, name: str, value: str) -> None:
    page.click(f'details.filter[data-name="{name}"] summary')
    page.check(f'[data-filter="{name}"][value="{value}"]')
    page.keyboard.press("Escape")


def test_filters_narrow_and_combine(page: Page) -> None:
    assert shown(page) == f"{MODELS * 8} in {MODELS} models"
    tick(page, "status", "build_failed")
    assert shown(page).startswith("27 of ")
    tick(page, "target", "ov_npu")
    assert shown(page).startswith("9 of ")
    assert page.locator(".ghead > div").all_inner_texts() == [
        "model",
        "ov_npu\n51/60 · 85%",
    ]
    tick(page, "task", "task-1")
    assert shown(page).startswith("3 of ")
    assert page.locator(".grow").count() == 3
    page.click("#clear")
    tick(page, "class", "QUANTIZE")
    assert shown(page).startswith("27 of ")
    page.click("#clear")
    page.fill("#text", "model-007 NPU")
    assert shown(page).startswith("3 of ")
    page.fill("#text", "no such thing")
    assert page.inner_text("#grid .nothing") == "no cell matches"
    assert shown(page).startswith("0 of ")


def test_the_panel_tells_all_of_a_cell(page: Page) -> None:
    page.fill("#text", BAD)
    page.click("#grid .gcell:not(.miss)")
    text = page.inner_text("#panel")
    for part in ("no scale <script>", "Next step: set another precision", "last words", "quantize"):
        assert part in text
    assert "modelmill retry 20260609 --only" in text
    assert page.title() == "sweep 20260609"
    history = page.inner_text("#panel section:has(h3:text-is('History and attempts'))")
    assert "QUANTIZE in quantize: no scale" in history
    page.keyboard.press("Escape")
    assert page.is_hidden("#panel")
    page.fill("#text", "model-001 ov_cpu")
    page.click("#grid .gcell:not(.miss)")
    text = page.inner_text("#panel")
    for part in ("optimize", "1.5s", "passed", TREE, "published", "feed pull"):
        assert part in text
    assert "optimize key\nkov_cpu" in text
    page.click("#panel details summary")
    assert page.is_visible("#panel details[open]")


def test_a_link_leads_to_a_cell_far_down_and_to_a_selection(browser: Browser, report: Path) -> None:
    far = "org/model-455:task-2@mlas_cpu"
    for page in opened(browser, f"{report.as_uri()}#cell={far}&target=mlas_cpu"):
        assert page.inner_text("#p-title") == far
        assert page.locator(".gcell.open").get_attribute("title").startswith(far)  # type: ignore[union-attr]
        assert page.is_checked('[data-filter="target"][value="mlas_cpu"]')
        page.evaluate(f"location.hash = 'cell={BAD}'")
        page.locator("#p-title", has_text=BAD).wait_for()
        page.click("#close")
        assert "cell=" not in page.evaluate("location.hash")
        page.fill("#text", "model-001")
        assert "q=model-001" in page.evaluate("location.hash")
    for page in opened(browser, f"{report.as_uri()}#cell=no/such:cell@x&status=rubbish"):
        assert page.is_hidden("#panel")
        assert shown(page).startswith("0 of ")


def test_everything_works_from_the_keyboard(page: Page) -> None:
    page.keyboard.press("/")
    page.keyboard.type("task-1")
    assert "of 3648 match" in shown(page)
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.ariaLabel").startswith("qnn_npu: ")
    page.keyboard.press("/")
    page.keyboard.press("Escape")
    page.focus('#grid [tabindex="0"]')
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    here = "[document.activeElement.dataset.r, document.activeElement.dataset.c].join()"
    assert page.evaluate(here) == "2,1"
    page.keyboard.press("Control+End")
    assert page.evaluate(here) == "455,7"
    page.keyboard.press("Home")
    assert page.evaluate(here) == "455,0"
    page.keyboard.press("Enter")
    assert page.inner_text("#p-title") == "org/model-455:task-2@qnn_npu"
    page.keyboard.press("Escape")
    assert page.evaluate(here) == "455,0"
    page.keyboard.press("Control+Home")
    page.keyboard.press("PageDown")
    assert int(str(page.evaluate("document.activeElement.dataset.r"))) > 3
    page.keyboard.press("n")
    first = page.inner_text("#p-title")
    page.keyboard.press("n")
    assert page.inner_text("#p-title") != first
    page.keyboard.press("p")
    assert page.inner_text("#p-title") == first


def test_one_element_of_the_grid_takes_the_tab_key(page: Page) -> None:
    assert page.locator('#grid .gcell[tabindex="0"]').count() == 1
    page.evaluate("document.getElementById('grid').scrollTop = 10600")
    page.locator('.grow[aria-rowindex="206"]').wait_for(state="attached")
    assert page.locator('#grid .gcell[tabindex="0"]').count() == 1


def test_the_work_for_a_large_sweep_is_bounded_by_the_window(page: Page) -> None:
    """Not by the clock: by the elements that exist, and those that a scroll or filter makes."""
    rows = "document.querySelectorAll('.grow').length"
    page.evaluate(
        """() => { window.made = 0; new MutationObserver((list) => {
          for (const one of list) window.made += one.addedNodes.length;
        }).observe(document.querySelector('.gbody'), { childList: true }); }"""
    )
    for top in (0, 3000, 12000, 20000, 100):
        page.evaluate(f"document.getElementById('grid').scrollTop = {top}")
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
        assert 0 < int(page.evaluate(rows)) <= MOST_ROWS
    page.evaluate("window.made = 0")
    page.fill("#text", "task-1")
    page.evaluate("() => new Promise((done) => setTimeout(done))")
    assert 0 < int(page.evaluate("window.made")) <= MOST_ROWS
    assert int(page.evaluate("document.querySelectorAll('*').length")) < 2500
    assert page.locator("canvas").count() == 1


def test_the_rest_of_the_page(page: Page) -> None:
    assert page.inner_text("#title") == "Sweep 20260609"
    assert "running or interrupted" in page.inner_text("#verdict")
    assert "453 published" in re.sub(r"\s+", " ", page.inner_text("#share"))
    page.click("#causes button")
    assert shown(page).startswith("27 of ")
    assert page.evaluate("location.hash") == "#cause=0"
    page.click("#slowest button >> nth=0")
    assert page.is_visible("#panel")
    page.keyboard.press("Escape")
    page.click("#largest button >> nth=0")
    assert page.is_visible("#panel")
    assert page.locator("#workers td").first.inner_text() == ALIVE.name


def test_causes_and_rates_are_on_the_first_screen(page: Page) -> None:
    (line,) = page.locator("#causes tbody tr").all_inner_texts()
    for part in ("QUANTIZE", "27 cells", "9 models", "no scale <script>", "set another precision"):
        assert part in line
    bottom = "document.querySelector('#causes').getBoundingClientRect().bottom"
    assert float(page.evaluate(bottom)) < float(page.evaluate("innerHeight"))
    rates = page.locator("#rates tbody tr").all_inner_texts()
    assert [one.split("\t") for one in rates] == [
        ["all", "453/480 · 94% loads", *(RATES[target] for target in TARGETS)]
    ]
    assert page.locator(".gcell.tone-good small").first.inner_text() == "loads"


def test_on_paper_all_rows_are_drawn_as_wide_as_the_page(page: Page) -> None:
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.locator(".grow").count() == MODELS
    wide = "document.documentElement.scrollWidth <= innerWidth"
    assert page.evaluate(wide)
    assert page.is_hidden("#text")
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator(".grow").count() <= MOST_ROWS


def test_ids_and_commands_can_be_copied(page: Page) -> None:
    page.fill("#text", BAD)
    page.click("#grid .gcell:not(.miss)")
    labels = [one.get_attribute("aria-label") or "" for one in page.locator("#panel .copy").all()]
    assert f"copy {BAD}" in labels
    assert f"copy modelmill retry 20260609 --only '{BAD}'" in labels
    page.locator("#panel .copy").first.click()
    from playwright.sync_api import expect

    expect(page.locator("#panel .copy").first).not_to_have_text("copy")


def test_the_time_line_tells_what_a_bar_is_and_leads_to_its_cell(page: Page) -> None:
    page.locator("#timeline").scroll_into_view_if_needed()
    x, y = 133, 34  # where the first build of the first worker begins
    page.hover("#timeline", position={"x": x, "y": y})
    cell, told, _took = page.inner_text("#tip").partition(": building ")
    assert told
    assert cell.startswith("org/model-000:task-0@")
    page.click("#timeline", position={"x": x, "y": y})
    assert page.inner_text("#p-title") == cell


@pytest.mark.parametrize("width", [390, 800, 1180, 1900])
def test_nothing_sticks_out_at_any_width(browser: Browser, report: Path, width: int) -> None:
    size = {"width": width, "height": 844}
    wide = "[document.documentElement.scrollWidth, document.getElementById('panel').scrollWidth]"
    for page in opened(browser, f"{report.as_uri()}#cell={BAD}", viewport=size):
        assert page.evaluate(wide) == [width, page.evaluate("panel.clientWidth")]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_follow_the_system_and_the_button(
    browser: Browser, report: Path, scheme: str
) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    for page in opened(browser, report.as_uri(), color_scheme=scheme):
        before = str(page.evaluate(ground))
        light = sum(map(int, re.findall(r"\d+", before)[:3])) > 380
        assert light == (scheme == "light")
        page.click("#theme")
        assert page.evaluate(ground) != before


def test_nothing_foreign_runs_in_the_page(browser: Browser, report: Path) -> None:
    page = browser.new_page()
    page.goto(report.as_uri())
    page.wait_for_selector("html[data-ready]")
    page.evaluate(
        """() => { const one = document.createElement('script');
          one.textContent = 'window.owned = true'; document.body.append(one); }"""
    )
    assert page.evaluate("window.owned === undefined")
    page.close()


def test_durations_read_as_they_do_on_a_terminal(page: Page) -> None:
    source = (files("flows.report") / "assets" / "model.js").read_text("utf-8")
    function = re.search(r"^function duration\(.*?^}", source, re.MULTILINE | re.DOTALL)
    assert function is not None
    times = [0, 0.04, 1.26, 9.94, 12.4, 89.6, 157.6, 3600, 5400, 86399, 50 * 3600, 30 * 86400]
    shown = page.evaluate(f"(times) => {{ {function[0]}; return times.map(duration); }}", times)
    assert shown == [show_duration(one) for one in times]


def compiled_sweep(folder: Path) -> Path:
    """A portable cell, one that is compiled from it on an emulator, and one that is not checked."""
    names = {"qnn_npu": TREE, "qnn_npu+htp73": TREE[::-1], "ov_cpu+ov_cpu": TREE}
    rows = [
        CellRow(f"a/m:t@{target}", "a/m:t", target, "w8a16", "pkg", f"v-{target}")
        for target in names
    ]
    sides = {"portable": {"seconds": 2.0, "memory": 3_000_000},
             "compiled": {"seconds": 0.1, "memory": 1_000_000}}  # fmt: skip
    runtime = {"name": "QNNExecutionProvider npu (emulated)", "own": True, "ran": True,
               "emulated": True}  # fmt: skip
    measured = {"rungs": RUNGS, "opening": {"model.onnx": sides}, "runtimes": [runtime]}
    with open_state(folder / "state.db") as state:
        info = state.begin("20260609", "dir:feed", rows, {"a/m:t": 0.0}, {}, {})
        lease = state.lease(info.id, ALIVE, 600.0)
        assert lease is not None
        for target, tree in names.items():
            evidence = measured if target.endswith("htp73") else {"rungs": RUNGS}
            facts = Facts(tree=tree, bytes=1000, seconds=1.0, evidence=evidence)
            for status in (Status.BUILDING, Status.BUILT, Status.PUBLISHED):
                state.record(
                    lease, info.id, f"a/m:t@{target}", status,
                    facts if status is Status.BUILT else Facts(),
                )  # fmt: skip
        state.release(lease, done=True)
        write(reported(state, info), folder / "report.html")
    return folder / "report.html"


def test_compiled_cells_stand_beside_their_portable_ones_and_an_emulator_is_named(
    browser: Browser, tmp_path: Path
) -> None:
    for page in opened(browser, compiled_sweep(tmp_path).as_uri()):
        head, *lines = page.locator("#compiled tr").all_inner_texts()
        assert "opens in" in head
        assert {line.split()[0] for line in lines} == {
            "a/m:t@qnn_npu+htp73", "a/m:t@ov_cpu+ov_cpu",
        }  # fmt: skip
        told = {line.split()[0].rpartition("+")[2]: line for line in lines}
        assert "20 times faster (emulated)" in told["htp73"]
        assert "not measured" in told["ov_cpu"]
        assert "they say nothing about the device" in page.inner_text("#compiled")
