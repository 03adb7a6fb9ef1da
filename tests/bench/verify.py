"""What verification costs against the build it checks: `python -m tests.bench.verify FOLDER`.

FOLDER holds a Transformers model of more than 20 million parameters (config.json, safetensors).
Prints one line per cell and the ratio over all of them; the runtimes are those of this machine.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from datetime import date
from pathlib import Path

from flows.local import bare_builder, runtimes_of
from flows.planning import plan_of
from flows.settings import Settings, resolve
from workers.verify import Verifier


def main() -> None:
    """Build every target of the model in a new store, verify each, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--task", default="feature-extraction")
    parser.add_argument("--runtimes", default="", help="comma separated, or none")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        catalog = Path(folder) / "catalog.toml"
        source = json.dumps(str(options.model.absolute()))
        catalog.write_text(
            f'[[model]]\nid = "bench/model"\ntask = "{options.task}"\nfolder = {source}\n', "utf-8"
        )
        flags = {
            "home": str(Path(folder) / "home"),
            "runtimes": tuple(filter(None, options.runtimes.split(","))),
        }
        measure(resolve(flags, {}, Path(folder), None), str(catalog))


def measure(settings: Settings, catalog: str) -> None:
    """One pass, cold."""
    plan = plan_of(settings, catalog, date(2026, 6, 9))
    verifier = Verifier(runtimes_of(settings), settings["verify"])
    building = verifying = 0.0
    with bare_builder(plan, settings) as builder:
        for cell in plan.cells():
            began = time.monotonic()
            built = builder.build(cell)
            between = time.monotonic()
            verifier.verify(built)
            ended = time.monotonic()
            built.release()
            building += between - began
            verifying += ended - between
            label = cell.target.label
            print(f"{label:<12} build {between - began:6.2f} s  verify {ended - between:6.2f} s")
        verifier.close()
    print(f"all          build {building:6.2f} s  verify {verifying:6.2f} s")
    print(f"ratio        {verifying / building:.2f} (must be under 1)")


if __name__ == "__main__":
    main()
