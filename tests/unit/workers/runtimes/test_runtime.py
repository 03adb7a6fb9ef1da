"""How a runtime opens models is part of what it is, and of what is recorded of it."""

from __future__ import annotations

from workers.runtimes.runtime import Runtime

NPU = Runtime("qnn", "QNNExecutionProvider", "npu", "2.0", options={"htp_arch": "73"})


def test_settings_of_a_session_are_added_to_the_options_of_the_provider() -> None:
    opened = NPU.opening({"htp_performance_mode": "burst", "level": "all"})
    assert opened.options == {"htp_arch": "73", "htp_performance_mode": "burst"}
    assert opened.level == "all"
    assert Runtime(**opened.to_json()) == opened
    assert opened != NPU


def test_a_runtime_without_such_settings_is_told_as_before() -> None:
    assert NPU.opening({}) == NPU
    assert "level" not in NPU.to_json()
    assert Runtime(**NPU.to_json()) == NPU
