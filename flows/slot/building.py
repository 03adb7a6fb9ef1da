"""Builds one cell or export in a slot, verifies it, and records each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from typing import Any

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    sleep_using_event,
    wait_exponential_jitter,
)

from flows.slot.cell_work import CellWork
from flows.slot.context import concerns
from flows.slot.publishing import group_detail
from machine.reservations import DISTURBS
from machine.waits import Cancelled, untold
from matrix.model import SourceKind
from matrix.status import Status
from state.errors import StateError
from state.records import Facts, StageRun
from workers.build.builder import WAITS
from workers.build.built import Built
from workers.errors import BuildFailed, wait_failures
from workers.host.watch import Watching
from workers.verify.verifier import VerifyFailed


def build_cell(work: CellWork) -> Built | None:
    """Build and verify; None: there is nothing to publish. Any error costs this cell only.

    Errors of the state are the exception: without the state nothing can be recorded.
    """
    planned = work.planned
    try:
        work.record(Status.BUILDING)
        with _hub_watched(work) as offline:
            for attempt in _retrying(work):
                with attempt:
                    built = work.slot.builder.build(
                        planned.cell,
                        _watching(work),
                        export_version=planned.version if planned.is_export else None,
                        offline=offline(),
                        attempt=work.lease.lease.attempt,
                    )
        with ExitStack() as unproven:
            unproven.callback(built.release)
            verified = _verify(work, built)
            if verified is not None:
                unproven.pop_all()
        return verified
    except StateError:
        raise
    except Cancelled:
        return None
    except Exception as error:  # noqa: BLE001 - a tool or a disk can raise anything
        if not work.cancelled:
            work.fail(error, "build")
        return None


@contextmanager
def _hub_watched(work: CellWork) -> Iterator[Callable[[], bool]]:
    """Take in whether the hub answers while a cell is built; gives whether to do without it."""
    hub, cell, offline = work.context.hub, work.planned.cell, False

    def known() -> bool:
        nonlocal offline
        offline = hub.known
        return offline

    try:
        yield known
    except BuildFailed as error:
        if work.cancelled or not concerns(cell, error):
            raise
        raise hub.note(error, asked=not offline) from error
    if cell.model.source.kind is SourceKind.HUB and not (offline or cell.origin):
        hub.over()


def _verify(work: CellWork, built: Built) -> Built | None:
    planned = work.planned
    facts = Facts(tree=built.tree, bytes=built.bytes, seconds=round(built.seconds, 3))
    newest = work.sweep.newest.get(work.id)
    unchanged = newest is not None and newest.tree == built.tree
    # An export is judged by the cells that are made from it.
    done = planned.is_export or unchanged
    told = ({name: getattr(run, name) for name in run.__slots__} for run in built.stages)
    runs = [StageRun(cell=work.id, target=planned.target, **facts) for facts in told]
    work.record(Status.BUILT if done else Status.VERIFYING, facts, runs)
    if newest is not None and unchanged:
        detail = {"same_as": newest.version, **group_detail(built)}
        work.record(Status.UNCHANGED, Facts(tree=built.tree, detail=detail))
        return None
    try:
        proven = built if planned.is_export else _with_evidence(work, built)
        proven.let_go()
        proven = work.slot.attester.attest(proven, planned.as_cell)
    except VerifyFailed as error:
        kept = str(work.keep(error.built))
        # The same for all cells: failures with one cause and one next step are told once.
        error.hint += f", below {work.context.folders.kept}"
        work.fail(error, "verify", {**_evidence(error.built), "kept": kept})
        return None
    evidence = None if planned.is_export else _evidence(proven)
    work.record(Status.VERIFIED, Facts(bytes=proven.bytes, evidence=evidence))
    return proven


def _with_evidence(work: CellWork, built: Built) -> Built:
    """The package with its evidence; `--publish-unverified` accepts any result."""
    watching = _watching(work)
    with wait_failures("verify"):
        rules = watching.waits(WAITS * work.planned.cell.timeout)
        reservation = work.context.ledger.reserve([DISTURBS], f"{work.id} verify", rules)
    try:
        with reservation:
            return work.slot.verifier.verify(built, replace(watching, progress=untold))
    except VerifyFailed as error:
        if not work.sweep.settings.publish_unverified:
            raise
        return error.built


def _watching(work: CellWork) -> Watching:
    return Watching(work.planned.cell.timeout, work.lease.gone, work.log, work.report)


def _retrying(work: CellWork) -> Retrying:
    """Only infrastructure failures are tried again, with growing pauses."""

    def is_over(state: RetryCallState) -> bool:
        error = state.outcome.exception() if state.outcome else None
        hub_is_away = work.context.hub.suspected and concerns(work.planned.cell, error)
        return work.cancelled or hub_is_away or state.attempt_number >= work.sweep.settings.tries

    return Retrying(
        sleep=sleep_using_event(work.lease.gone),
        stop=is_over,
        wait=wait_exponential_jitter(initial=1, max=60),
        retry=retry_if_exception(lambda error: isinstance(error, BuildFailed) and error.retryable),
        reraise=True,
    )


def _evidence(built: Built) -> dict[str, Any]:
    """What the stages report, and what verification found."""
    record, stages = built.build_record, []
    infos = {(run["stage"], run["component"]): run["info"] for run in record["stages"]}
    for stage in built.manifest["stages"]:
        told = {name: stage[name] for name in ("stage", "component", "facts")}
        stages.append({**told, "info": infos.get((stage["stage"], stage["component"]), {})})
    rungs = [asdict(rung) for rung in built.evidence]
    names = (name for name in ("verdict", "runtimes", "opening", "sharing") if name in record)
    return {"rungs": rungs, "stages": stages, **{name: record[name] for name in names}}
