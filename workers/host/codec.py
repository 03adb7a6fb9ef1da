"""The contract of `workers.engine` as JSON values and back. Standard library only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workers.engine import BuildPlan, Request, StageJob, StageReport, StageSpec


def request_to_json(request: Request) -> dict[str, Any]:
    """A request as it crosses the pipe."""
    return {"model": request.model, "target": request.target, "policy": request.policy}


def request_from_json(value: dict[str, Any]) -> Request:
    """The request on the other side."""
    return Request(value["model"], value["target"], value["policy"])


def plan_to_json(plan: BuildPlan) -> dict[str, Any]:
    """A plan as it crosses the pipe."""
    return {
        "source": dict(plan.source),
        "stages": [
            {
                "name": stage.name,
                "params": dict(stage.params),
                "inputs": list(stage.inputs),
                "tools": list(stage.tools),
                "per_component": stage.per_component,
            }
            for stage in plan.stages
        ],
        "notices": list(plan.notices),
        "memory": plan.memory,
        "disk": plan.disk,
    }


def plan_from_json(value: dict[str, Any]) -> BuildPlan:
    """The plan on the other side."""
    stages = tuple(
        StageSpec(
            name=stage["name"],
            params=stage["params"],
            inputs=tuple(stage["inputs"]),
            tools=tuple(stage["tools"]),
            per_component=stage["per_component"],
        )
        for stage in value["stages"]
    )
    return BuildPlan(
        value["source"], stages, tuple(value["notices"]), value["memory"], value["disk"]
    )


def job_to_json(job: StageJob) -> dict[str, Any]:
    """A job as it crosses the pipe."""
    return {
        "stage": job.stage,
        "params": dict(job.params),
        "request": request_to_json(job.request),
        "inputs": {name: str(path) for name, path in job.inputs.items()},
        "out": str(job.out),
        "component": job.component,
    }


def job_from_json(value: dict[str, Any], progress: Any) -> StageJob:
    """The job on the other side; its progress goes back over the pipe."""
    return StageJob(
        stage=value["stage"],
        params=value["params"],
        request=request_from_json(value["request"]),
        inputs={name: Path(path) for name, path in value["inputs"].items()},
        out=Path(value["out"]),
        component=value["component"],
        progress=progress,
    )


def report_to_json(report: StageReport) -> dict[str, Any]:
    """A report as it crosses the pipe."""
    return {"facts": dict(report.facts), "info": dict(report.info)}


def report_from_json(value: dict[str, Any]) -> StageReport:
    """The report on the other side."""
    return StageReport(value["facts"], value["info"])
