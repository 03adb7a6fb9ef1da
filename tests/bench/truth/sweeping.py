"""A subject through the real command line: swept, pulled from the feed, opened on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.truth.packages import Missing
from tests.bench.truth.subject import Array, Feeds, Run, Subject
from workers.sources import runtime

BARE = "-without-data"
"""Ends the name of the same model without a dataset."""
TARGETS = ("qnn_npu", "mlas_cpu")


@dataclass(frozen=True, slots=True)
class Published:
    """A package of the feed."""

    folder: Path
    manifest: Mapping[str, Any]
    record: Mapping[str, Any]

    @property
    def precision(self) -> str:
        """What its manifest says."""
        return str(self.manifest["policy"]["precision"])

    @property
    def verified(self) -> bool:
        """Whether it may be called verified."""
        verdict = self.record["verdict"]
        return bool(verdict["reached"]) and verdict["level"] in ("parity", "task")

    @property
    def verdict(self) -> str:
        """Yes, or the rung that it failed with the reason."""
        if self.verified:
            return "yes"
        failed = [rung for rung in self.record["verification"] if rung["passed"] is not True]
        return f"no: {failed[0]['name']}: {_brief(failed[0])}" if failed else "no"

    @property
    def parity(self) -> str:
        """What its rung `parity` says."""
        rungs = self.record["verification"]
        return str(*(_brief(rung) for rung in rungs if rung["name"] == "parity"))

    @property
    def samples(self) -> str:
        """The kind of the samples that it was calibrated and judged on."""
        for stage in self.manifest["stages"]:
            if stage["stage"] == "inputs":
                facts = stage["facts"]
                return str(facts["origin"] if "origin" in facts else facts["samples"]["kind"])
        return ""

    @property
    def notice(self) -> str:
        """What requantization did."""
        notices = [stage["facts"].get("notice", "") for stage in self.manifest["stages"]]
        return "; ".join(filter(None, notices))

    def open(self) -> Run:
        """Its graph on ONNX Runtime's CPU provider, as an app opens it. Raises `StageError`."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        session = runtime.session(self.folder / "model.onnx", options)
        kinds = {port.name: _numpy(port.type) for port in session.get_inputs()}

        def run(feeds: Feeds) -> list[Array]:
            given = {name: np.asarray(feeds[name], kind) for name, kind in kinds.items()}
            return list(session.run(None, given))

        return run


def _brief(rung: Mapping[str, Any]) -> str:
    """What a rung says, without what to do about it."""
    return str(rung["detail"]).partition(";")[0].rpartition("Provider cpu: ")[2]


def _numpy(kind: str) -> str:
    """NumPy's name of a tensor type of ONNX Runtime."""
    name = kind.removeprefix("tensor(").removesuffix(")")
    return {"float": "float32", "double": "float64"}.get(name, name)


@dataclass(frozen=True, slots=True)
class Swept:
    """What one sweep made of a subject."""

    packages: list[Published]
    out: str
    processor: float

    def find(self, target: str, precision: str, *, bare: bool = False) -> Published | None:
        """A package; none if it could not be built."""
        for package in self.packages:
            where = package.manifest["target"]["label"], package.precision
            if where == (target, precision) and (BARE in package.manifest["cell"]) is bare:
                return package
        return None


def write_catalog(subject: Subject, folder: Path) -> None:
    """The subject with its dataset in both precisions, and without in one."""
    source = subject.source(folder)
    head = f'task = "{subject.task}"\npriority = "P0"\n{source}\n'
    if subject.shapes:
        sizes = ", ".join(f"{key} = {size}" for key, size in subject.shapes.items())
        head += f"shapes = {{ {sizes} }}\n"
    calibrated = head
    if subject.calibrated:
        samples = subject.calibration()
        stacked = {name: np.stack([sample[name] for sample in samples]) for name in samples[0]}
        np.savez(folder / "calibration.npz", **stacked)  # type: ignore[arg-type]  # only arrays
        calibrated += 'dataset = { path = "calibration.npz" }\n'
    both = '[model.target.qnn_npu]\nprecision = ["w8a16", "w8a8"]\n'
    text = f'[[model]]\nid = "truth/{subject.name}"\n{calibrated}{both}'
    if subject.calibrated:
        text += f'[[model]]\nid = "truth/{subject.name}{BARE}"\n{head}'
    (folder / "catalog.toml").write_text(text, encoding="utf-8", newline="\n")


def sweep(subject: Subject, folder: Path, tree: Path | None, runtimes: str) -> Swept:
    """Build and publish every cell, verified or not, with the tool of this tree or of another."""
    write_catalog(subject, folder)
    flags = ["--home", "home", "--feed", "feed"]
    began = worked()
    out = modelmill(
        folder, tree, runtimes,
        "sweep", "catalog.toml", "--target", ",".join(TARGETS), "--stamp", "1", "--jobs", "1",
        "--publish-unverified", *flags,
    )  # fmt: skip
    processor = worked() - began
    pulled = modelmill(
        folder, tree, runtimes, "feed", "pull", "--stamp", "1", "--dest", "out", *flags
    )
    found = []
    for record in sorted((folder / "out").rglob("build.json")):
        manifest = json.loads(record.with_name("modelmill.json").read_text("utf-8"))
        if "target" in manifest:
            kept = json.loads(record.read_text("utf-8"))
            found.append(Published(record.parent, manifest, kept))
    if not found:
        raise Missing(f"nothing was published of {subject.name}:\n{out[-2000:]}{pulled[-500:]}")
    return Swept(found, out, processor)


@contextmanager
def tree_of(commit: str) -> Iterator[Path | None]:
    """The tree of a commit in a folder of its own; none for this one."""
    if not commit:
        yield None
        return
    root = Path(__file__).resolve().parents[3]
    with tempfile.TemporaryDirectory(prefix="modelmill-bench-") as name:
        folder = Path(name) / "tree"
        command = ["git", "-C", str(root), "worktree"]
        subprocess.run([*command, "add", "-q", "--detach", str(folder), commit], check=True)
        try:
            yield folder
        finally:
            subprocess.run([*command, "remove", "--force", str(folder)], check=True)


def modelmill(folder: Path, tree: Path | None, runtimes: str, *arguments: str) -> str:
    """Run the command to its end and return what it printed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    env = {**kept, "MODELMILL_RUNTIMES": runtimes, "PYTHONHASHSEED": "0"}
    if tree is not None:
        env["PYTHONPATH"] = str(tree)
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli.main", *arguments],
        cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    return done.stdout.decode("utf-8", "replace")


def worked() -> float:
    """Processor time of all children that have ended, with theirs; Windows does not tell it."""
    times = os.times()
    return times.children_user + times.children_system
