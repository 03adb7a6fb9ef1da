"""What a model's config.json says, where it is on this machine; nothing is downloaded."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from machine.files import read_json
from matrix.model import Model, Source, SourceKind

CONFIG = "config.json"
LARGEST = 4 * 1024**2
"""More than any configuration has; a larger file is something else."""
_COMMIT = re.compile(r"[0-9a-f]{40}")


def config_of(model: Model) -> Mapping[str, Any] | None:
    """The configuration in a model's folder or in the Hub's cache; None if there is none."""
    source = model.source
    if source.kind is SourceKind.FOLDER:
        return _read(Path(source.ref) / CONFIG)
    if source.kind is SourceKind.HUB and (folder := snapshot(source)):
        return _read(folder / CONFIG)
    return None


def hub_cache() -> Path:
    """The download cache of Hugging Face's libraries."""
    if given := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(given).expanduser()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = os.environ.get("HF_HOME")
    return (Path(home).expanduser() if home else cache / "huggingface") / "hub"


def snapshot(source: Source) -> Path | None:
    """Where the download cache has a model of the Hub."""
    place = hub_cache() / f"models--{source.ref.replace('/', '--')}"
    revision = source.revision or "main"
    if _COMMIT.fullmatch(revision):
        return place / "snapshots" / revision
    if ".." in PurePosixPath(revision).parts or revision.startswith(("/", "\\")):
        return None
    try:
        commit = (place / "refs" / revision).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    return place / "snapshots" / commit if _COMMIT.fullmatch(commit) else None


def _read(file: Path) -> Mapping[str, Any] | None:
    try:
        found = read_json(file, LARGEST)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
