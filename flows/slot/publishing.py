"""Publishes one built package and records the result; local bytes go only when the feed agrees."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

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
from feed.publisher import Publisher, Receipt
from flows.slot.cell_work import CellWork, keep
from matrix.errors import MillError
from matrix.status import FailureClass, Status
from state.errors import StateError
from state.records import Facts
from workers.build.built import Built
from workers.verify.ladder.levels import proof_of

STAGE = "publish"

_CLASSES: dict[type[FeedError], FailureClass] = {
    NoSpace: FailureClass.DISK,
    TimeLimit: FailureClass.TIMEOUT,
    Unavailable: FailureClass.NETWORK,
    OutcomeUnknown: FailureClass.NETWORK,
}
"""Errors of a feed whose failure has another class than PUBLISH; the first that fits counts."""


def publish_package(work: CellWork, publisher: Publisher, built: Built) -> bool:
    """Publish, read back, record, release. False: the local bytes were bad, build it again.

    Any failure is recorded. Nothing is recorded of a cell that is interrupted: it is handed back
    with its lease, and a resume asks the feed what became of it.
    """
    try:
        return work.cancelled or _publish(work, publisher, built)
    except StateError:
        raise
    except Exception as error:  # noqa: BLE001 - a tool or a disk can raise anything
        if not work.cancelled:
            work.record(Status.PUBLISH_FAILED, work.failure_facts(error, STAGE))
        return True
    finally:
        built.release()


def _labels(built: Built) -> list[str]:
    """What a listing shows of a precision that holds more bits than its name says."""
    applied = [row.get("facts", {}).get("applied") for row in built.manifest.get("stages", ())]
    labels = [one["label"] for one in applied if isinstance(one, Mapping) and "label" in one]
    return [f"({label})" for label in dict.fromkeys(labels) if "," in label]


def _verified(built: Built) -> list[str]:
    """What a listing shows of the verification: the kind of the samples, and whether it failed."""
    record = built.build_record
    proof = proof_of(record.get("verification", ()))
    reached = record.get("verdict", {}).get("reached", True)
    kind = [f"samples={proof.kind}"] if proof else []
    return kind if reached else [*kind, "(unverified)"]


def _publish(work: CellWork, publisher: Publisher, built: Built) -> bool:
    work.record(Status.PUBLISHING)
    planned, started = work.planned, time.monotonic()
    try:
        receipt = publisher.publish(
            planned.package,
            planned.version,
            built.files,
            description_text=" ".join([work.id, *_labels(built), *_verified(built)]),
            tree=built.tree,
            timeout=planned.cell.publish_timeout,
            cancel=work.lease.gone,
        )
    except Cancelled:
        return True
    except (Unauthorized, Outage) as error:
        work.sweep.stop.ask(error)  # every other package would fail too; this one stays open
    except Corrupt as error:
        if not work.rebuilt and built.distrust():
            work.record(Status.BUILDING)
            return False
        work.record(Status.PUBLISH_FAILED, _failure(work, error, FailureClass.DISK))
    except Conflict as error:
        step = f"the local package is kept in {work.keep(built)}"
        work.record(Status.CONFLICT, _facts_of(error, FailureClass.PUBLISH, step))
    except FeedError as error:
        classes = (kind for known, kind in _CLASSES.items() if isinstance(error, known))
        failure = next(classes, FailureClass.PUBLISH)
        work.record(Status.PUBLISH_FAILED, _failure(work, error, failure))
    else:
        # Kept first: nothing may fail once a cell is recorded as published.
        kept = _keep_locally(work, built)
        seconds = round(time.monotonic() - started, 3)
        work.record(Status.PUBLISHED, _facts(built, receipt, seconds, kept))
    return True


def _facts(built: Built, receipt: Receipt, seconds: float, kept: dict[str, str]) -> Facts:
    return Facts(
        tree=built.tree,
        bytes=built.bytes,
        seconds=round(built.seconds, 3),
        published_at=receipt.published.published_at,
        detail={
            "publish_attempts": receipt.attempts,
            "publish_seconds": seconds,
            "already_there": receipt.already_there,
            **group_detail(built),
            **kept,
        },
    )


def group_detail(built: Built) -> dict[str, Any]:
    """Of the package of a context group: the cells that it holds compiled, and those that it
    should but does not."""
    members = [one["cell"] for one in built.manifest.get("members", ())]
    told = {"members": members, "left_out": built.build_record.get("left_out")}
    return {name: value for name, value in told.items() if value}


def _keep_locally(work: CellWork, built: Built) -> dict[str, str]:
    """Keep the package if the user asked for it; returns why it could not be kept."""
    folder = work.context.folders.packages
    if folder is None:
        return {}
    try:
        keep(built, work.planned.package, work.planned.version, folder)
    except (OSError, MillError) as error:
        return {"not_kept": work.failure_of(error, STAGE).reason}
    return {}


def _failure(work: CellWork, error: FeedError, failure: FailureClass) -> Facts:
    """The failure with the command that publishes the cell; its build is still in the store."""
    stamp = f"{work.sweep.plan.stamp}{work.sweep.flags}"
    if failure.may_pass:
        step = f"when that is over: modelmill resume {stamp}"
    else:
        step = f"to publish it again: modelmill retry {stamp} --class {failure}"
        longer = f" --publish-timeout {2 * work.planned.cell.publish_timeout:g}"
        if failure is FailureClass.TIMEOUT and not work.sweep.flags:
            step += longer
        elif failure is FailureClass.TIMEOUT:  # a retry on a fleet keeps the plan
            step += f"; with more time: modelmill sweep CATALOG --stamp {stamp}{longer}"
    return _facts_of(error, failure, step, retryable=True)


def _facts_of(
    error: FeedError, failure: FailureClass, step: str, *, retryable: bool = False
) -> Facts:
    text, hint = error.message, "; ".join(filter(None, (error.hint, step)))
    return Facts(failure=failure, stage=STAGE, message=text, hint=hint, retryable=retryable)
