"""What is measured, traced and tuned runs on the samples that the package is judged on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flows.measure.subjects import Choice, Finder
from flows.settings.resolution import resolve
from matrix.digest import FileEntry
from matrix.errors import UsageError
from tests.measuring.runtimes import NPU
from workers.verify.ladder.subject import Subject


def test_a_package_is_measured_on_its_first_judged_sample(tmp_path: Path) -> None:
    nothing = cast("Any", None)
    names = ("model.onnx", "samples/01.npz", "samples/00.out.npz", "samples/00.npz")
    files = tuple(FileEntry(name, 1, "0" * 64) for name in names)
    package = Subject(claim=nothing, folder=tmp_path, files=files, store=nothing)
    finder = Finder(nothing, nothing, nothing, nothing, nothing)
    (graph,) = finder._graphs(package)
    assert graph.inputs == (tmp_path / "samples" / "00.npz",)


@pytest.mark.parametrize("emulated", [False, True])
def test_an_emulator_stands_in_for_a_device_only_if_asked(tmp_path: Path, emulated: bool) -> None:
    settings = resolve({"home": str(tmp_path), "emulated": emulated}, {}, tmp_path)
    runtimes = SimpleNamespace(for_target=lambda _target: NPU)
    finder = Finder(settings, *cast("Any", (runtimes, None, None, None)))
    choice = Choice(target="qnn_npu")
    if emulated:
        assert finder.runtime(choice) is NPU
        return
    with pytest.raises(UsageError, match="only emulates the device") as refused:
        finder.runtime(choice)
    assert "--emulated" in refused.value.hint


def test_each_component_has_samples_of_its_own(tmp_path: Path) -> None:
    nothing = cast("Any", None)
    (tmp_path / "composition.json").write_text(
        '{"schema": 1, "components": [{"name": "a", "model": "a.onnx"},'
        ' {"name": "b", "model": "b.onnx"}], "links": [], "joins": []}',
        "utf-8",
    )
    names = ("composition.json", "a.onnx", "b.onnx", "samples/a/00.npz", "samples/b/00.npz")
    files = tuple(FileEntry(name, 1, "0" * 64) for name in names)
    package = Subject(claim=nothing, folder=tmp_path, files=files, store=nothing)
    finder = Finder(nothing, nothing, nothing, nothing, nothing)
    found = {graph.component: graph.inputs for graph in finder._graphs(package)}
    assert found == {one: (tmp_path / "samples" / one / "00.npz",) for one in ("a", "b")}
