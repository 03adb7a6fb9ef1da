"""Publish one built package and tell the state; local bytes go only when the feed agrees."""

from __future__ import annotations

import time

from feed.errors import (
    Cancelled,
    Conflict,
    Corrupt,
    FeedError,
    NoSpace,
    Outage,
    OutcomeUnknown,
    TimeLimit,
    Unauthorized,
    Unavailable,
)
from feed.interface import LocalFile
from feed.publisher import Publisher, Receipt
from flows.slot.context import Parcel, Shop
from flows.slot.kept_packages import keep
from flows.slot.leases import Held
from flows.slot.recording import record
from flows.slot.unexpected import failure_of, log_of
from matrix.errors import MillError
from matrix.status import FailureClass, Status
from state.errors import StateError
from state.records import Facts


def publish_parcel(shop: Shop, publisher: Publisher, held: Held, parcel: Parcel) -> bool:
    """Publish, read back, record, release. False: the local bytes were bad, build it again.

    Whatever goes wrong is recorded. A cell that is interrupted is recorded as nothing: it is handed
    back with its lease, and a resume asks the feed what became of it.
    """
    try:
        return held.gone.is_set() or _publish_parcel(shop, publisher, held, parcel)
    except StateError:
        raise
    except Exception as error:  # noqa: BLE001 - a tool or a disk can raise anything
        _unforeseen(shop, held, parcel, error)
        return True
    finally:
        parcel.built.release()


def _publish_parcel(shop: Shop, publisher: Publisher, held: Held, parcel: Parcel) -> bool:
    record(shop, held, parcel.cell, Status.PUBLISHING)
    started = time.monotonic()
    try:
        receipt = _publish(publisher, held, parcel)
    except Cancelled:
        return True
    except (Unauthorized, Outage) as error:
        shop.stop.ask(error)  # no other package would fare better; this one stays open
    except Corrupt as error:
        if parcel.again or not parcel.built.distrust():
            _failed(shop, held, parcel, error, FailureClass.DISK, retryable=True)
            return True
        record(shop, held, parcel.cell, Status.BUILDING)
        return False
    except Conflict as error:
        _conflict(shop, held, parcel, error)
    except FeedError as error:
        _failed(shop, held, parcel, error, _class_of(error), retryable=True)
    else:
        _published(shop, held, parcel, receipt, time.monotonic() - started)
    return True


def _publish(publisher: Publisher, held: Held, parcel: Parcel) -> Receipt:
    return publisher.publish(
        parcel.package,
        parcel.version,
        [LocalFile(file.entry, file.source) for file in parcel.built.files],
        description_text=_text(parcel),
        tree=parcel.built.tree,
        timeout=parcel.timeout,
        cancel=held.gone,
    )


def _text(parcel: Parcel) -> str:
    """A listing alone tells what was published although it did not pass."""
    verdict = parcel.built.build_record.get("verdict", {})
    return parcel.cell if verdict.get("reached", True) else f"{parcel.cell} (unverified)"


def _published(shop: Shop, held: Held, parcel: Parcel, receipt: Receipt, seconds: float) -> None:
    # First: a cell that is recorded as published cannot fail any more.
    kept = _kept_locally(shop, parcel)
    facts = Facts(
        tree=parcel.built.tree,
        bytes=parcel.built.bytes,
        seconds=round(parcel.built.seconds, 3),
        published_at=receipt.published.published_at,
        detail={
            "publish_attempts": receipt.attempts,
            "publish_seconds": round(seconds, 3),
            "already_there": receipt.already_there,
            **kept,
        },
    )
    record(shop, held, parcel.cell, Status.PUBLISHED, facts)


def _kept_locally(shop: Shop, parcel: Parcel) -> dict[str, str]:
    """Keep the package if that was asked for; the answer tells why it could not be kept."""
    folder = shop.rules.keep_local
    if folder is None:
        return {}
    try:
        keep(parcel.built, folder / parcel.package / parcel.version, folder)
    except (OSError, MillError) as error:
        failure = failure_of(error, "publish", log_of(shop, parcel.cell))
        return {"not_kept": failure.reason}
    return {}


def _conflict(shop: Shop, held: Held, parcel: Parcel, error: Conflict) -> None:
    dest = shop.kept / parcel.package / parcel.version
    kept = keep(parcel.built, dest, shop.kept, shop.rules.disk_budget)
    facts = Facts(
        failure=FailureClass.PUBLISH,
        stage="publish",
        message=error.message,
        hint=f"{error.hint}; the local package is kept in {kept}",
        retryable=False,
    )
    record(shop, held, parcel.cell, Status.CONFLICT, facts)


def _class_of(error: FeedError) -> FailureClass:
    match error:
        case NoSpace():
            return FailureClass.DISK
        case TimeLimit():
            return FailureClass.TIMEOUT
        case Unavailable() | OutcomeUnknown():
            return FailureClass.NETWORK
        case _:
            return FailureClass.PUBLISH


def _next_step(shop: Shop, parcel: Parcel, failure: FailureClass) -> str:
    """A command that takes the cell up; its build is in the store."""
    stamp = shop.plan.stamp
    if failure.may_pass:
        return f"when that is over: modelmill resume {stamp}"
    command = f"modelmill retry {stamp} --class {failure}"
    if failure is FailureClass.TIMEOUT:
        command += f" --publish-timeout {2 * parcel.timeout:g}"
    return f"to publish it again: {command}"


def _failed(
    shop: Shop,
    held: Held,
    parcel: Parcel,
    error: FeedError,
    failure: FailureClass,
    *,
    retryable: bool,
) -> None:
    facts = Facts(
        failure=failure,
        stage="publish",
        message=error.message,
        hint="; ".join(filter(None, (error.hint, _next_step(shop, parcel, failure)))),
        retryable=retryable,
    )
    record(shop, held, parcel.cell, Status.PUBLISH_FAILED, facts)


def _unforeseen(shop: Shop, held: Held, parcel: Parcel, error: Exception) -> None:
    if held.gone.is_set():
        return
    failure = failure_of(error, "publish", log_of(shop, parcel.cell))
    facts = Facts(
        failure=failure.failure,
        stage="publish",
        message=failure.reason,
        hint=failure.hint,
        log_tail=failure.log_tail,
        retryable=failure.retryable,
    )
    record(shop, held, parcel.cell, Status.PUBLISH_FAILED, facts)
