"""What the cells of a plan need and what this machine offers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flows.fleet.worker import queue_name
from flows.plan import needs
from flows.plan.needs import bench_needs_of, needs_of, words_here
from flows.settings.resolution import resolve
from flows.sweep.lifecycle import cell_rows
from matrix.model import Profile, Target
from matrix.needs import Words, is_measuring
from matrix.targets import load_targets
from tests.sweeps.in_memory import make_plan, small_model
from workers.runtimes.runtime import Missing, Runtime

HERE: Words = frozenset({"engine:fake", "os:linux", "memory:16"})


def test_like_machines_share_a_queue() -> None:
    assert queue_name(HERE) == queue_name(frozenset(sorted(HERE)))
    assert queue_name(HERE) != queue_name(HERE | {"pickle"})


def test_a_cell_needs_what_its_plan_its_sweep_and_its_past_say() -> None:
    plain = small_model("a").cells[0]
    windows = replace(plain, needs=("os:windows",))
    values = {"needs": ("lab",), "allow_remote_code": True, "allow_pickle": False}
    assert needs_of(windows, "winml", values, 10e9) == {
        "engine:winml",
        "os:windows",
        "lab",
        "memory:13",
    }
    strange = replace(plain, model=replace(plain.model, remote_code=True, pickle=True))
    assert needs_of(strange, "fake", values) == {"engine:fake", "lab", "remote-code"}


def test_a_model_needs_the_memory_that_its_largest_stage_took() -> None:
    plan = make_plan(small_model("a"), small_model("b"))
    peaks = {
        ("b:fill-mask", "export", ""): int(4e9),
        ("b:fill-mask", "optimize", "x"): int(1e9),
    }
    found = {row.model: row.needs for row in cell_rows(plan, {}, peaks)}
    assert found == {
        "a:fill-mask": {"engine:fake"},
        "b:fill-mask": {"engine:fake", "memory:5"},
    }


def test_an_export_needs_the_least_of_what_is_made_of_it() -> None:
    planned = small_model("a", cells=2)
    compiled = replace(planned.cells[0], id="a:fill-mask@x+p", needs=("compile:p",))
    plan = make_plan(replace(planned, cells=(compiled, *planned.cells[1:])))
    found = {row.cell: row.needs for row in cell_rows(plan, {})}
    assert found["a:fill-mask@export"] == {"engine:fake"}
    assert found["a:fill-mask@x+p"] == {"engine:fake", "compile:p"}


def test_a_machine_announces_what_it_allows(tmp_path: Path) -> None:
    plain = words_here(resolve({"runtimes": ("none",)}, {}, tmp_path), ["fake"], ["lab"])
    assert {"engine:fake", "lab"} <= plain
    assert not {"remote-code", "pickle"} & plain
    assert not [word for word in plain if word.startswith("ep:")]
    flags = {"allow_remote_code": True, "memory": int(40e9), "runtimes": ("qnn",)}
    python = {"MODELMILL_QNN_PYTHON": "there/python", "MODELMILL_OPENVINO_PYTHON": "x"}
    more = words_here(resolve(flags, python, tmp_path), ["fake"])
    assert {"remote-code", "memory:32", "ep:qnn"} <= more
    assert "ep:openvino" not in more


def test_measuring_needs_the_device_and_what_was_compiled_for_it_its_profile() -> None:
    plain = small_model("a").cells[0]
    cell = replace(plain, target=replace(plain.target, ep="qnn", device="npu"))
    assert bench_needs_of(cell, emulated=False) == {"bench:qnn/npu"}
    assert bench_needs_of(cell, emulated=True) == {"bench-emulated:qnn/npu"}
    made = replace(cell, profile=Profile("htp73", "qnn_npu", "qnn"))
    assert bench_needs_of(made, emulated=False) == {"bench:qnn/npu", "compile:htp73"}


def test_only_cells_are_measured_and_only_if_asked() -> None:
    plan = make_plan(small_model("a"))
    assert not any(row.bench for row in cell_rows(plan, {}))
    wanted = {row.cell: row.bench for row in cell_rows(plan, {}, bench=True)}
    assert not wanted.pop("a:fill-mask@export")
    assert all(is_measuring(words) for words in wanted.values())


class SomeRuntimes:
    """An emulated NPU and a CPU."""

    def for_target(self, target: Target) -> Runtime | Missing:
        if target.ep == "vitisai":
            return Missing(target.provider, target.device, "not registered")
        return Runtime("x", target.provider, target.device, "1", emulated=target.device == "npu")

    def close(self) -> None:
        """Nothing to end."""


def test_a_machine_that_measures_announces_its_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(needs, "runtimes_of", lambda _settings: SomeRuntimes())
    settings = resolve({"runtimes": ("none",)}, {}, tmp_path)
    targets = [load_targets().get(name) for name in ("mlas_cpu", "qnn_npu", "vitisai_npu")]
    assert not is_measuring(words_here(settings, ["fake"]))
    words = words_here(settings, ["fake"], benches=targets)
    assert {word for word in words if word.startswith("bench")} == {
        "bench:cpu/cpu",
        "bench-emulated:cpu/cpu",
        "bench-emulated:qnn/npu",
    }
