"""The protocol, broken in one place at a time: the seed named beside each mutant finds it.

A mutant replaces text in one function or SQL statement of the product, as somebody might write it
by mistake. It stays here as long as that does: text that is not found any more fails the test.
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

from state import database
from state.sql import spoken, statements
from tests.simulation.run import run


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mistake."""

    broken: str
    """What is wrong, in words."""
    where: str
    """The function, as MODULE:NAME, or the statement, as SQL:NAME."""
    old: str
    new: str
    seed: int
    """Finds it."""

    @contextmanager
    def alive(self) -> Iterator[None]:
        """Let the product make this mistake while the block runs."""
        module, _, name = self.where.partition(":")
        with self._statement(name) if module == "SQL" else self._function():
            yield

    def _changed(self, text: str) -> str:
        if text.count(self.old) != 1:
            raise LookupError(f"{self.where} has not got {self.old!r} once")
        return text.replace(self.old, self.new)

    @contextmanager
    def _statement(self, name: str) -> Iterator[None]:
        known = statements()
        assert isinstance(known, dict)
        right = known[name]
        known[name] = self._changed(right)
        _forget_clauses()
        try:
            yield
        finally:
            known[name] = right
            _forget_clauses()

    @contextmanager
    def _function(self) -> Iterator[None]:
        function = self.function()
        lines = textwrap.dedent(inspect.getsource(function))
        changed: dict[str, object] = {}
        source = "from __future__ import annotations\n" + self._changed(lines)
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


def _forget_clauses() -> None:
    spoken.cache_clear()
    database._clause.cache_clear()


MUTANTS = (
    Mutant(
        "a late result is recorded although another has the lease",
        "state.rows:check_token", "if current != held.token:", "if False:", 15,
    ),
    Mutant(
        "whoever has the lease, anybody may record",
        "state.rows:check_token", "current != held.token", "current is None", 15,
    ),
    Mutant(
        "a heartbeat renews the lease of whoever has it",
        "SQL:held", " AND token = :token", "", 15,
    ),
    Mutant(
        "a release that comes late hands back the work of another",
        "state.leases:Leases.release", ".rowcount != 1", ".rowcount < 0", 15,
    ),
    Mutant(
        "a lease never runs out",
        "SQL:take_lost", "expires_at <= {now}", "expires_at < 0", 1,
    ),
    Mutant(
        "a heartbeat of the future counts until then",
        "SQL:clock_set_back", "renewed_at > {now} + 1", "renewed_at < 0", 36,
    ),
    Mutant(
        "an outage of the database costs leases",
        "state.leases:drop_lost", "if sql.run(", "if False and sql.run(", 8,
    ),
    Mutant(
        "a late heartbeat speaks for itself alone",
        "state.leases:Leases.renew", "if sql.run(", "if False and sql.run(", 111,
    ),
    Mutant(
        "a heartbeat does not extend the lease",
        "SQL:renew", "expires_at = {now} + :ttl, ", "", 0,
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
        "SQL:cells_of_work", "{unfinished} OR", "1 = 1 OR", 0,
    ),
    Mutant(
        "a listing of the feed changes cells that are held",
        "SQL:seedable_cells", " AND NOT {leased}", "", 16,
    ),
    Mutant(
        "who joins a sweep plans the cells of others again",
        "SQL:free_cells", " AND NOT {leased}", "", 0,
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
        "SQL:take", "{now} + :ttl", "{now}", 0,
    ),
    Mutant(
        "a clock that is set back costs leases",
        "SQL:clock_set_back", "expires_at = {now} + ttl", "expires_at = {now}", 6,
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
