"""Options of the whole suite."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator

import pytest

from machine.entries import VARIABLE
from tests.machine.timing import patient


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--feed",
        action="append",
        default=[],
        metavar="SPEC",
        help="another feed for the conformance suite, as `modelmill --feed` takes it",
    )


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
