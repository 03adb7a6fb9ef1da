"""A compiled model that the provider of a machine cannot use is told before it is opened."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from onnxruntime.capi import _pybind_state

from matrix.model import Target
from workers.build.claim import Claim
from workers.runtimes import ort
from workers.runtimes.ort import OrtService
from workers.runtimes.runtime import PREFER, UNSUPPORTED, Runtime
from workers.runtimes.service import RuntimeService
from workers.verify.ladder.observed import Observed, RuntimeRun
from workers.verify.ladder.rungs import loads

NPU = Runtime("windowsml", "QNNExecutionProvider", "npu", "Windows ML's QNN 2, driver 1")


class Told(RuntimeService):
    """Its provider says this of every compiled model."""

    def __init__(self, word: str) -> None:
        self.word = word
        self.opened = 0

    def compatibility(self, _file: str, _runtime: Mapping[str, Any], /) -> str:
        return self.word

    def open(self, *_given: Any, **_more: Any) -> Any:
        self.opened += 1
        raise OSError("opened")


def measured(word: str, *, compiled: bool = True) -> tuple[dict[str, Any], int]:
    service = Told(word)
    given = {"file": "m.onnx", "runtime": NPU.to_json(), "compiled": compiled}
    return service.call("measure", given, lambda _text: None), service.opened


def test_what_does_not_fit_is_not_opened_and_the_answer_says_what_to_do() -> None:
    answer, opened = measured(UNSUPPORTED)
    assert (answer["at"], opened) == ("open", 0)
    assert "compile it again for the provider and driver of this machine" in answer["error"]
    assert measured(PREFER)[1] == measured("")[1] == 1
    assert measured(UNSUPPORTED, compiled=False)[1] == 1


def test_what_fits_with_a_loss_is_a_note_of_the_rung() -> None:
    claim = Claim("m@t", Target("qnn_npu", "qnn", "npu", "QNNExecutionProvider"), "w8a16")
    for word, told in ((PREFER, "another compiler would do better"), ("EP_SUPPORTED_OPTIMAL", "")):
        run = RuntimeRun(NPU, own=True, models={"m.onnx": {"compatibility": word}})
        passed, notes, _evidence = loads(claim, Observed(runs=[run]))
        assert passed
        assert told in "".join(notes)
        assert bool(notes) == bool(told)


@pytest.mark.parametrize("answer", ["EP_UNSUPPORTED", RuntimeError("only for a real NPU")])
def test_onnx_runtime_is_asked_about_the_device_that_would_open_it(
    monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    kinds = ("CPU", "NPU")
    there = [
        SimpleNamespace(ep_name=NPU.provider, device=SimpleNamespace(type=f"Type.{kind}"))
        for kind in kinds
    ]

    def judge(items: list[Any], written: str) -> Any:
        assert (items, written) == ([there[1]], "v2:73")
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(name=answer)

    strings = {"compiled.onnx": "v2:73"}
    monkeypatch.setattr(ort, "devices", lambda: there)
    monkeypatch.setattr(
        _pybind_state, "get_compatibility_info_from_model", lambda file, _ep: strings.get(file)
    )
    monkeypatch.setattr(_pybind_state, "get_model_compatibility_for_ep_devices", judge)
    found = OrtService().compatibility("compiled.onnx", NPU.to_json())
    assert found == (answer if isinstance(answer, str) else "")
    assert not OrtService().compatibility("portable.onnx", NPU.to_json())
