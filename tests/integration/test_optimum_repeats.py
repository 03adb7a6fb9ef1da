"""The same inputs and tools give the same bytes, and nothing is left anywhere else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.machine.timing import patient

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

REPOSITORY = Path(__file__).parents[2]
QUIET = {"PREFECT_HOME", "HF_HOME", "XDG_CACHE_HOME"}


def build(root: Path, seed: str, threads: str) -> dict[str, str]:
    """Build in a new process, in an empty folder, with a home and a temp folder of its own."""
    places = {name: root / name for name in ("out", "cwd", "home", "temp")}
    for place in places.values():
        place.mkdir(parents=True)
    kept = {key: value for key, value in os.environ.items() if key not in QUIET}
    done = subprocess.run(
        [sys.executable, "-m", "tests.engines.stages", str(places["out"])],
        cwd=places["cwd"],
        env=kept
        | {
            "HOME": str(places["home"]),
            "USERPROFILE": str(places["home"]),
            **{name: str(places["temp"]) for name in ("TMPDIR", "TMP", "TEMP")},
            "PYTHONPATH": str(REPOSITORY),
            "PYTHONHASHSEED": seed,
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
        },
        capture_output=True,
        text=True,
        timeout=patient(500),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    left = [path for name in ("cwd", "home", "temp") for path in places[name].rglob("*")]
    assert not [path for path in left if path.is_file()]
    made: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return made


def test_two_processes_make_the_same_bytes(tmp_path: Path) -> None:
    one = build(tmp_path / "one", "1", "1")
    two = build(tmp_path / "two", "4242", "3")
    assert one == two
    assert len(one) > 20
    here = str(tmp_path).encode()
    packages = str(Path(pytest.__file__).parents[1]).encode()
    for file in (tmp_path / "one" / "out").rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert here not in content, file
            assert packages not in content, file
