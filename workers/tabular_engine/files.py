"""Finds the file of a model and its source; refuses pickles."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path, PurePosixPath

from matrix.digest import value_digest
from matrix.entry import PICKLES, SAVED_SAFELY
from matrix.model import SourceKind
from workers.engine import Request, StageJob
from workers.sources import hub, source
from workers.sources.errors import export_error, failing, unsupported
from workers.sources.source import Resolved, offline
from workers.sources.weights import matching

SKOPS = ".skops"
XGBOOST = (".json", ".ubj")
WANTED = (f"*{SKOPS}", "model.json", "*.ubj")
"""Files that can be a model; other JSON files are so only if the catalog names them."""


def resolve(request: Request) -> Resolved:
    """Identify the source of a request. Raises `StageError`."""
    given = request.model["source"]
    kind = SourceKind(given["kind"])
    if kind is SourceKind.RANDOM:
        raise unsupported("the tabular engine does not build random models", "name a trained model")
    if given.get("file"):
        check_suffix(given["file"])
    if kind is SourceKind.HUB:
        return source.resolve(request)
    folder = Path(given["ref"])
    name = given.get("file") or only(folder, str(folder))
    found = source.entry(folder, name)
    facts = {"file": name, "files": [asdict(found)]}
    return Resolved(kind, value_digest(facts), facts, size=found.size)


def fetch(job: StageJob, scratch: Path) -> Path:
    """The file of the model that a job is about."""
    given = job.request.model["source"]
    named = job.params.get("file")
    if SourceKind(given["kind"]) is SourceKind.FOLDER:
        if resolve(job.request).digest != job.params["source"]:
            raise export_error(
                f"{given['ref']}: {named} changed since it was planned",
                "run the sweep again when nothing writes there",
            )
        return Path(given["ref"]) / str(named)
    ref, commit = given["ref"], job.params["commit"]
    wanted = [hub.literal(named)] if named else list(WANTED)
    folder = hub.files(ref, commit, wanted, scratch, offline=offline(job.request))
    file = folder / (named or only(folder, ref))
    if not file.is_file():
        raise export_error(f"{ref} has no file {named}", "correct the path in the catalog")
    return file


def only(folder: Path, where: str) -> str:
    """The name of the one model file at the top of a folder."""
    hint = "correct its path in the catalog"
    with failing(export_error, f"{where} cannot be read", hint, OSError):
        names = sorted(item.name for item in folder.iterdir() if item.is_file())
    found = matching(names, WANTED)
    if len(found) == 1:
        return found[0]
    if found:
        text = f"{where} has {len(found)} models: {', '.join(found)}"
        raise export_error(text, "name one in the catalog, e.g. file = " + repr(found[0]))
    if pickles := _pickles(names):
        raise _refused(f"{where}: {pickles[0]}")
    text = f"{where} has none of {', '.join(WANTED)}; pickles are never loaded"
    raise export_error(text, SAVED_SAFELY)


def check_suffix(name: str) -> None:
    """Raise `StageError` for a file that this engine does not read."""
    if _pickles([name]):
        raise _refused(name)
    if PurePosixPath(name.lower()).suffix not in {SKOPS, *XGBOOST}:
        text = f"the tabular engine reads {SKOPS}, {' and '.join(XGBOOST)} files, not {name}"
        raise unsupported(text, SAVED_SAFELY)


def _pickles(names: Iterable[str]) -> list[str]:
    return [name for name in names if name.lower().endswith(PICKLES)]


def _refused(what: str) -> Exception:
    text = f"{what} is a pickle, which can run code when it is loaded, and is never loaded here"
    return unsupported(text, SAVED_SAFELY)
