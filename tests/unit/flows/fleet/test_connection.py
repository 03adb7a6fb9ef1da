"""What goes wrong between us and the Prefect server, in one line."""

from __future__ import annotations

import httpx
import pytest
from prefect.exceptions import ObjectNotFound

from flows.fleet.lead import reached
from matrix.errors import Exit, Unusable

URL = "http://user:s3cret@server:4200/api"
REQUEST = httpx.Request("GET", URL)


def refused(code: int) -> httpx.HTTPStatusError:
    return httpx.HTTPStatusError("no", request=REQUEST, response=httpx.Response(code))


@pytest.mark.parametrize(
    ("error", "says", "hint"),
    [
        (refused(401), "answers 401", "PREFECT_API_AUTH_STRING"),
        (refused(403), "answers 403", "PREFECT_API_KEY"),
        (refused(500), "answers 500", ""),
        (httpx.ConnectError("refused"), "cannot be reached", "PREFECT_API_URL"),
        (RuntimeError("Failed to reach API"), "cannot be reached", "start it"),
        (ObjectNotFound(refused(404)), "no such pool", "modelmill deploy"),
    ],
)
def test_errors_of_the_client_become_ours(
    error: Exception, says: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", URL)
    with pytest.raises(Unusable) as caught, reached():
        raise error
    assert says in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.exit_code is Exit.UNUSABLE
    assert "s3cret" not in str(caught.value)


def test_without_an_address_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with pytest.raises(Unusable, match="not set"), reached():
        raise httpx.ConnectError("refused")
