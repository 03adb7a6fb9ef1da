"""Traces in the host: the order of things, and whose failure is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from machine.waits import untold
from workers.runtimes.trace import (
    Monitor,
    OpenVinoMonitor,
    OrtMonitor,
    QnnMonitor,
    Traces,
    merged,
    monitor_for,
)
from workers.session import Port, Session

RUNTIME = {"provider": "TestExecutionProvider", "options": {"device": "7"}}
ARGS = {
    "file": "m.onnx", "runtime": RUNTIME, "component": "", "inputs": [], "shapes": {},
    "warmup": 2, "iterations": 3,
}  # fmt: skip


SOURCES = ("qnn", "openvino", "onnxruntime")


class FakeSession:
    """Writes down what happens to it; its runs fail from a given one on."""

    def __init__(self, log: list[str], fails_at: int = 0) -> None:
        self.inputs = [Port("x", "float32", ("batch", 4))]
        self.outputs = [Port("y", "float32", (1, 4))]
        self._log, self._fails_at, self._runs = log, fails_at, 0

    def expect(self, names: Sequence[str]) -> None: ...

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    def prepared(self, feeds: Mapping[str, Any]) -> Callable[[], object]:
        def run() -> None:
            self._runs += 1
            self._log.append("run")
            if self._runs == self._fails_at:
                raise RuntimeError("the device\nis gone")

        return run

    def nodes(self) -> dict[str, int]:
        return {"TestExecutionProvider": 3}

    def assigned(self) -> dict[str, list[list[str]]]:
        return {}

    def parts(self) -> dict[str, int]:
        return {"TestExecutionProvider": 1}

    def times(self) -> list[dict[str, Any]]:
        return [{"name": "a", "mean": 10 * self._runs}]

    def close(self) -> None:
        self._log.append("close")


class Watcher(Monitor):
    """A monitor that writes down what happens, and fails where it is told to."""

    def __init__(self, log: list[str], fails: str = "", *, slows: bool = False) -> None:
        self._log, self._fails, self.slows = log, fails, slows

    def _note(self, what: str) -> None:
        self._log.append(what)
        if what == self._fails:
            raise ValueError(f"no {what}")

    def session_options(self) -> dict[str, Any]:
        return {"enable_profiling": True}

    def provider_options(self) -> dict[str, Any]:
        return {"profiling_level": "detailed"}

    def enter(self) -> None:
        self._note("enter")

    def warmed(self, session: Session) -> None:
        self._note("warmed")

    def finished(self, session: Session) -> None:
        self._note("finished")

    def exit(self) -> dict[str, Any]:
        self._note("exit")
        return {"rows": 5}


class Host:
    """The operation as the service has it, with the options of every session."""

    def __init__(self, *, fails_at: int = 0, opens: bool = True) -> None:
        self.log: list[str] = []
        self.options: list[tuple[Any, Any]] = []
        self._fails_at, self._opens = fails_at, opens
        self.traces = Traces(self._open)

    def _open(
        self, _file: str, runtime: Mapping[str, Any], options: Mapping[str, Any]
    ) -> FakeSession:
        self.log.append("open")
        self.options.append((runtime["options"], options))
        if not self._opens:
            raise OSError("no such model")
        return FakeSession(self.log, self._fails_at)

    def trace(self, fails: str = "", **more: Any) -> dict[str, Any]:
        monitor = Watcher(self.log, fails)
        return self.traces.watched(monitor, {**ARGS, **more}, untold)


def test_the_session_is_released_before_the_monitor_is_left() -> None:
    host = Host()
    told = host.trace()
    assert host.log == [
        "enter", "open", "run", "run", "warmed", "run", "run", "run", "finished", "close", "exit",
    ]  # fmt: skip
    assert told["seen"] == {"rows": 5}
    assert told["parts"] == {"TestExecutionProvider": 1}
    assert len(told["times"]) == 3
    assert told["at"] == ""
    assert "error" not in told


def test_runs_without_a_monitor_that_slows_them_are_made_around_its_window() -> None:
    host = Host()
    told = host.traces.watched(Watcher(host.log, slows=True), ARGS, untold)
    warm = ["run", "run"]
    assert host.log == [
        "enter", "open", *warm, "run", "run", "close",
        "open", *warm, "warmed", "run", "run", "run", "finished", "close", "exit",
        "open", *warm, "run", "close",
    ]  # fmt: skip
    assert [options for _runtime, options in host.options] == [{}, {"enable_profiling": True}, {}]
    assert (len(told["times"]), len(told["plain"])) == (3, 3)
    assert (told["at"], told["seen"]) == ("", {"rows": 5})


def test_a_model_that_fails_without_the_monitor_is_not_run_under_it() -> None:
    host = Host(fails_at=1)
    told = host.traces.watched(Watcher(host.log, slows=True), ARGS, untold)
    assert (told["at"], told["error"]) == ("run", "the device is gone")
    assert host.log == ["enter", "open", "run", "close", "exit"]


def test_only_onnx_runtimes_profiler_slows_the_runs(tmp_path: Path) -> None:
    slow = {name: monitor_for(name, tmp_path, "basic").slows for name in SOURCES}
    assert slow == {"qnn": False, "openvino": False, "onnxruntime": True}


def test_options_of_a_monitor_stay_with_its_session() -> None:
    host = Host()
    host.trace()
    assert host.options == [
        ({"device": "7", "profiling_level": "detailed"}, {"enable_profiling": True})
    ]
    assert RUNTIME["options"] == {"device": "7"}
    host.traces.watched(Monitor(), ARGS, untold)
    assert host.options[1] == ({"device": "7"}, {})


@pytest.mark.parametrize(
    ("fails_at", "opens", "at", "error"),
    [(1, True, "run", "the device is gone"), (4, True, "run", "the device is gone"),
     (0, False, "open", "no such model")],
)  # fmt: skip
@pytest.mark.parametrize("fails", ["", "exit"])
def test_the_models_own_failure_is_told(
    fails_at: int, opens: bool, at: str, error: str, fails: str
) -> None:
    host = Host(fails_at=fails_at, opens=opens)
    told = host.trace(fails)
    assert (told["at"], told["error"]) == (at, error)
    assert host.log[-1] == "exit"
    assert not opens or host.log[-2] == "close"
    assert host.trace() is not None, "the next window can begin"


def test_values_that_do_not_fit_are_no_failure_of_the_monitor(tmp_path: Path) -> None:
    import numpy as np

    np.savez(tmp_path / "i.npz", other=np.zeros((1, 1, 4)))
    host = Host()
    told = host.trace(inputs=[str(tmp_path / "i.npz")])
    assert told["at"] == "feed"
    assert host.log == ["enter", "open", "close", "exit"]


def test_a_monitor_that_cannot_begin_is_not_left() -> None:
    host = Host()
    told = host.trace("enter")
    assert (told["at"], told["error"]) == ("monitor", "no enter")
    assert host.log == ["enter"]
    assert host.trace()["at"] == ""


def test_a_monitor_that_cannot_read_is_told_apart() -> None:
    told = Host().trace("exit")
    assert told["monitor"] == "no exit"
    assert told["seen"] == {}
    assert "error" not in told


def test_windows_cannot_be_nested() -> None:
    host = Host()

    class Nested(Monitor):
        def warmed(self, session: Session) -> None:
            host.trace()

    told = host.traces.watched(Nested(), ARGS, untold)
    assert "nested" in told["error"]
    assert host.log.count("open") == 1
    assert host.trace()["at"] == ""


def test_options_are_made_anew(tmp_path: Path) -> None:
    for monitor in (QnnMonitor(tmp_path, "basic"), OrtMonitor(tmp_path), OpenVinoMonitor()):
        for options in (monitor.session_options, monitor.provider_options):
            first = options()
            first["left"] = "over"
            assert "left" not in options()


def test_what_qnn_is_asked_for(tmp_path: Path) -> None:
    basic, detail = (QnnMonitor(tmp_path, level) for level in ("basic", "detail"))
    assert basic.provider_options() == {
        "profiling_level": "detailed", "profiling_file_path": str(tmp_path / "profile.csv"),
    }  # fmt: skip
    assert detail.provider_options()["profiling_level"] == "optrace"
    given = {"options": {"profiling_level": "off", "htp_arch": "73"}}
    assert merged(given, basic)["options"]["profiling_level"] == "detailed"
    assert merged(given, basic)["options"]["htp_arch"] == "73"
    with pytest.raises(ValueError, match="no level 'deep'"):
        QnnMonitor(tmp_path, "deep")


@pytest.mark.parametrize("name", ["profile.csv", "profile_qnn.log", "x_schematic.bin",
                                  "onnxruntime_2026.json"])  # fmt: skip
def test_a_file_of_an_earlier_run_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(FileExistsError, match=name):
        QnnMonitor(tmp_path, "basic").enter()


def test_what_qnn_has_written(tmp_path: Path) -> None:
    monitor = QnnMonitor(tmp_path, "detail")
    monitor.enter()
    nothing: dict[str, Any] = {"runs": None, "profile": None, "log": None, "schematics": []}
    assert monitor.exit() == nothing
    for name in ("profile.csv", "profile_qnn.log", "b_schematic.bin", "a_schematic.bin"):
        (tmp_path / name).touch()
    assert monitor.exit() == {
        "runs": None, "profile": "profile.csv", "log": "profile_qnn.log",
        "schematics": ["a_schematic.bin", "b_schematic.bin"],
    }  # fmt: skip


def test_openvino_is_read_before_it_is_released() -> None:
    host, monitor = Host(), OpenVinoMonitor()
    told = host.traces.watched(monitor, ARGS, untold)
    assert told["seen"] == {"operators": [{"name": "a", "mean": 50, "before": 20, "after": 50}]}


def test_there_is_a_monitor_for_every_source(tmp_path: Path) -> None:
    for source in SOURCES:
        assert isinstance(monitor_for(source, tmp_path, "basic"), Monitor)
    with pytest.raises(ValueError, match="no monitor for 'elsewhere'"):
        monitor_for("elsewhere", tmp_path, "basic")
