"""The stage that compiles several portable packages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest

from matrix.model import Profile
from matrix.status import FailureClass
from tests.engines.compilers import RUNTIME, FakeRuntimes
from workers import composition
from workers.compile.group import Job
from workers.compile.stage import ALONE, compile_packages, member_names
from workers.composition import Component, Composition, Link
from workers.engine import StageReport
from workers.errors import BuildFailed
from workers.runtimes.pool import Runtimes

KEY = "0123456789abcdef" * 4


def package(folder: Path, **models: str) -> Path:
    """A portable package: `model`, or a folder for each component."""
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    for name, text in models.items():
        file = folder / ("model.onnx" if name == "model" else f"{name}/model.onnx")
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    if "model" not in models:
        parts = tuple(Component(name, f"{name}/model.onnx") for name in models)
        links = (Link("encoder/x", "decoder/x"),)
        composition.write(Composition(parts, links), folder)
    return folder


def compiled(
    fake: FakeRuntimes, inputs: Mapping[str, Path], folder: Path, *, shared: bool = True
) -> StageReport:
    for name in ("out", "scratch"):
        (folder / name).mkdir()
    job = Job(cast("Runtimes", fake), RUNTIME, Profile("p", "t", "r"), folder / "scratch")
    return compile_packages(inputs, folder / "out", KEY, job, shared=shared)


def names(folder: Path) -> list[str]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path.relative_to(folder).as_posix() for path in found)


def test_the_components_of_a_composite_share_one_binary(tmp_path: Path) -> None:
    fake = FakeRuntimes()
    source = package(tmp_path / "t5", encoder="E", decoder="D")
    report = compiled(fake, {ALONE: source}, tmp_path)
    assert names(tmp_path / "out") == [
        "composition.json", "config.json", "decoder.onnx", "encoder.onnx", "shared.bin",
    ]  # fmt: skip
    assert fake.calls == [["E", "D"]]
    record = composition.read(tmp_path / "out")
    assert record is not None
    assert [one.model for one in record.components] == ["encoder.onnx", "decoder.onnx"]
    assert record.links == (Link("encoder/x", "decoder/x"),)
    assert [(one["model"], one["origin"], one["binaries"]) for one in report.facts["graphs"]] == [
        ("encoder.onnx", "encoder/model.onnx", ["shared.bin"]),
        ("decoder.onnx", "decoder/model.onnx", ["shared.bin"]),
    ]
    assert report.info["sharing"]["graphs"] == 2


def test_members_of_a_group_lie_beside_their_binary_and_their_files_below_their_names(
    tmp_path: Path,
) -> None:
    fake = FakeRuntimes()
    inputs = {name: package(tmp_path / name, model=name) for name in ("prefill", "decode")}
    report = compiled(fake, inputs, tmp_path)
    assert fake.calls == [["prefill", "decode"]]
    assert names(tmp_path / "out") == [
        "composition.json", "decode.onnx", "decode/config.json", "prefill.onnx",
        "prefill/config.json", "shared.bin",
    ]  # fmt: skip
    assert (tmp_path / "out" / "decode.onnx").read_text() == "context of decode"
    assert report.facts["graphs"][1]["origin"] == "decode/model.onnx"
    sizes = [
        path.stat().st_size for path in (tmp_path / "out").glob("*.*") if path.suffix != ".json"
    ]
    assert report.info["sharing"] == {"graphs": 2, "together": sum(sizes)}
    told = json.loads((tmp_path / "out" / "composition.json").read_text())["components"]
    assert [one["name"] for one in told] == ["prefill", "decode"]


def test_a_model_of_one_graph_shares_nothing(tmp_path: Path) -> None:
    fake = FakeRuntimes()
    report = compiled(fake, {ALONE: package(tmp_path / "bert", model="B")}, tmp_path)
    assert fake.calls == [["B"]]
    assert names(tmp_path / "out") == ["config.json", "model.onnx", "shared.bin"]
    assert report.info["sharing"]["graphs"] == 1


def test_graphs_beside_each_other_are_compiled_one_by_one(tmp_path: Path) -> None:
    """Of a decoder: its graphs and their weights lie in one folder."""
    fake = FakeRuntimes()
    source = package(tmp_path / "gpt2", prefill="P", decode="D")
    parts = []
    for name in ("prefill", "decode"):
        (source / name / "model.onnx").rename(source / f"{name}.onnx")
        parts.append(Component(name, f"{name}.onnx"))
    composition.write(Composition(parts), source)
    report = compiled(fake, {ALONE: source}, tmp_path, shared=False)
    assert fake.calls == [["P"], ["D"]]
    assert (tmp_path / "out" / "prefill.onnx").read_text() == "context of P"
    assert (tmp_path / "out" / "decode.onnx").read_text() == "context of D"
    assert composition.read(tmp_path / "out") == composition.read(source)
    assert len(report.facts["contexts"]) == 2
    together = tmp_path / "together"
    together.mkdir()
    report = compiled(fake, {ALONE: source}, together)
    assert fake.calls[2] == ["P", "D"]  # in one context where the catalog asks for that
    assert [one["origin"] for one in report.facts["graphs"]] == ["prefill.onnx", "decode.onnx"]


@pytest.mark.parametrize(
    "fake",
    [
        FakeRuntimes(bad={"decode": "operator Foo is not supported"}),
        FakeRuntimes(bad={"decode": BuildFailed(FailureClass.CRASH, "compile", "it is gone")}),
        FakeRuntimes(nothing={f"decode_{KEY[:16]}.onnx"}),
        FakeRuntimes(problems={f"decode_{KEY[:16]}.onnx": "its binary ../x is outside"}),
    ],
)
def test_the_member_at_fault_is_named_and_nothing_is_made(
    tmp_path: Path, fake: FakeRuntimes
) -> None:
    inputs = {name: package(tmp_path / name, model=name) for name in ("prefill", "decode")}
    with pytest.raises(BuildFailed) as error:
        compiled(fake, inputs, tmp_path)
    assert error.value.member == "decode"
    assert names(tmp_path / "out") == []
    assert fake.calls == [["prefill", "decode"]]


def test_a_composite_is_no_member(tmp_path: Path) -> None:
    inputs = {
        "prefill": package(tmp_path / "prefill", model="P"),
        "t5": package(tmp_path / "t5", encoder="E", decoder="D"),
    }
    with pytest.raises(BuildFailed, match="t5 has components") as error:
        compiled(FakeRuntimes(), inputs, tmp_path)
    assert error.value.member == "t5"


def test_names_of_members_differ_on_every_disk() -> None:
    assert member_names(["a/model", "b/model", "c/model_1", "d/Model", "e/x.y", "f/..z"]) == [
        "model", "model_2", "model_1", "Model_3", "x-y", "z",
    ]  # fmt: skip
