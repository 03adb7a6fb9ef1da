"""Keeps the result of a trace with what its source has written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from machine.disk import reason
from machine.files import replace_file
from matrix.errors import UsageError
from workers.measure.trace.result import Trace

RESULT = "trace.json"


def prepare(output: Path) -> None:
    """A new folder for results. Raises `UsageError` if there is something in it.

    What an earlier trace has left would look like part of this one.
    """
    try:
        output.mkdir(parents=True, exist_ok=True)
        if any(output.iterdir()):
            raise UsageError(f"{output} is not empty", hint="name a new folder")
    except OSError as error:
        raise UsageError(f"{output} cannot be used: {reason(error)}") from None


def keep(trace: Trace, files: Mapping[str, Path], output: Path | None) -> Trace:
    """The result as it is kept; without a folder to keep it in, without its artifacts.

    `files`: where they are now, by kind.
    """
    if output is None:
        return replace(trace, artifacts={})
    try:
        output.mkdir(parents=True, exist_ok=True)
        for kind, name in trace.artifacts.items():
            shutil.copyfile(files[kind], output / name)
        told = json.dumps(trace.to_json(), indent=1) + "\n"
        replace_file(output / RESULT, told.encode())
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {reason(error)}") from None
    return trace
