"""A slot never has more than one model in memory to verify it, whatever it has verified before."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrix.model import Target
from tests.verification.packages import Lab, claim, lab_in, made, model
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


@dataclass
class Gauge:
    """What every call takes, and what all processes of the slot hold after it."""

    hosts: dict[str, Host] = field(default_factory=dict)
    under_way: int = 0
    most: int = 0
    calls: list[tuple[str, str, int, int]] = field(default_factory=list)

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        call = Host.call

        def watched(host: Host, op: str, *args: Any, **more: Any) -> Any:
            self.hosts[host.spec.name] = host
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            reply = call(host, op, *args, **more)
            self.under_way -= 1
            self.calls.append((host.spec.name, op, reply.peak_memory, self.held()))
            return reply

        monkeypatch.setattr(Host, "call", watched)

    def held(self) -> int:
        """By all processes together."""
        return sum(self.of(name) for name in self.hosts)

    def of(self, name: str) -> int:
        """By one of them."""
        process = self.hosts[name]._process
        return process.tree.memory() if process is not None else 0


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    vendor = Vendor.make(tmp_path / "venv")
    runtimes = Runtimes(tmp_path / "logs", pythons={"openvino": vendor.python})
    with lab_in(tmp_path, runtimes) as found:
        yield found
    runtimes.close()


@pytest.mark.parametrize(
    ("external", "inspecting", "measuring"), [(True, 0.5, 1.6), (False, 2.5, 3.2)]
)
def test_one_model_is_in_memory_at_a_time(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, external: bool, inspecting: float, measuring: float
) -> None:
    gauge = Gauge()
    gauge.watch(monkeypatch)
    assert not lab.climb(model(), claim(target=OV)).failed
    idle = {name: gauge.of(name) for name in gauge.hosts}
    assert idle.keys() == {"onnxruntime", "openvino"}
    gauge.calls.clear()
    limits = {"inspect": inspecting, "measure": measuring}
    for seed in range(2):
        package = lab.place(large(seed), external=external)
        climbed = lab.verifier.climb(lab.subject(package, claim(target=OV), export=package))
        assert not climbed.failed, climbed.failed
    assert [op for _, op, _, _ in gauge.calls] == ["inspect", "measure", "measure", "measure"] * 2
    assert gauge.most == 1
    for name, op, peak, held in gauge.calls:
        # One model is open while a call lasts, in one process; after it none is, in any.
        assert (peak - idle[name]) / SIZE < limits[op], (name, op)
        assert (held - sum(idle.values())) / SIZE < HARDLY, (name, op, gauge.calls)
