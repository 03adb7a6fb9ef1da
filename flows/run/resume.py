"""Runs a sweep again: resume and retry."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date

from feed.interface import Feed
from feed.selection import index_revisions
from flows.observe.summary import open_text, summary_of
from flows.output.quantity import counted
from flows.plan.planning import catalog_reference, plan_of
from flows.plan.recorded import (
    TUNING,
    compiled_plan,
    is_emulated,
    merged,
    recall,
    remember,
    settings_of,
    unpublished,
    with_other_catalogs,
)
from flows.run.run import Run
from flows.settings.settings import Settings
from flows.settings.workspace import Workspace, find_sweep
from matrix.errors import Exit, NothingSelected, UsageError
from matrix.globs import matches
from matrix.naming import index_name
from matrix.slugs import slug
from matrix.status import FAILED, FailureClass
from state.errors import StateError
from state.records import SweepInfo
from state.state import State


def resume(
    settings: Settings, stamp: str | None, catalog: str | None, *, as_json: bool = False
) -> Exit:
    """Go on with a sweep, with its recorded catalog or this one.

    A stamp that the state does not know is looked for in the feed: another machine began it.
    """
    work = Workspace(settings)
    known = None
    if stamp is None or work.has_state():
        with work.open_state(must_exist=True) as state:
            if stamp is None or state.find_sweep(slug(stamp)) is not None:
                known = _recorded(settings, state, find_sweep(state, stamp), catalog)
    run = known or _from_feed(settings, slug(str(stamp)), catalog)
    run.as_json = as_json
    return run.go()


def retry(
    settings: Settings,
    stamp: str | None,
    classes: tuple[FailureClass, ...],
    *,
    as_json: bool = False,
) -> Exit:
    """Resume, and take up the failed cells of these classes (none: of all); `--only` narrows it."""
    with Workspace(settings).open_state(must_exist=True) as state:
        info = find_sweep(state, stamp)
        run = _recorded(settings, state, info)
        run.again = failed_cells(state, info, classes, settings.only)
    run.as_json = as_json
    return run.go()


def failed_cells(
    state: State, info: SweepInfo, classes: Collection[FailureClass], only: Collection[str]
) -> frozenset[str]:
    """The failed cells of these classes (none: of all) that match these globs (none: all).

    The run plans them again once nothing else can stop it, so that a failure and its hint are not
    lost to a wrong key or a feed that is away.
    """
    chosen = frozenset(
        one.cell
        for one in state.outcomes(info.id, statuses=FAILED, brief=True)
        if (not classes or one.failure in classes) and (not only or matches(one.cell, only))
    )
    if not chosen:
        raise nothing_to_retry(state, info)
    return chosen


def nothing_to_retry(state: State, info: SweepInfo) -> NothingSelected:
    """Why a retry finds nothing to do in a sweep, and what to do."""
    summary = summary_of(state, info)
    if summary.groups:
        failed = counted(len(summary.failures), "failed cell")
        text = f"sweep {info.stamp} has {failed}, but none of this selection"
        return NothingSelected(text, hint=f"see modelmill status {info.stamp} --failed")
    again = f"modelmill resume {info.stamp}{summary.flags}"
    hint = f"{open_text(summary)}: {again}" if summary.resumable else ""
    text = f"no cell of sweep {info.stamp} has failed: there is nothing to retry"
    return NothingSelected(text, hint=hint)


def _recorded(settings: Settings, state: State, info: SweepInfo, catalog: str | None = None) -> Run:
    """The recorded sweep, with the cells that `modelmill compile` added to it."""
    recorded = dict(info.settings)
    if TUNING in recorded:
        raise UsageError(
            f"{info.stamp} is a tuning of a fleet",
            hint=f"continue it: modelmill tune --resume {info.stamp} --fleet",
        )
    if catalog is not None:
        recorded["catalog"] = catalog_reference(settings, catalog)
    elif recorded.get("catalog") == "":
        return _compiled(settings, state, info)
    recalled, recorded_catalog = recall(settings, info.stamp, info.settings)
    plan = plan_of(recalled, catalog or recorded_catalog, date.today())  # noqa: DTZ011 - the user's
    if catalog is None:
        plan = with_other_catalogs(state, info.id, plan, recorded_catalog, settings.only)
    compiled = compiled_plan(state, info.id, emulated=recalled.emulated)
    if compiled and (more := unpublished(state, info.id, compiled.models, settings.only)):
        recalled = recalled.replaced({"emulated": is_emulated(compiled)}, f"sweep {info.stamp}")
        plan = merged(plan, more)
    return Run(plan, recalled, recorded)


def _compiled(settings: Settings, state: State, info: SweepInfo) -> Run:
    """A sweep of which this state has only the compiled cells."""
    plan = compiled_plan(state, info.id, emulated=settings.emulated)
    if plan is None:
        raise StateError(f"the state does not say what sweep {info.stamp} compiles")
    return Run(plan, settings_of(plan, settings, info), dict(info.settings))


def _from_feed(settings: Settings, stamp: str, catalog: str | None) -> Run:
    """A sweep that only the feed knows. What is in the feed is not built again."""
    feed = Workspace(settings).open_feed()
    if feed.is_new or not _has_stamp(feed, settings.package, stamp):
        text = f"neither the state of this machine nor the feed {feed.name} knows a sweep '{stamp}'"
        raise UsageError(text, hint=f"begin it: modelmill sweep CATALOG --stamp {stamp}")
    if catalog is None:
        where = "recorded in the state of another machine"
        text = f"sweep {stamp} is in the feed {feed.name}, but its catalog is {where}"
        raise UsageError(text, hint=f"continue with the catalog: modelmill resume {stamp} CATALOG")
    settings = settings.replaced({"stamp": stamp}, f"sweep {stamp}")
    plan = plan_of(settings, catalog, date.today())  # noqa: DTZ011 - the user's date
    return Run(plan, settings, remember(settings, catalog_reference(settings, catalog)))


def _has_stamp(feed: Feed, template: str, stamp: str) -> bool:
    """Whether a feed has the index of a stamp, or any version of it."""
    if index_revisions(feed, index_name(template, stamp)[0], stamp):
        return True
    prefix = f"0.0.0-{stamp}-"
    return any(any(True for _ in feed.versions(name, prefix)) for name in feed.packages())
