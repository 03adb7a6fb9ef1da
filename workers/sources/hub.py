"""Models on the Hugging Face hub: a revision becomes a commit, a commit becomes a folder."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from workers.engine import StageError
from workers.sources import ready_files as ready
from workers.sources.errors import auth_error, export_error, network_error, one_line
from workers.sources.links import refuse_foreign
from workers.sources.weights import SIDE_FILES, check_complete, matching, patterns

_COMMIT = re.compile(r"[0-9a-f]{40}")
_KEEP_SECONDS = 900
"""Long enough for all cells of a model to see the same commit of a moving branch."""

_TIMEOUT = 10.0
"""Seconds within which the hub must answer."""
_PAUSE = 300.0
"""Seconds for which the hub is not asked again after it could not be reached."""
FOUND_OUT = "another model found out"
DOWNLOADED = "source"
"""The folder of a stage's temporary one that holds what was downloaded."""
CARD = "README.md"
"""Says who made a model and under which licence."""

_out_of_reach = [0.0]
"""Until when the cache is used in place of the hub, where it has the model."""
_resolved: dict[tuple[str, str], tuple[float, str]] = {}


def commit_of(ref: str, revision: str | None, *, offline: bool = False) -> str:
    """The commit that a revision (default: main) names now.

    From the local cache if the hub cannot be reached; `offline`: without asking the hub.
    """
    asked = revision or "main"
    if _COMMIT.fullmatch(asked):
        return asked
    known = _resolved.get((ref, asked))
    if known and (offline or time.monotonic() - known[0] < _KEEP_SECONDS):
        return known[1]
    commit = _ask(ref, asked, offline=offline)
    _resolved[ref, asked] = (time.monotonic(), commit)
    return commit


def snapshot(
    ref: str, commit: str, scratch: Path, *, pickle: bool, remote_code: bool, offline: bool = False
) -> Path:
    """A folder with the files of a commit: the user's cache if it is complete, else a download.

    The download goes to the stage's temporary folder: a cache that is not ours never grows.
    """
    if cached := _cached(ref, commit, lambda folder: check_complete(folder, ref, pickle=pickle)):
        return cached
    wanted = patterns(pickle=pickle, remote_code=remote_code)
    return _fetch(ref, commit, scratch / DOWNLOADED, list(wanted), offline=offline)


def ready_file(ref: str, commit: str, file: str, scratch: Path, *, offline: bool = False) -> Path:
    """A folder with a ready ONNX file of a commit, its weights, and the small files at the top.

    As with `snapshot`, the user's cache is read but never changed.
    """
    if cached := _cached(ref, commit, lambda folder: ready.parts_of(folder, file)):
        return cached
    wanted = [literal(file), *SIDE_FILES]
    target = _fetch(ref, commit, scratch / DOWNLOADED, wanted, offline=offline)
    if not (target / file).is_file():
        raise export_error(f"{ref} has no file {file}", "correct the path in the catalog")
    place = PurePosixPath(file).parent
    outside = [(place / name).as_posix() for name in ready.external_of(target / file)]
    if outside:
        _fetch(ref, commit, target, [literal(name) for name in outside], offline=offline)
    return target


def files(
    ref: str, commit: str, wanted: Sequence[str], scratch: Path, *, offline: bool = False
) -> Path:
    """A folder with the files of a commit that match these patterns, if there are any.

    As with `snapshot`, the user's cache is read but never changed.
    """
    cached = _cached(ref, commit, Path.iterdir)
    if cached and matching((item.name for item in cached.iterdir()), wanted):
        return cached
    target = _fetch(ref, commit, scratch / DOWNLOADED, [*wanted, *SIDE_FILES], offline=offline)
    target.mkdir(parents=True, exist_ok=True)  # nothing may match
    return target


def _cached(ref: str, commit: str, check: Callable[[Path], object]) -> Path | None:
    """The folder of a commit in the user's cache; None: it is missing, or `check` raises for it."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    with contextlib.suppress(LocalEntryNotFoundError, StageError):
        cached = Path(snapshot_download(ref, revision=commit, local_files_only=True))
        refuse_foreign(cached)
        check(cached)
        return cached
    return None


def cached(ref: str, commit: str) -> Path | None:
    """The folder of a commit in the user's cache, whatever it has of it."""
    return _cached(ref, commit, Path.iterdir)


