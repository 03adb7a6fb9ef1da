"""Which runtime compiles for a profile, and what its result depends on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from matrix.errors import UsageError
from matrix.model import Profile
from matrix.profiles import load_profiles
from matrix.targets import load_targets
from workers.compile.devices import available, parameters, runtime_for
from workers.runtimes.pool import Runtimes
from workers.runtimes.runtime import Kind, Missing, Runtime

TARGETS = load_targets()
PROFILES = load_profiles(TARGETS)
HTP73, OV_CPU = PROFILES.get("htp73"), PROFILES.get("ov_cpu")
NPU = TARGETS.get("qnn_npu")
EMULATED = Runtime(
    "qnn", "QNNExecutionProvider", "npu", "onnxruntime-qnn 2, onnxruntime 1", emulated=True,
    options={"backend_path": "/lib/htp.so", "htp_arch": "73", "soc_model": "60"},
)  # fmt: skip
DEVICE = replace(EMULATED, emulated=False, options={"backend_path": "htp.dll"})


class Here:
    """The runtimes of a machine that has just this one."""

    def __init__(self, runtime: Runtime | Missing) -> None:
        self.runtime = runtime

    def provider_on(
        self, kind: Kind, provider: str, device: str, virtual: str = ""
    ) -> Runtime | Missing:
        if isinstance(self.runtime, Missing) or self.runtime.kind != kind.name:
            return Missing(provider, device, "it is not here", "modelmill doctor")
        return self.runtime


def found(
    runtime: Runtime | Missing, profile: Profile = HTP73, *, emulated: bool = False
) -> Runtime | Missing:
    here = cast("Runtimes", Here(runtime))
    return runtime_for(here, profile, NPU, emulated=emulated)


def test_the_profile_says_which_device_generation_the_runtime_aims_at() -> None:
    one = found(DEVICE, PROFILES.get("htp81"))
    assert isinstance(one, Runtime)
    assert dict(one.options) == {"backend_path": "htp.dll", "htp_arch": "81", "soc_model": "88"}


def test_an_emulator_compiles_only_where_it_is_allowed() -> None:
    refused = found(EMULATED)
    assert isinstance(refused, Missing)
    assert (refused.why, refused.hint) == (
        "QNNExecutionProvider npu is emulated here", "allow it with --emulated",
    )  # fmt: skip
    assert isinstance(found(EMULATED, emulated=True), Runtime)
    only = found(EMULATED, replace(HTP73, emulator=False), emulated=True)
    assert isinstance(only, Missing)
    assert "needs the device itself" in only.why


def test_a_runtime_that_nobody_knows_is_a_mistake_of_the_profile() -> None:
    with pytest.raises(UsageError, match=r"profile htp73 names an unknown runtime 'qmn'"):
        found(DEVICE, replace(HTP73, runtime="qmn"))


def test_every_profile_is_listed_with_what_stands_against_it() -> None:
    rows = available(cast("Runtimes", Here(EMULATED)), PROFILES, TARGETS)
    assert [(profile.label, isinstance(here, Runtime)) for profile, here in rows] == [
        ("htp68", True), ("htp73", True), ("htp81", True),
        ("ov_cpu", False), ("ov_gpu", False), ("ov_npu", False),
        ("npu4000", False), ("npu5010", False), ("npu5020", False), ("npu6010", False),
    ]  # fmt: skip
    assert rows[0][1].name == "QNNExecutionProvider npu (emulated)"
    assert rows[3][1].name == "it is not here (modelmill doctor)"


def test_the_key_holds_what_can_change_the_bytes() -> None:
    base = parameters(DEVICE, HTP73)
    assert base["options"] == {}
    assert "backend_path" not in str(base)
    others = [
        parameters(replace(DEVICE, version="3"), HTP73),
        parameters(replace(DEVICE, emulated=True), HTP73),
        parameters(replace(DEVICE, options={"htp_arch": "81"}), HTP73),
        parameters(DEVICE, replace(HTP73, backend="session")),
        parameters(DEVICE, replace(HTP73, embed=True)),
    ]
    assert all(other != base for other in others)
    same = parameters(replace(DEVICE, detail="another"), HTP73)
    assert same == base, "this compiler does not ask the device"
    cpus = [parameters(replace(DEVICE, detail=name), OV_CPU) for name in "ab"]
    assert cpus[0] != cpus[1]


def test_a_file_counts_by_its_content(tmp_path: Path) -> None:
    profile = replace(HTP73, options={"config": "a.json"}, file_options=("config",))
    runtime = replace(DEVICE, options={"config": "a.json"})
    (tmp_path / "a.json").write_text("1")
    one = parameters(runtime, profile, tmp_path)
    (tmp_path / "b.json").write_text("1")
    moved = replace(DEVICE, options={"config": "b.json"})
    assert parameters(moved, profile, tmp_path) == one
    (tmp_path / "a.json").write_text("2")
    assert parameters(runtime, profile, tmp_path) != one
    (tmp_path / "a.json").unlink()
    with pytest.raises(UsageError, match=r"option config: .*a.json cannot be read"):
        parameters(runtime, profile, tmp_path)
