"""Every entry of the packaged catalogs names a model type and a task that the engine can export."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from matrix.catalog import load_catalog, packaged
from tests.machine.timing import patient

pytestmark = pytest.mark.engine

ASK = """
import json, sys
from optimum.exporters.tasks import TasksManager
from workers.optimum_engine.architectures import families
families.register()
pairs = json.load(sys.stdin)
known = TasksManager._SUPPORTED_MODEL_TYPE
print(json.dumps([pair for pair in pairs if pair[1] not in known.get(pair[0], {}).get("onnx", {})]))
"""


def test_every_entry_is_exportable() -> None:
    models = [model for name in packaged() for model in load_catalog(name, base=Path.cwd()).models]
    pairs = [(model.model_type, model.task) for model in models]
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        input=json.dumps(pairs),
        capture_output=True,
        text=True,
        timeout=patient(240),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == []
