"""What can go wrong with the state: the database itself, a lost lease, an illegal step."""

from __future__ import annotations

from matrix.errors import Exit, MillError


class StateError(MillError):
    """The state cannot be used, or was asked for something that must not happen."""

    exit_code = Exit.UNUSABLE


class StateUnavailable(StateError):
    """Transient: locked too long, or the connection broke; the same call may succeed later."""


class LeaseLost(StateError):
    """The lease is no longer ours: somebody else holds it, and nothing was written."""


class BadTransition(StateError):
    """A cell cannot go from its status to the one that was asked for."""
