"""Whatever an engine does in its host costs one call, is classified, and the next call works."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from machine.waits import Cancelled
from matrix.status import FailureClass
from tests.fakes.engine import fake_spec, request
from tests.machine.timing import patient
from workers.engine import StageJob, StageReport
from workers.errors import BuildFailed
from workers.host.client import EngineHost, EngineSpec
from workers.host.watch import HostLimits, Watching

Run = Callable[..., StageReport]
MB = 1_000_000


@pytest.fixture
def host(tmp_path: Path) -> Iterator[EngineHost]:
    made = EngineHost(
        fake_spec(), limits=HostLimits(timeout=60, output=2 * MB), log_dir=tmp_path / "logs"
    )
    yield made
    made.close()


@pytest.fixture
def run(host: EngineHost, tmp_path: Path) -> Run:
    numbers = iter(range(100))

    def run_one(action: str, **options: object) -> StageReport:
        out = tmp_path / f"out-{next(numbers)}"
        out.mkdir()
        job = StageJob("export", {"size": 64}, request(act={"export": action}), {}, out)
        given: dict[str, object] = {"log": tmp_path / "cell.log", **options}
        return host.run(job, Watching(**given))  # type: ignore[arg-type]  # a test's own keywords

    return run_one


def fails(run: Run, action: str, **options: object) -> BuildFailed:
    with pytest.raises(BuildFailed) as failed:
        run(action, **options)
    return failed.value


def log_of(tmp_path: Path) -> str:
    return (tmp_path / "cell.log").read_text()


def test_the_child_is_warm_and_counts_its_memory(host: EngineHost, run: Run) -> None:
    first, second = run("ok"), run("ok")
    assert first.info["pid"] == second.info["pid"] != os.getpid()
    assert first.info["peak_memory"] > MB
    assert host.tools() == {"fake": "1", "unused": "1"}
    assert [stage.name for stage in host.plan(request()).stages] == ["export", "inputs", "optimize"]
    assert host.starts == 1


def test_memory_of_one_call_is_not_counted_for_the_next(run: Run) -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux can start a new high-water mark")
    small, big = run("ok"), run("fill:1")
    assert abs(big.info["peak_memory"] - small.info["peak_memory"]) < 100 * MB


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_native_crash_is_named_and_shows_where(run: Run, host: EngineHost) -> None:
    error = fails(run, "crash")
    assert error.failure is FailureClass.CRASH
    assert error.process_exit == -signal.SIGSEGV
    assert "SIGSEGV" in error.reason
    assert "_crash" in error.log_tail  # the Python stack at the crash
    assert not error.retryable
    run("ok")
    assert host.starts == 2


def test_an_exit_is_a_crash(run: Run) -> None:
    error = fails(run, "exit:3")
    assert (error.failure, error.process_exit) == (FailureClass.CRASH, 3)


@pytest.mark.skipif(sys.platform == "win32", reason="the kernel's OOM killer")
def test_a_kill_that_is_not_ours_is_the_kernel_running_out_of_memory(run: Run) -> None:
    error = fails(run, "kill")
    assert error.failure is FailureClass.MEMORY
    assert error.process_exit == -signal.SIGKILL


def test_a_hang_ends_at_its_time_limit(run: Run) -> None:
    error = fails(run, "hang", timeout=0.3)
    assert error.failure is FailureClass.TIMEOUT
    assert error.log_tail == "hanging"
    run("ok")


def test_the_memory_ceiling_holds(host: EngineHost, run: Run) -> None:
    host.limits = replace(host.limits, memory=150 * MB)
    error = fails(run, "memory:2000")
    assert error.failure is FailureClass.MEMORY
    assert "the limit is 150 MB" in error.reason
    run("ok")


def test_a_flood_of_output_is_stopped_and_the_log_stays_small(run: Run, tmp_path: Path) -> None:
    error = fails(run, "flood")
    assert error.failure is FailureClass.CRASH
    assert "wrote more than 2 MB" in error.reason
    assert (tmp_path / "cell.log").stat().st_size < 2 * MB + 1000
    assert log_of(tmp_path).endswith("[modelmill: log cut here]\n")
    run("ok")


@pytest.mark.parametrize(
    ("action", "failure", "retryable", "text"),
    [
        ("fail", FailureClass.EXPORT, False, "told to fail"),
        ("fail:UNSUPPORTED", FailureClass.UNSUPPORTED, False, "told to fail"),
        ("fail:NETWORK:yes", FailureClass.NETWORK, True, "told to fail"),
        ("fail:NONSENSE", FailureClass.EXPORT, False, "told to fail"),
        ("raise:odd", FailureClass.EXPORT, False, "RuntimeError: odd"),
        ("full", FailureClass.DISK, True, "No space left on device"),
    ],
)
def test_what_a_stage_reports_is_what_is_recorded(
    run: Run, host: EngineHost, action: str, failure: FailureClass, retryable: bool, text: str
) -> None:
    error = fails(run, action)
    assert (error.failure, error.retryable, error.stage) == (failure, retryable, "export")
    assert text in error.reason
    assert "Traceback" not in error.reason
    assert "Traceback" in error.log_tail
    run("ok")
    assert host.starts == 1


def test_all_output_is_in_the_cells_log_and_none_on_the_pipe(run: Run, tmp_path: Path) -> None:
    run("chatter")
    text = log_of(tmp_path)
    for line in ("raw fd 1", "raw fd 2", "python print", "grandchild print", "forged"):
        assert line in text
    run("ok", log=tmp_path / "next.log")
    assert (tmp_path / "next.log").read_text() == ""


def test_cancel_ends_a_stage_with_everything_it_started(run: Run, tmp_path: Path) -> None:
    cancel, marker = threading.Event(), tmp_path / "pid"
    watcher = threading.Thread(target=lambda: _when_there(marker, cancel.set))
    watcher.start()
    with pytest.raises(Cancelled):
        run(f"spawn:{marker}", cancel=cancel)
    watcher.join(10)
    grandchild = int(marker.read_text())
    _assert_gone(grandchild)
    run("ok")


def test_a_grandchild_does_not_survive_the_crash_of_its_parent(run: Run, tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    assert fails(run, f"spawn:{marker}", timeout=patient(2)).failure is FailureClass.TIMEOUT
    _assert_gone(int(marker.read_text()))


def test_closing_from_another_thread_cancels(host: EngineHost, run: Run, tmp_path: Path) -> None:
    marker = tmp_path / "begun"
    closer = threading.Thread(target=lambda: _when_there(marker, host.close))
    closer.start()
    with pytest.raises(Cancelled):
        run(f"wait:{marker}")
    closer.join(10)
    assert not list((tmp_path / "logs").glob("scratch/*-*"))
    run("ok")


def test_a_child_that_was_killed_while_idle_is_replaced(host: EngineHost, run: Run) -> None:
    pid = run("ok").info["pid"]
    psutil.Process(pid).kill()
    psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=patient(5))
    assert run("ok").info["pid"] != pid


def test_credentials_do_not_reach_the_engine(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_DEVOPS_EXT_PAT", "pat-secret-value")
    run("print:AZURE_DEVOPS_EXT_PAT")
    assert log_of(tmp_path) == "AZURE_DEVOPS_EXT_PAT is not set\n"


def test_the_one_token_that_is_passed_is_masked_everywhere(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_verysecret")
    run("print:HF_TOKEN")
    assert log_of(tmp_path) == "*" * 13 + "\n"
    error = fails(run, "raise:hf_verysecret leaked")
    assert "verysecret" not in f"{error} {error.log_tail}"
    assert "verysecret" not in log_of(tmp_path)


def test_a_log_that_cannot_be_written_is_one_clear_failure(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    error = fails(run, "ok", log=tmp_path / "file" / "cell.log")
    assert error.failure is FailureClass.DISK
    assert "cannot be written" in error.reason
    run("ok")


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (EngineSpec("x", "no_such_module:Engine"), "No module named 'no_such_module'"),
        (EngineSpec("x", "workers.engine:NoSuchThing"), "NoSuchThing"),
        (EngineSpec("x", "workers.engine:Engine", Path("/no/such/python")), "cannot be started"),
    ],
)
def test_an_engine_that_cannot_be_loaded_is_one_clear_failure(
    tmp_path: Path, spec: EngineSpec, text: str
) -> None:
    host = EngineHost(spec, log_dir=tmp_path)
    with pytest.raises(BuildFailed, match=text) as failed:
        host.tools()
    assert failed.value.failure is FailureClass.UNSUPPORTED
    host.close()


def test_an_engine_that_hangs_while_loading_does_not_hang_the_sweep(tmp_path: Path) -> None:
    (tmp_path / "slow_engine.py").write_text("import time\ntime.sleep(3600)\n")
    spec = EngineSpec("slow", "slow_engine:Engine", env={"PYTHONPATH": str(tmp_path)})
    host = EngineHost(spec, limits=HostLimits(start_timeout=0.5), log_dir=tmp_path / "logs")
    with pytest.raises(BuildFailed) as failed:
        host.tools()
    assert failed.value.failure is FailureClass.TIMEOUT
    host.close()


def _when_there(marker: Path, then: Callable[[], None]) -> None:
    while not (marker.exists() and (marker.read_text() or marker.name == "begun")):
        threading.Event().wait(0.01)
    then()


def _assert_gone(pid: int) -> None:
    """Dead, or dying as a zombie that nobody waits for."""
    if psutil.pid_exists(pid):
        process = psutil.Process(pid)
        psutil.wait_procs([process], timeout=patient(5))
        assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
