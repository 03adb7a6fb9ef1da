"""Two sweeps at once on one state: nothing is built or published twice, and both end well."""

from __future__ import annotations

from collections import Counter

import pytest

from feed.selection import index_revisions
from matrix.status import Status
from state.records import Kind
from tests.sweeps.command import Project, model

MODELS = "abcdef"
CELLS = 8 * len(MODELS)


def catalog(project: Project) -> str:
    """Models whose second stage takes a moment, so that the sweeps do meet."""
    journal, slow = str(project.folder / "journal"), {"optimize": "sleep:0.05"}
    return project.catalog(*(model(f"tiny/{name}", journal=journal, act=slow) for name in MODELS))


def run_both(project: Project, *stamps: str) -> None:
    name = catalog(project)
    with (
        project.start("sweep", name, "--stamp", stamps[0], plain=True) as first,
        project.start("sweep", name, "--stamp", stamps[1], plain=True) as second,
    ):
        for ran in (first.end(), second.end()):
            assert (ran.code, ran.err) == (0, "")
            assert f"{CELLS} published" in ran.out


@pytest.mark.parametrize("stamps", [("s1", "s1"), ("s1", "s2")])
def test_two_sweeps_started_at_once(project: Project, stamps: tuple[str, str]) -> None:
    run_both(project, *stamps)
    different = set(stamps)
    # The engine's own record: no stage of any model was run twice, in whichever process.
    with project.state() as state:
        runs = [run for stamp in different for run in state.stage_runs(project.sweep(stamp).id)]
    assert len(project.journal()) == len({run.key for run in runs}) == 5 * len(MODELS)
    published = project.published()
    assert len(published) == len(different) * (CELLS + len(MODELS) + 1)
    for stamp in different:
        assert project.statuses(stamp) == {"published": CELLS}
        with project.state() as state:
            events = list(state.events(project.sweep(stamp).id))
        became = Counter(event.cell for event in events if event.status is Status.PUBLISHED)
        assert set(became.values()) == {1}
        # Nobody took anything from a living holder.
        assert not [event for event in events if event.kind in {Kind.LOST, Kind.POISON}]
        revisions = index_revisions(project.feed(), "modelmill-index", stamp)
        assert set(revisions) == {1}
    if len(different) == 2:
        trees = {
            stamp: {one.cell: one.tree for one in project.outcomes(stamp).values()}
            for stamp in different
        }
        assert trees["s1"] == trees["s2"]
    assert project.alone()
