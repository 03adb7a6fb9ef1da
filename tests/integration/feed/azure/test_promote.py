"""Promotion and preflight against the stand-in."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from feed.errors import FeedError, NotFound, OutcomeUnknown, Rejected, Unauthorized
from tests.fakes.azure.faults import Effect, Fault, When
from tests.fakes.azure.lab import Lab

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the tool's stand-in is a script")

NAME, VERSION = "bert", "0.0.0-a"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with Lab(tmp_path) as made:
        made.standin.organization.seed(made.standin.feed, NAME, {VERSION: "d"})
        yield made


def views(lab: Lab) -> list[str]:
    package = lab.standin.feed.upack(NAME)
    assert package is not None
    return package.versions[VERSION].views


def test_promotion_asks_once_and_not_for_what_is_done(lab: Lab) -> None:
    feed = lab.feed()
    feed.promote(NAME, VERSION, "release")
    feed.promote(NAME, VERSION, "Release")
    assert views(lab) == ["Release"]
    assert lab.standin.counts()["promote"] == 1


@pytest.mark.parametrize("fault", [{"effect": Effect.RESET}, {"status": 503}, {"status": 429}])
def test_a_lost_reply_is_settled_by_looking(lab: Lab, fault: dict[str, object]) -> None:
    lab.standin.plan(Fault("promote", when=When.AFTER, **fault))  # type: ignore[arg-type]  # rows
    lab.feed().promote(NAME, VERSION, "Release")
    assert views(lab) == ["Release"]
    assert lab.standin.counts()["promote"] == 1


def test_an_open_outcome_is_said_and_not_repeated(lab: Lab) -> None:
    lab.standin.plan(Fault("promote", effect=Effect.RESET))
    with pytest.raises(OutcomeUnknown, match="is not known") as caught:
        lab.feed().promote(NAME, VERSION, "Release")
    assert "cannot be undone" in caught.value.hint
    assert lab.standin.counts()["promote"] == 1


def test_wrong_views_and_versions_are_named(lab: Lab) -> None:
    feed = lab.feed()
    with pytest.raises(NotFound) as caught:
        feed.promote(NAME, VERSION, "Realease")
    assert caught.value.hint == "did you mean Release?"
    with pytest.raises(NotFound, match=r"0\.0\.0-b"):
        feed.promote(NAME, "0.0.0-b", "Release")
    with pytest.raises(Rejected):
        feed.promote(NAME, VERSION, "Local")
    lab.standin.organization.delete(lab.standin.feed, NAME, VERSION)
    with pytest.raises(NotFound):
        feed.promote(NAME, VERSION, "Release")
    assert not lab.standin.counts()["promote"]


def test_preflight_is_content_with_a_good_plan(lab: Lab) -> None:
    lab.feed().preflight([(NAME, VERSION), (NAME, "0.0.0-b"), ("new", "0.0.0-a")])
    assert lab.standin.counts().keys().isdisjoint({"register", "promote", "blob-put"})


def test_preflight_names_all_problems_at_once(lab: Lab) -> None:
    lab.standin.organization.tokens["reader-token"] = "reader"
    full = {f"0.0.0-{number}": "d" for number in range(4999)}
    lab.standin.organization.seed(lab.standin.feed, "full", full)
    plan = [
        ("full", "0.0.0-new1"),
        ("full", "0.0.0-new2"),
        ("Upper", "0.0.0-a"),
        (NAME, "1.0"),
        (NAME, "0.0.0-b"),
        (NAME, "0.0.0-b"),
    ]
    with pytest.raises(Unauthorized) as caught:
        lab.feed(AZURE_DEVOPS_EXT_PAT="reader-token", MODELMILL_AZURE_TOOL="/x").preflight(plan)
    text = str(caught.value)
    for words in ("Upper", "1.0", "planned 2 times", "may read", "there is no artifacttool"):
        assert words in text
    with pytest.raises(Rejected, match="full: 2 new versions do not fit, 4999 of 5000"):
        lab.feed().preflight(plan[:2])
    lab.feed().preflight(plan[:1])


def test_deleted_versions_count_against_the_limit(lab: Lab) -> None:
    org, models = lab.standin.organization, lab.standin.feed
    org.seed(models, "full", {f"0.0.0-{number}": "d" for number in range(5000)})
    org.delete(models, "full", "0.0.0-7")
    with pytest.raises(Rejected, match="do not fit"):
        lab.feed().preflight([("full", "0.0.0-new")])
    lab.feed().preflight([("full", "0.0.0-8")])


def test_preflight_finds_a_missing_or_closed_feed_and_bad_credentials(lab: Lab) -> None:
    with pytest.raises(NotFound, match="doesn't exist"):
        lab.feed(f"{lab.standin.base}/acme/Lab/nothing").preflight()
    with pytest.raises(Unauthorized, match="AZURE_DEVOPS_EXT_PAT"):
        lab.feed(AZURE_DEVOPS_EXT_PAT="stale").preflight()
    lab.standin.feed.read_only = True
    with pytest.raises(Rejected, match="read-only"):
        lab.feed().preflight()


def test_roles_that_the_service_does_not_tell_stop_nobody(lab: Lab) -> None:
    lab.standin.plan(Fault("feeds", status=200, body=b'{"count": 0, "value": []}', times=9))
    lab.feed().preflight()
    assert lab.standin.faults.struck["feeds"]


def test_a_service_that_is_down_is_one_problem(lab: Lab) -> None:
    lab.standin.plan(Fault("areas", status=503, times=99))
    with pytest.raises(FeedError) as caught:
        lab.feed().preflight([(NAME, VERSION)])
    assert str(caught.value).count("503") == 1
