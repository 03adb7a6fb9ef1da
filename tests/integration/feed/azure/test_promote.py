"""Promotion and preflight against the stand-in."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from feed.errors import FeedError, NotFound, OutcomeUnknown, Rejected, Unauthorized
from tests.fakes.azure.faults import Effect, Fault, When
from tests.fakes.azure.harness import AzureHarness

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the tool's stand-in is a script")

NAME, VERSION = "bert", "0.0.0-a"


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[AzureHarness]:
    with AzureHarness(tmp_path) as made:
        made.standin.organization.seed(made.standin.feed, NAME, {VERSION: "d"})
        yield made


def views(harness: AzureHarness) -> list[str]:
    package = harness.standin.feed.upack(NAME)
    assert package is not None
    return package.versions[VERSION].views


def test_promotion_asks_once_and_not_for_what_is_done(harness: AzureHarness) -> None:
    feed = harness.feed()
    feed.promote(NAME, VERSION, "release")
    feed.promote(NAME, VERSION, "Release")
    assert views(harness) == ["Release"]
    assert harness.standin.counts()["promote"] == 1


@pytest.mark.parametrize("fault", [{"effect": Effect.RESET}, {"status": 503}, {"status": 429}])
def test_a_lost_reply_is_settled_by_looking(
    harness: AzureHarness, fault: dict[str, object]
) -> None:
    harness.standin.plan(Fault("promote", when=When.AFTER, **fault))  # type: ignore[arg-type]  # rows
    harness.feed().promote(NAME, VERSION, "Release")
    assert views(harness) == ["Release"]
    assert harness.standin.counts()["promote"] == 1


def test_an_open_outcome_is_said_and_not_repeated(harness: AzureHarness) -> None:
    harness.standin.plan(Fault("promote", effect=Effect.RESET))
    with pytest.raises(OutcomeUnknown, match="is not known") as caught:
        harness.feed().promote(NAME, VERSION, "Release")
    assert "cannot be undone" in caught.value.hint
    assert harness.standin.counts()["promote"] == 1


def test_wrong_views_and_versions_are_named(harness: AzureHarness) -> None:
    feed = harness.feed()
    with pytest.raises(NotFound) as caught:
        feed.promote(NAME, VERSION, "Realease")
    assert caught.value.hint == "did you mean Release or Prerelease?"
    with pytest.raises(NotFound, match=r"0\.0\.0-b"):
        feed.promote(NAME, "0.0.0-b", "Release")
    with pytest.raises(Rejected):
        feed.promote(NAME, VERSION, "Local")
    harness.standin.organization.delete(harness.standin.feed, NAME, VERSION)
    with pytest.raises(NotFound):
        feed.promote(NAME, VERSION, "Release")
    assert not harness.standin.counts()["promote"]


def test_preflight_is_content_with_a_good_plan(harness: AzureHarness) -> None:
    harness.feed().preflight([(NAME, VERSION), (NAME, "0.0.0-b"), ("new", "0.0.0-a")])
    assert harness.standin.counts().keys().isdisjoint({"register", "promote", "blob-put"})


def test_preflight_names_all_problems_at_once(harness: AzureHarness) -> None:
    harness.standin.organization.tokens["reader-token"] = "reader"
    full = {f"0.0.0-{number}": "d" for number in range(4999)}
    harness.standin.organization.seed(harness.standin.feed, "full", full)
    plan = [
        ("full", "0.0.0-new1"),
        ("full", "0.0.0-new2"),
        (NAME, "0.0.0-b"),
    ]
    with pytest.raises(Unauthorized) as caught:
        harness.feed(AZURE_DEVOPS_EXT_PAT="reader-token", MODELMILL_AZURE_TOOL="/x").preflight(plan)
    text = str(caught.value)
    for words in ("may read", "there is no artifacttool"):
        assert words in text
    with pytest.raises(Rejected, match="full: 2 new versions do not fit, 4999 of 5000"):
        harness.feed().preflight(plan[:2])
    harness.feed().preflight(plan[:1])


def test_deleted_versions_count_against_the_limit(harness: AzureHarness) -> None:
    org, models = harness.standin.organization, harness.standin.feed
    org.seed(models, "full", {f"0.0.0-{number}": "d" for number in range(5000)})
    org.delete(models, "full", "0.0.0-7")
    with pytest.raises(Rejected, match="do not fit"):
        harness.feed().preflight([("full", "0.0.0-new")])
    harness.feed().preflight([("full", "0.0.0-8")])


def test_preflight_finds_a_missing_or_closed_feed_and_bad_credentials(
    harness: AzureHarness,
) -> None:
    with pytest.raises(NotFound, match="doesn't exist"):
        harness.feed(f"{harness.standin.base}/acme/Lab/nothing").preflight()
    with pytest.raises(Unauthorized, match="AZURE_DEVOPS_EXT_PAT") as caught:
        harness.feed(AZURE_DEVOPS_EXT_PAT="stale", MODELMILL_AZURE_TOOL="").preflight()
    assert "problems" not in str(caught.value)  # one cause, reported once
    harness.standin.feed.read_only = True
    with pytest.raises(Rejected, match="read-only"):
        harness.feed().preflight()


def test_roles_that_the_service_does_not_tell_stop_nobody(harness: AzureHarness) -> None:
    harness.standin.plan(Fault("feeds", status=200, body=b'{"count": 0, "value": []}', times=9))
    harness.feed().preflight()
    assert harness.standin.faults.struck["feeds"]


def test_a_service_that_is_down_is_one_problem(harness: AzureHarness) -> None:
    harness.standin.plan(Fault("areas", status=503, times=99))
    with pytest.raises(FeedError) as caught:
        harness.feed().preflight([(NAME, VERSION)])
    assert str(caught.value).count("answers 503") == 1
