"""Champions: read from files, laid over catalogs, and compared with packages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from matrix.champions import (
    Champion,
    baseline_digest,
    champion_for,
    read_champions,
    unlike,
    with_champions,
)
from matrix.errors import PlanError, UsageError
from matrix.model import Cell, Plan
from matrix.plan import make_plan
from tests.plans.models import EVERYTHING, TARGETS, load, plan_options, write
from tests.tunings.champions import a_champion

CATALOG = """
[[model]]
id = "a/b"
task = "fill-mask"
random = { architecture = "bert" }
[[model]]
id = "c"
task = "fill-mask"
random = { architecture = "bert" }
"""
GOOD = """
[[champion]]
model = "a/b"
task = "fill-mask"
target = "mlas_cpu"
engine = "optimum"
[champion.changes]
opset = 19
[champion.proof]
tuning = "monday"
trial = "cpu-opset-19"
comparison = "c"
artifact = "a"
baseline = "b"
gain = 12.5
low = 10.0
high = 14.0
"""


def crowned(
    folder: Path, *champions: Champion, catalog: str = CATALOG, profiles: tuple[str, ...] = ()
) -> Plan:
    made = with_champions(
        load(folder, catalog), champions, TARGETS, engine="optimum", profiles=profiles
    )
    return make_plan(made, TARGETS, EVERYTHING, plan_options())


def cell_of(plan: Plan, model: str = "a/b", label: str = "mlas_cpu") -> Cell:
    found = (cell for cell in plan.cells() if (cell.model.id, cell.target.label) == (model, label))
    return next(found)


def test_it_changes_its_model_on_its_target_alone(tmp_path: Path) -> None:
    plan = crowned(tmp_path, a_champion(opset=19, build={"passes": ["BiasGeluFusion"]}))
    plain = make_plan(load(tmp_path, CATALOG), TARGETS, EVERYTHING, plan_options())
    assert cell_of(plan).policy.opset == 19
    assert cell_of(plan).policy.build == {"passes": ["BiasGeluFusion"]}
    others = [
        (one.id, one.policy, one.version) for one in plan.cells() if one.id != cell_of(plan).id
    ]
    assert others == [
        (one.id, one.policy, one.version) for one in plain.cells() if one.id != cell_of(plan).id
    ]
    assert any(
        "champion of a/b:fill-mask@mlas_cpu (opset=19, pass=bias_gelu; +12.5 % [+10.2, +14.0])"
        " is used" in notice
        for notice in plan.notices
    )


def test_it_adds_to_what_the_catalog_says(tmp_path: Path) -> None:
    text = CATALOG + '[model.build]\nsamples = 4\nwithout_passes = ["ConvBNFusion"]\n'
    one = a_champion("c", build={"without_passes": ["TransposeOptimizer"]})
    build = cell_of(crowned(tmp_path, one, catalog=text), "c").policy.build
    assert build == {"samples": 4, "without_passes": ["ConvBNFusion", "TransposeOptimizer"]}


def test_two_targets_of_a_model_have_one_each(tmp_path: Path) -> None:
    plan = crowned(tmp_path, a_champion(opset=19), a_champion(target="qnn_npu", precision="w8a8"))
    assert cell_of(plan).policy.opset == 19
    npu = cell_of(plan, label="qnn_npu")
    assert npu.id == "a/b:fill-mask@qnn_npu:w8a8"
    assert npu.version.endswith("-w8a8")


@pytest.mark.parametrize(
    ("champion", "told"),
    [
        (a_champion("a/c"), "is not used: the catalog has no such model (did you mean a/b:fill-m"),
        (a_champion(engine="winml"), "is not used: it belongs to the engine winml"),
        (a_champion(), "is stale: the catalog has changed what it was compared with"),
        (
            a_champion(proof={"emulated": True}),
            "was measured on an emulator, which proves nothing",
        ),
        (
            a_champion(target="qnn_npu", compiled="htp73"),
            "is compiled: --compile htp73 makes it",
        ),
        (
            a_champion(target="qnn_npu", runtime={"htp_performance_mode": "burst"}),
            "is opened with htp_performance_mode=burst, which no package contains",
        ),
    ],
)
def test_what_the_user_should_know_is_told(tmp_path: Path, champion: Champion, told: str) -> None:
    notices = crowned(tmp_path, champion).notices
    assert any(told in notice for notice in notices), notices


def test_it_is_not_stale_as_long_as_the_catalog_says_the_same(tmp_path: Path) -> None:
    catalog = load(tmp_path, CATALOG)
    digest = baseline_digest(catalog.models[0], TARGETS.get("mlas_cpu"))
    one = a_champion(proof={"baseline": digest})
    assert not any("stale" in notice for notice in crowned(tmp_path, one).notices)
    changed = CATALOG.replace('"a/b"', '"a/b"\nopset = 20')
    assert any("stale" in notice for notice in crowned(tmp_path, one, catalog=changed).notices)
    assert not any(
        "--compile" in notice
        for notice in crowned(
            tmp_path, a_champion(target="qnn_npu", compiled="htp73"), profiles=("htp73",)
        ).notices
    )


def test_what_the_catalog_excludes_is_refused(tmp_path: Path) -> None:
    text = CATALOG + '[model.build]\noptimization = "extended"\n'
    one = a_champion("c", build={"passes": ["BiasGeluFusion"]})
    with pytest.raises(PlanError, match=r"champion of c.*passes goes with optimization basic"):
        crowned(tmp_path, one, catalog=text)


def read(folder: Path, text: str) -> dict[Any, Champion]:
    return read_champions(write(folder, text, "champions.toml"), TARGETS)


def test_a_file(tmp_path: Path) -> None:
    (one,) = read(tmp_path, GOOD).values()
    assert (one.key, one.changes.settings) == (("a/b", "fill-mask", "mlas_cpu"), ("opset=19",))
    assert champion_for({one.key: one}, one.key) == one
    with pytest.raises(UsageError, match=r"no champion of 'a/b:fill-mask@dml_gpu'.*mlas_cpu"):
        champion_for({one.key: one}, ("a/b", "fill-mask", "dml_gpu"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (GOOD.replace("mlas_cpu", "mlas_cpuu"), "unknown target 'mlas_cpuu' (did you mean mlas_c"),
        (GOOD.replace("optimum", "optimun"), "unknown engine 'optimun' (did you mean optimum?)"),
        (GOOD.replace("opset = 19", ""), "it changes nothing"),
        (GOOD.replace("opset = 19", "opset = 99"), "opset must be between 7 and 30"),
        (GOOD.replace("opset = 19", "[champion.changes.build]\npases = []"), "unknown key 'pases'"),
        (
            GOOD.replace("opset = 19", '[champion.changes.build]\nflags = ["gelu_fusion"]'),
            "the engine optimum has no build option flags",
        ),
        (GOOD.replace("gain = 12.5", "gain = 15.5"), "gain 15.5 is not between 10 and 14"),
        (GOOD.replace("gain = 12.5", "gain = nan"), "proof contains a value that cannot be st"),
        (GOOD.replace("gain = 12.5", ""), "gain is missing"),
        (GOOD.replace('tuning = "monday"', ""), "tuning is missing"),
        (GOOD + "tools = { onnx = 1 }\n", "tools: 'onnx' must be a printable string, not 1"),
        (GOOD.partition("[champion.proof]")[0], "champion 1 (a/b): proof is missing"),
        (GOOD + GOOD, "a/b:fill-mask@mlas_cpu has a champion already"),
        (GOOD + "colour = 1\n", "proof: unknown key 'colour'"),
        ("champion = 1", "must be a list of tables"),
        ("\x00", "is UTF-16 or binary"),
    ],
)
def test_rubbish_gets_a_line(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(PlanError) as caught:
        read(tmp_path, text)
    assert problem in str(caught.value)
    assert "champions.toml" in str(caught.value)


def test_the_sample_of_the_docs_can_be_read() -> None:
    sample = Path(__file__).parents[3] / "docs" / "samples" / "champions.toml"
    (one,) = read_champions(sample, TARGETS).values()
    assert one.changes.settings == ("opset=19",)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"none.toml: no such file \(a tuning writes it\)"):
        read_champions(tmp_path / "none.toml", TARGETS)


MANIFEST: dict[str, Any] = {
    "engine": {"name": "optimum"},
    "policy": {"opset": 19, "precision": "w8a8", "build": {"passes": ["A", "B"], "samples": 4}},
    "profile": {"label": "htp73"},
}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"opset": 19, "precision": "w8a8", "compiled": "htp73"}, ""),
        ({"build": {"passes": ["B"], "samples": 4}}, ""),
        ({"runtime": {"level": "all"}}, ""),
        ({"opset": 21}, "its opset is 19, not 21"),
        ({"precision": "fp16"}, "its precision is w8a8, not fp16"),
        ({"build": {"passes": ["C"]}}, "its build option passes is ['A', 'B'], not ['C']"),
        ({"build": {"per_channel": False}}, "its build option per_channel is None, not False"),
        ({"compiled": "htp81"}, "it is compiled for htp73, not for htp81"),
    ],
)
def test_a_package_is_built_as_its_champion_says(changes: dict[str, Any], reason: str) -> None:
    assert unlike(a_champion(**changes), MANIFEST) == reason


def test_a_manifest_that_says_nothing_is_unlike_any_champion() -> None:
    assert unlike(a_champion(), {}) == "it was built by None, not by optimum"
    assert unlike(replace(a_champion(), engine="winml"), MANIFEST).startswith("it was built by opt")
    damaged = {"engine": "x", "policy": [1]}
    assert unlike(a_champion(), damaged)
