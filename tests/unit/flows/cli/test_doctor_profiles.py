"""The doctor says of every device profile what this machine does for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

from flows.cli.doctor import Health, profile_findings
from flows.settings.settings import Settings
from workers.runtimes.pool import Runtimes
from workers.runtimes.runtime import Kind, Missing, Runtime

DEVICE = Runtime("qnn", "QNNExecutionProvider", "npu", "onnxruntime-qnn 2")
EMULATOR = replace(DEVICE, emulated=True, shared_contexts=False)


class Machine:
    """Has this runtime and no other."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def provider_on(
        self, kind: Kind, provider: str, device: str, virtual: str = ""
    ) -> Runtime | Missing:
        if kind.name == self.runtime.kind:
            return self.runtime
        return Missing(provider, device, "it is not installed", kind.remedy)


def found(folder: Path, runtime: Runtime, *, emulated: bool = False) -> dict[str, tuple[str, ...]]:
    settings = Settings(cwd=folder, emulated=emulated)
    findings = profile_findings(settings, cast("Runtimes", Machine(runtime)))
    return {one.what: (one.health, one.detail, one.mend) for one in findings}


def test_the_device_compiles_and_checks_and_what_is_missing_is_told(tmp_path: Path) -> None:
    rows = found(tmp_path, DEVICE)
    assert list(rows) == [
        f"profile {name}"
        for name in ("htp68", "htp73", "htp81", "ov_cpu", "ov_gpu", "ov_npu",
                     "npu4000", "npu5010", "npu5020", "npu6010")
    ]  # fmt: skip
    assert rows["profile htp73"] == (
        Health.GOOD, "compiled for and checked on QNNExecutionProvider npu", ""
    )  # fmt: skip
    assert rows["profile ov_npu"] == (
        Health.NOTE,
        "cannot be compiled for: it is not installed",
        "modelmill engine install openvino_ep",
    )


def test_an_emulator_must_be_allowed_and_says_what_it_cannot_check(tmp_path: Path) -> None:
    health, detail, mend = found(tmp_path, EMULATOR)["profile htp73"]
    assert (health, "--emulated" in mend) == (Health.NOTE, True)
    assert detail == (
        "compiled for and checked on QNNExecutionProvider npu (emulated), which cannot open "
        "shared contexts: those are compiled, but not checked"
    )
    allowed = found(tmp_path, EMULATOR, emulated=True)["profile htp73"]
    assert allowed == (Health.GOOD, detail, "")
