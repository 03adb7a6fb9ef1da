"""Reads traces that were kept: `trace.json`, or the folder that holds it."""

from __future__ import annotations

import json
from pathlib import Path

from flows.packages.kept_traces import RESULT
from machine.disk import reason
from matrix.errors import UsageError
from workers.measure.trace.result import Trace

MOST_BYTES = 512 * 2**20


def kept_trace(place: Path) -> Trace | None:
    """The trace at a place; None: no trace is kept there. Raises `UsageError` for a damaged one."""
    file = place / RESULT if place.is_dir() else place
    if file.suffix != ".json" or not file.is_file():
        return None
    try:
        if file.stat().st_size > MOST_BYTES:
            raise UsageError(f"{file} is too large for a trace")
        return Trace.from_json(json.loads(file.read_text("utf-8")))
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {reason(error)}") from None
    except (ValueError, TypeError, RecursionError) as error:
        why = " ".join(str(error).split())[:200]
        raise UsageError(f"{file} is not a trace: {why}") from None
