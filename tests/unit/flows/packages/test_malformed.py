"""Each value of a package's records is replaced or removed: only errors of ours come out."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from flows.measure.subjects import Choice, Finder
from flows.packages.promotion import demand_of
from flows.packages.reverify import subject_of
from flows.settings.resolution import resolve
from machine.waits import WITHOUT_LIMIT
from matrix.digest import BUILD_RECORD, MANIFEST, PROVENANCE, SBOM
from matrix.errors import MillError
from matrix.manifest import checked_record
from tests.fakes.attested import AttestationHarness
from tests.plans.cells import make_cell
from workers.runtimes.pool import Runtimes
from workers.runtimes.runtime import Missing
from workers.verify.ladder.observed import Observed
from workers.verify.ladder.reference import stored
from workers.verify.ladder.rungs import climb

OTHERS: tuple[Any, ...] = (None, 1e300, "../x", [], [1], {}, {"a": 1})
FACTS = {
    "inputs": {"": {"x": {"shape": [1, 3], "dtype": "float32", "range": [0.0, 1.0]}}},
    "samples": {"kind": "real", "origin": "a tokenizer", "parts": {"judge": 16}},
    "graphs": [{"model": "model.onnx", "origin": "model.onnx"}],
}
EVIDENCE = {
    "rules": {"waive": {"ep": "none here"}, "parity": {}},
    "verification": [{"name": "integrity", "passed": True, "detail": "", "evidence": {}}],
    "runtimes": [{"name": "cpu", "own": True, "ran": True, "taken": [3, 4], "weights": [2, 8]}],
    "reference": {
        "components": {
            "": {
                "inputs": [["x", "float32", [1, 3]]],
                "outputs": [["y", "float32", [1, 2]]],
                "seen": {"y": {"dtype": "float32", "shapes": [[1, 2]], "finite": True}},
            }
        },
        "files": [{"path": "samples/00.out.npz", "size": 1, "sha256": "a" * 64}],
        "generated": {},
    },
}


class NoRuntimes:
    """A machine that has none."""

    def for_target(self, _target: object) -> Missing:
        return Missing("QNNExecutionProvider", "npu", "there is none")


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttestationHarness]:
    harness = AttestationHarness(tmp_path_factory.mktemp("works"))
    yield harness
    harness.close()


@pytest.fixture(scope="module")
def package(harness: AttestationHarness) -> Path:
    """With everything in its records that readers look at; nothing states what it must be."""
    folder = harness.builder.build(make_cell(label="qnn_npu", precision="w8a16")).folder
    manifest = json.loads((folder / MANIFEST).read_bytes())
    for name in ("inputs", "share", "compile"):
        stage: dict[str, Any] = {
            "stage": name,
            "component": "",
            "key": "b" * 64,
            "tree": "c" * 64,
            "inputs": {},
        }
        manifest["stages"].append({**stage, "params": {"blocked_passes": ["x"]}, "facts": FACTS})
    write(folder, MANIFEST, manifest)
    write(folder, BUILD_RECORD, json.loads((folder / BUILD_RECORD).read_bytes()) | EVIDENCE)
    for name in (PROVENANCE, SBOM):
        (folder / name).unlink(missing_ok=True)
    return folder


def write(folder: Path, name: str, value: object) -> None:
    (folder / name).unlink(missing_ok=True)  # a link into the store
    (folder / name).write_text(json.dumps(value), encoding="utf-8")


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where there is a value; of long lists the first two."""
    if at:
        yield at
    if isinstance(value, dict | list):
        keys = list(value) if isinstance(value, dict) else list(range(min(len(value), 2)))
        for key in keys:
            yield from places(value[key], (*at, key))


def changed(record: Mapping[str, Any], at: tuple[Any, ...]) -> Iterator[Mapping[str, Any]]:
    for number in range(len(OTHERS) + 1):
        made = copy.deepcopy(record)
        inner: Any = made
        for key in at[:-1]:
            inner = inner[key]
        if number < len(OTHERS):
            inner[at[-1]] = OTHERS[number]
        else:
            del inner[at[-1]]
        yield made


def take(harness: AttestationHarness, folder: Path) -> None:
    """What `bench`, `trace` and `verify` do before a model runs, and a promotion."""
    settings = resolve({}, {}, folder)
    finder = Finder(
        settings, cast("Runtimes", NoRuntimes()), harness.store, WITHOUT_LIMIT, cast("Any", None)
    )
    subject = subject_of(settings, harness.store, folder, None)
    stored(subject)
    observed = Observed(
        files=subject.file_problems(),
        passes=subject.blocked_passes(),
        sampled=subject.sampled(),
        calibrated=subject.calibrated(),
    )
    for rung in ("integrity", "policy", "samples", "parity"):
        climb(rung, subject.claim, observed)
    list(finder._graphs(subject))
    demand = demand_of(settings, "release")
    assert demand is not None
    demand.lacks(checked_record(json.loads((folder / BUILD_RECORD).read_bytes())))
    with pytest.raises(MillError, match=r"cannot be measured here|is damaged"):
        finder._package(subject, Choice(), "it")


def test_an_export_is_told_as_one(harness: AttestationHarness, package: Path) -> None:
    original = (package / MANIFEST).read_bytes()
    write(package, MANIFEST, json.loads(original) | {"kind": "export"})
    with pytest.raises(MillError, match="is an export, not a cell"):
        take(harness, package)
    (package / MANIFEST).write_bytes(original)


@pytest.mark.parametrize("name", [MANIFEST, BUILD_RECORD])
def test_no_value_of_a_record_ends_in_a_traceback(
    harness: AttestationHarness, package: Path, name: str
) -> None:
    original = (package / name).read_bytes()
    take(harness, package)
    found, refused = [], 0
    for at in places(json.loads(original)):
        for number, record in enumerate(changed(json.loads(original), at)):
            write(package, name, record)
            try:
                take(harness, package)
            except MillError as error:
                refused += "\n" not in str(error)
            except Exception as error:  # noqa: BLE001 - this is what is looked for
                found.append((at, (*OTHERS, "left out")[number], repr(error)))
    (package / name).write_bytes(original)
    assert found == []
    assert refused > 100
