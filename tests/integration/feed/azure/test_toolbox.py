"""Where ArtifactTool comes from: looked up once, kept whole, never deleted."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from feed.errors import (
    Corrupt,
    FeedError,
    Rejected,
    Unauthorized,
    Unavailable,
)
from tests.fakes.azure.faults import Effect, Fault, When
from tests.fakes.azure.harness import AzureHarness
from tests.fakes.azure.toolkit import archive, program
from tests.machine.timing import patient

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the tool's stand-in is a script")

OWN = ("MODELMILL_AZURE_TOOL",)
"""Without this setting the tool is looked up and downloaded."""
NAME, VERSION = "modelmill-bert", "0.0.0-a"


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[AzureHarness]:
    with AzureHarness(tmp_path) as made:
        yield made
        assert made.leftovers() == []


def tools(harness: AzureHarness) -> Path:
    return harness.root / "cache" / "tools"


def cached(harness: AzureHarness, version: str = "0.2.488") -> Path:
    (found,) = tools(harness).glob(f"*-{version}")
    return found


def test_the_tool_is_downloaded_once_and_kept(harness: AzureHarness) -> None:
    for number in range(3):
        harness.feed(without=OWN).publish(NAME, f"0.0.0-{number}", harness.package("a"), "d")
    counts = harness.standin.counts()
    assert (counts["release"], counts["archive"]) == (3, 1)  # each feed asks
    lookup, *_ = [seen for seen in harness.standin.seen if seen.route == "release"]
    assert lookup.query["osName"] == "Linux"
    assert lookup.query["arch"] == "x86_64"
    assert os.access(cached(harness) / "artifacttool", os.X_OK)


def test_the_signed_address_is_fetched_without_credentials(
    harness: AzureHarness, tmp_path: Path
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password from-netrc\n")
    (tmp_path / ".netrc").chmod(0o600)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NETRC", str(tmp_path / ".netrc"))
        harness.feed(without=OWN).publish(NAME, VERSION, harness.package("a"), "d")
    tokens = {seen.route: seen.token for seen in harness.standin.seen}
    assert tokens.pop("archive") is None
    assert set(tokens.values()) == {"good-token"}


PUBLISH_ONCE = """
import json, os, sys
from feed.azure import open_azure
feed = open_azure(sys.argv[1])
feed.preflight()
print(os.getpid())
"""


def test_eight_processes_download_the_tool_once(harness: AzureHarness) -> None:
    environ = {k: v for k, v in harness.environ.items() if k not in OWN} | dict(os.environ)
    command = [sys.executable, "-c", PUBLISH_ONCE, harness.standin.url]
    started = [
        subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(8)
    ]
    ended = [(process.communicate(timeout=patient(120)), process.returncode) for process in started]
    assert [code for _, code in ended] == [0] * 8, ended
    assert harness.standin.counts()["archive"] == 1
    assert sorted(path.name for path in tools(harness).iterdir() if path.is_dir()) == [
        cached(harness).name
    ]


def test_a_pinned_version_needs_no_lookup_once_it_is_there(harness: AzureHarness) -> None:
    harness.standin.releases.archives["0.2.400"] = archive(program())
    harness.feed(without=OWN, MODELMILL_AZURE_TOOL_VERSION="0.2.400").preflight()
    harness.standin.forget()
    harness.standin.plan(Fault("release", status=503, times=99))
    harness.feed(without=OWN, MODELMILL_AZURE_TOOL_VERSION="0.2.400").preflight()
    assert harness.standin.counts()["release"] == 0
    assert cached(harness, "0.2.400").is_dir()
    with pytest.raises(FeedError):
        harness.feed(without=OWN, MODELMILL_AZURE_TOOL_VERSION="9.9.9").preflight()
    with pytest.raises(Rejected, match="not a version"):
        harness.feed(without=OWN, MODELMILL_AZURE_TOOL_VERSION="../../x").preflight()


def test_a_new_version_is_added_beside_the_old_one(harness: AzureHarness) -> None:
    harness.feed(without=OWN).preflight()
    harness.standin.releases.archives["0.3.0"] = archive(program())
    harness.standin.releases.newest = "0.3.0"
    harness.feed(without=OWN).preflight()
    assert cached(harness, "0.3.0").is_dir()
    assert cached(harness, "0.2.488").is_dir()


@pytest.mark.parametrize(
    "fault",
    [
        Fault("archive", effect=Effect.TRUNCATE),
        Fault("archive", effect=Effect.RESET),
        Fault("archive", status=503),
        Fault("release", effect=Effect.RESET, when=When.AFTER),
    ],
)
def test_a_download_that_breaks_is_done_again(harness: AzureHarness, fault: Fault) -> None:
    harness.standin.plan(fault)
    harness.feed(without=OWN).publish(NAME, VERSION, harness.package("a"), "d")
    assert not list(tools(harness).glob("new-*"))


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"<html>not a zip", Unavailable),
        (archive(program())[:-100], Unavailable),
        (archive(program(), {"../evil": b"x"}), Corrupt),
        (archive(program(), {"/evil": b"x"}), Corrupt),
        (archive(program(), {"C:\\evil": b"x"}), Corrupt),
    ],
)
def test_a_bad_archive_leaves_nothing(
    harness: AzureHarness, content: bytes, error: type[FeedError]
) -> None:
    harness.standin.releases.archives["0.2.488"] = content
    with pytest.raises(error):
        harness.feed(without=OWN).preflight()
    assert not any(path.is_dir() for path in tools(harness).iterdir())
    assert not list(harness.root.rglob("evil"))


def test_an_archive_without_the_tool_is_refused(harness: AzureHarness, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as contents:
        contents.writestr("readme", "nothing here")
    harness.standin.releases.archives["0.2.488"] = (tmp_path / "x.zip").read_bytes()
    with pytest.raises(Corrupt, match="holds no artifacttool"):
        harness.feed(without=OWN).preflight()


def test_a_platform_without_a_tool_is_told_so(
    harness: AzureHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(Unauthorized, match="no ArtifactTool for linux-aarch64"):
        harness.feed(without=OWN).preflight()


def test_the_error_of_a_download_does_not_show_the_signed_address(harness: AzureHarness) -> None:
    harness.standin.plan(Fault("archive", effect=Effect.RESET, times=99))
    with pytest.raises(Unavailable, match="ConnectionError") as caught:
        harness.feed(without=OWN).preflight()
    chain = f"{caught.value} {caught.value.__cause__}"
    assert "s3cret" not in chain


def test_a_folder_without_the_tool_is_named(harness: AzureHarness) -> None:
    with pytest.raises(Rejected, match="there is no artifacttool in"):
        harness.feed(
            AZURE_DEVOPS_EXT_ARTIFACTTOOL_OVERRIDE_PATH="", MODELMILL_AZURE_TOOL="/x"
        ).preflight()
