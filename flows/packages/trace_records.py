"""Publishes a trace as a record of a run: a version of its own that names the package by digest.

The package itself never changes. Records are in the package that the template gives for the model
name `traces`; the same trace is published once.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path

from feed.interface import LocalFile
from feed.publisher import Publisher
from flows.cli.settings import Settings
from flows.observe.trace.page import render as page_of
from flows.sweep.workspace import Workspace
from matrix.digest import FileEntry, tree_digest
from matrix.errors import UsageError
from matrix.naming import render
from workers.measure.trace.result import Trace

TRACES = "traces"
RECORD = "record.json"
SCHEMA = 1
_SHOWN = 12
"""Characters of a digest in a version."""


def publish_trace(settings: Settings, package: str, version: str, trace: Trace) -> tuple[str, str]:
    """Publish a trace of a published version; returns the package and version of the record.

    Raises `UsageError` unless the feed holds what was traced.
    """
    feed = Workspace(settings).open_feed()
    found = feed.find(package, version)
    if found is None or found.deleted or found.tree != trace.metadata.tree:
        raise UsageError(
            f"{package} {version} in {feed.name} is not what was traced",
            hint="trace a published version: modelmill trace PACKAGE VERSION --publish",
        )
    files = {
        "trace.json": json.dumps(trace.to_json(), indent=1, sort_keys=True) + "\n",
        "trace.html": page_of(trace),
        RECORD: _record(package, version, trace),
    }
    named = render(settings.package, TRACES, "")
    with tempfile.TemporaryDirectory(prefix="modelmill-trace-") as folder:
        local = [_written(Path(folder), name, text) for name, text in files.items()]
        tree = tree_digest(file.entry for file in local)
        own = f"0.0.0-trace-{(found.tree or '')[:_SHOWN]}-{tree[:_SHOWN]}"
        mark = " (emulated)" if trace.metadata.emulated else ""
        Publisher(feed, tries=settings.tries).publish(
            named,
            own,
            local,
            description_text=f"trace of {package} {version}{mark}",
            tree=tree,
            timeout=settings.publish_timeout,
        )
    return named, own


def _record(package: str, version: str, trace: Trace) -> str:
    about = trace.metadata
    told = {
        "schema": SCHEMA,
        "kind": "trace",
        "of": {"package": package, "version": version, "tree": about.tree},
        "component": about.component,
        "on": {"provider": about.ep, "device": about.device, "emulated": about.emulated},
        "runtime": about.runtime,
        "status": trace.status.value,
    }
    return json.dumps(told, indent=1, sort_keys=True) + "\n"


def _written(folder: Path, name: str, text: str) -> LocalFile:
    data = text.encode()
    path = folder / name
    path.write_bytes(data)
    return LocalFile(FileEntry(name, len(data), hashlib.sha256(data).hexdigest()), path)
