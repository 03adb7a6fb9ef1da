"""What can go wrong with the state: the database itself, a lost lease, an illegal step."""

from __future__ import annotations

from matrix.errors import Exit, MillError


class StateError(MillError):
    """The state cannot be used, or was asked for something that must not happen."""

    exit_code = Exit.UNUSABLE


class StateUnavailable(StateError):
    """Transient: locked too long, or the connection broke; the same call may succeed later."""


class LeaseLost(StateError):
    """The token is no longer the model's: somebody else holds it, nothing was written."""


class BadTransition(StateError):
    """A cell cannot go from where it stands to the status that was asked for."""
