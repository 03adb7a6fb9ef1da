"""The whole suite: its options, its limits of time, and what it leaves out."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from machine.reservations import VARIABLE
from tests.machine.timing import patient
from tests.services.installing import NOT_SELECTED

pytest.register_assert_rewrite("tests.states.suites")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--feed",
        action="append",
        default=[],
        metavar="SPEC",
        help="another feed for the conformance suite, as `modelmill --feed` takes it",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with modules that start servers or engines: the short ones fill the end."""
    long = {
        item.path
        for item in items
        if item.get_closest_marker("engine")
        or "prefect_template" in getattr(item, "fixturenames", ())
    }
    items.sort(key=lambda item: item.path not in long)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Let the time limit of a test grow with the load of the machine, which may still rise."""
    marker = item.get_closest_marker("timeout")
    limit = float(marker.args[0] if marker else item.config.getini("timeout"))
    item.add_marker(pytest.mark.timeout(2 * patient(limit)), append=False)
    return (yield)


def pytest_configure(config: pytest.Config) -> None:
    """Tests reserve in a ledger of their own, apart from sweeps that run on the machine."""
    folder = tempfile.mkdtemp(prefix="modelmill-ledger-")
    os.environ[VARIABLE] = folder
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    # A shell that runs the tests in the background (`pytest &`) has every child ignore Ctrl-C.
    # Some are sent it, or send it themselves: Prefect's worker does, when it is told to terminate.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


_left_out = Counter[str]()


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    _left_out.update(
        mark for item in items for mark in NOT_SELECTED if item.get_closest_marker(mark)
    )


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of xdist hands over what it has left out; every one collects everything."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = dict(_left_out)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    if not _left_out:
        _left_out.update(getattr(node, "workeroutput", {}).get("left_out", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tests that were skipped are listed with their reasons (-ra); these were not even selected."""
    for mark, count in sorted(_left_out.items()):
        terminalreporter.write_line(f"not selected: {count} {mark} tests; {NOT_SELECTED[mark]}")
