"""How a run of ArtifactTool ends, whatever it does."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from feed.azure.child import End, Outcome
from feed.errors import (
    Cancelled,
    Corrupt,
    FeedError,
    NotFound,
    OutcomeUnknown,
    Rejected,
    Unauthorized,
    Unavailable,
)
from feed.reader import pull
from tests.fakes.azure.faults import Effect, Fault
from tests.fakes.azure.harness import AzureHarness
from tests.machine.timing import patient

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the tool's stand-in is a script")

NAME, VERSION = "modelmill-bert", "0.0.0-a"


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[AzureHarness]:
    with AzureHarness(tmp_path) as made:
        yield made
        assert made.leftovers() == []


def test_the_tool_gets_the_arguments_it_knows(harness: AzureHarness, tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    harness.standin.behaviour.append({"record": str(record)})
    tricky = "tree=sha256:0 a&b | \"q\" 'r' @(x) %PATH% é"
    harness.feed().publish(NAME, VERSION, harness.package("a"), tricky)
    argv = json.loads(record.read_text())["argv"]
    pairs = dict(zip(argv[2::2], argv[3::2], strict=True))
    assert argv[:2] == ["universal", "publish"]
    assert Path(pairs.pop("--path")).name == "package"
    assert pairs == {
        "--service": f"{harness.standin.base}/acme",
        "--patvar": "MODELMILL_ARTIFACTTOOL_TOKEN",
        "--feed": "models",
        "--package-name": NAME,
        "--package-version": VERSION,
        "--project": "Lab",
        "--verbosity": "Information",
        "--description": tricky,
    }


def test_the_tool_gets_its_own_token_and_no_other_credential(
    harness: AzureHarness, tmp_path: Path
) -> None:
    record = tmp_path / "record.json"
    harness.standin.behaviour.append({"record": str(record)})
    others = {
        "AZURE_CLIENT_SECRET": "s3cret-a",
        "HF_TOKEN": "s3cret-b",
        "AWS_ACCESS_KEY_ID": "s3cret-c",
        "MODELMILL_STATE": "postgresql://mill:s3cret-d@db/mill",
        "PIP_INDEX_URL": "https://me:s3cret-e@index.example",
    }
    proxy = {"HTTPS_PROXY": "http://me:pw@proxy:3128"}
    harness.environ |= others | proxy
    harness.feed().publish(NAME, VERSION, harness.package("a"), "d")
    given = json.loads(record.read_text())["env"]
    assert given["MODELMILL_ARTIFACTTOOL_TOKEN"] == "good-token"
    assert proxy.items() <= given.items()
    assert not {*others, "AZURE_DEVOPS_EXT_PAT"} & set(given)
    assert "s3cret" not in str(given)


def test_a_run_that_hangs_is_killed_with_all_it_started(
    harness: AzureHarness, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    harness.standin.behaviour.append({"child": str(pid), "hang": True})
    feed = harness.feed(MODELMILL_AZURE_IDLE_TIMEOUT="1")
    with pytest.raises(OutcomeUnknown, match="no more bytes"):
        feed.publish(NAME, VERSION, harness.package("a"), "d")
    psutil.wait_procs(_processes(pid), timeout=patient(10))
    assert not psutil.pid_exists(int(pid.read_text()))


def test_a_helper_that_keeps_the_pipes_open_does_not_keep_us(
    harness: AzureHarness, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    harness.standin.behaviour.append({"child": str(pid)})
    harness.feed().publish(NAME, VERSION, harness.package("a"), "d")
    psutil.wait_procs(_processes(pid), timeout=patient(10))
    assert not psutil.pid_exists(int(pid.read_text()))


def test_the_callers_limit_ends_a_run_that_still_moves(harness: AzureHarness) -> None:
    harness.standin.behaviour.append({"hang": True})
    with pytest.raises(OutcomeUnknown, match="time limit"):
        harness.feed().publish(NAME, VERSION, harness.package("a"), "d", timeout=1.0)


def test_a_caller_can_end_a_run_that_says_nothing(harness: AzureHarness) -> None:
    harness.standin.behaviour.append({"hang": True})

    def cancel(_done: int, _total: int) -> None:
        if harness.standin.counts()["connection"]:
            raise Cancelled("enough")

    before = _children()  # other tests keep servers and hosts running
    with pytest.raises(Cancelled):
        harness.feed().publish(NAME, VERSION, harness.package("a"), "d", progress=cancel)
    assert _children() <= before


@pytest.mark.parametrize(
    ("behaviour", "error", "words"),
    [
        ({"error": "x", "code": 20}, Rejected, "code 20"),
        ({"error": "x", "code": 19}, NotFound, "code 19"),
        ({"error": "TF400733: exceeding usage of resource"}, Unavailable, "TF400733"),
        ({"error": "You need to have 'AddPackage'."}, Unauthorized, "AddPackage"),
        ({"error": "VS30063: You are not authorized"}, Unauthorized, "VS30063"),
        ({"crash": "Couldn't find a valid ICU package installed"}, Unauthorized, "ICU"),
        ({"crash": "Aborted"}, OutcomeUnknown, "Aborted"),
        ({"silent": True}, OutcomeUnknown, "did not report"),
    ],
)
def test_ends_are_told_apart(
    harness: AzureHarness, behaviour: dict[str, Any], error: type[FeedError], words: str
) -> None:
    harness.standin.behaviour.extend([behaviour, behaviour])
    with pytest.raises(error, match=words):
        harness.feed().publish(NAME, VERSION, harness.package("a"), "d")


def test_a_tool_that_cannot_start_is_found_before_anything_is_built(harness: AzureHarness) -> None:
    with pytest.raises(Unauthorized, match="libssl") as caught:
        harness.feed(
            STANDIN_START="No usable version of libssl was found\n", STANDIN_CODE="134"
        ).preflight()
    assert caught.value.exit_code == 3
    (harness.root / "tool" / "artifacttool").write_bytes(b"\x7fELF not for this machine")
    with pytest.raises(Unauthorized, match="does not start") as caught:
        harness.feed().preflight()
    assert "libicu" in caught.value.hint
    (harness.root / "tool" / "artifacttool").chmod(0o644)
    with pytest.raises(Unauthorized, match="artifacttool: Permission denied") as caught:
        harness.feed().preflight()
    assert "MODELMILL_AZURE_TOOL" in caught.value.hint


def test_a_tool_without_its_libraries_on_windows_does_not_pass_the_check(
    harness: AzureHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = Outcome(End.EXITED, 0xC0000135, "", ())
    monkeypatch.setattr("feed.azure.artifacttool._start", lambda *_args: ended)
    with pytest.raises(Unauthorized, match="ArtifactTool does not start"):
        harness.feed().preflight()


def test_a_file_that_comes_down_damaged_is_not_taken(harness: AzureHarness, tmp_path: Path) -> None:
    files = harness.package("a")
    feed = harness.feed()
    published = feed.publish(NAME, VERSION, files, "by hand")
    assert published.tree is None
    assert len(feed.files(NAME, VERSION)) == 4
    harness.standin.behaviour.append({"corrupt": "model.onnx"})
    with pytest.raises(Corrupt, match=r"model\.onnx was downloaded with other content"):
        pull(feed, NAME, VERSION, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_download_is_repeated_while_the_service_is_busy(
    harness: AzureHarness, tmp_path: Path
) -> None:
    harness.feed().publish(NAME, VERSION, harness.package("a"), "by hand")
    harness.standin.plan(
        Fault("blob-get", status=503), Fault("blob-get", effect=Effect.RESET, every=4)
    )
    harness.feed().fetch(NAME, VERSION, tmp_path / "out")
    assert (tmp_path / "out" / "model.onnx").exists()
    with pytest.raises(NotFound):
        harness.feed().fetch(NAME, "0.0.0-none", tmp_path / "none")


def _processes(pid: Path) -> list[psutil.Process]:
    try:
        return [psutil.Process(int(pid.read_text()))]
    except psutil.NoSuchProcess:
        return []


def _children() -> set[psutil.Process]:
    return {c for c in psutil.Process().children() if c.status() != psutil.STATUS_ZOMBIE}
