"""What verification and calibration cost against another commit, in processor time."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.bench.truth.subjects.writing import Sentences
from tests.bench.truth.sweeping import modelmill, worked

MOST = 1.5
"""The ratio that must not be exceeded."""


def compare_cost(tree: Path | None) -> int:
    """The demo, and MiniLM for all targets, by the commit's tool and by ours in turns."""
    missed = 0
    for name in ("demo", "sentences"):
        spent = []
        for place in (tree, None):
            with tempfile.TemporaryDirectory(prefix="modelmill-bench-") as folder:
                spent.append(_swept(name, Path(folder), place))
        ratio = spent[1] / spent[0]
        missed += ratio > MOST
        print(f"{name}: {spent[0]:.0f} s then, {spent[1]:.0f} s now: {ratio:.2f} times", flush=True)
    return 1 if missed else 0


def _swept(name: str, folder: Path, tree: Path | None) -> float:
    catalog = name
    if name == "sentences":
        source = Sentences().source(folder)
        catalog = "catalog.toml"
        (folder / catalog).write_text(
            f'[[model]]\nid = "truth/{name}"\ntask = "feature-extraction"\npriority = "P0"\n'
            f"{source}\n", encoding="utf-8", newline="\n",
        )  # fmt: skip
    began = worked()
    out = modelmill(
        folder, tree, "none",
        "sweep", catalog, "--stamp", "1", "--home", "home", "--feed", "feed", "--jobs", "1",
    )  # fmt: skip
    if "published" not in out:
        raise SystemExit(f"the sweep of {name} published nothing:\n{out[-2000:]}")
    return worked() - began
