"""The protocol, broken in one place at a time: the seed named beside each mutant finds it.

A mutant replaces text in one function of the product, as somebody might write it by mistake. It
stays here as long as the function does: text that is not found any more fails the test.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from types import FunctionType

from tests.simulation.run import run


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mistake."""

    broken: str
    """What is wrong, in words."""
    where: str
    """The function, as MODULE:NAME."""
    old: str
    new: str
    seed: int
    """Finds it."""

    @contextmanager
    def alive(self) -> Iterator[None]:
        """Let the product make this mistake while the block runs."""
        function = self.function()
        lines = textwrap.dedent(inspect.getsource(function))
        if lines.count(self.old) != 1:
            raise LookupError(f"{self.where} has not got {self.old!r} once")
        changed: dict[str, object] = {}
        source = "from __future__ import annotations\n" + lines.replace(self.old, self.new)
        exec(compile(source, self.where, "exec"), dict(function.__globals__), changed)
        (made,) = (one for one in changed.values() if isinstance(one, FunctionType))
        code = function.__code__
        function.__code__ = inspect.unwrap(made).__code__
        try:
            yield
        finally:
            function.__code__ = code

    def function(self) -> FunctionType:
        """The function that is changed."""
        module, _, name = self.where.partition(":")
        found = reduce(getattr, name.split("."), import_module(module))
        plain: Callable[..., object] = inspect.unwrap(found)  # type: ignore[arg-type]
        assert isinstance(plain, FunctionType)
        return plain

    def is_found(self, seed: int) -> bool:
        """Whether the run of a seed breaks a rule."""
        with self.alive():
            return bool(run(seed)[0])


MUTANTS = (
    Mutant(
        "a late result is recorded although another has the lease",
        "state.changes:check_token", "if current != held.token:", "if False:", 15,
    ),
    Mutant(
        "whoever has the lease, anybody may record",
        "state.changes:check_token", "current != held.token", "current is None", 15,
    ),
    Mutant(
        "a heartbeat renews the lease of whoever has it",
        "state.leases:_is", "lease.c.token == held.token", "sa.true()", 15,
    ),
    Mutant(
        "a release that comes late hands back the work of another",
        "state.leases:Leases.release", ".rowcount != 1", ".rowcount < 0", 15,
    ),
    Mutant(
        "a lease never runs out",
        "state.leases:drop_lost", "silent = sa.and_(_expired, elsewhere)", "silent = sa.false()", 1,
    ),
    Mutant(
        "a heartbeat of the future counts until then",
        "state.leases:drop_lost", "lease.c.renewed_at > now() + CLOCK_JITTER, elsewhere",
        "sa.false()", 36,
    ),
    Mutant(
        "an outage of the database costs leases",
        "state.leases:drop_lost", "connection.execute(in_time).first() is None", "False", 8,
    ),
    Mutant(
        "a late heartbeat speaks for itself alone",
        "state.leases:Leases.renew", "if connection.execute(", "if False and connection.execute(",
        111,
    ),
    Mutant(
        "a heartbeat does not extend the lease",
        "state.leases:Leases.renew", "expires_at=now() + ttl, ", "", 0,
    ),
    Mutant(
        "processes that live are taken for dead",
        "state.leases:holders_here", "if process.is_dead()", "if not process.is_dead()", 0,
    ),
    Mutant(
        "a model is set aside after one death",
        "state.leases:_lost", "lost >= MAX_LOST", "lost >= 1", 6,
    ),
    Mutant(
        "who loses a lease loses what it has published",
        "state.changes:hand_back",
        "of_work(outcome, key) & is_unfinished(connection, key.sweep_id)",
        "of_work(outcome, key)", 0,
    ),
    Mutant(
        "a listing of the feed changes cells that are held",
        "state.seeding:Seeding.seed", ", ~is_leased)", ")", 16,
    ),
    Mutant(
        "who joins a sweep plans the cells of others again",
        "state.sweeps:_take_up", "connection, sweep_id), ~changes.is_leased)\n    wanted",
        "connection, sweep_id))\n    wanted", 0,
    ),
    Mutant(
        "a version that is there already is a failure",
        "feed.publisher:_Attempts._attempt",
        "(errors.VersionExists, errors.OutcomeUnknown)", "errors.OutcomeUnknown", 30,
    ),
    Mutant(
        "a publish that was stopped is a failure",
        "flows.slot.publishing:_publish", "except Cancelled:\n",
        "except Cancelled:\n        work.record(Status.PUBLISH_FAILED)\n", 36,
    ),
    Mutant(
        "what failed is not looked for in the feed",
        "flows.sweep.lifecycle:Sweep._look_after_failures", "if item.id in doubtful", "if False",
        16,
    ),
    Mutant(
        "bytes of the store are given out unseen",
        "workers.store.blobs:Blobs.check", "if found != (entry.sha256, entry.size):", "if False:",
        6,
    ),
    Mutant(
        "a sweep without its index ends as if it had one",
        "flows.sweep.lifecycle:Sweep.finish", "stop.ask(error)", "del error", 1,
    ),
    Mutant(
        "a lease has run out when it begins",
        "state.leases:_take", "expires_at=now() + ttl", "expires_at=now()", 0,
    ),
    Mutant(
        "a clock that is set back costs leases",
        "state.leases:drop_lost", "expires_at=now() + lease.c.ttl", "expires_at=now()", 6,
    ),
    Mutant(
        "a lease is not renewed",
        "flows.slot.leases:LeaseRenewer.renewing", "self._renewed[renewed] = None", "pass", 12,
    ),
    Mutant(
        "the store evicts what a build uses",
        "workers.store.store:Store.oldest_use", "oldest = min(", "_ = min(", 8,
    ),
)  # fmt: skip
