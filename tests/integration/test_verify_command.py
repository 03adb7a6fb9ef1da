"""`modelmill verify`, `--verify`, `--publish-unverified` and the gate before a view."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.sweeps.command import Project, model

pytestmark = pytest.mark.engine

CPU = "CPUExecutionProvider cpu"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    made.catalog(model("tiny/a"))
    return made


def package(project: Project, label: str) -> tuple[str, str]:
    return next(name for name in project.published() if f"-{label}-" in name[1])


def test_what_is_published_is_verified_again(project: Project) -> None:
    project.ok("sweep", "catalog.toml", "--stamp", "one")
    name, version = package(project, "qnn-npu")
    document = project.ok("verify", name, version, "--json").json()
    assert document["verdict"] == {"level": "parity", "reached": True}
    assert [one["passed"] for one in document["verification"]] == [True] * 6
    assert project.ok("verify", "tiny/a:fill-mask@qnn_npu").out.endswith("level parity: reached\n")
    project.ok("feed", "pull", name, version, "--dest", "pulled")
    project.ok("verify", "pulled")
    kept = (project.folder / "pulled" / "model.onnx").read_bytes()
    data = bytearray(kept)
    data[-60] ^= 1
    (project.folder / "pulled" / "model.onnx").write_bytes(data)
    ran = project.run("verify", "pulled")
    assert ran.code == 1
    assert "model.onnx does not match its listed digest" in ran.err
    (project.folder / "pulled" / "model.onnx").write_bytes(kept)
    (project.folder / "pulled" / "build.json").write_text('{"rules": {"waive": {"ep": "x"}}}')
    ran = project.run("verify", "pulled")
    assert ran.code == 1
    assert "build.json does not match its listed digest" in ran.err


def test_a_view_asks_for_the_targets_own_provider(project: Project) -> None:
    project.ok("sweep", "catalog.toml", "--stamp", "one")
    refused = project.run("feed", "promote", *package(project, "qnn-npu"), "--view", "release")
    assert refused.code != 0
    assert "was not run on the target's own execution provider" in refused.err
    project.ok("feed", "promote", *package(project, "mlas-cpu"), "--view", "release")
    project.ok("feed", "promote", *package(project, "qnn-npu"), "--view", "prerelease")
    demand = ("--demand", "release=parity")
    project.ok("feed", "promote", *package(project, "qnn-npu"), "--view", "release", *demand)


def test_the_verdict_elsewhere_is_the_same_to_the_digit(project: Project) -> None:
    """Another home, without the store, the feed and the export: the package has everything."""
    project.ok("sweep", "catalog.toml", "--stamp", "one")
    project.ok("feed", "pull", *package(project, "qnn-npu"), "--dest", "pulled")
    record = json.loads((project.folder / "pulled" / "build.json").read_bytes())
    there = ("--home", str(project.folder / "elsewhere"))
    document = project.ok("verify", "pulled", "--json", *there).json()
    built = {one["name"]: one for one in record["verification"]}
    for one in document["verification"]:
        assert one == built[one["name"]]
    assert built["parity"]["passed"]
    (project.folder / "pulled" / "samples" / "00.out.npz").unlink()
    refused = project.run("verify", "pulled", *there)
    assert refused.code
    assert "00.out.npz" in refused.err + refused.out


RULES = """
[model.verify]
task = { dataset = "eval.npz", metric = "agreement" }
parity.fp32 = { snr = 30, reason = "a near zero output" }
waive = { policy = "nobody minds" }

