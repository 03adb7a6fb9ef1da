"""Records of runs, published beside the packages that they are about.

A record is a version of its own that names the package by digest; the package itself never
changes. Records of a kind are in one package, which the template gives for the name of the kind in
the plural (`traces`, `champions`); the same record is published once.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from feed.interface import Feed, LocalFile, Published
from feed.publisher import Publisher
from flows.cli.settings import Settings
from matrix.digest import FileEntry, tree_digest
from matrix.naming import render

RECORD = "record.json"
SCHEMA = 1
_SHOWN = 12
"""Characters of a digest in a version."""


def publish_record(
    settings: Settings,
    feed: Feed,
    kind: str,
    subject: Published,
    files: Mapping[str, bytes],
    about: Mapping[str, Any],
    *,
    mark: str = "",
) -> tuple[str, str]:
    """Publish files about a published version; returns package and version of the record.

    `about`: what `record.json` says beside the subject; `mark`: for the description.
    """
    told = {
        "schema": SCHEMA,
        "kind": kind,
        "of": {"package": subject.package, "version": subject.version, "tree": subject.tree},
        **about,
    }
    contents = {**files, RECORD: json_bytes(told)}
    named = render(settings.package, f"{kind}s", "")
    with tempfile.TemporaryDirectory(prefix=f"modelmill-{kind}-") as folder:
        local = [_written(Path(folder, name), data) for name, data in contents.items()]
        tree = tree_digest(file.entry for file in local)
        own = f"0.0.0-{kind}-{(subject.tree or '')[:_SHOWN]}-{tree[:_SHOWN]}"
        Publisher(feed, tries=settings.tries).publish(
            named,
            own,
            local,
            description_text=f"{kind} of {subject.package} {subject.version}{mark}",
            tree=tree,
            timeout=settings.publish_timeout,
        )
    return named, own


def json_bytes(value: object) -> bytes:
    """A JSON file that is the same whenever it is written."""
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


def _written(path: Path, data: bytes) -> LocalFile:
    path.write_bytes(data)
    return LocalFile(FileEntry(path.name, len(data), hashlib.sha256(data).hexdigest()), path)
