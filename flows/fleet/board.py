"""What the page of a sweep's parent shows in Prefect: its name and tags, the report, links."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from prefect.artifacts import create_link_artifact, create_markdown_artifact
from prefect.client.orchestration import SyncPrefectClient
from prefect.context import FlowRunContext

from flows.cli.settings import Settings
from flows.fleet.launch import count_slots
from flows.observe.links import package_page
from flows.observe.masking import masked
from flows.observe.report.collect import collect
from flows.observe.report.page import write as write_page
from flows.observe.summaries import REPORT_NAME, write_summaries
from flows.observe.summaries.markdown import markdown
from flows.observe.summaries.told import Told, tell
from flows.observe.tally import Tally
from flows.prefect.names import artifact_key
from matrix.model import Plan
from state.ledger import State
from state.records import Event, SweepInfo

_MOST_TAGS = 30
_TICKS = 25
"""Looks at the events for one look at the leases."""


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


def entitle(client: SyncPrefectClient, stamp: str, tags: Iterable[str]) -> None:
    """Name and tag the flow run around us: one from a schedule knows neither when it starts."""
    run = this_run()
    if run is not None:
        client.update_flow_run(run, name=f"sweep-{stamp}", tags=list(tags))


def this_run() -> UUID | None:
    """The flow run around us."""
    context = FlowRunContext.get()
    return context.flow_run.id if context and context.flow_run else None


@dataclass(slots=True)
class Counting:
    """A view for nobody: it only keeps the tally's number of slots."""

    state: State
    sweep: int
    _ticks: int = 0

    def event(self, event: Event, tally: Tally) -> None:
        """Nothing."""

    def tick(self, tally: Tally) -> None:
        """Now and then, how many slots there are."""
        self._ticks += 1
        if self._ticks % _TICKS == 0:
            count_slots(self.state, self.sweep, tally)

    def close(self) -> None:
        """Nothing."""


def show_report(
    state: State, info: SweepInfo, settings: Settings, plan: Plan, index: str | None
) -> None:
    """The report as a page in Prefect, with links to the files and to the package of the index."""
    told = tell(state, info)
    stamp = told.summary.stamp
    report = _written(state, told, settings)
    page = package_page(info.feed, plan.index_package, index) if index else None
    text = masked(markdown(told))
    if index:
        name = f"{plan.index_package} {index}"
        text += f"\nIndex of this sweep: {f'[{name}]({page})' if page else f'`{name}`'}\n"
    if report:
        text += f"\nThe whole report: [{report}]({report})\n"
    create_markdown_artifact(
        text, key=artifact_key(stamp, "report"), description=f"how sweep {stamp} went"
    )
    if page:
        create_link_artifact(page, "the index of this sweep", artifact_key(stamp, "index"))
    if report:
        create_link_artifact(report, "the report of this sweep", artifact_key(stamp, "page"))


def _written(state: State, told: Told, settings: Settings) -> str | None:
    """Keep the files where this machine is told to; returns where a browser finds the report."""
    if not settings.summary:
        return None
    stamp = told.summary.stamp
    folder = settings.path(settings.summary) / stamp
    write_summaries(folder, state, told.info)
    write_page(collect(state, told.info, told.since), folder / REPORT_NAME)
    base = settings.summary_url
    return f"{str(base).rstrip('/')}/{stamp}/{REPORT_NAME}" if base else None
