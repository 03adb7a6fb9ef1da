"""Opens a builder as the settings say: an engine host, the runtimes beside it, the store, and the
cache of stage results."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from flows.output.activity import waiting_for
from flows.output.console import tell
from flows.packages.published import fetch_portable
from flows.packages.signing import signature_check, signer_of
from flows.settings.engines import engine_spec, runtimes_of, slot_count
from flows.settings.settings import Settings
from flows.settings.workspace import Workspace
from machine.waits import Told
from matrix.digest import STAGE_TYPE
from matrix.errors import UsageError
from matrix.model import Plan
from workers.attest.attester import Attester
from workers.build.budgets import DiskBudget, MemoryBudget
from workers.build.builder import Builder, BuildOptions
from workers.build.origin import Fetch
from workers.build.stage_runner import Expectation
from workers.compile.stage import CompileStage
from workers.host.client import EngineHost
from workers.host.watch import HostLimits
from workers.runtimes.pool import Runtimes
from workers.store import Store
from workers.store.cache import Cache, Place
from workers.store.cache_folder import FolderPlace
from workers.store.cache_http import HttpPlace
from workers.verify.verifier import Verifier

_USER, _PASSWORD, _TOKEN = (f"MODELMILL_CACHE_{name}" for name in ("USER", "PASSWORD", "TOKEN"))
"""Variables with the credentials. They are never flags and never recorded."""
_HERE = frozenset({"localhost", "127.0.0.1", "::1"})
WINDOWS = os.name == "nt"
_DRIVE = re.compile(r"/[A-Za-z]:")


@contextmanager
def open_builder(plan: Plan, settings: Settings, fetch: Fetch | None = None) -> Iterator[Builder]:
    """A single builder, without slots and leases. `fetch`: where the packages come from that cells
    are compiled from; None: from the feed."""
    work = Workspace(settings)
    work.prepare()
    waiting_for(f"asking the engine {settings.engine}")
    with closing(Store(work.store)) as store:
        cache = open_cache(settings, store, lambda news: tell(news) if news else None)
        builder, runtimes = builder_of(plan, settings, store, fetch=fetch, cache=cache)
        with closing(builder), closing(runtimes):
            yield builder


def attester_of(settings: Settings, builder: Builder, runtimes: Runtimes) -> Attester:
    """An attester of what a builder makes."""
    return Attester(
        builder.host,
        allow=settings.allow,
        builder=settings.builder_id or "",
        sign=signer_of(settings),
        runtimes=runtimes,
    )


@contextmanager
def verifying(settings: Settings, *, again: bool = False) -> Iterator[Verifier]:
    """A verifier with runtimes of its own; `again`: it uses no earlier result."""
    made = Verifier(runtimes_of(settings), settings.verify, again=again)
    with closing(made) as verifier:
        yield verifier


def builder_of(
    plan: Plan,
    settings: Settings,
    store: Store,
    expected: Expectation | None = None,
    budget: DiskBudget | None = None,
    memory: MemoryBudget | None = None,
    fetch: Fetch | None = None,
    cache: Cache | None = None,
) -> tuple[Builder, Runtimes]:
    """A builder in an engine host of its own, and the runtimes beside it."""
    work = Workspace(settings)
    limits = HostLimits(
        memory=settings.memory or 0,
        # Slots that each take all cores are slower than slots that share them.
        threads=max(1, (os.cpu_count() or 1) // slot_count(settings)),
    )
    runtimes = runtimes_of(settings, limits)
    builder = Builder(
        store,
        EngineHost(engine_spec(settings), limits=limits, log_dir=work.logs),
        work.home / "work",
        BuildOptions(
            stamp=plan.stamp,
            self_contained=plan.self_contained,
            expected=expected,
            **settings.allow,
        ),
        budget=budget,
        memory=memory,
        compiler=CompileStage(runtimes, settings.emulated, settings.cwd),
        fetch=fetch or partial(fetch_portable, settings),
        cache=cache,
    )
    return builder, runtimes


def open_cache(settings: Settings, store: Store, told: Told) -> Cache | None:
    """The cache, which nothing is asked of yet; None: the settings name none. Machines that sign
    packages sign results too, and take no others: these become part of what they sign."""
    place = place_of(settings, os.environ)
    if place is None:
        return None
    return Cache(
        place,
        store,
        writes=not settings.cache_read_only,
        sign=signer_of(settings, STAGE_TYPE),
        check=signature_check(settings, signs=True, payload_type=STAGE_TYPE),
        told=told,
    )


def place_of(settings: Settings, environ: Mapping[str, str]) -> Place | None:
    """Where the cache is, which is asked nothing. Raises `UsageError`."""
    where = settings.cache
    if not where:
        return None
    url = urlsplit(where)
    if url.scheme == "file":
        path = unquote(url.path)
        return FolderPlace(Path(path[1:] if WINDOWS and _DRIVE.match(path) else path))
    if url.scheme not in {"http", "https"}:
        return FolderPlace(settings.path(where))
    headers = _credentials(environ)
    if headers and url.scheme == "http" and url.hostname not in _HERE:
        hint = f"use https, or unset {_PASSWORD} and {_TOKEN}"
        raise UsageError(f"the cache {where} would get credentials in plain text", hint=hint)
    return HttpPlace(where, headers)


def _credentials(environ: Mapping[str, str]) -> dict[str, str]:
    """The header of a request."""
    user, password = environ.get(_USER, ""), environ.get(_PASSWORD, "")
    token = environ.get(_TOKEN, "")
    if token:
        if not token.isprintable() or not token.isascii():
            raise UsageError(f"{_TOKEN} holds signs that no token has")
        return {"Authorization": f"Bearer {token}"}
    if not password:
        return {}
    if not user or ":" in user:
        raise UsageError(f"{_PASSWORD} is set without a user", hint=f"set {_USER}")
    pair = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}
