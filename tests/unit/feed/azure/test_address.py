from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feed.azure.address import Address, parse
from matrix.errors import UsageError

ORG = "https://dev.azure.com/acme"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (f"azure:{ORG}/Lab/models", Address(ORG, "Lab", "models")),
        (f"{ORG}/Lab/models/", Address(ORG, "Lab", "models")),
        (f"  {ORG}/My%20Lab/models ", Address(ORG, "My Lab", "models")),
        (f"{ORG}/Lab/_artifacts/feed/models", Address(ORG, "Lab", "models")),
        (f"{ORG}/_artifacts/feed/models", Address(ORG, None, "models")),
        (f"{ORG}/_feed/models", Address(ORG, None, "models")),
        (f"{ORG}/Lab/_feed/models", Address(ORG, "Lab", "models")),
        (
            "https://acme.visualstudio.com/Lab/models",
            Address("https://acme.visualstudio.com", "Lab", "models"),
        ),
        (
            "https://acme.visualstudio.com/_artifacts/feed/models",
            Address("https://acme.visualstudio.com", None, "models"),
        ),
        (
            "http://127.0.0.1:8080/acme/Lab/models",
            Address("http://127.0.0.1:8080/acme", "Lab", "models"),
        ),
        ("http://[::1]:80/acme/Lab/m", Address("http://[::1]:80/acme", "Lab", "m")),
        ("http://localhost/acme/Lab/m", Address("http://localhost/acme", "Lab", "m")),
    ],
)
def test_addresses_are_read_and_named_in_one_way(url: str, expected: Address) -> None:
    address = parse(url)
    assert address == expected
    again = parse(address.name)
    assert again.name == address.name == parse(address.name.upper().replace("AZURE:", "")).name
    assert (again.project is None) == (address.project is None)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "not an http"),
        ("dev.azure.com/acme/Lab/models", "not an http"),
        ("ftp://dev.azure.com/acme/Lab/models", "not an http"),
        (ORG, "does not name a project"),
        ("https://dev.azure.com/", "organization is missing"),
        (f"{ORG}/Lab", "does not name a project"),
        (f"{ORG}/Lab/a/b", "does not name a project"),
        (f"{ORG}/Lab/_packaging/models", "does not name a project"),
        (f"{ORG}/Lab/models?x=1", "query"),
        (f"{ORG}/Lab/models#x", "fragment"),
        (f"{ORG}/Lab/mod%20els", "not the name of a feed"),
        (f"{ORG}/Lab/.models", "not the name of a feed"),
        (f"{ORG}/Lab/{'m' * 65}", "not the name of a feed"),
        (f"{ORG}/Lab/models@Release", "views are read-only"),
        ("http://dev.azure.com/acme/Lab/models", "https"),
        ("http://10.0.0.1/acme/Lab/models", "https"),
        ("http://localhost.evil.invalid/acme/Lab/models", "https"),
    ],
)
def test_what_is_wrong_is_said(url: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse(url)


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    for secret in ("https://me:hunter2@dev.azure.com/acme/Lab/models", "https://hunter2@x/a/b/c"):
        with pytest.raises(UsageError) as caught:
            parse(secret)
        assert "hunter2" not in str(caught.value)


@given(st.text(max_size=80))
def test_rubbish_is_an_address_or_a_usage_error(text: str) -> None:
    try:
        address = parse(f"https://dev.azure.com/{text}")
    except UsageError:
        return
    assert parse(address.name).name == address.name
