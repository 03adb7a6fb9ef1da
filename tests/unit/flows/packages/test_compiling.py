"""What `modelmill compile` makes of packages that exist, and what a resume finds of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from feed.errors import Corrupt
from feed.index import IndexCell, SweepIndex
from flows.compile.plans import Wanted
from flows.packages.published import Original
from flows.plan.estimates import estimate
from flows.plan.recorded import compiled_plan, is_emulated, merged, note_plan, unpublished
from flows.settings.resolution import resolve
from flows.sweep.index import with_listed
from flows.sweep.lifecycle import cell_rows, model_seconds
from matrix.errors import UsageError
from matrix.model import Cell, Origin, Profile
from matrix.status import Status
from state.state import open_state
from tests.fakes.feed import MemoryFeed
from tests.plans.cells import make_cell
from tests.sweeps.in_memory import make_plan, small_model
from workers.attest.provenance import recipe_of

PROFILE = Profile("htp73", "qnn_npu", "qnn", {"htp_arch": "73"})
ALLOW = {"remote_code": True, "pickle": False}


def wanted(folder: Path, **flags: Any) -> Wanted:
    return Wanted(resolve(flags, {}, folder), (PROFILE,))


def original(cell: Cell, **manifest: Any) -> Original:
    recipe = json.loads(json.dumps(recipe_of(cell, allow=ALLOW)))
    told = {"kind": "cell", "cell": cell.id, "engine": {"name": "fake"}, **manifest}
    return Original("p v", told, recipe, "20260609", "t" * 64)


def test_a_compiled_cell_is_that_of_a_sweep_and_names_what_it_is_made_from(
    tmp_path: Path,
) -> None:
    portable = make_cell(label="qnn_npu", precision="w8a16")
    (cell,) = wanted(tmp_path, emulated=True).cells(original(portable), None, portable.package)
    assert cell.id == f"{portable.id}+htp73"
    assert (cell.package, cell.version) == (portable.package, f"{portable.version}-htp73")
    assert cell.origin == Origin(portable.version, "t" * 64)
    assert cell.needs == ("compile-emulated:htp73",)
    assert (cell.policy, cell.profile) == (portable.policy, PROFILE)
    assert cell.model.remote_code, "what it was made with is said of it again"
    # Another stamp that lists the same package has a version of its own.
    (other,) = wanted(tmp_path).cells(original(portable), "tonight", portable.package)
    assert other.version == portable.version.replace("20260609", "tonight") + "-htp73"
    assert other.needs == ("compile:htp73",)


def test_what_cannot_be_compiled_is_refused_by_name(tmp_path: Path) -> None:
    portable = make_cell(label="qnn_npu")
    asked = wanted(tmp_path)
    assert list(asked.cells(original(make_cell(label="mlas_cpu")), None)) == []
    with pytest.raises(UsageError, match="p v is compiled already, for htp81"):
        list(asked.cells(original(portable, profile={"label": "htp81"}), None))
    with pytest.raises(UsageError, match="p v is not the package of a cell"):
        list(asked.cells(original(portable, kind="export"), None))
    with pytest.raises(Corrupt, match="holds no recipe"):
        list(asked.cells(replace(original(portable), recipe={"cell": portable.id}), None))


def test_a_resume_finds_what_is_still_to_be_compiled(tmp_path: Path) -> None:
    planned = small_model("a", cells=2)
    origin = Origin("0.0.0-20260609-x", "e" * 64)
    compiled = tuple(
        replace(cell, id=f"{cell.id}+htp73", version=f"{cell.version}-htp73", profile=PROFILE,
                origin=origin, needs=("compile-emulated:htp73",))
        for cell in planned.cells
    )  # fmt: skip
    plan = make_plan(replace(planned, cells=compiled))
    assert not plan.models[0].exports, "nothing of it is exported"
    with open_state(tmp_path / "state.db") as state:
        rows = model_seconds(plan, estimate(plan, state))
        info = state.begin(plan.stamp, "feed", cell_rows(plan, {}), rows, {}, {})
        note_plan(state, info.id, make_plan(planned))
        assert compiled_plan(state, info.id) is None
        note_plan(state, info.id, plan)
        found = compiled_plan(state, info.id)
        assert found is not None
        assert is_emulated(found)
        (model,) = more = unpublished(state, info.id, found.models, ())
        assert model.cells == plan.models[0].cells
        assert unpublished(state, info.id, found.models, ("*nothing*",)) == ()
        whole = merged(make_plan(planned), more)
    assert [cell.id for cell in whole.cells()] == [
        *(cell.id for cell in planned.cells), *(cell.id for cell in compiled),
    ]  # fmt: skip
    assert merged(whole, found.models) == whole


def test_an_index_is_continued_and_never_begun_by_a_compilation() -> None:
    plan, feed = make_plan(small_model("a")), MemoryFeed()
    index = SweepIndex(plan.stamp, (_listed("b@x+p"),))
    assert with_listed(feed, plan, index, resolve({}, {}, Path())) is None


def _listed(cell: str) -> IndexCell:
    return IndexCell(cell, "b", "", "x+p", "fp32", Status.PUBLISHED, "p", "0.0.0-1-x-b-p", "t" * 64)
