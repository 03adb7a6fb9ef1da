"""Digests identify files, trees and settings by their content; always the full SHA-256.

Also the names of the records in a package, and the constants of provenance and SBOM: a statement is
an in-toto attestation v1 with a SLSA provenance v1 predicate, a signature wraps its bytes,
unchanged, in a DSSE envelope, which other tools can verify.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

SHA256 = re.compile(r"[0-9a-f]{64}")

MANIFEST = "modelmill.json"

BUILD_RECORD = "build.json"
SBOM = "sbom.cdx.json"
PROVENANCE = "provenance.json"
SIGNATURE = "provenance.intoto.jsonl"

RUN_RECORDS = frozenset({BUILD_RECORD, SBOM, PROVENANCE, SIGNATURE})
"""The documents of a package that may differ from run to run: they record how, where and when its
content was made, so the tree digest leaves them out. Older packages lack some of them."""
STATEMENT = frozenset({PROVENANCE, SIGNATURE})
"""The only files that the statement about a package does not name: itself and its signature."""
SAMPLES = "samples"
"""The folder of a package with the samples that it is judged on: `NN.npz`, for a composite below
the names of components. Beside each lies what the reference computes from it, `NN.out.npz` (and
`NN.end.npz`, from what the components before give it)."""
OUTPUTS, ENDS = ".out.npz", ".end.npz"


def is_reference(path: str) -> bool:
    """Whether a file of a package holds outputs of the reference."""
    return path.startswith(f"{SAMPLES}/") and path.endswith((OUTPUTS, ENDS))


def is_run_record(path: str) -> bool:
    """Whether a file of a package may differ from run to run: processors differ in the last bits of
    what the reference computes, so its outputs are none of the content."""
    return path in RUN_RECORDS or is_reference(path)


@dataclass(frozen=True, slots=True, order=True)
class FileEntry:
    """A file by its relative POSIX path, its size and the SHA-256 of its bytes (hex)."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file on the disk, with its entry in a package or among the outputs of a stage."""

    entry: FileEntry
    source: Path


def tree_digest(files: Iterable[FileEntry]) -> str:
    """The identity of a package's content: the same whenever and wherever it was built."""
    return files_digest(file for file in files if not is_run_record(file.path))


def files_digest(files: Iterable[FileEntry]) -> str:
    """The identity of any files (a source, a stage's outputs), whatever they are called."""
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda entry: entry.path.encode()):
        digest.update(f"{file.sha256} {file.size} {file.path}\n".encode())
    return digest.hexdigest()


def value_digest(value: Any) -> str:
    """The SHA-256 of a JSON value in its one encoding, the same on every machine."""
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return hashlib.sha256(text.encode()).hexdigest()


STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
STAGE_TYPE = "application/vnd.modelmill.stage+json"
"""What is signed of a stage result that machines share."""

BUILD_TYPE = "urn:modelmill:package:v1"
"""How a package follows from `externalParameters`: the stages of its manifest, in their order."""

RECORD_TYPE = "urn:modelmill:record:v1"
"""Of versions without a model: the index of a sweep, a trace, a champion."""

TREE_DIGEST = "modelmillTree"
"""The name of tree digests in a digest set; a tree digest covers a list of files, not one file."""

BOM_FORMAT = "CycloneDX"
BOM_VERSION = "1.6"


def package_uri(package: str, version: str) -> str:
    """A version in a feed as a package URL."""
    return f"pkg:generic/{quote(package, safe='')}@{quote(version, safe='')}"


ENGINE_CODE = "engine."
"""How the digests of an engine's code begin among the tools of a manifest."""


def tool_uris(tools: Mapping[str, object]) -> dict[str, str]:
    """The distributions among the tools of a manifest, in the order of their names."""
    names = sorted(one for one in tools if one != "engine" and not one.startswith(ENGINE_CODE))
    return {name: tool_uri(name, str(tools[name])) for name in names}


def tool_uri(name: str, version: str) -> str:
    """A Python distribution as a package URL."""
    return f"pkg:pypi/{quote(name.lower().replace('_', '-'))}@{quote(version, safe='')}"
