"""Shared contexts: the stages of all members, and one that compiles those that have not failed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from matrix.digest import FileEntry
from matrix.model import Cell
from matrix.selector import Selection
from matrix.status import FailureClass
from tests.plans.models import a_model, plan_of, plan_options
from workers.build.built import StageRun
from workers.build.context import members_of, placed, share
from workers.build.graph import StageResults, StageTask, walk
from workers.build.package import build_record
from workers.compile.stage import ALONE
from workers.engine import SOURCE, BuildPlan, StageSpec
from workers.errors import BuildFailed
from workers.store import Action

NPU = Selection(targets=("qnn_npu",))
AIMED = plan_options(compile=("htp73",))
PORTABLE = (
    StageSpec("export", {}, [SOURCE], []),
    StageSpec("inputs", {}, ["export"], []),
    StageSpec("quantize", {}, ["export"], [], per_component=True),
)


def group(*names: str, alone: bool = False) -> Cell:
    models = [replace(a_model(f"x/{name}", ""), context_group="x/llm") for name in names]
    cells = list(plan_of(models, selection=NPU, options=AIMED).cells())
    return next(cell for cell in cells if cell.profile and (alone or cell.members))


def spec(names: Sequence[str]) -> StageSpec:
    return StageSpec("compile", {"members": list(names)}, names, ())


class Building:
    """Runs nothing; remembers what was asked for, and fails as it is told."""

    def __init__(
        self, *, bad: str = "-", unbuilt: str = "-", components: Sequence[str] = ()
    ) -> None:
        self.bad, self.unbuilt, self.components = bad, unbuilt, components
        self.failure = FailureClass.EXPORT
        self.tried: list[list[str]] = []

    def portable(self, name: str, member: Cell) -> StageResults | None:
        if name == self.unbuilt:
            raise BuildFailed(self.failure, "export", "no")
        digest = member.model.id.encode().hex().ljust(64, "0")
        return walk("fake", {}, BuildPlan({"digest": digest}, PORTABLE), self.resolve)

    def resolve(self, task: StageTask) -> Action:
        if task.spec.name == "compile":
            self.tried.append(list(task.inputs))
            if self.bad in task.inputs:
                error = BuildFailed(FailureClass.COMPILE, "compile", "no such operator")
                error.member = self.bad
                raise error
        files = ["inputs.npz"] if task.spec.name == "inputs" else ["model.onnx"]
        if task.spec.name == "export" and self.components:
            files = [f"{name}/model.onnx" for name in self.components] + ["config.json"]
        key = task.key
        entries = tuple(FileEntry(path, 1, key) for path in files)
        return Action(key, task.parts, entries, {"components": list(self.components)}, {}, 0, 0)

    def shared(self, cell: Cell) -> StageResults:
        results = share(cell, self.portable, spec, self.resolve)
        assert results is not None
        return results


def paths(results: StageResults, stage: str) -> list[str]:
    return [file.path for file in results.files_of(stage)]


def test_the_results_of_a_group_look_like_those_of_a_composite_of_its_members() -> None:
    results = Building().shared(group("prefill", "decode"))
    for stage, file in (("export", "model"), ("inputs", "inputs"), ("portable", "model")):
        assert {path.partition(".")[0] for path in paths(results, stage)} == {
            f"prefill/{file}", f"decode/{file}",
        }  # fmt: skip
    assert results.components == ("prefill", "decode")
    assert list(results.keys) == [
        "export:prefill", "inputs:prefill", "quantize:prefill",
        "export:decode", "inputs:decode", "quantize:decode", "compile:",
    ]  # fmt: skip
    assert [cell.id for cell, _ in results.members.values()] == [
        "x/prefill@qnn_npu", "x/decode@qnn_npu",
    ]  # fmt: skip


def test_the_stages_of_a_member_have_the_keys_that_they_have_without_the_group() -> None:
    building, cell = Building(), group("prefill", "decode")
    own = building.portable("", cell.members[0])
    assert own is not None
    shared = building.shared(cell).keys
    assert own.keys == {name: shared[f"{name}prefill"] for name in own.keys}


def test_the_key_holds_the_members_in_order_and_another_member_changes_it_alone() -> None:
    two = Building().shared(group("prefill", "decode")).keys
    turned = Building().shared(group("decode", "prefill")).keys
    three = Building().shared(group("prefill", "decode", "draft")).keys
    compiled = {keys["compile:"]["key"] for keys in (two, turned, three)}
    assert len(compiled) == 3
    assert all(three[name] == key for name, key in two.items() if name != "compile:")


@pytest.mark.parametrize("fault", ["bad", "unbuilt"])
def test_a_member_that_fails_is_left_out_and_named(fault: str) -> None:
    building = Building(bad="decode") if fault == "bad" else Building(unbuilt="decode")
    results = building.shared(group("prefill", "decode", "draft"))
    assert building.tried[-1] == ["prefill", "draft"]
    assert set(results.left_out) == {"x/decode@qnn_npu"}
    assert list(results.members) == ["prefill", "draft"]
    # What is left is the context that a group of only these members has.
    rest = Building().shared(group("prefill", "draft"))
    assert results.keys["compile:"]["key"] == rest.keys["compile:"]["key"]


def test_the_record_of_a_group_does_without_the_stages_of_a_member_that_failed_later() -> None:
    building, runs, at = Building(), list[StageRun](), list[str]()

    def resolve(task: StageTask) -> Action:
        if task.spec.name == "quantize" and at == ["decode"]:
            raise BuildFailed(FailureClass.QUANTIZE, "quantize", "no")
        action = building.resolve(task)
        told = (task.spec.name, task.component, task.key, task.parts)
        runs.append(StageRun(*told, False, 1.0, 1, 1))
        return action

    def portable(name: str, member: Cell) -> StageResults | None:
        at[:] = [name]
        digest = member.model.id.encode().hex().ljust(64, "0")
        return walk("fake", {}, BuildPlan({"digest": digest}, PORTABLE), resolve)

    results = share(group("prefill", "decode", "draft"), portable, spec, building.resolve)
    assert results is not None
    assert list(results.left_out) == ["x/decode@qnn_npu"]
    assert len(runs) == 8, "decode was exported before it failed"
    started = datetime.now(UTC)
    told = build_record("s1", "1", results, runs, started=started, seconds=1.0, attempt=1)
    assert [one["stage"] for one in told["stages"]] == 2 * ["export", "inputs", "quantize"]
    assert told["left_out"] == dict(results.left_out)


def test_the_last_member_that_fails_is_the_failure_of_the_group() -> None:
    building = Building(bad="prefill", unbuilt="decode")
    with pytest.raises(BuildFailed, match="no"):
        building.shared(group("prefill", "decode"))


@pytest.mark.parametrize("failure", [FailureClass.NETWORK, FailureClass.DISK, FailureClass.AUTH])
def test_what_no_member_can_help_fails_the_group(failure: FailureClass) -> None:
    building = Building(unbuilt="decode")
    building.failure = failure
    with pytest.raises(BuildFailed) as error:
        building.shared(group("prefill", "decode"))
    assert error.value.failure is failure
    assert building.tried == []


def test_the_components_of_a_composite_fail_or_share_together() -> None:
    cell = group("t5", alone=True)
    results = Building(components=("encoder", "decoder")).shared(cell)
    assert results.components == ("encoder", "decoder")
    assert paths(results, "quantize") == ["encoder/model.onnx", "decoder/model.onnx"]
    assert [file.path for file in results.package] == ["config.json", "model.onnx"]
    assert (dict(results.members), dict(results.left_out)) == ({}, {})
    with pytest.raises(BuildFailed, match="no such operator"):
        Building(bad=ALONE).shared(cell)


def test_what_the_store_lacks_is_not_predicted() -> None:
    building, cell = Building(), group("prefill", "decode")
    without_context: Callable[[StageTask], Action | None] = lambda _task: None  # noqa: E731 - typed
    assert share(cell, building.portable, spec, without_context) is None
    assert share(cell, lambda _name, _cell: None, spec, building.resolve) is None


def test_names_of_members_and_where_their_runs_are_told() -> None:
    assert list(members_of(group("prefill", "decode"))) == ["prefill", "decode"]
    assert list(members_of(group("t5", alone=True))) == [ALONE]
    task = Building().shared(group("prefill", "decode")).tasks[0][0]
    assert (task.component, placed(task, "b").component) == ("prefill", "b/prefill")
