"""Listing over the real SDK: complete or an error, whatever the service does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from feed.azure.service import ATTEMPTS
from feed.errors import FeedError, NotFound, Unauthorized, Unavailable
from flows.sweep.listing import list_feed
from tests.fakes.azure.faults import THROTTLED, Effect, Fault, When, sign_in_page
from tests.fakes.azure.harness import AzureHarness
from tests.fakes.azure.model import Package
from tests.fakes.azure.server import wrapped
from tests.sweeps.in_memory import make_plan, small_model

TREE = "ab" * 32
OURS = f"tree=sha256:{TREE} bert@qnn_npu"


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[AzureHarness]:
    with AzureHarness(tmp_path) as made:
        yield made


def numbered(count: int) -> dict[str, str]:
    return {f"0.0.0-20260609-{number}": OURS for number in range(count)}


@pytest.mark.parametrize("count", [0, 1, 1000, 5000])
def test_any_number_of_versions_costs_three_requests(harness: AzureHarness, count: int) -> None:
    if count:
        harness.standin.organization.seed(harness.standin.feed, "bert", numbered(count))
    feed = harness.feed()
    # The hosts and their routes are looked up once for a process.
    assert feed.find("none", "0.0.0-none") is None
    assert list(feed.versions("none")) == []
    harness.standin.forget()
    found = list(feed.versions("bert"))
    assert {entry.version for entry in found} == set(numbered(count))
    assert all(entry.tree == TREE for entry in found)
    assert harness.standin.counts().total() <= 3
    harness.standin.forget()
    assert len(list(feed.versions("bert", "0.0.0-20260609-7"))) == sum(
        version.startswith("0.0.0-20260609-7") for version in numbered(count)
    )
    assert harness.standin.counts().total() <= (2 if count else 3)


def test_similar_names_and_other_kinds_of_packages_are_not_mixed_up(harness: AzureHarness) -> None:
    org, models = harness.standin.organization, harness.standin.feed
    org.seed(models, "distilbert-base", {"0.0.0-a": OURS})
    org.seed(models, "bert", {"0.0.0-b": OURS})
    org.seed(models, "bert-large", {"0.0.0-c": OURS})
    models.add(Package("bert", "NuGet"))
    models.add(Package("other", "NuGet"))
    feed = harness.feed()
    assert [entry.version for entry in feed.versions("bert")] == ["0.0.0-b"]
    assert list(feed.packages()) == ["bert", "bert-large", "distilbert-base"]
    assert list(feed.versions("ber")) == []


def test_deleted_versions_stay_taken(harness: AzureHarness) -> None:
    org, models = harness.standin.organization, harness.standin.feed
    org.seed(models, "bert", numbered(3))
    org.delete(models, "bert", "0.0.0-20260609-1")
    feed = harness.feed()
    deleted = {entry.version for entry in feed.versions("bert") if entry.deleted}
    assert deleted == {"0.0.0-20260609-1"}
    gone = feed.find("bert", "0.0.0-20260609-1")
    assert gone is not None
    assert gone.deleted
    for version in ("0.0.0-20260609-0", "0.0.0-20260609-2"):
        org.delete(models, "bert", version)
    assert all(entry.deleted for entry in feed.versions("bert"))
    assert list(feed.packages()) == ["bert"]


def test_dates_and_views_come_along(harness: AzureHarness) -> None:
    seeded = harness.standin.organization.seed(harness.standin.feed, "bert", {"0.0.0-a": "by hand"})
    seeded.versions["0.0.0-a"].views.append("Release")
    (entry,) = harness.feed().versions("bert")
    assert entry.views == ("Release",)
    assert entry.tree is None
    assert entry.published_at is not None
    assert entry.published_at.isoformat() == "2026-06-09T12:00:00.123456+00:00"


@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "any order"])
@pytest.mark.parametrize("cut", [1000, 401, 2])
def test_thousands_of_packages_are_listed_wherever_the_service_cuts(
    harness: AzureHarness, cut: int, *, ordered: bool
) -> None:
    if ordered:
        harness.standin.routes.keep_order()
    names = {f"modelmill-{number:04}" for number in range(3000 if cut > 2 else 9)}
    for name in names:
        harness.standin.organization.seed(harness.standin.feed, name, {"0.0.0-a": OURS})
    harness.standin.routes.page = cut
    feed = harness.feed()
    assert list(feed.packages()) == sorted(names)
    if ordered:
        pages = -(-(len(names) - 1) // (min(cut, 1000) - 1))
        assert harness.standin.counts()["packages"] == pages + 1
    assert list(feed.versions(f"{min(names)[:-1]}")) == [], "only a part of names"


@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "any order"])
def test_pages_that_shift_while_they_are_read_lose_nothing(
    harness: AzureHarness, *, ordered: bool
) -> None:
    if ordered:
        harness.standin.routes.keep_order()
    org, models = harness.standin.organization, harness.standin.feed
    for name in "bcdefgh":
        org.seed(models, name, {"0.0.0-a": OURS})
    harness.standin.routes.page = 3
    asked: list[str] = []

    def publish_in_between(route: str) -> None:
        asked.append(route)
        if asked.count("packages") == 2:
            org.seed(models, "a", {"0.0.0-a": OURS})

    harness.standin.on_request = publish_in_between
    assert list(harness.feed().packages()) == list("abcdefgh")


def test_a_feed_that_never_holds_still_is_an_error(harness: AzureHarness) -> None:
    org, models = harness.standin.organization, harness.standin.feed
    for name in "pqrstuvwxyz":
        org.seed(models, name, {"0.0.0-a": OURS})
    harness.standin.routes.page = 3
    count = iter(range(10_000))

    def shift(route: str) -> None:
        if route == "packages":
            org.seed(models, f"a{10_000 - next(count)}", {"0.0.0-a": OURS})

    harness.standin.on_request = shift
    with pytest.raises(Unavailable, match="faster than they can be listed"):
        list(harness.feed().packages())


def test_what_was_just_published_is_listed_although_the_index_lags(harness: AzureHarness) -> None:
    org, models = harness.standin.organization, harness.standin.feed
    seeded = org.seed(models, "bert", numbered(2))
    seeded.versions["0.0.0-20260609-1"].indexed = False
    assert len(list(harness.feed().versions("bert"))) == 2


def test_what_was_just_deleted_is_not_listed_as_live(harness: AzureHarness) -> None:
    org, models = harness.standin.organization, harness.standin.feed
    org.seed(models, "bert", numbered(3))

    def delete_in_between(route: str) -> None:
        if route == "names":
            org.delete(models, "bert", "0.0.0-20260609-1")
            harness.standin.on_request = lambda _route: None

    harness.standin.on_request = delete_in_between
    found = {entry.version: entry.deleted for entry in harness.feed().versions("bert")}
    assert found == dict.fromkeys(numbered(3), False) | {"0.0.0-20260609-1": True}


def test_many_versions_that_only_the_index_still_shows_are_not_listed_as_live(
    harness: AzureHarness,
) -> None:
    org, models = harness.standin.organization, harness.standin.feed
    ours, others = numbered(40), {f"0.0.0-20260610-{number}": OURS for number in range(40)}
    org.seed(models, "bert", {**ours, **others})
    org.lagging = True
    for version in [*list(ours)[:30], *list(others)[:30]]:
        org.delete(models, "bert", version)
    found = {one.version: one.deleted for one in harness.feed().versions("bert", "0.0.0-20260609-")}
    assert found == {version: place < 30 for place, version in enumerate(ours)}
    asked = {one.path.rpartition("/")[2] for one in harness.standin.seen if one.route == "metadata"}
    assert asked == set(list(ours)[:30]), "no version of another stamp is asked for"


def test_a_listing_by_name_that_is_short_does_not_make_versions_vanish(
    harness: AzureHarness,
) -> None:
    harness.standin.organization.seed(harness.standin.feed, "bert", numbered(100))
    harness.standin.organization.listed_by_name = 10
    assert sum(not entry.deleted for entry in harness.feed().versions("bert")) == 100


def test_a_sweep_does_not_repeat_what_the_feed_has_repeated(harness: AzureHarness) -> None:
    harness.standin.plan(Fault("names", status=503, times=99))
    with pytest.raises(Unavailable):
        list_feed(harness.feed(), make_plan(small_model(cells=1)), every_stamp=False)
    asked = Counter(one.path for one in harness.standin.seen if one.route == "names")
    assert set(asked.values()) == {ATTEMPTS}


TRANSIENT = [
    pytest.param({"status": 429, "headers": {"Retry-After": "7"}}, id="429"),
    pytest.param({"status": 429}, id="429-bare"),
    pytest.param({"status": 500, "body": wrapped(500, "RequestBlocked", THROTTLED)}, id="500"),
    pytest.param({"status": 503, "content_type": "text/html", "body": b"<html>"}, id="503"),
    pytest.param({"effect": Effect.RESET}, id="reset"),
    pytest.param({"effect": Effect.RESET, "when": When.AFTER}, id="reset-after"),
    pytest.param({"effect": Effect.TRUNCATE}, id="truncated"),
    pytest.param({"status": 200, "body": b'{"count": 5, "value": []}'}, id="short-list"),
    pytest.param({"status": 200, "body": b'{"count": 5, "val'}, id="broken-json"),
    pytest.param(
        {"status": 200, "body": b"<html>captive portal", "content_type": "text/html"}, id="portal"
    ),
    pytest.param({"status": 404, "body": b"<html>The resource cannot be found."}, id="404-page"),
    pytest.param({"status": 404, "body": b""}, id="404-bare"),
]
ROUTES = ["names", "packages", "versions", "areas", "locations"]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("fault", TRANSIENT)
def test_a_fault_that_passes_costs_only_time(
    harness: AzureHarness, route: str, fault: dict[str, object]
) -> None:
    harness.standin.organization.seed(harness.standin.feed, "bert", numbered(5))
    harness.standin.plan(Fault(route, **fault))  # type: ignore[arg-type]  # one of the rows above
    assert len(list(harness.feed().versions("bert"))) == 5
    assert harness.standin.faults.struck[route] == 1
    if "headers" in fault:
        assert harness.pauses == [7.0]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("fault", TRANSIENT)
def test_a_fault_that_stays_is_an_error_and_never_an_empty_feed(
    harness: AzureHarness, route: str, fault: dict[str, object]
) -> None:
    harness.standin.organization.seed(harness.standin.feed, "bert", numbered(5))
    harness.standin.plan(Fault(route, times=1000, **fault))  # type: ignore[arg-type]  # see above
    feed = harness.feed()
    with pytest.raises(Unavailable):
        list(feed.versions("bert"))
    if route in {"packages", "areas"}:
        with pytest.raises(Unavailable):
            list(feed.packages())
    assert harness.standin.counts()[route] <= 10


@pytest.mark.parametrize(
    "refusal",
    [
        Fault("names", status=401, body=b"", times=9),
        Fault("names", status=302, headers={"Location": "https://login.invalid/"}, times=9),
    ],
)
def test_a_sign_in_page_is_a_matter_of_credentials(harness: AzureHarness, refusal: Fault) -> None:
    harness.standin.plan(refusal)
    with pytest.raises(Unauthorized, match="AZURE_DEVOPS_EXT_PAT") as caught:
        list(harness.feed().versions("bert"))
    assert "az login" in caught.value.hint
    assert "run the same command again" in caught.value.hint
    assert harness.standin.counts()["names"] == 2


def test_routes_that_are_missing_are_asked_for_again(harness: AzureHarness) -> None:
    harness.standin.organization.seed(harness.standin.feed, "bert", numbered(5))
    none = b'{"count": 0, "value": []}'
    other = b'{"count": 1, "value": [{"id": "other", "area": "a", "resourceName": "b"}]}'
    for body in (none, other):
        harness.standin.plan(Fault("locations", status=200, body=body, every=2))
        assert len(list(harness.feed().versions("bert"))) == 5


def test_one_refusal_is_asked_about_once_more(harness: AzureHarness) -> None:
    harness.standin.organization.seed(harness.standin.feed, "bert", numbered(5))
    harness.standin.plan(sign_in_page("names"))
    assert len(list(harness.feed().versions("bert"))) == 5


def test_a_service_that_asks_for_an_absurd_pause_is_an_error(harness: AzureHarness) -> None:
    harness.standin.plan(Fault("names", status=429, headers={"Retry-After": "21600"}))
    with pytest.raises(Unavailable) as caught:
        list(harness.feed().versions("bert"))
    assert caught.value.retry_after == 21600
    assert "asks for a pause of 21600 s" in caught.value.message
    assert "wait 21600 s" in caught.value.hint
    assert harness.pauses == []


def test_a_long_pause_is_told_once(
    harness: AzureHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    harness.standin.organization.seed(harness.standin.feed, "bert", numbered(5))
    harness.standin.plan(Fault("names", status=429, headers={"Retry-After": "30"}, times=2))
    assert len(list(harness.feed().versions("bert"))) == 5
    assert harness.pauses == [30, 30]
    (said,) = capsys.readouterr().err.splitlines()
    assert "throttled" in said
    assert said.endswith("going on in 30 s")


def test_retry_after_on_a_good_reply_slows_the_next_request(harness: AzureHarness) -> None:
    harness.standin.organization.seed(harness.standin.feed, "bert", numbered(5))
    harness.standin.plan(Fault("names", Effect.HEADERS, headers={"Retry-After": "9"}))
    assert len(list(harness.feed().versions("bert"))) == 5
    assert harness.pauses
    assert harness.pauses[0] == pytest.approx(9, abs=1)


def test_a_missing_feed_is_not_an_empty_one(harness: AzureHarness) -> None:
    base = harness.standin.base
    for address in ("acme/Lab/nothing", "acme/Other/models", "acme/_artifacts/feed/models"):
        feed = harness.feed(f"{base}/{address}")
        for call in (feed.packages, lambda feed=feed: feed.versions("bert")):
            with pytest.raises(NotFound, match="doesn't exist"):
                list(call())
        with pytest.raises(NotFound):
            feed.find("bert", "0.0.0-a")


def test_a_feed_of_the_organization(harness: AzureHarness) -> None:
    harness.standin.organization.seed(harness.standin.shared, "bert", numbered(2))
    feed = harness.feed(f"{harness.standin.base}/acme/_artifacts/feed/Shared")
    assert len(list(feed.versions("bert"))) == 2
    assert feed.name == f"azure:{harness.standin.base}/acme/_artifacts/feed/shared"


def test_an_unreachable_service_is_an_error(harness: AzureHarness) -> None:
    feed = harness.feed("http://127.0.0.1:9/acme/Lab/models")
    with pytest.raises(FeedError) as caught:
        list(feed.packages())
    assert isinstance(caught.value, Unavailable)
    assert "127.0.0.1:9" in caught.value.message


def test_an_organization_that_names_an_unsafe_host_gets_no_token(harness: AzureHarness) -> None:
    areas = [
        {"id": area, "name": "x", "locationUrl": "http://evil.invalid/acme"}
        for area in (
            "7ab4e64e-c4d8-4f50-ae73-5ef2e21642a5",
            "d397749b-f115-4027-b6dd-77a65dd10d21",
        )
    ]
    body = b'{"count": 2, "value": ' + repr(areas).replace("'", '"').encode() + b"}"
    harness.standin.plan(Fault("areas", status=200, body=body, times=99))
    with pytest.raises(Unavailable, match="not https"):
        list(harness.feed().packages())


def test_the_token_shows_in_no_error(harness: AzureHarness) -> None:
    text = "the header Basic Omdvb2QtdG9rZW4= with good-token is bad"
    harness.standin.plan(Fault("names", status=400, body=wrapped(400, "BadRequest", text)))
    with pytest.raises(FeedError) as caught:
        list(harness.feed().versions("bert"))
    assert "good-token" not in str(caught.value)
    assert "Omdvb2Q" not in str(caught.value)
    assert "is bad" in str(caught.value)
