"""The engine object: reports its tools, lays out the stages of a cell, runs one stage."""

from __future__ import annotations

from collections.abc import Mapping

from machine.installation import install
from workers import code
from workers.engine import BuildPlan, Request, StageError, StageJob, StageReport, version
from workers.optimum_engine import layout
from workers.sources import runtime, source
from workers.sources.errors import unsupported
from workers.sources.license import run_step

NONE = "none"
"""In place of the version of a tool that few models need."""

_BASE_MEMORY = 1536 * 1024**2


_APART = 2 * 1024**3
"""From this size on torch's exporter writes weights to files of their own: protobuf's limit."""


def _memory(size: int) -> int:
    """What a stage is expected to take; `tests.bench.memory` measures it. 0: unknown."""
    if not size:
        return 0
    return _BASE_MEMORY + int((1.3 if size > _APART else 4) * size)


class OptimumEngine:
    """Optimum for the export, ONNX Runtime for everything after it."""

    name = "optimum"

    def tools(self) -> Mapping[str, str]:
        """Versions of every tool that can change a byte of any output."""
        return {
            **{f"engine.{stage}": code.digest(*names) for stage, names in layout.CODE.items()},
            **{name: version(name) for name in layout.EXPORT_TOOLS},
            "onnxruntime": runtime.installed(),
            "onnxscript": version("onnxscript") or NONE,
            "pillow": version("pillow") or NONE,
        }

    def plan(self, request: Request) -> BuildPlan:
        """Resolve the source and lay out the stages of a cell."""
        missing = [name for name, found in self.tools().items() if not found]
        if missing:
            lacking = ", ".join(missing)
            raise unsupported(f"this interpreter lacks {lacking}", install("build"))
        resolved = source.resolve(request)
        stages = layout.stages(request, resolved)
        # The graphs of a decoder with a cache have the same weights, until they share them.
        graphs = 2 if any(spec.name == "share" for spec in stages) else 1
        return BuildPlan(
            source=resolved.as_json(),
            stages=stages,
            memory=_memory(resolved.size),
            disk=4 * graphs * resolved.size,
        )

    def run(self, job: StageJob) -> StageReport:
        """Run one stage."""
        from workers.optimum_engine import export, inputs, quantize, rewrites, shared_weights
        from workers.optimum_engine.architectures import families
        from workers.runtimes import optimize

        steps = {
            "export": export.run,
            "inputs": inputs.run,
            "optimize": optimize.run,
            "rewrites": rewrites.run,
            "quantize": quantize.run,
            "share": shared_weights.run,
        }
        step = steps.get(job.stage)
        if step is None:
            raise StageError(f"the optimum engine has no stage '{job.stage}'")
        families.register()
        return run_step(job, step)
