"""What a model takes, as far as tables can tell."""

from __future__ import annotations

import pytest

from flows.onboard.coverage import Effort, probe
from matrix.findings import Finding, Reach
from matrix.model import Model, Source, SourceKind

KNOWN = Finding(
    id="bert-1", kind="family", title="t", observation="o", status="draft", confidence="low",
    falsified_by="f", scope=Reach(architectures=("bert",)),
)  # fmt: skip


def model(architecture: str, task: str, **config: object) -> Model:
    return Model("our/model", task, Source(SourceKind.RANDOM, architecture, config=config))


@pytest.mark.parametrize(
    ("architecture", "task", "effort"),
    [
        ("bert", "fill-mask", Effort.ENTRY),
        ("bert", "text-ranking", Effort.ENTRY),
        ("distilbert", "fill-mask", Effort.FIRST_ENTRY),
        ("unknown", "fill-mask", Effort.FIRST_ENTRY),
        ("seamless_m4t_v2", "automatic-speech-recognition", Effort.EXPORTER),
        ("bert", "image-classification", Effort.MORE),
        ("no_such_net", "fill-mask", Effort.MORE),
    ],
)
def test_the_effort_follows_from_the_coverage(architecture: str, task: str, effort: Effort) -> None:
    found = probe("optimum", model(architecture, task), [KNOWN])
    assert found.effort is effort, found
    assert found.findings == (("bert-1",) if architecture == "bert" else ())
    assert found.why


def test_a_class_that_generates_is_not_taken_for_a_filler_of_masks() -> None:
    named = model("bart", "fill-mask", architectures=["BartForConditionalGeneration"])
    assert "may be the wrong task" in probe("optimum", named, []).doubt
    assert not probe("optimum", model("bart", "fill-mask"), []).doubt
