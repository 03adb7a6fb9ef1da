"""Reserves the machine for one measurement: no build, verification or other measurement runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from machine.ledger import Ledger, Reservation
from machine.reservations import UNDISTURBED, ahead_of, lacking_of, words_of
from machine.waits import Told, WaitRules, untold
from matrix.errors import Exit, MillError


class Busy(MillError):
    """Something that would disturb a measurement runs on this machine."""

    exit_code = Exit.CELLS_FAILED


@contextmanager
def quiet(
    what: str,
    *,
    wait: bool,
    ledger: Ledger | None = None,
    told: Told = untold,
    cancel: threading.Event | None = None,
) -> Iterator[None]:
    """Builds and other measurements of this machine wait until the block ends.

    Those that run already are waited for, in the order of all who wait, or else `Busy` is raised.
    `cancel` ends the wait.
    """
    account = ledger or Ledger()
    reservation: Reservation | None
    if wait:
        reservation = account.reserve([UNDISTURBED], what, WaitRules(cancel=cancel, told=told))
    else:
        reservation = account.claim([UNDISTURBED], what)
    if reservation is None:
        raise Busy(
            f"measuring needs {lacking(account) or UNDISTURBED.words}",
            hint="wait for it with --wait",
        )
    with reservation:
        yield


def lacking(ledger: Ledger) -> str:
    """What a measurement would wait for now, and who holds it; empty: nothing."""
    with ledger.everybody() as entries:
        wants = [UNDISTURBED]
        ahead = ahead_of(wants, entries)
        free = not ahead and not lacking_of(wants, entries)
        return "" if free else words_of(wants, ahead, entries, "")
