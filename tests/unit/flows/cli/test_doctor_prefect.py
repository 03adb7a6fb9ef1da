"""A Prefect server that is named must answer."""

from __future__ import annotations

from functools import partial

import httpx
import pytest

from flows.cli.doctor import Finding, Health, _prefect

URL = "http://user:secret-word@prefect.example:4200/api"


def found(monkeypatch: pytest.MonkeyPatch, answer: httpx.Response | Exception) -> Finding:
    def handle(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/api/health"
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setenv("PREFECT_API_URL", URL)
    client = partial(httpx.Client, transport=httpx.MockTransport(handle))
    monkeypatch.setattr(httpx, "Client", client)
    return _prefect()


def test_a_server_that_answers_is_good(monkeypatch: pytest.MonkeyPatch) -> None:
    told = found(monkeypatch, httpx.Response(200, text="true"))
    assert told.health is Health.GOOD
    assert "runs are shown on http://" in told.detail
    assert "secret-word" not in told.detail


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (httpx.ConnectError("Connection refused"), "Connection refused"),
        (httpx.ReadTimeout("timed out"), "timed out"),
        (httpx.Response(502), "502"),
    ],
)
def test_a_server_that_does_not_answer_is_bad(
    monkeypatch: pytest.MonkeyPatch, answer: httpx.Response | Exception, why: str
) -> None:
    told = found(monkeypatch, answer)
    assert told.health is Health.BAD
    assert why in told.detail
    assert "PREFECT_API_URL" in told.mend
    assert "secret-word" not in told.detail + told.mend


def test_without_a_server_each_sweep_starts_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    assert _prefect().health is Health.GOOD
