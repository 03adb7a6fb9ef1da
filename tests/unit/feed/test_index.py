from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import pytest

from feed.errors import Corrupt
from feed.index import IndexCell, SweepIndex
from matrix.status import Status

TREE = "d" * 64
CELL = IndexCell(
    "org/net:image-classification@qnn_npu",
    "org/net",
    "image-classification",
    "qnn_npu",
    "w8a16",
    Status.PUBLISHED,
    "modelmill-org-net",
    "0.0.0-20260609-qnn-npu-org-net",
    TREE,
)
FAILED = replace(CELL, id="org/net@ov_cpu", target="ov_cpu", status=Status.BUILD_FAILED, tree=None)
INDEX = SweepIndex("20260609", (CELL, FAILED))


def test_round_trip_and_one_spelling() -> None:
    assert SweepIndex.from_json(INDEX.to_json()) == INDEX
    compiled = replace(CELL, id=f"{CELL.id}+htp73", target="qnn_npu+htp73")
    both = replace(INDEX, cells=(CELL, compiled))
    assert SweepIndex.from_json(both.to_json()) == both
    assert replace(INDEX, cells=(FAILED, CELL)).to_json() == INDEX.to_json()


@pytest.mark.parametrize(
    "edit",
    [
        lambda value: value.update(format=2),
        lambda value: value.pop("stamp"),
        lambda value: value.update(cells={}),
        lambda value: value["cells"].append(7),
        lambda value: value["cells"].append(value["cells"][0]),
        lambda value: value["cells"][0].pop("model"),
        lambda value: value["cells"][0].update(task=None),
        lambda value: value["cells"][0].update(package="../../etc"),
        lambda value: value["cells"][0].update(version="1.0/../../x"),
        lambda value: value["cells"][0].update(target="../up"),
        lambda value: value["cells"][0].update(target=""),
        lambda value: value["cells"][0].update(status="great"),
        lambda value: value["cells"][0].update(tree="abc"),
        lambda value: value["cells"][0].update(tree=7),
    ],
)
def test_rubbish_is_refused_by_name(edit: Callable[[dict[str, Any]], object]) -> None:
    value = json.loads(INDEX.to_json())
    edit(value)
    with pytest.raises(Corrupt, match=r"idx is not a sweep index|idx, cell"):
        SweepIndex.from_json(json.dumps(value).encode(), "idx")


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"{}", b"\xff", b"<html>"])
def test_what_is_no_index(data: bytes) -> None:
    with pytest.raises(Corrupt):
        SweepIndex.from_json(data)


def test_only_what_was_published_is_available() -> None:
    assert CELL.available
    assert replace(CELL, status=Status.UNCHANGED).available
    assert not FAILED.available
    assert not replace(CELL, status=Status.CONFLICT).available


@pytest.mark.parametrize(
    ("package", "version", "target", "folder"),
    [
        ("modelmill-org-net", "0.0.0-s-qnn-npu-org-net", "qnn_npu", "qnn_npu"),
        ("modelmill-org-net", "0.0.0-s-qnn-npu-org-net-fp16", "qnn_npu", "qnn_npu-fp16"),
        ("modelmill-org-net", "0.0.0-s-qnn-npu-org-net-htp73", "qnn_npu+htp73", "qnn_npu+htp73"),
        ("modelmill-org-net", "0.0.0-s-qnn-npu-org-net-ner", "qnn_npu", "qnn_npu"),
        ("modelmill-org-net", "0.0.0-s-qnn-npu-org-net-ner-fp16", "qnn_npu", "qnn_npu-fp16"),
        ("m-org-net-ner", "0.0.0-s-qnn-npu-org-net-ner-fp16", "qnn_npu", "qnn_npu-fp16"),
        ("all", "0.0.0-s-qnn-npu-org-net-ner", "qnn_npu", "qnn_npu-org-net-ner"),
        ("modelmill-long-1a2b", "0.0.0-s-qnn-npu-long-1a2b-ner", "qnn_npu", "qnn_npu"),
    ],
)
def test_a_cell_is_pulled_into_one_folder_whatever_else_exists(
    package: str, version: str, target: str, folder: str
) -> None:
    one = replace(CELL, task="ner", package=package, version=version, target=target)
    assert one.folder() == PurePosixPath(package, folder)
    assert SweepIndex("s", (one, FAILED)).folders()[one.id] == PurePosixPath(package, folder)


def test_two_tasks_of_a_model_do_not_meet() -> None:
    package, version = "modelmill-org-net", "0.0.0-s-ov-cpu-org-net"
    base = replace(CELL, target="ov_cpu", package=package)
    both = [replace(base, id=one, task=one, version=f"{version}-{one}") for one in ("ner", "qa")]
    folders = SweepIndex("s", (*both,)).folders()
    assert {path.name for path in folders.values()} == {"ov_cpu-ner", "ov_cpu-qa"}
