from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from matrix.digest import FileEntry
from workers.build.graph import StageResults, StageTask, walk
from workers.engine import SOURCE, BuildPlan, StageSpec
from workers.errors import BuildFailed
from workers.store import Action

TOOLS = {"tool": "1"}
EXPORT = StageSpec("export", {}, [SOURCE], ["tool"])
INPUTS = StageSpec("inputs", {}, ["export"], ["tool"], per_component=True)
OPTIMIZE = StageSpec("optimize", {"level": 1}, ["export"], ["tool"], per_component=True)
QUANTIZE = StageSpec("quantize", {}, ["optimize", "inputs"], ["tool"], per_component=True)


def plan(*stages: StageSpec) -> BuildPlan:
    return BuildPlan({"digest": "0" * 64}, stages)


def entry(path: str, text: str = "") -> FileEntry:
    return FileEntry(path, 1, (text or path).encode().hex().ljust(64, "0")[:64])


def made(task: StageTask, paths: Sequence[str], **facts: Any) -> Action:
    files = tuple(entry(path, task.key + path) for path in paths)
    return Action(task.key, task.parts, files, facts, {}, 0, 0)


def resolver(
    export: Sequence[str], components: Sequence[str] = ()
) -> tuple[list[StageTask], Callable[[StageTask], Action]]:
    tasks: list[StageTask] = []

    def resolve(task: StageTask) -> Action:
        tasks.append(task)
        if task.spec.name == "export":
            return made(task, export, components=list(components))
        return made(task, ["inputs.bin" if task.spec.name == "inputs" else "model.onnx"])

    return tasks, resolve


def walked(plan_: BuildPlan, resolve: Callable[[StageTask], Action | None]) -> StageResults:
    result = walk("fake", TOOLS, plan_, resolve)
    assert result is not None
    return result


def test_a_single_model_runs_each_stage_once_and_the_last_makes_the_package() -> None:
    tasks, resolve = resolver(["model.onnx", "config.json"])
    result = walked(plan(EXPORT, INPUTS, OPTIMIZE, QUANTIZE), resolve)
    assert [(task.spec.name, task.component) for task in tasks] == [
        ("export", ""),
        ("inputs", ""),
        ("optimize", ""),
        ("quantize", ""),
    ]
    assert [file.path for file in result.package] == ["model.onnx"]
    assert sorted(tasks[3].inputs) == ["inputs", "optimize"]


def test_inputs_are_never_the_package() -> None:
    _tasks, resolve = resolver(["model.onnx"])
    result = walked(plan(EXPORT, replace(INPUTS, per_component=False)), resolve)
    assert [file.path for file in result.package] == ["model.onnx"]


def test_components_go_through_the_same_stages_below_their_own_folders() -> None:
    tasks, resolve = resolver(
        ["encoder/model.onnx", "decoder/model.onnx", "config.json"], ["encoder", "decoder"]
    )
    result = walked(plan(EXPORT, INPUTS, OPTIMIZE, QUANTIZE), resolve)
    assert [(task.spec.name, task.component) for task in tasks[1:]] == [
        (stage, name)
        for stage in ("inputs", "optimize", "quantize")
        for name in ("encoder", "decoder")
    ]
    encoder = tasks[3]
    assert [file.path for file in encoder.inputs["export"]] == ["model.onnx"]
    assert [file.path for file in result.package] == [
        "config.json",
        "decoder/model.onnx",
        "encoder/model.onnx",
    ]


def test_a_component_is_not_keyed_by_its_neighbours() -> None:
    def keys(decoder: str) -> list[str]:
        found = []

        def resolve(task: StageTask) -> Action:
            found.append(task.key)
            if task.spec.name != "export":
                return made(task, ["model.onnx"])
            files = (entry("encoder/model.onnx"), entry("decoder/model.onnx", decoder))
            facts = {"components": ["encoder", "decoder"]}
            return Action(task.key, task.parts, files, facts, {}, 0, 0)

        walked(plan(EXPORT, OPTIMIZE), resolve)
        return found

    one, other = keys("one"), keys("other")
    assert one[1] == other[1]
    assert one[2] != other[2]


def test_a_stage_for_the_whole_sees_all_components() -> None:
    tasks, resolve = resolver(["a/model.onnx", "b/model.onnx"], ["a", "b"])
    whole = StageSpec("compile", {}, ["optimize"], ["tool"])
    walked(plan(EXPORT, OPTIMIZE, whole), resolve)
    assert [file.path for file in tasks[-1].inputs["optimize"]] == ["a/model.onnx", "b/model.onnx"]


def test_the_walk_ends_at_what_cannot_be_resolved() -> None:
    seen = []

    def resolve(task: StageTask) -> Action | None:
        seen.append(task.spec.name)
        return made(task, ["model.onnx"]) if task.spec.name == "export" else None

    assert walk("fake", TOOLS, plan(EXPORT, OPTIMIZE, INPUTS), resolve) is None
    assert seen == ["export", "optimize"]


def test_up_to_a_stage_is_what_a_walk_until_there_gives() -> None:
    _tasks, resolve = resolver(["model.onnx"])
    whole = plan(EXPORT, INPUTS, OPTIMIZE)
    full, short = walked(whole, resolve), walk("fake", TOOLS, whole, resolve, until="export")
    assert short is not None
    assert full.up_to("export") == short


@pytest.mark.parametrize(
    "bad",
    [
        plan(),
        plan(INPUTS),
        plan(StageSpec("inputs", {}, [SOURCE], [])),
        plan(EXPORT, EXPORT),
        plan(EXPORT, replace(OPTIMIZE, inputs=["quantize"])),
        plan(EXPORT, replace(OPTIMIZE, tools=["unheard-of"])),
        plan(replace(EXPORT, name="../export")),
        BuildPlan({"digest": "short"}, [EXPORT]),
        BuildPlan({}, [EXPORT]),
    ],
)
def test_an_impossible_plan_is_a_fault_of_the_engine(bad: BuildPlan) -> None:
    _tasks, resolve = resolver(["model.onnx"])
    with pytest.raises(BuildFailed, match="plan: "):
        walk("fake", TOOLS, bad, resolve)


def test_components_may_be_files_that_share_their_weights() -> None:
    export = ["prefill.onnx", "decode.onnx", "weights.data", "config.json"]
    tasks, resolve = resolver(export, ["prefill", "decode"])
    result = walked(plan(EXPORT, INPUTS, OPTIMIZE, QUANTIZE), resolve)
    assert [task.component for task in tasks] == ["", *["prefill", "decode"] * 3]
    assert [file.path for file in tasks[3].inputs["export"]] == export
    assert [file.path for file in tasks[5].inputs["optimize"]] == ["model.onnx"]
    # The export's own graphs are no part of a package of other graphs.
    assert [file.path for file in result.package] == [
        "config.json", "decode/model.onnx", "prefill/model.onnx",
    ]  # fmt: skip
    assert [file.path for file in result.up_to("export").package] == sorted(export)


@pytest.mark.parametrize("name", ["..", "a/b", "", "missing", "/abs", "."])
def test_a_component_must_be_a_folder_of_the_export(name: str) -> None:
    _tasks, resolve = resolver(["model.onnx", "a/b/model.onnx"], [name])
    with pytest.raises(BuildFailed, match="component"):
        walk("fake", TOOLS, plan(EXPORT, OPTIMIZE), resolve)
