"""Where features hang on the core: it takes them from this table and imports none of them.

The commands of features are the rows of `flows.cli.main.COMMANDS` whose modules import one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Any

FEATURES: Mapping[str, str] = {
    "benchmarks": "flows.measure.bench_run:BenchRun",
    "fleet": "flows.fleet.launch:sweep_on_fleet",
    "resume on a fleet": "flows.fleet.launch:resume_on_fleet",
    "stale champions": "flows.tune.champions:stale_champions",
    "report": "flows.report.page:report_of",
    "variables of Azure": "feed.azure.options:VARIABLES",
    "proof": "flows.tune.champions:tuning_of",
}


def feature(name: str) -> Any:
    """What a feature offers the core, imported now."""
    return resolve_name(FEATURES[name])