[model.target."*_npu".verify.waive]
ep = "no NPU in the lab"
"""


def test_what_the_catalog_says_is_done_recorded_and_reported(project: Project) -> None:
    rows = np.random.default_rng(3).standard_normal((6, 1, 4)).astype(np.float32)
    np.savez(project.folder / "eval.npz", x=rows)
    project.catalog(model("tiny/a") + RULES)
    targets = ("--target", "qnn_npu", "--target", "mlas_cpu")
    project.ok("sweep", "catalog.toml", "--stamp", "one", "--verify", "task", *targets)
    project.ok("feed", "promote", *package(project, "qnn-npu"), "--view", "release")
    project.ok("feed", "pull", *package(project, "qnn-npu"), "--dest", "pulled")
    record = json.loads((project.folder / "pulled" / "build.json").read_bytes())
    assert record["verdict"] == {"level": "task", "reached": True}
    assert record["rules"]["waive"] == {"policy": "nobody minds", "ep": "no NPU in the lab"}
    assert record["rules"]["task"]["metric"] == "agreement"
    by_name = {one["name"]: one for one in record["verification"]}
    assert by_name["loads"]["evidence"][CPU]["model.onnx"]["sets"] == 4
    assert by_name["task"]["evidence"]["models"]["model.onnx"] == {
        "agreement": 1.0, "samples": 6, "source": 1.0,
    }  # fmt: skip
    waived = "not run on QNNExecutionProvider npu: because the setting runtimes excludes it"
    assert waived in by_name["parity"]["detail"]
    assert by_name["parity"]["detail"].endswith("(waived: no NPU in the lab)")
    mlas = project.outcomes("one")["tiny/a:fill-mask@mlas_cpu"].evidence
    assert mlas is not None
    parity = next(one for one in mlas["rungs"] if one["name"] == "parity")
    assert parity["evidence"]["limits"]["reason"] == "a near zero output"
    project.ok("report", "one", "-o", "report.html")
    shown = (project.folder / "report.html").read_text("utf-8")
    assert "(waived: no NPU in the lab)" in shown
    assert "the catalog asks 30 dB: a near zero output" in shown


OLD = '[[target]]\nlabel = "old_cpu"\nep = "cpu"\ndevice = "cpu"\nopset = [13, 15]\n'  # not 17


def test_the_level_decides_what_is_published(project: Project) -> None:
    project.ok("sweep", "catalog.toml", "--stamp", "low", "--verify", "integrity")
    low = project.outcomes("low")["tiny/a:fill-mask@mlas_cpu"].evidence
    assert low is not None
    assert [one["name"] for one in low["rungs"]] == ["integrity"]
    assert low["verdict"] == {"level": "integrity", "reached": True}
    refused = project.run("feed", "promote", *package(project, "mlas-cpu"), "--view", "release")
    assert "the rung policy was not judged" in refused.err


def test_what_does_not_pass_is_kept_within_the_budget_or_published_with_its_mark(
    project: Project,
) -> None:
    (project.folder / "targets.toml").write_text(OLD, "utf-8")
    more = ("--targets-file", "targets.toml", "--target", "old_cpu")
    names = [f"tiny/{name}" for name in "abc"]
    project.catalog(*(model(name, size=200_000) for name in names))
    # A quarter of the budget holds one of the three.
    failed = project.run(
        "sweep", "catalog.toml", "--stamp", "bad", *more, "--disk-budget", "1.5MB", "--jobs", "1"
    )
    assert failed.code == 1
    assert project.statuses("bad") == {"verify_failed": 3}
    assert "opset 17 is outside 13..15" in failed.out
    assert [version for _, version in project.published() if "old-cpu" in version] == []
    folders = []
    for name in names:
        evidence = project.outcomes("bad")[f"{name}:fill-mask@old_cpu"].evidence
        assert evidence is not None
        assert evidence["verdict"] == {"level": "parity", "reached": False}
        folders.append(Path(evidence["kept"]))
    assert all((folder / "build.json").is_file() for folder in folders)
    assert sum((folder / "model.onnx").exists() for folder in folders) == 1
    taken = [project.home / "kept", project.home / "store" / "blobs"]
    files = [path for folder in taken for path in folder.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 1_500_000
    anyway = ("--stamp", "anyway", "--publish-unverified", "--model", "tiny/a")
    project.ok("sweep", "catalog.toml", *anyway, *more)
    assert project.statuses("anyway") == {"published": 1}
    shown = project.outcomes("anyway")["tiny/a:fill-mask@old_cpu"].evidence
    assert shown is not None
    assert shown["verdict"] == {"level": "parity", "reached": False}
    ((name, version),) = [one for one in project.published() if "anyway-" in one[1] and
                          "old-cpu" in one[1]]  # fmt: skip
    published = project.feed().find(name, version)
    assert published is not None
    assert published.description.endswith(" (unverified)")
    project.ok("feed", "pull", name, version, "--dest", "marked")
    record = json.loads((project.folder / "marked" / "build.json").read_bytes())
    assert record["verdict"] == {"level": "parity", "reached": False}
    refused = project.run("feed", "promote", name, version, "--view", "release")
    assert "the rung integrity does not hold: model.onnx: opset 17 is outside" in refused.err


def test_bad_words_are_one_line(project: Project) -> None:
    for arguments, text in (
        (("sweep", "catalog.toml", "--verify", "party"), "did you mean parity"),
        (("sweep", "catalog.toml", "--runtimes", "qmm"), "qnn"),
        (("verify", "nothing-there"), "there is no folder"),
        (("verify", "."), "modelmill.json"),
    ):
        ran = project.run(*arguments)
        assert ran.code == 2
        assert text in ran.err
        assert "Traceback" not in ran.err
