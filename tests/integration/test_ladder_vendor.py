"""A vendor library in another interpreter: it is used, and its crash or hang costs one cell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from matrix.model import Target
from tests.sweeps.command import Project
from tests.sweeps.command import model as entry
from tests.verification.packages import (
    NPU,
    WEIGHTS,
    VerificationHarness,
    claim,
    failed,
    lab_in,
    model,
    not_run,
    qdq,
    told,
)
from tests.verification.vendor import Vendor
from workers.host.watch import HostLimits, Watching
from workers.runtimes.pool import Runtimes
from workers.runtimes.runtime import KINDS, ORT, Kind, Missing, Runtime
from workers.verify.ladder.levels import Demand

pytestmark = pytest.mark.engine

OV = Target("ov_cpu", "openvino", "cpu", "OpenVINOExecutionProvider")
NAME = "OpenVINOExecutionProvider cpu"
OPENVINO = next(kind for kind in KINDS if kind.name == "openvino")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Vendor:
    return Vendor.make(tmp_path_factory.mktemp("vendor") / "venv")


@pytest.fixture
def vendor(installed: Vendor) -> Iterator[Vendor]:
    yield installed
    installed.told.unlink(missing_ok=True)


class Impatient(Runtimes):
    """Waits for ONNX Runtime as long as it takes, and for a vendor as long as a test says."""

    patience: float | None = None

    def measure(self, runtime: Runtime, args: dict[str, Any], watching: Watching) -> dict[str, Any]:
        limit = self.patience if runtime.kind != ORT.name else None
        return Runtimes.measure(self, runtime, args, Watching(limit, log=watching.log))


@pytest.fixture
def runtimes(tmp_path: Path, vendor: Vendor) -> Iterator[Impatient]:
    found = Impatient(tmp_path / "logs", pythons={"openvino": vendor.python})
    yield found
    found.close()


@pytest.fixture
def harness(tmp_path: Path, runtimes: Impatient) -> Iterator[VerificationHarness]:
    with lab_in(tmp_path, runtimes) as found:
        yield found


def test_a_runtime_in_another_interpreter_is_the_one_that_runs(
    harness: VerificationHarness, vendor: Vendor
) -> None:
    climbed = harness.climb(model(), claim(target=OV))
    assert not climbed.failed
    cpu, own = climbed.to_json()["runtimes"]
    assert (cpu["provider"], cpu["own"]) == ("CPUExecutionProvider", False)
    assert (own["version"], own["ran"], own["taken"]) == ("openvino 9999.1", True, [1, 1])
    assert f"a stand-in from {vendor.folder}, in f32" in own["detail"]
    assert climbed.rungs[5].evidence[NAME]["model.onnx y"]["snr"] == 150.0
    assert Demand.parse("parity@ep").lacks(climbed.to_json()) == ""


@pytest.mark.parametrize(
    ("what", "patience", "text"),
    [("crash", None, "the engine host died with"), ("hang", 1.0, "no answer within 1 s")],
)
def test_a_vendor_library_that_fails_costs_one_rung_of_one_cell(
    harness: VerificationHarness,
    runtimes: Impatient,
    vendor: Vendor,
    what: str,
    patience: float | None,
    text: str,
) -> None:
    vendor.tell(what)
    runtimes.patience = patience
    climbed = harness.climb(model(), claim(target=OV))
    assert failed(climbed) == ["loads"]
    assert f"model.onnx on {NAME}: {text}" in told(climbed, "loads")
    # On ONNX Runtime's CPU it is as good as it is; what could not be seen elsewhere is told.
    assert [one.passed for one in climbed.rungs] == [True, True, False, True, True, True]
    for name in ("shapes", "parity"):
        assert f"not run on {NAME}: because loads failed there" in told(climbed, name)
    cpu, own = climbed.to_json()["runtimes"]
    assert (cpu["ran"], own["ran"]) == (True, False)
    assert text in own["why"]
    waived = {**climbed.to_json()}
    waived["verification"] = [{**one, "waived": "known"} for one in waived["verification"]]
    assert text in Demand.parse("parity@ep").lacks(waived)
    # The next cells are none the worse for it, on the very same runtime.
    runtimes.patience = None
    for weights in (WEIGHTS, WEIGHTS.T.copy()):
        export = harness.place(model(weights))
        again = harness.subject(harness.place(model(weights)), claim(target=OV), export=export)
        after = harness.verifier.climb(again)
        assert not after.failed, after.failed
        assert after.to_json()["runtimes"][1]["ran"]


def test_a_vendor_library_that_cannot_even_start_is_a_missing_one(
    harness: VerificationHarness, vendor: Vendor
) -> None:
    vendor.tell("crash always early")
    climbed = harness.climb(model(), claim(target=OV))
    assert not climbed.failed
    told_why = climbed.to_json()["runtimes"][1]["not_run"]
    assert told_why.startswith("the engine host died with")
    assert told_why in Demand.parse("parity@ep").lacks(climbed.to_json())


def test_a_vendor_library_that_cannot_start_once_is_asked_again(
    harness: VerificationHarness, vendor: Vendor
) -> None:
    vendor.tell("crash early")
    climbed = harness.climb(model(), claim(target=OV))
    assert not climbed.failed
    assert climbed.to_json()["runtimes"][1]["ran"]


def test_a_vendor_library_that_hangs_at_first_sight_is_a_missing_one(
    tmp_path: Path, vendor: Vendor
) -> None:
    vendor.tell("hang always early")
    limits = HostLimits(start_timeout=2.0)
    found = Runtimes(tmp_path / "logs", limits, pythons={"openvino": vendor.python})
    (missing,) = found.of_kind(OPENVINO)
    found.close()
    assert isinstance(missing, Missing)
    assert missing.why == "no answer within 2 s"


def test_an_interpreter_without_the_package_is_told_with_the_way_to_mend_it(tmp_path: Path) -> None:
    python = Vendor.make(tmp_path / "empty", empty=True).python
    found = Runtimes(tmp_path / "logs", pythons={"openvino": python})
    missing = found.for_target(OV)
    found.close()
    assert isinstance(missing, Missing)
    assert "No module named 'openvino'" in missing.why
    assert str(python) in missing.hint


FAKE = Kind("qnn", "", ("QNNExecutionProvider",), ("no-such-distribution",), "qnn")


def test_a_missing_package_is_told_and_the_rest_still_verified(
    harness: VerificationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.runtimes.pool.kinds_for", lambda _provider: [FAKE])
    climbed = harness.climb(qdq(), claim("w8a16", NPU))
    assert not climbed.failed
    assert not_run(climbed) == []
    record = climbed.to_json()
    assert record["runtimes"][1]["not_run"] == "no-such-distribution is not installed"
    assert Demand.parse("parity").lacks(record) == ""
    assert "not installed" in Demand.parse("parity@ep").lacks(record)
    waived = {**record, "rules": {"waive": {"ep": "no NPU in the lab"}}}
    assert Demand.parse("parity@ep").lacks(waived) == ""


def test_in_a_sweep_a_crash_costs_one_cell_and_a_retry_mends_it(
    project: Project, vendor: Vendor
) -> None:
    project.catalog(entry("tiny/a"), entry("tiny/b"))
    python = json.dumps(str(vendor.python))
    (project.folder / "modelmill.toml").write_text(
        f"[runtime.openvino]\npython = {python}\n", "utf-8"
    )
    project.env |= {"MODELMILL_RUNTIMES": "openvino", "MODELMILL_JOBS": "1"}
    vendor.tell("crash")
    arguments = ("--stamp", "one", "--target", "mlas_cpu", "--target", "ov_cpu")
    ran = project.run("sweep", "catalog.toml", *arguments)
    assert (ran.code, ran.err) == (1, "")
    assert project.statuses("one") == {"published": 3, "verify_failed": 1}
    (bad,) = [one for one in project.outcomes("one").values() if one.status.failed]
    assert bad.target == "ov_cpu"
    assert f"loads failed: model.onnx on {NAME}: the engine host died with" in (bad.message or "")
    project.ok("retry")
    assert project.statuses("one") == {"published": 4}
    own = (project.outcomes("one")[bad.cell].evidence or {})["runtimes"][1]
    assert (own["version"], own["ran"]) == ("openvino 9999.1", True)


def test_the_doctor_lists_what_would_verify_and_why_others_are_missing(
    project: Project, vendor: Vendor
) -> None:
    project.env |= {
        "MODELMILL_RUNTIMES": "openvino",
        "MODELMILL_OPENVINO_PYTHON": str(vendor.python),
    }
    found = {one["what"]: one["detail"] for one in project.run("doctor", "--json").json()}
    assert found["runtime CPUExecutionProvider cpu"].endswith(", native"), found
    assert found[f"runtime {NAME}"].startswith("openvino 9999.1, ")
    assert f"a stand-in from {vendor.folder}" in found[f"runtime {NAME}"]
    assert "the setting runtimes excludes it" in found["runtime QNNExecutionProvider"]
    assert found["verify ov_cpu"] == f"on {NAME}"
    assert found["verify qnn_npu"].startswith("on ONNX Runtime CPU alone: ")


def test_a_batch_is_verified_again_when_a_provider_changes(
    project: Project, vendor: Vendor
) -> None:
    project.catalog(entry("tiny/a"))
    project.env |= {
        "MODELMILL_RUNTIMES": "openvino",
        "MODELMILL_OPENVINO_PYTHON": str(vendor.python),
    }
    targets = [word for name in ("mlas_cpu", "ov_cpu", "qnn_gpu") for word in ("--target", name)]
    project.ok("sweep", "catalog.toml", "--stamp", "one", *targets)

    def again(*more: str) -> tuple[int, str, str]:
        ran = project.run("verify", "--stamp", "one", *more)
        return ran.code, ran.out, ran.err

    code, out, err = again()
    assert (code, out.splitlines()[-1]) == (0, "holds: 2")
    assert "qnn_gpu is left out: the setting runtimes excludes it" in err
    # The provider was an older one then.
    tree = project.outcomes("one")["tiny/a:fill-mask@ov_cpu"].tree
    (kept,) = (project.folder / ".modelmill" / "evidence" / str(tree)).glob("*.json")
    kept.write_text(kept.read_text("utf-8").replace("openvino 9999.1", "openvino 9998.0"), "utf-8")
    vendor.tell("crash")
    code, out, _err = again("--target", "ov_*")
    assert code == 1
    assert f"fails now on {NAME}: openvino 9999.1 (before: held on openvino 9998.0); loads:" in out
    told = project.run("diff", "one", "one").out
    assert "verified again (1)\n  tiny/a:fill-mask@ov_cpu\n    fails now" in told
    project.ok("report", "one", "-o", "report.html")
    assert "fails now on OpenVINO" in (project.folder / "report.html").read_text("utf-8")
    assert "flaky on" in again("--target", "ov_*")[1]
    assert project.run("verify").code == 2
    assert "is left out" not in project.run("verify", "--stamp", "none").err
