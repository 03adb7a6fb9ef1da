"""`modelmill verify`, `--verify`, `--publish-unverified` and the gate before a view."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.sweeping import Mill, model

pytestmark = pytest.mark.engine


@pytest.fixture
def mill(tmp_path: Path) -> Mill:
    made = Mill(tmp_path)
    made.catalog(model("tiny/a"))
    return made


def package(mill: Mill, label: str) -> tuple[str, str]:
    return next(name for name in mill.published() if f"-{label}-" in name[1])


def test_what_is_published_is_verified_again(mill: Mill) -> None:
    mill.ok("sweep", "catalog.toml", "--stamp", "one")
    name, version = package(mill, "qnn-npu")
    document = mill.ok("verify", name, version, "--json").json()
    assert document["verdict"] == {"level": "parity", "reached": True}
    assert [one["passed"] for one in document["verification"]] == [True] * 5
    assert mill.ok("verify", "tiny/a:fill-mask@qnn_npu").out.endswith("level parity: reached\n")
    mill.ok("feed", "pull", name, version, "--dest", "pulled")
    mill.ok("verify", "pulled")
    data = bytearray((mill.folder / "pulled" / "model.onnx").read_bytes())
    data[-60] ^= 1
    (mill.folder / "pulled" / "model.onnx").write_bytes(data)
    ran = mill.run("verify", "pulled")
    assert ran.code == 1
    assert "model.onnx is not what its digest in modelmill.json says" in ran.out


def test_a_view_asks_for_the_targets_own_provider(mill: Mill) -> None:
    mill.ok("sweep", "catalog.toml", "--stamp", "one")
    refused = mill.run("feed", "promote", *package(mill, "qnn-npu"), "--view", "release")
    assert refused.code != 0
    assert "was not run on the target's own execution provider" in refused.err
    mill.ok("feed", "promote", *package(mill, "mlas-cpu"), "--view", "release")
    mill.ok("feed", "promote", *package(mill, "qnn-npu"), "--view", "prerelease")
    demand = ("--demand", "release=parity")
    mill.ok("feed", "promote", *package(mill, "qnn-npu"), "--view", "release", *demand)


def test_a_waiver_opens_the_view_and_is_recorded(mill: Mill) -> None:
    waiver = '[model.target."*_npu".verify.waive]\nep = "no NPU in the lab"'
    text = model("tiny/a")
    mill.catalog(text + waiver + "\n")
    mill.ok("sweep", "catalog.toml", "--stamp", "one")
    mill.ok("feed", "promote", *package(mill, "qnn-npu"), "--view", "release")
    mill.ok("feed", "pull", *package(mill, "qnn-npu"), "--dest", "pulled")
    record = json.loads((mill.folder / "pulled" / "build.json").read_bytes())
    assert record["rules"]["waive"] == {"ep": "no NPU in the lab"}


def test_the_level_decides_and_unverified_is_marked(mill: Mill) -> None:
    mill.ok("sweep", "catalog.toml", "--stamp", "low", "--verify", "integrity")
    low = mill.outcomes("low")["tiny/a:fill-mask@mlas_cpu"].evidence
    assert low is not None
    assert [one["name"] for one in low["rungs"]] == ["integrity"]
    # The engine writes opset 17; a target that takes none so new refuses it.
    (mill.folder / "targets.toml").write_text(
        '[[target]]\nlabel = "old_cpu"\nep = "cpu"\ndevice = "cpu"\nopset = [13, 15]\n', "utf-8"
    )
    more = ("--targets-file", "targets.toml", "--target", "old_cpu")
    failed = mill.run("sweep", "catalog.toml", "--stamp", "bad", *more)
    assert failed.code == 1
    assert mill.statuses("bad") == {"verify_failed": 1}
    assert "opset 17 is outside 13..15" in failed.out
    kept = mill.outcomes("bad")["tiny/a:fill-mask@old_cpu"].evidence
    assert kept is not None
    assert (Path(kept["kept"]) / "build.json").is_file()
    mill.ok("sweep", "catalog.toml", "--stamp", "anyway", "--publish-unverified", *more)
    assert mill.statuses("anyway") == {"published": 1}
    shown = mill.outcomes("anyway")["tiny/a:fill-mask@old_cpu"].evidence
    assert shown is not None
    assert shown["verdict"] == {"level": "parity", "reached": False}


def test_bad_words_are_one_line(mill: Mill) -> None:
    for arguments, text in (
        (("sweep", "catalog.toml", "--verify", "party"), "did you mean parity"),
        (("sweep", "catalog.toml", "--runtimes", "qmm"), "qnn"),
        (("verify", "nothing-there"), "is no folder"),
        (("verify", "."), "modelmill.json"),
    ):
        ran = mill.run(*arguments)
        assert ran.code == 2
        assert text in ran.err
        assert "Traceback" not in ran.err
