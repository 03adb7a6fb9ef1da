"""Shared contexts from the catalog to the feed, with the real QNN compiler: a sweep is killed
while it works and resumed, one member of the group cannot be built, and nothing is opened, because
the emulated HTP cannot open a context of several graphs."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.sweeps.command import Project

pytestmark = [
    pytest.mark.vendor,
    pytest.mark.engine,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.name != "posix", reason="SIGKILL"),
]

BERT = {
    "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 512,
    "max_position_embeddings": 64, "initializer_range": 0.1,
}  # fmt: skip
T5 = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "vocab_size": 512}


def entry(name: str, task: str, group: str, random: dict[str, Any], length: int = 0) -> str:
    """A table of a catalog."""
    config = ", ".join(f"{key} = {value}" for key, value in random.pop("config").items())
    lines = [
        f'[[model]]\nid = "demo/{name}"\ntask = "{task}"\ncontext_group = "demo/{group}"',
        f"shapes = {{ sequence_length = {length} }}" if length else "",
        f'[model.random]\narchitecture = "{random["architecture"]}"\nseed = 7',
        f"config = {{ {config} }}",
    ]
    return "\n".join(lines)


def encoder(name: str, length: int, size: int = 128) -> str:
    """Entries of one size have the same weights. No model has four heads and 65 columns."""
    random = {"architecture": "bert", "config": {**BERT, "hidden_size": size}}
    return entry(name, "feature-extraction", "lengths", random, length)


PREFILL, DECODE, BROKEN = encoder("prefill", 16), encoder("decode", 4), encoder("broken", 4, 65)
COMPOSITE = entry(
    "t5", "text2text-generation", "t5",
    {"architecture": "t5", "config": {**T5, "num_decoder_layers": 2, "decoder_start_token_id": 0}},
)  # fmt: skip
GROUP = "demo/lengths@qnn_npu+htp73"
LACKING = f"{GROUP} is published without demo/broken:feature-extraction@qnn_npu"
SWEEP = ("--target", "qnn_npu", "--jobs", "1", "--compile", "htp73", "--emulated")
UNRUN = ("--verify", "policy")


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Swept as stamp `one`: killed, and resumed."""
    project = Project(
        tmp_path_factory.mktemp("contexts"),
        {"MODELMILL_ENGINE": "optimum", "MODELMILL_RUNTIMES": "qnn"},
    )
    name = project.catalog(PREFILL, DECODE, BROKEN, COMPOSITE)
    with project.start("sweep", name, *SWEEP, *UNRUN, "--stamp", "one", plain=True) as running:
        running.until("demo/decode:feature-extraction@qnn_npu")
        victims = project.processes()
        running.signal(signal.SIGKILL)
        for victim in victims:
            with suppress(psutil.NoSuchProcess):
                victim.kill()
    ran = project.run("resume", "one")
    assert ran.code == 1, ran
    assert LACKING in ran.out
    assert project.statuses("one") == {"published": 5, "build_failed": 1}
    return project


def pulled(project: Project, package: str, end: str) -> tuple[Path, dict[str, Any], dict[str, Any]]:
    """A package of the first sweep, with its manifest and build record."""
    (version,) = (
        version
        for name, version in project.published()
        if name == package and "-one-" in version and version.endswith(end)
    )
    folder = project.folder / f"pulled-{package}"
    if not folder.is_dir():
        project.ok("feed", "pull", package, version, "--dest", folder.name)
    project.ok("feed", "verify", "--folder", folder.name)
    records = [
        json.loads((folder / name).read_bytes()) for name in ("modelmill.json", "build.json")
    ]
    return folder, records[0], records[1]


def test_the_package_of_a_group_names_its_members_and_their_one_binary(swept: Project) -> None:
    folder, manifest, record = pulled(swept, "modelmill-demo-lengths", "-htp73")
    (binary,) = folder.glob("*.bin")
    stage = manifest["stages"][-1]
    assert [(one["model"], one["binaries"]) for one in stage["facts"]["graphs"]] == [
        ("prefill.onnx", [binary.name]), ("decode.onnx", [binary.name]),
    ]  # fmt: skip
    portable = {tree for (_package, name), tree in swept.published().items() if "-npu-" in name}
    assert {one["portable"]["tree"] for one in manifest["members"]} < portable
    assert manifest["left_out"] == ["demo/broken:feature-extraction@qnn_npu"]
    assert list(record["left_out"]) == manifest["left_out"]


def test_the_components_of_a_composite_lie_beside_their_one_binary(swept: Project) -> None:
    folder, manifest, record = pulled(swept, "modelmill-demo-t5", "-htp73")
    assert manifest["cell"] == "demo/t5:text2text-generation@qnn_npu+htp73"
    (binary,) = folder.glob("*.bin")
    for name in ("encoder", "decoder"):
        assert binary.name.encode() in (folder / f"{name}.onnx").read_bytes()
    composition = json.loads((folder / "composition.json").read_bytes())
    assert [one["model"] for one in composition["components"]] == ["encoder.onnx", "decoder.onnx"]
    assert record["sharing"]["graphs"] == 2


def test_what_cannot_be_opened_here_is_not_told_as_checked(swept: Project) -> None:
    _folder, _manifest, record = pulled(swept, "modelmill-demo-lengths", "-htp73")
    assert record["verdict"] == {"level": "policy", "reached": True}
    ran = swept.run("verify", "pulled-modelmill-demo-lengths")
    assert ran.code == 1
    assert "cannot open a context that holds several graphs" in ran.out
    version = "0.0.0-one-qnn-npu-demo-lengths-htp73"
    ran = swept.run("bench", "modelmill-demo-lengths", version, "--emulated")
    assert (ran.code, ran.out) == (2, "")
    assert "cannot be measured here: this emulator cannot open a context" in ran.err
    ran = swept.run("sweep", "catalog.toml", *SWEEP, "--only", GROUP, "--stamp", "checked")
    assert swept.statuses("checked") == {"verify_failed": 1}
    assert "or sweep with --verify policy" in ran.out


def test_the_rest_of_a_group_is_what_it_would_be_without_the_member_that_failed(
    swept: Project,
) -> None:
    whole = swept.catalog(PREFILL, DECODE, COMPOSITE, name="whole.toml")
    swept.ok("sweep", whole, *SWEEP, *UNRUN, "--stamp", "two")
    assert not swept.ran("two")
    told = swept.ok(
        "feed", "show", "modelmill-demo-lengths", "0.0.0-two-qnn-npu-demo-lengths-htp73"
    )
    assert "2 graphs share one context of" in told.out
    swept.ok("sweep", whole, *SWEEP, *UNRUN, "--stamp", "three", "--if-changed")
    assert swept.statuses("three") == {"unchanged": 5}
    told = swept.ok("feed", "pull", "--stamp", "three", "--for", "htp73", "--dest", "all")
    assert len(told.out.splitlines()) == 2


def test_the_report_tells_the_sizes_and_who_is_missing(swept: Project) -> None:
    swept.ok("report", "one", "-o", "report.html")
    text = (swept.folder / "report.html").read_text("utf-8")
    assert '"sharing":{"graphs":2,' in text
    assert '"left_out":{"demo/broken:feature-extraction@qnn_npu"' in text
    assert LACKING in swept.run("status", "one").out
