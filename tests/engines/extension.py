"""The package with an architecture that the pages show, installed in a folder of a test."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

SAMPLE = Path(__file__).parents[2] / "docs" / "samples" / "ringnet"


def install(site: Path, version: str = "1.0") -> Path:
    """What pip makes of the sample: its package, and what its project file says of it."""
    project = tomllib.loads((SAMPLE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name = project["name"]
    shutil.copytree(SAMPLE / name, site / name)
    metadata = site / f"{name}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n", "utf-8")
    groups = project["entry-points"].items()
    lines = [
        f"[{group}]\n{key} = {value}\n" for group, all_ in groups for key, value in all_.items()
    ]
    (metadata / "entry_points.txt").write_text("".join(lines), "utf-8")
    return site
