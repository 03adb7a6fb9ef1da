"""Build one cell (or export) on a bench, verify it, and tell the state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tenacity import RetryCallState, Retrying, retry_if_exception, wait_exponential_jitter

from flows.slot.context import Bench, Parcel, Shop
from flows.slot.hub_outage import concerns
from flows.slot.kept_packages import keep
from flows.slot.leases import Held
from flows.slot.recording import evidence_of, record, record_failure, stage_rows
from flows.slot.unexpected import failure_of, log_of
from matrix.model import EXPORT, Cell, Plan, PlannedModel, SourceKind
from matrix.status import Status
from state.errors import StateError
from state.records import Facts
from workers.build.builder import Built
from workers.errors import BuildFailed, Cancelled
from workers.verify.verifier import VerifyFailed


@dataclass(frozen=True, slots=True, eq=False)
class Workpiece:
    """What a model's run goes through: its exports, then its cells."""

    id: str
    model: PlannedModel
    cell: Cell
    """Of an export: a cell that is made of it."""
    exports: bool
    package: str
    version: str

    @classmethod
    def all_of(cls, plan: Plan, model: PlannedModel) -> Iterator[Workpiece]:
        """In the order of work: what the others are made of comes first."""
        if not plan.self_contained:
            for export in model.exports:
                yield cls(export.id, model, export.cell, True, export.package, export.version)
        for cell in model.cells:
            yield cls(cell.id, model, cell, False, cell.package, cell.version)

    @property
    def target(self) -> str:
        """The target's label."""
        return EXPORT if self.exports else self.cell.target.label

    @property
    def as_published(self) -> Cell:
        """The cell under the name and version of this piece."""
        return replace(self.cell, package=self.package, version=self.version)


def build(shop: Shop, held: Held, bench: Bench, piece: Workpiece, *, again: bool) -> Parcel | None:
    """Build and verify; None: nothing to publish. Whatever is raised costs this piece only.

    Errors of the state are the exception: without it nothing can be told.
    """
    log = log_of(shop, piece.id)
    try:
        verified = _built(shop, held, bench, piece, log)
    except StateError:
        raise
    except Cancelled:
        return None
    except Exception as error:  # noqa: BLE001 - a tool or a disk can raise anything
        if not held.gone.is_set():
            record_failure(shop, held, piece.id, failure_of(error, "build", log), log)
        return None
    if verified is None:
        return None
    return Parcel(
        piece.id, piece.package, piece.version, verified, piece.cell.publish_timeout, again
    )


def _built(shop: Shop, held: Held, bench: Bench, piece: Workpiece, log: Path) -> Built | None:
    if not piece.exports and _unchanged(shop, held, bench, piece.cell):
        return None
    record(shop, held, piece.id, Status.BUILDING)
    try:
        built = _retrying(shop, held, piece.cell)(lambda: _build(shop, bench, held, piece, log))
    except BuildFailed as error:
        if held.gone.is_set() or not concerns(piece.cell, error):
            raise
        raise shop.outage.note(error, asked=not bench.builder.offline) from error
    if piece.cell.model.source.kind is SourceKind.HUB and not bench.builder.offline:
        shop.outage.over()
    verified = None
    try:
        verified = _verify(shop, held, bench, piece, built, log)
    finally:
        if verified is None:
            built.release()
    return verified


def _build(shop: Shop, bench: Bench, held: Held, piece: Workpiece, log: Path) -> Built:
    attempt = held.lease.attempt
    bench.builder.offline = shop.outage.known
    if piece.exports:
        return bench.builder.export_package(
            piece.model.model, piece.cell, piece.version, cancel=held.gone, log=log
        )
    return bench.builder.build(piece.cell, cancel=held.gone, log=log, attempt=attempt)


def _verify(
    shop: Shop, held: Held, bench: Bench, piece: Workpiece, built: Built, log: Path
) -> Built | None:
    facts = Facts(tree=built.tree, bytes=built.bytes, seconds=round(built.seconds, 3))
    rows = stage_rows(piece.id, piece.target, built.stages)
    unchanged = _is_newest(shop, piece.id, built.tree)
    # What an export is worth shows in the cells that are made of it and verified.
    done = piece.exports or unchanged
    record(shop, held, piece.id, Status.BUILT if done else Status.VERIFYING, facts, rows)
    if unchanged:
        _record_unchanged(shop, held, piece.id, built.tree)
        return None
    try:
        proven = built if piece.exports else _proven(shop, held, bench, piece, built, log)
        proven.let_go()
        proven = bench.attester.attest(proven, piece.as_published)
    except VerifyFailed as error:
        kept = keep(
            error.built,
            shop.kept / piece.package / piece.version,
            shop.kept,
            shop.rules.disk_budget,
        )
        record_failure(shop, held, piece.id, error, log, evidence_of(error.built, kept))
        return None
    evidence = None if piece.exports else evidence_of(proven)
    record(shop, held, piece.id, Status.VERIFIED, Facts(bytes=proven.bytes, evidence=evidence))
    return proven


def _proven(
    shop: Shop, held: Held, bench: Bench, piece: Workpiece, built: Built, log: Path
) -> Built:
    """With its evidence; with `--publish-unverified` whatever that says."""
    try:
        return bench.verifier.verify(built, timeout=piece.cell.timeout, cancel=held.gone, log=log)
    except VerifyFailed as error:
        if not shop.rules.publish_unverified:
            raise
        return error.built


def _unchanged(shop: Shop, held: Held, bench: Bench, cell: Cell) -> bool:
    """With `--if-changed`: whether the newest version has what a build would only make again."""
    if cell.id not in shop.newest:
        return False
    try:
        bench.builder.offline = shop.outage.known
        tree = bench.builder.predict(cell, cancel=held.gone)
    except (BuildFailed, Cancelled):
        return False  # the build itself will say what is wrong
    if tree is None or not _is_newest(shop, cell.id, tree):
        return False
    _record_unchanged(shop, held, cell.id, tree)
    return True


def _is_newest(shop: Shop, cell_id: str, tree: str) -> bool:
    newest = shop.newest.get(cell_id)
    return newest is not None and newest.tree == tree


def _record_unchanged(shop: Shop, held: Held, cell_id: str, tree: str) -> None:
    facts = Facts(tree=tree, detail={"same_as": shop.newest[cell_id].version})
    record(shop, held, cell_id, Status.UNCHANGED, facts)


def _retrying(shop: Shop, held: Held, cell: Cell) -> Retrying:
    """Only what infrastructure broke is tried again, with growing delay."""

    def nap(seconds: float) -> None:
        held.gone.wait(seconds)

    def over(state: RetryCallState) -> bool:
        error = state.outcome.exception() if state.outcome else None
        known = shop.outage.suspected and concerns(cell, error)
        return held.gone.is_set() or known or state.attempt_number >= shop.rules.tries

    return Retrying(
        sleep=nap,
        stop=over,
        wait=wait_exponential_jitter(initial=1, max=60),
        retry=retry_if_exception(lambda error: isinstance(error, BuildFailed) and error.retryable),
        reraise=True,
    )
