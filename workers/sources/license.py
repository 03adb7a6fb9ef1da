"""The licence of a model, as its own files tell it: the Hub's card, the config, a LICENSE file.

It is what the makers of the model say, read where the export finds the files. A cache that lacks
the card tells less, so the licence is part of the build record and not of the manifest.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from matrix.model import SourceKind
from workers.engine import Request, StageError, StageJob, StageReport
from workers.sources import hub
from workers.sources.links import own_file
from workers.sources.temporary import temporary_folder

CONFIG, FILE = "config.json", "LICENSE"
_LONGEST = 1 << 20
"""Bytes of a file that is looked into."""
_SHOWN = 100
_TEXTS = {"Apache License": "apache-2.0", "MIT License": "mit"}
"""The titles of licences whose whole text is a LICENSE file."""


def license_of(request: Request, commit: str | None, scratch: Path) -> dict[str, Any]:
    """`license`: the name of the licence, for the build record; empty where nothing tells it.

    `scratch`: where the stage has downloaded a model to.
    """
    source = request.model["source"]
    kind = SourceKind(source["kind"])
    folder: Path | None = None
    if kind is SourceKind.FOLDER:
        folder = Path(source["ref"])
    elif kind is SourceKind.HUB and commit:
        downloaded = scratch / hub.DOWNLOADED
        folder = downloaded if downloaded.is_dir() else hub.cached(source["ref"], commit)
    found = next(_told(folder), "") if folder else ""
    return {"license": found} if found else {}


def run_step(job: StageJob, step: Callable[[StageJob, Path], Mapping[str, Any]]) -> StageReport:
    """Run a stage that gives its facts, `figures` among them where it has compared something; the
    export tells the licence too."""
    started = time.monotonic()
    with temporary_folder(job.out) as temp:
        facts = dict(step(job, temp))
        exports, commit = job.stage == "export", job.params.get("commit")
        info: dict[str, Any] = license_of(job.request, commit, temp) if exports else {}
    info["seconds"] = round(time.monotonic() - started, 3)
    if figures := facts.pop("figures", None):
        info["compared"] = figures  # their last digits differ between processors
    return StageReport(facts=facts, info=info)


def _told(folder: Path) -> Iterator[str]:
    for card in (_card(folder), _config(folder)):
        # The card calls a licence that the Hub does not know `other`, and names it apart.
        for key in ("license_name", "license"):
            name = card.get(key)
            if isinstance(name, str) and name.isprintable() and name.strip() not in {"", "other"}:
                yield name.strip()[:_SHOWN]
    head = _read(folder, FILE)[:400]
    yield from (name for title, name in _TEXTS.items() if title in head)


def _card(folder: Path) -> Mapping[str, Any]:
    """The data at the head of the Hub's model card."""
    text = _read(folder, hub.CARD)
    if not text.startswith("---"):
        return {}
    import yaml

    try:
        found = yaml.safe_load(text.split("\n---", 1)[0].removeprefix("---"))
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _config(folder: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(_read(folder, CONFIG))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _read(folder: Path, name: str) -> str:
    try:
        file = own_file(folder, name)
        if not file.is_file() or file.stat().st_size > _LONGEST:
            return ""
        return file.read_text("utf-8", errors="replace")
    except (OSError, StageError):
        return ""
