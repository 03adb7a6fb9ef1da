"""What an onboarding measures: the latency of a package, and its export against PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from flows.packages.measured import Choice, Finder
from matrix.model import Cell
from matrix.status import FailureClass
from matrix.verification import COSINE
from workers.build.builder import Builder, Built
from workers.build.request import request_for
from workers.engine import StageJob
from workers.errors import BuildFailed
from workers.host.watch import Watching
from workers.measure.benchmark import benchmark
from workers.measure.quiet import quiet
from workers.measure.result import Benchmark
from workers.measure.running import Driver
from workers.verify.subject import Subject

STAGE = "reference"
MAX_ABS = 1e-3
"""In single precision, where the values themselves are not large."""
ERROR = 1e-3
"""The length of the difference over the length of PyTorch's output."""


def latency(
    finder: Finder, folder: Path, what: str, tell: Callable[[str], None]
) -> Benchmark | None:
    """The benchmark of a package, made when nothing else runs on this machine; None if only an
    emulator of its device is here, whose time says nothing."""
    settings = finder.settings
    [subject] = finder.find([str(folder)], Choice())
    if subject.runtime.emulated:
        return None
    driver = Driver(finder.runtimes, Watching(settings.timeout))
    with quiet(what, wait=True, told=tell):
        return benchmark(driver, subject, settings.protocol)


def numbers(builder: Builder, cell: Cell, built: Built) -> Any:
    """The distances of all outputs, by component. Raises `BuildFailed`."""
    options = builder.options
    request = request_for(cell, remote_code=options.remote_code, pickle=options.pickle)
    export = next(one for one in builder.host.plan(request).stages if one.name == "export")
    subject = Subject.of(built)
    if subject.export is None or subject.inputs is None:
        raise BuildFailed(FailureClass.UNSUPPORTED, STAGE, "there are no input values")
    with subject.scratch.borrow("reference") as folder:
        places = {name: folder / name for name in ("export", "inputs", "out")}
        subject.export.place(places["export"])
        subject.inputs.place(places["inputs"])
        places["out"].mkdir()
        job = StageJob(STAGE, export.params, request, places, places["out"])
        return builder.host.run(job).facts["outputs"]


def faults(outputs: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Outputs that are not what PyTorch computes."""
    for component, rows in outputs.items():
        for name, one in rows.items():
            where = name if component == "." else f"{component}/{name}"
            if problem := one.get("problem") or one.get("absent"):
                yield f"{where}: {problem}"
            elif one.get("agree", 1.0) < 1.0:
                yield f"{where}: {one['agree']:.2%} of its values agree"
            elif one.get("cosine", 1.0) < COSINE["fp32"]:
                yield f"{where}: cosine {one['cosine']:.5f} with PyTorch"
            elif one.get("max_abs", 0.0) > MAX_ABS and one["error"] > ERROR:
                yield f"{where}: differs by up to {one['max_abs']:.2g} from PyTorch"


def worst(outputs: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """The least cosine and the largest difference of all outputs."""
    rows = [one for rows in outputs.values() for one in rows.values()]
    return {
        "cosine": min((one["cosine"] for one in rows if "cosine" in one), default=1.0),
        "max_abs": max((one["max_abs"] for one in rows if "max_abs" in one), default=0.0),
    }
