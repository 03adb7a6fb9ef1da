"""What the page of a sweep's parent shows in Prefect: name, tags, progress, outcomes, report.

A server that is away misses some of it; the work does not wait for it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import httpx
from prefect.artifacts import (
    create_link_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.client.orchestration import SyncPrefectClient
from prefect.exceptions import PrefectException

from feed.azure.address import package_page
from flows.cli.settings import Settings
from flows.fleet.launch import count_slots
from flows.fleet.parent_runs import this_run
from flows.observe.masking import masked
from flows.observe.progress import SweepProgress
from flows.observe.report.collect import collect
from flows.observe.report.page import write as write_page
from flows.observe.summaries import REPORT_NAME, write_summaries
from flows.observe.summaries.document import SummaryDocument, summary_document
from flows.observe.summaries.markdown import markdown
from flows.prefect.artifacts import artifact_key, outcome_table, percent_done, progress_text
from matrix.model import Plan
from state.records import Event, SweepInfo
from state.state import State

AWAY = (httpx.HTTPError, PrefectException)
"""What Prefect's client raises while the server is away."""
_INTERVAL = 5.0
_MOST_TAGS = 30


def tags_of(plan: Plan, sweep: int) -> list[str]:
    """By which the runs of a sweep are found: stamp, targets, and models unless they are many."""
    targets = sorted({cell.target.label for model in plan.models for cell in model.cells})
    models = [model.name for model in plan.models]
    few = models if len(models) <= _MOST_TAGS else []
    return [
        f"stamp:{plan.stamp}",
        f"sweep:{sweep}",
        *(f"target:{label}" for label in targets[:_MOST_TAGS]),
        *(f"model:{name}" for name in few),
    ]


@dataclass(slots=True)
class ParentDisplay:
    """The page of the flow run around us; a view that a `Follower` keeps up to date."""

    client: SyncPrefectClient
    state: State
    sweep: int
    stamp: str
    progress: SweepProgress
    _progress: UUID | None = None
    _updated: float = float("-inf")

    def name_and_tag(self, tags: Iterable[str]) -> None:
        """A run that a schedule started does not know its stamp when it begins."""
        if run := this_run():
            with suppress(*AWAY):
                self.client.update_flow_run(run.id, name=f"sweep-{self.stamp}", tags=list(tags))

    def event(self, event: Event, progress: SweepProgress) -> None:
        """Show it with the next tick."""

    def tick(self, progress: SweepProgress) -> None:
        """Update the progress bar, every few seconds."""
        if time.monotonic() >= self._updated + _INTERVAL:
            self._updated = time.monotonic()
            count_slots(self.state, self.sweep, progress)
            self._update(progress)

    def close(self) -> None:
        """Show where the progress bar ends."""
        self._update(self.progress)

    def _update(self, progress: SweepProgress) -> None:
        percent, text = percent_done(progress), progress_text(progress)
        with suppress(*AWAY):
            if self._progress is None:
                made: Any = create_progress_artifact(
                    progress=percent, key=artifact_key(self.stamp, "progress"), description=text
                )
                self._progress = made
            else:
                update_progress_artifact(self._progress, progress=percent, description=text)

    def result(self, info: SweepInfo, settings: Settings, plan: Plan, index: str | None) -> None:
        """The table of outcomes and the report, with links to its files and the index package."""
        with suppress(*AWAY):
            self._table(info)
        with suppress(*AWAY):
            self._report(info, settings, plan, index)

    def _table(self, info: SweepInfo) -> None:
        table, text = outcome_table(self.stamp, self.state.outcomes(info.id, brief=True))
        create_table_artifact(table, key=artifact_key(self.stamp, "outcomes"), description=text)

    def _report(self, info: SweepInfo, settings: Settings, plan: Plan, index: str | None) -> None:
        told = summary_document(self.state, info)
        files = _write_files(self.state, told, settings)
        page = package_page(info.feed, plan.index_package, index) if index else None
        text = masked(markdown(told))
        if index:
            name = f"{plan.index_package} {index}"
            text += f"\nIndex of this sweep: {f'[{name}]({page})' if page else f'`{name}`'}\n"
        if files:
            text += f"\nThe whole report: [{files}]({files})\n"
        create_markdown_artifact(
            text, key=artifact_key(self.stamp, "report"), description=f"how sweep {self.stamp} went"
        )
        if page:
            create_link_artifact(page, "the index of this sweep", artifact_key(self.stamp, "index"))
        if files:
            create_link_artifact(
                files, "the report of this sweep", artifact_key(self.stamp, "page")
            )


def _write_files(state: State, told: SummaryDocument, settings: Settings) -> str | None:
    """Write the summary files where this machine keeps them; returns the report's address."""
    if not settings.summary:
        return None
    stamp = told.summary.stamp
    folder = settings.path(settings.summary) / stamp
    write_summaries(folder, state, told.info)
    write_page(collect(state, told.info, told.since), folder / REPORT_NAME)
    base = settings.summary_url
    return f"{str(base).rstrip('/')}/{stamp}/{REPORT_NAME}" if base else None
