"""Builds one cell or export in a slot, verifies it, and records each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tenacity import RetryCallState, Retrying, retry_if_exception, wait_exponential_jitter

from flows.slot.cell_work import CellWork
from flows.slot.hub_outage import concerns
from flows.slot.kept_packages import keep
from matrix.model import SourceKind
from matrix.status import Status
from state.errors import StateError
from state.records import Facts, StageRow
from workers.build.built import Built
from workers.build.stages import StageRun
from workers.errors import BuildFailed, Cancelled
from workers.verify.verifier import VerifyFailed


def build_cell(work: CellWork) -> Built | None:
    """Build and verify; None: there is nothing to publish. Any error costs this cell only.

    Errors of the state are the exception: without the state nothing can be recorded.
    """
    try:
        return _build_and_verify(work)
    except StateError:
        raise
    except Cancelled:
        return None
    except Exception as error:  # noqa: BLE001 - a tool or a disk can raise anything
        if not work.cancelled:
            work.fail(error, "build")
        return None


def _build_and_verify(work: CellWork) -> Built | None:
    hub, planned = work.sweep.hub, work.planned
    if not planned.is_export and _is_unchanged(work):
        return None
    work.record(Status.BUILDING)
    try:
        for attempt in _retrying(work):
            with attempt:
                offline = hub.known
                built = work.slot.builder.build(
                    planned.cell,
                    export_version=planned.version if planned.is_export else None,
                    offline=offline,
                    report=work.report,
                    attempt=work.lease.lease.attempt,
                    cancel=work.lease.gone,
                    log=work.log,
                )
    except BuildFailed as error:
        if work.cancelled or not concerns(planned.cell, error):
            raise
        raise hub.note(error, asked=not offline) from error
    if planned.cell.model.source.kind is SourceKind.HUB and not offline:
        hub.over()
    verified = None
    try:
        verified = _verify(work, built)
    finally:
        if verified is None:
            built.release()
    return verified


def _verify(work: CellWork, built: Built) -> Built | None:
    planned = work.planned
    facts = Facts(tree=built.tree, bytes=built.bytes, seconds=round(built.seconds, 3))
    unchanged = _is_newest(work, built.tree)
    # An export is judged by the cells that are made from it.
    done = planned.is_export or unchanged
    work.record(Status.BUILT if done else Status.VERIFYING, facts, _stage_rows(work, built.stages))
    if unchanged:
        _record_unchanged(work, built.tree)
        return None
    try:
        proven = built if planned.is_export else _with_evidence(work, built)
        proven.let_go()
        proven = work.slot.attester.attest(proven, planned.as_cell)
    except VerifyFailed as error:
        sweep = work.sweep
        dest = sweep.kept / planned.package / planned.version
        kept = keep(error.built, dest, sweep.kept, sweep.rules.disk_budget)
        work.fail(error, "verify", _evidence(error.built, kept))
        return None
    evidence = None if planned.is_export else _evidence(proven)
    work.record(Status.VERIFIED, Facts(bytes=proven.bytes, evidence=evidence))
    return proven


def _with_evidence(work: CellWork, built: Built) -> Built:
    """The package with its evidence; `--publish-unverified` accepts any result."""
    try:
        return work.slot.verifier.verify(
            built, timeout=work.planned.cell.timeout, cancel=work.lease.gone, log=work.log
        )
    except VerifyFailed as error:
        if not work.sweep.rules.publish_unverified:
            raise
        return error.built


def _is_unchanged(work: CellWork) -> bool:
    """With `--if-changed`: whether a build would only make the newest version again."""
    if work.id not in work.sweep.newest:
        return False
    try:
        tree = work.slot.builder.predict(
            work.planned.cell, offline=work.sweep.hub.known, cancel=work.lease.gone
        )
    except (BuildFailed, Cancelled):
        return False  # the build itself will say what is wrong
    if tree is None or not _is_newest(work, tree):
        return False
    _record_unchanged(work, tree)
    return True


def _is_newest(work: CellWork, tree: str) -> bool:
    newest = work.sweep.newest.get(work.id)
    return newest is not None and newest.tree == tree


def _record_unchanged(work: CellWork, tree: str) -> None:
    detail = {"same_as": work.sweep.newest[work.id].version}
    work.record(Status.UNCHANGED, Facts(tree=tree, detail=detail))


def _retrying(work: CellWork) -> Retrying:
    """Only infrastructure failures are tried again, with growing pauses."""

    def pause(seconds: float) -> None:
        work.lease.gone.wait(seconds)

    def is_over(state: RetryCallState) -> bool:
        error = state.outcome.exception() if state.outcome else None
        hub_is_away = work.sweep.hub.suspected and concerns(work.planned.cell, error)
        return work.cancelled or hub_is_away or state.attempt_number >= work.sweep.rules.tries

    return Retrying(
        sleep=pause,
        stop=is_over,
        wait=wait_exponential_jitter(initial=1, max=60),
        retry=retry_if_exception(lambda error: isinstance(error, BuildFailed) and error.retryable),
        reraise=True,
    )


def _evidence(built: Built, kept: Path | None = None) -> dict[str, Any]:
    """What the stages report, what verification found, and where a failed package is kept."""
    infos = {_stage_id(stage): stage["info"] for stage in built.build_record["stages"]}
    found: dict[str, Any] = {
        "rungs": [asdict(rung) for rung in built.evidence],
        "stages": [
            {
                "stage": stage["stage"],
                "component": stage["component"],
                "facts": stage["facts"],
                "info": infos.get(_stage_id(stage), {}),
            }
            for stage in built.manifest["stages"]
        ],
    }
    for name in ("verdict", "runtimes"):
        if name in built.build_record:
            found[name] = built.build_record[name]
    if kept is not None:
        found["kept"] = str(kept)
    return found


def _stage_id(stage: Mapping[str, Any]) -> tuple[str, str]:
    return stage["stage"], stage["component"]


def _stage_rows(work: CellWork, runs: Sequence[StageRun]) -> list[StageRow]:
    """Stage runs as the state keeps them."""
    return [
        StageRow(
            cell=work.id,
            target=work.planned.target,
            stage=run.stage,
            component=run.component,
            key=run.key,
            parts=run.parts,
            reused=run.reused,
            seconds=run.seconds,
            bytes=run.bytes,
            peak_memory=run.peak_memory,
        )
        for run in runs
    ]
