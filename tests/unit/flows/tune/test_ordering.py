"""Which hypotheses are tried, in which order, and the reasons that are told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows.tune.insight import Candidate, Insight, TopOperator
from flows.tune.ordering import Place, Placed, Situation, ordered
from matrix.findings import Evidence, Finding, Reach, read_findings
from matrix.findings import shipped as shipped_findings
from matrix.hypotheses import Guards, Hypothesis
from matrix.model import Cell, Profile
from matrix.plan import make_plan
from matrix.space import read_space, shipped
from tests.plans.models import EVERYTHING, TARGETS, load, plan_options

SPACE = read_space(shipped())
FINDINGS = read_findings(shipped_findings())
CATALOG = """
[[model]]
id = "a/b"
task = "fill-mask"
model_type = "bert"
random = { architecture = "bert" }
"""
KNOWN = Insight(available=True, opset=17, nodes=100, operators={"MatMul": 20, "Reshape": 40})


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Cell]:
    catalog = load(tmp_path_factory.mktemp("catalog"), CATALOG)
    plan = make_plan(catalog, TARGETS, EVERYTHING, plan_options())
    return {cell.target.label: cell for cell in plan.cells()}


def one(name: str, **more: Any) -> Hypothesis:
    changes = {"build": {"samples": 4}, **more}
    return Hypothesis(id=name, title=name, targets=("*",), axis="pass", **changes)


def space(*hypotheses: Hypothesis) -> dict[str, Hypothesis]:
    return {item.id: item for item in hypotheses}


def finding(name: str, action: Any, settings: str, *, level: int = 1, **more: Any) -> Finding:
    seen = [
        Evidence(
            supports=True, model=f"m{number}", architecture=kind, protocol="interleaved",
            gain=-20.0, low=-25.0, high=-15.0, floor=1.0,
        )
        for number, kind in enumerate(["bert", "bert"] if level >= 3 else [])
    ]  # fmt: skip
    return Finding(
        id=name, kind="tuning", title=f"about {settings}", observation="x", status="draft",
        confidence="low", falsified_by="x", action=action, settings=(settings,),
        scope=more.pop("scope", Reach()), evidence=tuple(seen), **more,
    )  # fmt: skip


def place(
    cells: Mapping[str, Cell], given: Mapping[str, Hypothesis], label: str = "qnn_npu", **more: Any
) -> list[Placed]:
    told = {"engine": "optimum", "insight": KNOWN, **more}
    return ordered(given, Situation(cell=cells[label], **told))


def names(placed: list[Placed]) -> list[str]:
    return [item.hypothesis.id for item in placed]


def test_the_shipped_space_for_a_text_model_on_an_npu(cells: dict[str, Cell]) -> None:
    found = {item.hypothesis.id: item for item in place(cells, SPACE)}
    assert all(item.hypothesis.applies(cells["qnn_npu"].target) for item in found.values())
    assert found["npu-opset-17"].why == "the baseline is already built that way"
    assert found["npu-w8a16"].why == "the baseline is already built that way"
    assert found["npu-no-conv-fusions"].why == "the graph has no Conv"
    assert found["npu-attention-21"].why == "the graph has no place for it: MatMul, Softmax, MatMul"
    assert found["npu-low-dimensions-21"].why == "ONNX Runtime has no such pass"
    assert found["npu-compiled"].why == "no device profile of qnn_npu can be compiled for here"
    tried = [item for item in found.values() if not item.skipped]
    assert {item.hypothesis.id for item in tried} == {
        "npu-opset-19", "npu-opset-21", "npu-w8a8", "npu-per-tensor", "npu-symmetric",
        "npu-burst", "npu-finalization",
    }  # fmt: skip
    assert all(item.cell is not None and item.why for item in tried)
    opset = found["npu-opset-21"]
    assert opset.why == "40 Reshape and few convolutions, on an NPU"
    assert names(place(cells, SPACE))[0] == "npu-opset-21"


def test_shipped_findings_order_and_leave_nothing_out(cells: dict[str, Cell]) -> None:
    without = {
        name for item in place(cells, SPACE) if item.skipped for name in [item.hypothesis.id]
    }
    placed = place(cells, SPACE, findings=FINDINGS.values())
    assert {item.hypothesis.id for item in placed if item.skipped} == without
    cpu = place(cells, SPACE, "mlas_cpu", findings=FINDINGS.values())
    opset = next(item for item in cpu if item.hypothesis.id == "cpu-opset-21")
    assert (opset.place, opset.finding) == (Place.LAST, "cpu-001")
    assert opset.why.startswith("cpu-001 (level 1, draft) advises against it: Opset 19 and 21 are")


def test_what_nobody_knows_stands_as_in_the_files(cells: dict[str, Cell]) -> None:
    given = space(one("b"), one("a"), one("c"))
    placed = place(cells, given)
    assert names(placed) == ["b", "a", "c"]
    assert {item.why for item in placed} == {"there is no evidence for or against it"}


@pytest.mark.parametrize(
    ("guards", "why"),
    [
        (Guards(needs=("Conv",)), "the graph has no Conv"),
        (Guards(not_with=("MatMul",)), "the graph has MatMul (20)"),
        (Guards(candidates=("gelu",)), "the graph has no place for it: GELU spelt out with Erf"),
        (
            Guards(share={"MatMul": (0.5, 1.0)}),
            "20% of the nodes are MatMul, and 50% to 100% are asked for",
        ),
        (Guards(architectures=("convnext*",)), "it is for convnext*, not for bert"),
        (Guards(not_for=("bert",)), "it is not for bert"),
    ],
)
def test_a_guard_keeps_it_away(cells: dict[str, Cell], guards: Guards, why: str) -> None:
    (placed,) = place(cells, space(one("h", guards=guards)))
    assert placed.skipped
    assert placed.why == why


def test_without_a_graph_guards_keep_nothing_away(cells: dict[str, Cell]) -> None:
    unknown = Insight(reason="onnx is not installed")
    given = space(one("h", guards=Guards(needs=("Conv",), candidates=("gelu",))))
    (placed,) = place(cells, given, insight=unknown)
    assert not placed.skipped
    assert placed.why == "it is not known whether the model suits it: onnx is not installed"


def test_a_finding_prunes_from_the_third_level_on(cells: dict[str, Cell]) -> None:
    given = space(one("bad", opset=19), one("good"))
    weak = place(cells, given, findings=[finding("f", "skip", "opset=19", level=1)])
    assert names(weak) == ["good", "bad"]
    assert (weak[1].place, weak[1].finding) == (Place.LAST, "f")
    strong = place(cells, given, findings=[finding("f", "skip", "opset=19", level=3)])
    assert (strong[1].place, strong[1].finding) == (Place.SKIPPED, "f")
    assert strong[1].why == "f (level 3): about opset=19"


@pytest.mark.parametrize(
    ("known", "first"),
    [
        (finding("f", "first", "opset=*"), True),
        (finding("f", "note", "opset=*"), False),
        (finding("f", "first", "opset=21"), False),
        (finding("f", "first", "opset=19", scope=Reach(architectures=("vit",))), False),
        (finding("f", "first", "opset=19", scope=Reach(not_for=("bert",))), False),
        (finding("f", "first", "opset=19", scope=Reach(targets=("qnn_npu",))), True),
        (finding("f", "first", "opset=19", scope=Reach(devices=("X1",))), False),
        (replace(finding("f", "first", "opset=19"), status="refuted"), False),
    ],
)
def test_a_draft_moves_what_it_is_about(
    cells: dict[str, Cell], known: Finding, *, first: bool
) -> None:
    given = space(one("plain"), one("h", opset=19))
    assert names(place(cells, given, findings=[known])) == (
        ["h", "plain"] if first else ["plain", "h"]
    )


def test_advice_against_wins(cells: dict[str, Cell]) -> None:
    given = space(one("h", opset=19), one("plain"))
    known = [finding("up", "first", "opset=19"), finding("down", "last", "opset=19")]
    placed = place(cells, given, findings=known)
    assert names(placed) == ["plain", "h"]
    assert placed[1].finding == "down"


def test_many_places_come_before_few(cells: dict[str, Cell]) -> None:
    given = space(
        one("softmax", build={"passes": ["BiasSoftmaxFusion"]}),
        one("gelu", build={"passes": ["GeluFusionL2"]}),
        one("transpose", build={"passes": ["MatmulTransposeFusion"]}),
    )
    known = replace(
        KNOWN,
        candidates=(
            Candidate("matmul_transpose", 12, ("t",)), Candidate("gelu", 4, ("g",)),
            Candidate("bias_softmax", 2, ("s",)),
        ),
    )  # fmt: skip
    placed = place(cells, given, insight=known)
    assert names(placed) == ["gelu", "transpose", "softmax"]
    assert placed[0].why == "4 places for gelu, e.g. g; GELU is spelt out"
    traced = replace(known, top=(TopOperator("Softmax", 2, 60.0),))
    placed = place(cells, given, insight=traced)
    assert names(placed)[0] == "softmax"
    assert "Softmax take 60 % of the time" in placed[0].why


def test_what_the_provider_leaves_speaks_against_passes(cells: dict[str, Cell]) -> None:
    given = space(one("pass", build={"passes": ["GeluFusionL2"]}), one("other", opset=19))
    given["other"] = replace(given["other"], axis="opset")
    placed = place(cells, given, insight=replace(KNOWN, taken=0.75))
    assert names(placed) == ["other", "pass"]
    assert placed[1].why == "QNNExecutionProvider leaves 25% of the nodes to others"


def test_the_order_is_the_same_every_time(cells: dict[str, Cell]) -> None:
    first = place(cells, SPACE, findings=FINDINGS.values())
    assert place(cells, SPACE, findings=FINDINGS.values()) == first


def test_compiling_takes_a_profile_of_this_machine(cells: dict[str, Cell]) -> None:
    profile = Profile("htp73", "qnn_npu", "qnn")
    placed = place(cells, SPACE, profiles=[profile])
    found = next(item for item in placed if item.hypothesis.id == "npu-compiled")
    assert found.cell is not None
    assert found.cell.id == "a/b:fill-mask@qnn_npu+htp73"


def test_a_file_of_ones_own(cells: dict[str, Cell], tmp_path: Path) -> None:
    text = '[[hypothesis]]\nid = "mine"\ntitle = "Mine"\ntargets = ["qnn_npu"]\naxis = "opset"\n'
    (tmp_path / "mine.toml").write_text(text + "[hypothesis.changes]\nopset = 18\n")
    both = read_space([*shipped(), tmp_path / "mine.toml"])
    assert "mine" in names(place(cells, both))
