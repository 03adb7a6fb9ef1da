"""Options of the whole suite."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--feed",
        action="append",
        default=[],
        metavar="SPEC",
        help="another feed for the conformance suite, as `modelmill --feed` takes it",
    )
