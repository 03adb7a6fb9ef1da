"""Who publishes: tokens that end, roles that are missing, several sweeps, and dead ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from feed.azure.credentials import PersonalToken, Secret
from feed.errors import FeedError, Unauthorized
from feed.publisher import Receipt
from matrix.digest import FileEntry
from tests.fakes.azure.faults import Effect, Fault, When
from tests.fakes.azure.harness import NAME, VERSION, AzureHarness, publish, tree
from tests.machine.timing import patient

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the tool's stand-in is a script")


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[AzureHarness]:
    with AzureHarness(tmp_path) as made:
        yield made
        assert made.leftovers() == []


# -- credentials


class Renewable(PersonalToken):
    """Tokens that are refused until they are renewed often enough."""

    identity = "release-bot@example.com"

    def __init__(self, *tokens: str) -> None:
        super().__init__(Secret(tokens[0]))
        self.tokens = list(tokens)

    def token(self, *, fresh: bool = False) -> Secret:
        return Secret(self.tokens[0])

    def renew(self, refused: Secret) -> Secret:
        if len(self.tokens) > 1 and refused == Secret(self.tokens[0]):
            self.tokens.pop(0)
        return Secret(self.tokens[0])


def test_an_expired_token_is_renewed_and_the_publish_goes_on(harness: AzureHarness) -> None:
    files = harness.package("a")
    feed = harness.feed(credentials=Renewable("stale-token", "good-token"))
    assert publish(harness, files, feed=feed).published.tree == tree(files)


def test_a_token_that_expires_under_the_tool_is_renewed(harness: AzureHarness) -> None:
    tokens = harness.standin.organization.tokens
    tokens["short-token"] = "contributor"

    def expire(route: str) -> None:
        if route == "blob-put":
            tokens.pop("short-token", None)

    harness.standin.on_request = expire
    files = harness.package("a")
    feed = harness.feed(credentials=Renewable("short-token", "good-token"))
    assert publish(harness, files, feed=feed).attempts == 1
    assert harness.standin.counts()["blob-put"] == 6


def test_a_token_nobody_accepts_stops_the_sweep_and_keeps_the_bytes(harness: AzureHarness) -> None:
    files = harness.package("a")
    feed = harness.feed(credentials=Renewable("stale-token", "staler-token"))
    with pytest.raises(Unauthorized, match=r"release-bot@example\.com") as caught:
        publish(harness, files, feed=feed)
    assert caught.value.exit_code == 3
    assert "then run the same command again" in caught.value.hint
    assert all(file.source.is_file() for file in files)


def test_a_role_that_is_missing_is_named(harness: AzureHarness) -> None:
    harness.standin.organization.tokens["reader-token"] = "reader"
    feed = harness.feed(AZURE_DEVOPS_EXT_PAT="reader-token")
    with pytest.raises(Unauthorized, match="AddPackage") as caught:
        publish(harness, harness.package("a"), feed=feed)
    assert "Contributor" in caught.value.hint
    assert not harness.standin.organization.registrations


def test_no_token_in_arguments_errors_or_foreign_variables(
    harness: AzureHarness, tmp_path: Path
) -> None:
    record = tmp_path / "record.json"
    harness.standin.behaviour.append({"record": str(record), "show": True})
    feed = harness.feed(AZURE_CLIENT_SECRET="other-secret", LD_LIBRARY_PATH="/kept")
    with pytest.raises(FeedError) as caught:
        feed.publish(NAME, VERSION, harness.package("a"), "d")
    assert "good-token" not in str(caught.value)
    assert "Omdvb2Q" not in str(caught.value)
    assert "the token is ***" in str(caught.value)
    seen = json.loads(record.read_text())
    assert not any("good-token" in argument for argument in seen["argv"])
    held = {name: value for name, value in seen["env"].items() if "good-token" in value}
    assert held == {"MODELMILL_ARTIFACTTOOL_TOKEN": "good-token"}
    assert "other-secret" not in seen["env"].values()
    assert seen["env"]["LD_LIBRARY_PATH"] == "/kept"


# -- many at once


def test_two_sweeps_with_one_stamp_publish_each_version_once(harness: AzureHarness) -> None:
    packages = {f"0.0.0-20260609-{number}": harness.package(str(number)) for number in range(12)}
    receipts: list[Receipt] = []

    def sweep(versions: list[str]) -> None:
        feed = harness.feed()
        receipts.extend(publish(harness, packages[v], v, feed=feed) for v in versions)

    sweeps = [threading.Thread(target=sweep, args=(list(packages),)) for _ in range(2)]
    for thread in sweeps:
        thread.start()
    for thread in sweeps:
        thread.join()
    assert len(receipts) == 24
    assert sorted(v for _, v in harness.standin.organization.registrations) == sorted(packages)


def test_a_sweep_with_a_fault_on_every_third_publish_ends_complete(harness: AzureHarness) -> None:
    count = 45
    effects = [
        Fault("register", effect=Effect.RESET, every=9, times=count),
        Fault("register", effect=Effect.RESET, when=When.AFTER, every=9, times=count, seen=3),
        Fault("register", status=503, when=When.AFTER, every=9, times=count, seen=6),
    ]
    harness.standin.plan(*effects)
    feed = harness.feed()
    kept: list[FileEntry] = []
    for number in range(count):
        files = harness.package(str(number))
        receipt = publish(harness, files, f"0.0.0-20260609-{number}", feed=feed)
        assert receipt.published.tree == tree(files)
        kept += [file.entry for file in files if file.source.stat().st_size == file.entry.size]
    registrations = harness.standin.organization.registrations
    assert len(registrations) == len(set(registrations)) == count
    assert harness.standin.faults.struck["register"] >= count // 3
    assert len(kept) == 4 * count


ORPHAN = """
import sys
from pathlib import Path
from tests.fakes.azure.harness import AzureHarness
from feed.azure import open_azure
harness = AzureHarness(Path(sys.argv[2]))
open_azure(sys.argv[1]).publish("modelmill-bert", "0.0.0-orphan", harness.package("orphan"), "d")
"""


def test_a_run_that_outlived_its_sweep_is_ended_before_its_files_go(
    harness: AzureHarness, tmp_path: Path
) -> None:
    reached = threading.Event()

    def watch(route: str) -> None:
        if route == "blob-put":
            reached.set()

    harness.standin.on_request = watch
    harness.standin.behaviour.append({"hang": True})
    environ = {**os.environ, **harness.environ}
    sweep = subprocess.Popen(
        [sys.executable, "-c", ORPHAN, harness.standin.url, str(tmp_path)], env=environ
    )
    assert reached.wait(patient(60))
    (tool,) = psutil.Process(sweep.pid).children()
    sweep.kill()
    sweep.wait()
    assert len(harness.leftovers()) == 1
    assert tool.is_running()
    publish(harness, harness.package("a"))
    psutil.wait_procs([tool], timeout=patient(10))
    assert not tool.is_running() or tool.status() == psutil.STATUS_ZOMBIE
    assert harness.standin.organization.registrations == [(NAME, VERSION)]
