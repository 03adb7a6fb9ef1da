"""A slot never has more than one model in memory to verify it, whatever it has verified before."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from matrix.model import Target
from tests.verification.packages import VerificationHarness, claim, lab_in, made, model
from tests.verification.vendor import Vendor
from workers.host.client import Host
from workers.runtimes.pool import Runtimes

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(sys.platform != "linux", reason="counts memory as Linux does"),
]

OV = Target("ov_cpu", "openvino", "cpu", "OpenVINOExecutionProvider")
SIDE, LAYERS = 2048, 4
SIZE = SIDE * SIDE * 4 * LAYERS
HARDLY = 0.4
"""Of a model: what a process may have more of than when it has seen none."""


def large(seed: int) -> Any:
    """A chain of matrices, 67 MB."""
    from onnx import helper, numpy_helper

    random = np.random.default_rng(seed)
    sizes = [8, *[SIDE] * (LAYERS + 1), 8]
    nodes, tensors = [], []
    for at, (rows, columns) in enumerate(pairwise(sizes)):
        weights = random.standard_normal((rows, columns), np.float32) / np.float32(rows**0.5)
        tensors.append(numpy_helper.from_array(weights, f"w{at}"))
        ends = ("x" if at == 0 else f"h{at}", "y" if at == LAYERS + 1 else f"h{at + 1}")
        nodes.append(helper.make_node("MatMul", [ends[0], f"w{at}"], [ends[1]]))
    return made(nodes, tensors, "y")


def owned() -> dict[int, int]:
    """Bytes that each process of ours holds alone, by its id.

    Pages of files (libraries, mapped weights) belong to the system, which reclaims them at will.
    """
    found = {}
    for process in psutil.Process().children(recursive=True):
        with suppress(OSError):
            status = Path(f"/proc/{process.pid}/status").read_text()
            lines = dict(line.split(":", 1) for line in status.splitlines())
            parts = (lines.get(name, "0 kB") for name in ("RssAnon", "RssShmem"))
            found[process.pid] = sum(int(part.split()[0]) * 1024 for part in parts)
    return found


@dataclass(frozen=True)
class Seen:
    """What one call took at its peak, and what was held after it, by process."""

    op: str
    peak: dict[int, int]
    after: dict[int, int]


@dataclass
class CallWatch:
    """Watches the calls of all processes of a slot."""

    hosts: set[str] = field(default_factory=set)
    under_way: int = 0
    most: int = 0
    calls: list[Seen] = field(default_factory=list)

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        call = Host.call

        def watched(host: Host, op: str, *args: Any, **more: Any) -> Any:
            self.hosts.add(host.spec.name)
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            with sampled() as peak:
                reply = call(host, op, *args, **more)
            self.under_way -= 1
            self.calls.append(Seen(op, peak, owned()))
            return reply

        monkeypatch.setattr(Host, "call", watched)


@contextmanager
def sampled() -> Iterator[dict[int, int]]:
    """The most that each process owned while the block ran."""
    peak: dict[int, int] = {}
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.002):
            for pid, held in owned().items():
                peak[pid] = max(peak.get(pid, 0), held)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[VerificationHarness]:
    vendor = Vendor.make(tmp_path / "venv")
    runtimes = Runtimes(tmp_path / "logs", pythons={"openvino": vendor.python})
    with lab_in(tmp_path, runtimes) as found:
        yield found
    runtimes.close()


@pytest.mark.parametrize(
    ("external", "inspecting", "measuring"), [(True, 0.6, 1.6), (False, 3.4, 3.6)]
)
def test_one_model_is_in_memory_at_a_time(
    harness: VerificationHarness,
    monkeypatch: pytest.MonkeyPatch,
    external: bool,
    inspecting: float,
    measuring: float,
) -> None:
    gauge = CallWatch()
    gauge.watch(monkeypatch)
    assert not harness.climb(model(), claim(target=OV)).failed
    idle = owned()
    assert gauge.hosts == {"onnxruntime", "openvino"}
    gauge.calls.clear()
    limits = {"inspect": inspecting, "keep": measuring, "exercise": measuring, "measure": measuring}
    for seed in range(2):
        package = harness.place(large(seed), external=external)
        climbed = harness.verifier.climb(harness.subject(package, claim(target=OV), export=package))
        assert not climbed.failed, climbed.failed
    operations = ("inspect", "measure", "keep", "exercise", "measure", "measure")
    assert [seen.op for seen in gauge.calls] == [*operations] * 2
    assert gauge.most == 1
    for seen in gauge.calls:
        # One model is open while a call lasts, in one process; after it none is, in any.
        for pid, peak in seen.peak.items():
            assert (peak - idle.get(pid, 0)) / SIZE < limits[seen.op], seen
        held = sum(seen.after.values()) - sum(idle.values())
        assert held / SIZE < HARDLY, gauge.calls
    assert max(max(seen.peak.values()) for seen in gauge.calls if seen.peak) / SIZE > 0.5, (
        "nothing was measured"
    )
