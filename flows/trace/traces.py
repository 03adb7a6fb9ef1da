"""Traces as they are kept: in folders, as pages, as records published beside what was traced."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

from flows.output.masking import masked_json
from flows.output.webpage import replace_text, webpage
from flows.packages.run_records import json_bytes, publish_record
from flows.settings.settings import Settings
from flows.settings.workspace import Workspace
from flows.trace.difference import difference
from machine.files import replace_file
from machine.user_errors import user_errors
from matrix.codec import parse_json
from matrix.errors import UsageError
from workers.measure.trace.result import Trace

RESULT, PAGE = "trace.json", "trace.html"
MOST_BYTES = 512 * 2**20
MOST_SAMPLES = 12
"""Of an operator; the JSON of the trace has all."""


def prepare(output: Path) -> None:
    """A new folder for results. Raises `UsageError` if there is something in it.

    What an earlier trace has left would look like part of this one.
    """
    with user_errors(f"{output} cannot be used"):
        output.mkdir(parents=True, exist_ok=True)
        if any(output.iterdir()):
            raise UsageError(f"{output} is not empty", hint="name a new folder")


def keep(trace: Trace, files: Mapping[str, Path], output: Path | None) -> Trace:
    """The result as it is kept; without a folder to keep it in, without its artifacts.

    `files`: where they are now, by kind.
    """
    if output is None:
        return replace(trace, artifacts={})
    with user_errors(f"{output} cannot be written"):
        output.mkdir(parents=True, exist_ok=True)
        for kind, name in trace.artifacts.items():
            shutil.copyfile(files[kind], output / name)
        replace_file(output / RESULT, json_bytes(trace.to_json()))
    return trace


def kept_trace(place: Path) -> Trace | None:
    """The trace in a file or folder; None: no trace is kept there. Raises `UsageError` for a
    damaged one."""
    file = place / RESULT if place.is_dir() else place
    if file.suffix != ".json" or not file.is_file():
        return None
    with user_errors(f"{file} cannot be read"):
        if file.stat().st_size > MOST_BYTES:
            raise UsageError(f"{file} is too large for a trace")
        data = file.read_bytes()
    try:
        return Trace.from_json(parse_json(data))
    except (ValueError, TypeError, RecursionError) as error:
        why = " ".join(str(error).split())[:200]
        raise UsageError(f"{file} is not a trace: {why}") from None


def publish_trace(settings: Settings, package: str, version: str, trace: Trace) -> tuple[str, str]:
    """Publish a trace of a published version; returns the package and version of the record.

    Raises `UsageError` unless the feed holds what was traced.
    """
    feed, about = Workspace(settings).open_feed(), trace.metadata
    found = feed.find(package, version)
    if found is None or found.deleted or found.tree != about.tree:
        hint = "trace a published version: modelmill trace PACKAGE VERSION --publish"
        raise UsageError(f"{package} {version} in {feed.name} is not what was traced", hint=hint)
    told = {
        "component": about.component,
        "on": {"provider": about.ep, "device": about.device, "emulated": about.emulated},
        "runtime": about.runtime,
        "status": trace.status.value,
    }
    files = {RESULT: json_bytes(trace.to_json()), PAGE: render(trace).encode()}
    mark = " (emulated)" if about.emulated else ""
    return publish_record(settings, feed, "trace", found, files, told, mark=mark)


def render(trace: Trace, against: Trace | None = None) -> str:
    """A trace as one page, alone or against another one. Everything that comes from a model is text
    to it, never markup."""
    told, about = trace.to_json(), trace.metadata
    for one in told["operators"]:
        one["samples_us"] = one.get("samples_us", [])[: MOST_SAMPLES + 1]
    compared = asdict(difference(before=against, after=trace)) if against is not None else None
    mark = " (emulated)" if about.emulated else ""
    return webpage(
        "trace",
        ("trace",),
        masked_json({"trace": told, "difference": compared}),
        plain=True,
        title=f"trace of {about.model or 'a model'}{mark}",
        plainly=f"{len(trace.operators)} operators on {about.ep} {about.device}{mark}: "
        f"{trace.status.value}",
    )


def write(trace: Trace, dest: Path, against: Trace | None = None) -> None:
    """Write the page."""
    replace_text(dest, render(trace, against), hint="choose another file")
