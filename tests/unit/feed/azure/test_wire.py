from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feed.azure.wire import FeedAbsent, PackageAbsent, Reply, TokenRefused, judge
from feed.errors import FeedError, Rejected, Unauthorized, Unavailable, VersionExists

THROTTLED = "TF400733: Request was blocked due to exceeding usage of resource 'Concurrency'"


def reply(status: int, body: bytes = b"", kind: str = "application/json", **headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply("GET", "https://feeds/x", status, {"Content-Type": kind, **named}, body)


def wrapped(key: str, message: str = "words") -> bytes:
    return json.dumps({"typeKey": key, "message": message}).encode()


@pytest.mark.parametrize(
    ("given_reply", "kind"),
    [
        (reply(200, b'{"count": 1, "value": [1]}'), None),
        (reply(200, b'{"id": "x"}'), None),
        (reply(200), None),
        (reply(204), None),
        (reply(200, b'{"count": 2, "value": [1]}'), Unavailable),
        (reply(200, b'{"count": 0, "value": [1]}'), Unavailable),
        (reply(200, b'{"cou'), Unavailable),
        (reply(200, b"[" * 100_000), Unavailable),
        (reply(404, b"[" * 100_000), Unavailable),
        (reply(200, b"<html>", "text/html"), Unavailable),
        (reply(200, b" <html>"), Unavailable),
        (reply(203, b"<html>", "text/html"), TokenRefused),
        (reply(203), TokenRefused),
        (reply(302, Location="https://login/"), TokenRefused),
        (reply(307), TokenRefused),
        (reply(401), TokenRefused),
        (reply(401, wrapped("UnauthorizedRequestException", "TF400813")), TokenRefused),
        (reply(403, wrapped("FeedNeedsPermissionsException")), Unauthorized),
        (reply(404, wrapped("FeedIdNotFoundException")), FeedAbsent),
        (reply(404, wrapped("ProjectDoesNotExistWithNameException")), FeedAbsent),
        (reply(404, wrapped("PackageNotFoundException")), PackageAbsent),
        (reply(404, wrapped("VersionNotFoundException")), PackageAbsent),
        (reply(404, wrapped("SomethingElseException")), Unavailable),
        (reply(404, b"<html>The resource cannot be found.", "text/html"), Unavailable),
        (reply(404), Unavailable),
        (reply(408), Unavailable),
        (reply(409, wrapped("PackageExistsException")), VersionExists),
        (reply(429), Unavailable),
        (reply(500, wrapped("RequestBlocked", THROTTLED)), Unavailable),
        (reply(503, b"<html>", "text/html"), Unavailable),
        (reply(400, wrapped("Invalid", "The version is too long")), Rejected),
        (reply(418), Rejected),
    ],
)
def test_replies_are_told_apart(given_reply: Reply, kind: type[FeedError] | None) -> None:
    error = judge(given_reply)
    assert type(error) is (kind or type(None))


def test_the_words_of_the_server_come_along_shortened() -> None:
    error = judge(reply(400, wrapped("Invalid", "The version\n is too long " + "x" * 1000)))
    assert error is not None
    assert "The version is too long" in error.message
    assert len(error.message) < 400
    assert "\n" not in error.message


def test_throttling_is_named_whatever_status_it_comes_with() -> None:
    for status in (429, 500):
        error = judge(reply(status, wrapped("RequestBlocked", THROTTLED)))
        assert error is not None
        assert error.message.startswith("throttled")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7", 7.0), ("0.5", 0.5), ("-3", 0.0), ("soon", None), ("", None), ("21600", 21600.0)],
)
def test_retry_after_is_read(text: str, seconds: float | None) -> None:
    assert reply(200, Retry_After=text).retry_after == seconds
    error = judge(reply(429, Retry_After=text))
    assert isinstance(error, Unavailable)
    assert error.retry_after == seconds


def test_retry_after_may_be_a_date() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    waits = reply(200, Retry_After=later).retry_after
    assert waits is not None
    assert 90 < waits <= 100
    assert reply(200, Retry_After="Tue, 09 Jun 2020 12:00:00 GMT").retry_after == 0


@given(st.integers(100, 599), st.binary(max_size=60), st.sampled_from(["GET", "OPTIONS", "PATCH"]))
def test_no_reply_breaks_the_judge_and_none_reads_as_absent_by_itself(
    status: int, body: bytes, method: str
) -> None:
    error = judge(Reply(method, "https://x/", status, {}, body))
    assert not isinstance(error, PackageAbsent | FeedAbsent)
    if status >= 300 or status == 203:
        assert error is not None


def test_routes_that_are_none_are_an_error() -> None:
    for body in (b"", b'{"count": 0, "value": []}', b"[]", b"null"):
        assert isinstance(judge(Reply("OPTIONS", "u", 200, {}, body)), Unavailable)
    good = b'{"count": 1, "value": [{"id": "x"}]}'
    assert judge(Reply("OPTIONS", "u", 200, {}, good)) is None
