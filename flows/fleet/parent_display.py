"""What the page of a sweep's parent shows in Prefect: name, tags, progress, outcomes, report.

If the server cannot be reached, some of this is lost; the work does not wait for it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient

from feed.azure.address import package_page
from flows.fleet.launch import count_slots
from flows.fleet.parent_runs import AWAY
from flows.observe.progress import SweepProgress
from flows.observe.summaries import REPORT_NAME, write_summaries
from flows.observe.summaries.document import SummaryDocument, summary_document
from flows.observe.summaries.markdown import markdown
from flows.observe.views import View
from flows.output.masking import masked
from flows.prefect.shown_run import ShownRun, artifact_key
from flows.report.collect import collect
from flows.report.page import write as write_page
from flows.settings.settings import Settings
from flows.sweep.lifecycle import Sweep
from matrix.model import Plan
from matrix.slugs import slug
from state.state import State

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
class ParentDisplay(View):
    """The page of the parent's flow run, which every tick brings up to date."""

    client: SyncPrefectClient
    sweep: Sweep
    shown: ShownRun
    progress: SweepProgress
    _updated: float = float("-inf")

    def name_and_tag(self, run: UUID, tags: Iterable[str]) -> None:
        """A run that a schedule started does not know its stamp when it begins."""
        with suppress(*AWAY):
            self.client.update_flow_run(run, name=f"sweep-{self.shown.stamp}", tags=list(tags))

    def tick(self, progress: SweepProgress) -> None:
        """Update the progress bar, every few seconds."""
        if time.monotonic() >= self._updated + _INTERVAL:
            self._updated = time.monotonic()
            count_slots(self.sweep.state, self.sweep.info.id, progress)
            with suppress(*AWAY):
                self.shown.show_progress(self.client, progress, now=True)

    def close(self) -> None:
        """Show where the progress bar ends."""
        with suppress(*AWAY):
            self.shown.show_progress(self.client, self.progress, now=True)

    def result(self, index: str | None) -> None:
        """The table of outcomes and the report, with links to its files and the index package."""
        sweep = self.sweep
        with suppress(*AWAY):
            outcomes = sweep.state.outcomes(sweep.info.id, brief=True)
            self.shown.show_outcomes(self.client, outcomes)
        with suppress(*AWAY):
            self._report(index)

    def _report(self, index: str | None) -> None:
        state, info, package = self.sweep.state, self.sweep.info, self.sweep.plan.index_package
        told = summary_document(state, info)
        files = _write_files(state, told, self.sweep.settings)
        page = package_page(info.feed, package, index) if index else None
        text = masked(markdown(told))
        if index:
            name = f"{package} {index}"
            text += f"\nIndex of this sweep: {f'[{name}]({page})' if page else f'`{name}`'}\n"
        if files:
            text += f"\nThe whole report: [{files}]({files})\n"
        self._markdown("report", text, f"how sweep {self.shown.stamp} went")
        if page:
            self._markdown("index", f"[the index of this sweep]({page})")
        if files:
            self._markdown("page", f"[the report of this sweep]({files})")

    def _markdown(self, kind: str, text: str, description: str = "") -> None:
        told = {"data": text, "description": description}
        key = artifact_key(self.shown.stamp, kind)
        self.shown.show(self.client, None, told, key=key, type="markdown")


def _write_files(state: State, told: SummaryDocument, settings: Settings) -> str | None:
    """Write the summary files where this machine keeps them; returns the report's address."""
    if not settings.summary:
        return None
    stamp = slug(told.summary.stamp)  # a stamp is one; a name in the state may be any path
    folder = settings.path(settings.summary) / stamp
    write_summaries(folder, state, told.info)
    write_page(collect(state, told.info, told.since), folder / REPORT_NAME)
    base = settings.summary_url
    return f"{str(base).rstrip('/')}/{stamp}/{REPORT_NAME}" if base else None
