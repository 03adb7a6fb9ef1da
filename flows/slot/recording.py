"""How what happened to a cell is told to the state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flows.slot.context import Shop
from flows.slot.leases import Held
from matrix.status import FailureClass, Status
from state.records import Facts, StageRow
from workers.build.built import Built
from workers.build.stages import StageRun
from workers.errors import BuildFailed

_BY_CLASS = {
    FailureClass.TIMEOUT: Status.BUILD_TIMEOUT,
    FailureClass.VERIFY: Status.VERIFY_FAILED,
    FailureClass.UNSUPPORTED: Status.UNSUPPORTED,
}


def record(
    shop: Shop,
    held: Held,
    cell_id: str,
    status: Status,
    facts: Facts | None = None,
    stages: Sequence[StageRow] = (),
) -> None:
    """One transaction; refused with `LeaseLost` when the model is no longer ours."""
    shop.state.record(held.lease, shop.sweep_id, cell_id, status, facts or Facts(), stages=stages)


def record_failure(
    shop: Shop,
    held: Held,
    cell_id: str,
    error: BuildFailed,
    log: Path,
    evidence: dict[str, Any] | None = None,
) -> None:
    """A cell that could not be built or did not pass, with the way to what it wrote."""
    record(
        shop,
        held,
        cell_id,
        _BY_CLASS.get(error.failure, Status.BUILD_FAILED),
        Facts(
            failure=error.failure,
            stage=error.stage,
            exit_code=error.process_exit,
            message=error.reason,
            hint=error.hint or f"the whole log: {log}",
            log_tail=error.log_tail,
            retryable=error.retryable,
            evidence=evidence,
        ),
    )


def evidence_of(built: Built, kept: Path | None = None) -> dict[str, Any]:
    """What the stages tell of what they did, what verification found, and where a package that
    did not pass can be looked at."""
    infos = {_named(stage): stage["info"] for stage in built.build_record["stages"]}
    found: dict[str, Any] = {
        "rungs": [asdict(rung) for rung in built.evidence],
        "stages": [
            {
                "stage": stage["stage"],
                "component": stage["component"],
                "facts": stage["facts"],
                "info": infos.get(_named(stage), {}),
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


def _named(stage: Mapping[str, Any]) -> tuple[str, str]:
    return stage["stage"], stage["component"]


def stage_rows(cell_id: str, target: str, runs: Sequence[StageRun]) -> list[StageRow]:
    """Stage runs as the state keeps them."""
    return [
        StageRow(
            cell=cell_id,
            target=target,
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
