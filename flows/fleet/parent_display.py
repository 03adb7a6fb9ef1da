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
from flows.prefect.display import REPORT
from flows.prefect.shown_run import ShownRun
from flows.report.collect import collect
from flows.report.page import write as write_page
from flows.settings.settings import Settings
from flows.sweep.lifecycle import Sweep
from matrix.slugs import slug
from state.records import Event
from state.state import State

_INTERVAL = 5.0


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
            self.client.update_flow_run(run, name=f"sweep-{self.shown.plan.stamp}", tags=list(tags))

    def event(self, event: Event, progress: SweepProgress) -> None:  # noqa: ARG002 - the view's interface
        """Write a line of the log about a cell that has ended."""
        self.shown.log(event)

    def tick(self, progress: SweepProgress) -> None:
        """Update the log and the progress bar, every few seconds."""
        if time.monotonic() >= self._updated + _INTERVAL:
            self._updated = time.monotonic()
            count_slots(self.sweep.state, self.sweep.info.id, progress)
            self._update()

    def close(self) -> None:
        """Show where log and progress bar end."""
        self._update()

    def _update(self) -> None:
        with suppress(*AWAY):
            self.shown.show_progress(self.client, self.progress, now=True)
            self.shown.send_logs(self.client)

    def result(self, index: str | None) -> None:
        """The table of outcomes and the summary, with links to the report and the index package."""
        state, info, package = self.sweep.state, self.sweep.info, self.sweep.plan.index_package
        with suppress(*AWAY):
            told = summary_document(state, info)
            report = _write_files(state, told, self.sweep.settings)
            text = masked(markdown(told))
            if index:
                page, name = package_page(info.feed, package, index), f"{package} {index}"
                text += f"\nIndex of this sweep: {f'[{name}]({page})' if page else f'`{name}`'}\n"
            link = f"The whole report: [{report}]({report})" if report else None
            text += f"\n{link or REPORT.format(info.stamp)}\n"
            self.shown.show_result(self.client, state.outcomes(info.id, brief=True), text)


def _write_files(state: State, told: SummaryDocument, settings: Settings) -> str | None:
    """Write the summary files where this machine keeps them; returns the report's address."""
    if not settings.summary:
        return None
    stamp = slug(told.summary.stamp)  # a stamp is one; a name in the state may be any path
    folder = settings.path(settings.summary) / stamp
    write_summaries(folder, told)
    write_page(collect(state, told), folder / REPORT_NAME)
    base = settings.summary_url
    return f"{str(base).rstrip('/')}/{stamp}/{REPORT_NAME}" if base else None
