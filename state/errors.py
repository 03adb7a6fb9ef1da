"""What can go wrong with the state: the database itself, a lost lease, an illegal step."""

from __future__ import annotations

from matrix.errors import Exit, MillError


class StateError(MillError):
    """The state cannot be used, or was asked for something that must not happen."""

    exit_code = Exit.UNUSABLE


class OlderSchema(StateError):
    """The state has to be brought up to date before it can be read."""


class StateUnavailable(StateError):
    """Transient: locked too long, or the connection broke; the same call may succeed later."""


class LeaseLost(StateError):
    """The lease is no longer ours: somebody else holds it, and nothing was written."""


class BadTransition(StateError):
    """A cell cannot go from its status to the one that was asked for."""


_PASSING = ("database is locked", "database is busy")


def of_sqlite(label: str, reason: str) -> StateError:
    """What SQLite says of a file, in our words."""
    message = f"the state {label} cannot be used: {reason}"
    if any(text in reason for text in _PASSING):
        return StateUnavailable(message, hint="try again; what was recorded is safe")
    hint = "check its disk and permissions, or choose another with --state"
    if "malformed" in reason or "not a database" in reason:
        hint = "it was left as it is; restore a backup or choose another with --state"
    return StateError(message, hint=hint)
