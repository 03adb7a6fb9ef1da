"""Records of runs, published beside the packages that they are about.

A record is a version of its own that names the package by digest; the package itself never
changes. Records of a kind are in one package, which the template gives for the name of the kind in
the plural (`traces`, `champions`); the same record is published once. Like a package it says in a
statement what it is, and the statement is signed if a key is set.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from feed.interface import Feed, LocalFile, Published
from feed.publisher import Publisher
from flows.packages.signing import signer_of
from flows.settings.settings import Settings
from machine.files import temporary_folder
from matrix.digest import PROVENANCE, SIGNATURE, FileEntry, tree_digest
from matrix.naming import render
from workers.attest.provenance import record_statement
from workers.engine import version

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
    of = {"package": subject.package, "version": subject.version, "tree": subject.tree}
    told = {"schema": SCHEMA, "kind": kind, "of": of, **about}
    contents = {**files, RECORD: json_bytes(told)}
    named = render(settings.package, f"{kind}s", "")
    with temporary_folder(f"modelmill-{kind}-") as folder:
        local = write_files(folder, contents)
        tree = tree_digest(file.entry for file in local)
        own = f"0.0.0-{kind}-{(subject.tree or '')[:_SHOWN]}-{tree[:_SHOWN]}"
        local += statement_files(settings, kind, named, own, local, folder, [of])
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


def statement_files(
    settings: Settings,
    kind: str,
    package: str,
    own: str,
    files: Iterable[LocalFile],
    folder: Path,
    of: Iterable[Mapping[str, Any]] = (),
) -> list[LocalFile]:
    """The statement about a version without a model, written into a folder, and its signature.

    `own`: the version; `of`: the packages that it is about.
    """
    stated = record_statement(
        kind,
        package,
        own,
        [file.entry for file in files],
        of=of,
        builder=settings.builder_id or "",
        host=platform.node(),
        modelmill=version("modelmill"),
        finished=datetime.now(UTC),
    )
    contents, sign = {PROVENANCE: json_bytes(stated)}, signer_of(settings)
    if sign is not None:
        contents[SIGNATURE] = sign(contents[PROVENANCE])
    return write_files(folder, contents)


def write_files(folder: Path, contents: Mapping[str, bytes]) -> list[LocalFile]:
    """Files of a version that is to be published."""
    written = []
    for name, data in contents.items():
        (folder / name).write_bytes(data)
        entry = FileEntry(name, len(data), hashlib.sha256(data).hexdigest())
        written.append(LocalFile(entry, folder / name))
    return written
