"""Opens a builder: an engine host, the runtimes beside it and the store, as the settings say."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial

from flows.output.activity import waiting_for
from flows.output.console import tell
from flows.packages.cache import open_cache
from flows.packages.published import fetch_portable
from flows.packages.signing import signer_of
from flows.settings.engines import engine_spec, runtimes_of, slot_count
from flows.settings.settings import Settings
from flows.settings.workspace import Workspace
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
from workers.store.cache import Cache
from workers.verify.verifier import Verifier


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
