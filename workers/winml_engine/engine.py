"""The engine object: reports its tools, lays out the stages of a cell, runs one stage."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Mapping

from workers.engine import BuildPlan, Request, StageError, StageJob, StageReport, version
from workers.sources import source
from workers.sources.errors import unsupported
from workers.winml_engine import installed, layout, network, patches

REVISION = "2"
"""Raised whenever this package would make other bytes from the same inputs and tools."""

STAGES = {"weights", "config", "export", "optimize", "quantize"}
OTHER_RULES = ("WINMLCLI_RULES_DIR", "WINMLCLI_RULES_DIR_FOR_DEBUG")
"""Not passed on: such rule data have no version, so they cannot be part of a key."""
_BASE_MEMORY = 2 * 1024**3


class WinmlEngine:
    """The real winml-cli through its Python API, in a warm process."""

    name = "winml"

    def tools(self) -> Mapping[str, str]:
        """Versions of every tool that can change a byte of any output."""
        found = {name: version(name) for name in layout.DISTRIBUTIONS}
        return {"engine": REVISION, **found, "onnxruntime": installed.runtime()}

    def plan(self, request: Request) -> BuildPlan:
        """Resolve the source and lay out the stages of a cell."""
        installed.check()
        if request.model["source"].get("file"):
            raise unsupported(
                "the winml engine does not take ready ONNX files", "use --engine optimum"
            )
        network.calibration()  # it may change settings that the next lines read
        recipe = layout.check(request)
        resolved = source.resolve(request)
        return BuildPlan(
            source=resolved.as_json(),
            stages=layout.stages(request, resolved, recipe),
            notices=layout.notices(request, recipe),
            memory=_BASE_MEMORY + 5 * resolved.size if resolved.size else 0,
            disk=4 * resolved.size,
        )

    def run(self, job: StageJob) -> StageReport:
        """Run one stage."""
        if job.stage not in STAGES:
            raise StageError(f"the winml engine has no stage '{job.stage}'")
        started = time.monotonic()
        _prepare()
        module = importlib.import_module(f"workers.winml_engine.{job.stage}")
        ready = time.monotonic()
        report: StageReport = module.run(job)
        timings = {"imports": ready - started, "work": time.monotonic() - ready}
        rounded = {name: round(value, 3) for name, value in timings.items()}
        return StageReport(report.facts, {**report.info, "timings": rounded})


def _prepare() -> None:
    """Prepare winml-cli; only the first call in a process has an effect."""
    for name in OTHER_RULES:
        os.environ.pop(name, None)
    network.calibration()
    patches.install(version("winml-cli"))
    import onnxruntime

    onnxruntime.disable_telemetry_events()  # no variable does this on Windows
