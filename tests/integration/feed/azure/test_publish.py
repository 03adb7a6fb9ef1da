"""Publishing through the tool: once, whole, read back, and settled where a reply was lost."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from feed.errors import Conflict, Corrupt, NoSpace, OutcomeUnknown, Rejected, Unauthorized
from feed.reader import pull
from matrix.errors import UsageError
from tests.fakes.azure.faults import Effect, Fault, When, sign_in_page
from tests.fakes.azure.harness import NAME, VERSION, AzureHarness, publish, tree
from tests.fakes.azure.server import wrapped

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the tool's stand-in is a script")


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[AzureHarness]:
    with AzureHarness(tmp_path) as made:
        yield made
        assert made.leftovers() == []


def test_publishing_again_sends_nothing(harness: AzureHarness) -> None:
    files = harness.package("a")
    publish(harness, files)
    harness.standin.forget()
    assert publish(harness, files).already_there
    assert not harness.standin.counts()["blob-put"]


def test_a_fresh_process_proves_the_content_without_downloading_it(harness: AzureHarness) -> None:
    files = harness.package("a", {"model.onnx": b"x" * 200_000})
    publish(harness, files)
    harness.standin.forget()
    assert harness.feed().files(NAME, VERSION) == tuple(file.entry for file in files)
    assert harness.standin.counts()["blob-get"] == 3  # the manifest's blob, and two small files


def test_provenance_and_sbom_do_not_cost_the_proof_a_download(harness: AzureHarness) -> None:
    records = {"provenance.json": b"{}", "sbom.cdx.json": b"[]"}
    publish(harness, harness.package("a", records=records))
    harness.standin.forget()
    held = harness.feed().files(NAME, VERSION)
    assert {entry.path for entry in held} >= {*records, "model.onnx", "build.json"}
    # The service's own list, the manifest and three records: no model file.
    assert harness.standin.counts()["blob-get"] == 5


def test_names_a_filter_cannot_say_are_fetched_all_the_same(
    harness: AzureHarness, tmp_path: Path
) -> None:
    files = {"a[1].onnx": b"one", "b{2}.onnx": b"two", "c(3)+@!.onnx": b"three"}
    publish(harness, harness.package("a", files))
    pull(harness.feed(), NAME, VERSION, tmp_path / "out", ["a*"])
    assert (tmp_path / "out" / "a[1].onnx").read_bytes() == b"one"


def test_a_feed_of_the_organization_is_published_to(harness: AzureHarness) -> None:
    feed = harness.feed(f"{harness.standin.base}/acme/_artifacts/feed/shared")
    publish(harness, harness.package("a"), feed=feed)
    assert harness.standin.shared.upack(NAME) is not None
    assert harness.standin.feed.upack(NAME) is None


# -- what must never be sent


def test_bytes_that_are_not_what_they_should_be_are_not_sent(harness: AzureHarness) -> None:
    files = harness.package("a")
    (harness.root / "packages" / "a" / "model.onnx").write_bytes(b"flipped")
    with pytest.raises(Corrupt, match=r"model\.onnx"):
        publish(harness, files)
    (harness.root / "packages" / "a" / "model.onnx").unlink()
    with pytest.raises(Corrupt, match=r"model\.onnx: cannot read"):
        publish(harness, files)
    assert not harness.standin.counts()["connection"]


def test_bytes_that_change_under_the_tool_are_noticed(harness: AzureHarness) -> None:
    files = harness.package("a")

    def overwrite(route: str) -> None:
        if route == "register":
            with (harness.root / "packages" / "a" / "model.onnx").open("r+b") as file:
                file.write(b"flipped")

    harness.standin.on_request = overwrite
    with pytest.raises(Corrupt, match="changed while it was published"):
        publish(harness, files)


def test_a_file_that_the_tool_leaves_out_is_noticed(harness: AzureHarness) -> None:
    harness.standin.behaviour.append({"drop": "sub/vocab.txt"})
    with pytest.raises(Corrupt):
        publish(harness, harness.package("a"))
    harness.standin.behaviour.append({"drop": "build.json"})
    with pytest.raises(Corrupt, match=r"build\.json is listed but missing"):
        publish(harness, harness.package("b"), version="0.0.0-other")


@pytest.mark.parametrize("dropped", ["sbom.cdx.json", "provenance.json", "model.onnx"])
def test_a_file_that_does_not_come_down_fails_the_pull(
    harness: AzureHarness, tmp_path: Path, dropped: str
) -> None:
    provenance = json.dumps({"by": "p" * 3000}).encode()
    records = {"sbom.cdx.json": b"s" * 3000, "provenance.json": provenance}
    publish(harness, harness.package("a", {"model.onnx": b"m" * 3000}, records=records))
    harness.standin.behaviour.extend([{"drop": dropped}] * 10)
    with pytest.raises(Corrupt, match=r"missing|not downloaded|different") as caught:
        pull(harness.feed(), NAME, VERSION, tmp_path / "out")
    assert caught.value.hint.startswith("pull again")
    assert not (tmp_path / "out").exists()


def test_another_white_space_in_the_manifest_costs_no_second_transfer(
    harness: AzureHarness, tmp_path: Path
) -> None:
    harness.standin.behaviour.append({"indent": 2})
    publish(harness, harness.package("a", {"model.onnx": b"m" * 3000}))
    harness.standin.forget()
    pull(harness.feed(), NAME, VERSION, tmp_path / "out")
    # Twice the service's own list, the manifest and one record for the proof, three files.
    assert harness.standin.counts()["blob-get"] == 7


# -- faults at every step of a publish


BEFORE = [
    pytest.param(Fault("connection", status=503), id="start-503"),
    pytest.param(Fault("metadata", effect=Effect.RESET, every=2), id="look-reset"),
    pytest.param(Fault("blob-put", status=503, body=b"busy"), id="upload-503"),
    pytest.param(Fault("blob-put", effect=Effect.RESET), id="upload-reset"),
    pytest.param(Fault("blob-put", effect=Effect.RESET, every=5), id="manifest-reset"),
    pytest.param(Fault("register", status=429), id="commit-429"),
    pytest.param(Fault("register", effect=Effect.RESET), id="commit-reset"),
    pytest.param(sign_in_page("register"), id="commit-sign-in"),
]
AFTER = [
    pytest.param(Fault("register", effect=Effect.RESET, when=When.AFTER), id="reply-reset"),
    pytest.param(Fault("register", status=503, when=When.AFTER), id="reply-503"),
    pytest.param(Fault("register", status=500, when=When.AFTER), id="reply-500"),
]


@pytest.mark.parametrize("fault", [*BEFORE, *AFTER])
def test_a_fault_ends_with_the_version_published_once(harness: AzureHarness, fault: Fault) -> None:
    harness.standin.plan(fault)
    files = harness.package("a")
    receipt = publish(harness, files)
    assert receipt.published.tree == tree(files)
    assert harness.standin.faults.struck[fault.route] == 1
    assert harness.standin.organization.registrations == [(NAME, VERSION)]
    assert all(file.source.is_file() for file in files)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(
    "behaviour",
    [
        {"crash": "Unhandled exception. System.OutOfMemoryException"},
        {"error": "Something nobody has seen before"},
        {"flood": 3000},
        {"silent": True},
    ],
    ids=lambda value: next(iter(value)),
)
def test_a_run_that_ends_badly_is_settled(
    harness: AzureHarness, behaviour: dict[str, Any], moment: str
) -> None:
    harness.standin.behaviour.append({**behaviour, "moment": moment})
    files = harness.package("a")
    assert publish(harness, files).published.tree == tree(files)
    assert harness.standin.organization.registrations == [(NAME, VERSION)]


def test_a_lost_reply_of_other_content_is_a_conflict(harness: AzureHarness) -> None:
    publish(harness, harness.package("theirs"))
    files = harness.package("ours")
    with pytest.raises(Conflict, match="other content"):
        publish(harness, files)
    assert all(file.source.is_file() for file in files)


def test_a_rival_with_the_same_content_is_success(harness: AzureHarness) -> None:
    files = harness.package("a")

    def rival(route: str) -> None:
        if route == "connection":
            harness.standin.on_request = lambda _route: None
            publish(harness, files)

    harness.standin.on_request = rival
    assert publish(harness, files).already_there
    assert harness.standin.organization.registrations == [(NAME, VERSION)]


def test_a_deleted_version_never_comes_back(harness: AzureHarness) -> None:
    files = harness.package("a")
    publish(harness, files)
    harness.standin.organization.delete(harness.standin.feed, NAME, VERSION)
    with pytest.raises(Conflict, match="deleted"):
        publish(harness, files)
    with pytest.raises(Conflict, match="cannot be republished") as caught:
        harness.feed().publish(NAME, VERSION, files, "tree")
    assert "another --stamp" in caught.value.hint


def test_a_version_that_was_deleted_for_good_is_a_conflict(harness: AzureHarness) -> None:
    files = harness.package("a")
    publish(harness, files)
    harness.standin.organization.purge(harness.standin.feed, NAME, VERSION)
    assert harness.feed().find(NAME, VERSION) is None
    with pytest.raises(Conflict, match="has been deleted") as caught:
        publish(harness, files)
    assert "--stamp" in caught.value.hint


@pytest.mark.parametrize("variable", ["MODELMILL_AZURE_WORK", "MODELMILL_AZURE_CACHE"])
def test_a_folder_that_cannot_be_made_is_told_with_its_variable(
    harness: AzureHarness, tmp_path: Path, variable: str
) -> None:
    files = harness.package("a")
    publish(harness, files)
    (tmp_path / "file").touch()
    harness.environ["MODELMILL_AZURE_WORK"] = str(tmp_path / "work")
    harness.environ[variable] = str(tmp_path / "file" / "below")
    without = ("MODELMILL_AZURE_TOOL",) if variable == "MODELMILL_AZURE_CACHE" else ()
    feed = harness.feed(without=without)
    for call in (
        feed.preflight,
        lambda: feed.files(NAME, VERSION),
        lambda: feed.fetch(NAME, VERSION, tmp_path / "out"),
        lambda: feed.publish(NAME, "0.0.0-b", files, "d"),
    ):
        with pytest.raises(Unauthorized, match=r"cannot write to .*below") as caught:
            call()
        assert variable in str(caught.value)


def test_a_destination_that_cannot_be_made_is_told(harness: AzureHarness, tmp_path: Path) -> None:
    publish(harness, harness.package("a"))
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot write"):
        harness.feed().fetch(NAME, VERSION, tmp_path / "file" / "below")


def test_the_disk_of_the_tool_is_full(harness: AzureHarness) -> None:
    error = "Encountered an unexpected error: System.IO.IOException: No space left on device"
    harness.standin.behaviour.append({"error": error})
    with pytest.raises(NoSpace) as caught:
        publish(harness, harness.package("a"))
    assert "MODELMILL_AZURE_WORK" in caught.value.hint


def test_a_description_that_lies_is_not_believed(harness: AzureHarness) -> None:
    files = harness.package("a")
    harness.feed().publish(NAME, VERSION, files, "tree=sha256:" + "0" * 64)
    with pytest.raises(Corrupt, match="says tree"):
        publish(harness, files)


def test_what_a_wrapped_error_says_reaches_the_user(harness: AzureHarness) -> None:
    body = wrapped(400, "InvalidPackageName", "The package name provided is invalid")
    harness.standin.plan(Fault("register", status=400, body=body))
    with pytest.raises((Rejected, OutcomeUnknown), match="name provided is invalid"):
        harness.feed().publish(NAME, VERSION, harness.package("a"), "d")