def literal(name: str) -> str:
    """A pattern that matches only this name."""
    return re.sub(r"([\[*?])", r"[\1]", name)


def _fetch(ref: str, commit: str, target: Path, wanted: list[str], *, offline: bool) -> Path:
    """Download the files that match; `offline`: another model found out that this would fail."""
    from huggingface_hub import snapshot_download

    if offline:
        raise _unreachable(FOUND_OUT)
    try:
        patterns = [*wanted, CARD]
        snapshot_download(ref, revision=commit, allow_patterns=patterns, local_dir=target)
    except _errors() as error:
        raise _typed(ref, commit, error) from error
    refuse_foreign(target)
    return target


def _ask(ref: str, revision: str, *, offline: bool) -> str:
    """Ask the hub, or the cache if the hub cannot be reached.

    After a failure the cache is used for a while: otherwise each of many models would wait for the
    same time limit.
    """
    from huggingface_hub import HfApi

    cached = _cached_commit(ref, revision)
    if cached and (offline or time.monotonic() < _out_of_reach[0]):
        return cached
    if offline:
        raise _unreachable(FOUND_OUT)
    try:
        sha = HfApi().model_info(ref, revision=revision, timeout=_TIMEOUT).sha
    except _errors() as error:
        typed = _typed(ref, revision, error)
        if typed.retryable and cached:
            _out_of_reach[0] = time.monotonic() + _PAUSE
            return cached
        raise typed from error
    if not sha:
        raise export_error(f"{ref}@{revision}: the hub names no commit")
    return str(sha)


def _cached_commit(ref: str, revision: str) -> str | None:
    from huggingface_hub.constants import HF_HUB_CACHE

    file = Path(HF_HUB_CACHE) / f"models--{ref.replace('/', '--')}" / "refs" / revision
    try:
        commit = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return commit if _COMMIT.fullmatch(commit) else None


def _errors() -> tuple[type[Exception], ...]:
    from huggingface_hub.errors import HFValidationError

    # The hub's client lets errors of requests, which are OSErrors, or of httpx through, depending
    # on its version.
    try:
        from httpx import HTTPError
    except ImportError:
        return OSError, HFValidationError
    return OSError, HFValidationError, HTTPError


def _typed(ref: str, revision: str, error: Exception) -> StageError:
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    if isinstance(error, HFValidationError):
        return export_error(f"'{ref}' is not a Hugging Face model id", "it looks like OWNER/NAME")
    if isinstance(error, RevisionNotFoundError):
        return export_error(f"{ref} has no revision '{revision}'", "check it on the hub")
    login = "accept its terms on the hub, then `hf auth login` or set HF_TOKEN"
    if isinstance(error, GatedRepoError):
        return auth_error(f"{ref} is gated and this user has no access", login)
    if isinstance(error, RepositoryNotFoundError):
        return auth_error(f"{ref} does not exist on the hub or is private", login)
    if status in {401, 403}:
        return auth_error(f"the hub refuses access to {ref} (HTTP {status})", login)
    return _unreachable(f"HTTP {status}" if status else _cause(error))


def _unreachable(why: str) -> StageError:
    """Without the model's name, so that the failures of all models group as one."""
    return network_error(
        f"the Hugging Face hub cannot be reached: {why}", "check the network or use a local folder"
    )


def _cause(error: BaseException) -> str:
    """The system's message at the bottom of a chain of errors; clients wrap it many times."""
    chain: list[BaseException] = []
    below: BaseException | None = error
    while below is not None and below not in chain:
        chain.append(below)
        reason = getattr(below.args[0], "reason", None) if below.args else None
        below = below.__cause__ or (reason if isinstance(reason, BaseException) else None)
        below = below or chain[-1].__context__
    said = [one.strerror for one in chain if isinstance(one, OSError) and one.strerror]
    if said:
        return str(said[-1])
    if any("timeout" in type(one).__name__.lower() for one in chain):
        return "it does not answer in time"
    return one_line(error, 120)
