from __future__ import annotations

import base64
import json
import pickle
from dataclasses import dataclass

import pytest
from azure.core.exceptions import ClientAuthenticationError

from feed.azure.credentials import PersonalToken, Secret, TokenChain, from_environment, redact
from feed.errors import Unauthorized


def jwt(**claims: str) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"header.{body}.signature"


@dataclass
class Token:
    token: str
    expires_on: int


class Chains:
    """Makes chains whose tokens are numbered and live as long as a test says."""

    def __init__(self, *lives: int) -> None:
        self.lives = list(lives)
        self.made = 0
        self.asked = 0
        self.now = 1000.0

    def __call__(self) -> Chains:
        self.made += 1
        return self

    def get_token(self, *scopes: str) -> Token:
        assert scopes == ("499b84ac-1321-427f-aa17-267ca6975798/.default",)
        self.asked += 1
        life = self.lives.pop(0) if len(self.lives) > 1 else self.lives[0]
        return Token(jwt(upn="me@example.com", n=str(self.asked)), int(self.now + life))

    def clock(self) -> float:
        return self.now


def test_a_token_is_asked_for_once_while_it_lives() -> None:
    chains = Chains(3600)
    chain = TokenChain(chains, clock=chains.clock)
    first = chain.token()
    assert chain.token() == first
    assert chains.asked == 1
    chains.now += 3500
    assert chain.token() != first
    assert (chains.asked, chains.made) == (2, 1)


def test_a_tool_run_gets_a_fresh_token() -> None:
    chains = Chains(3600)
    chain = TokenChain(chains, clock=chains.clock)
    assert chain.token() != chain.token(fresh=True)


def test_a_chain_that_serves_an_old_token_is_made_anew() -> None:
    chains = Chains(100, 3600)
    chain = TokenChain(chains, clock=chains.clock)
    chain.token()
    assert (chains.asked, chains.made) == (2, 2)


def test_a_refused_token_is_renewed_once_for_all_threads() -> None:
    chains = Chains(3600)
    chain = TokenChain(chains, clock=chains.clock)
    refused = chain.token()
    renewed = chain.renew(refused)
    assert renewed != refused
    assert chain.renew(refused) == renewed == chain.token()
    assert (chains.asked, chains.made) == (2, 2)


def test_the_identity_comes_from_the_token() -> None:
    chains = Chains(3600)
    chain = TokenChain(chains, clock=chains.clock)
    chain.token()
    assert chain.identity == "me@example.com"


@pytest.mark.parametrize("token", ["", "opaque", "a.b.c", f"a.{'!' * 9}.c", "a.bnVsbA.c"])
def test_a_token_without_claims_is_no_problem(token: str) -> None:
    class Opaque:
        def get_token(self, *_scopes: str) -> Token:
            return Token(token, 2**40)

    chain = TokenChain(Opaque)
    chain.token()
    assert chain.identity


def test_no_credential_at_all_says_what_to_do() -> None:
    class Nothing:
        def get_token(self, *_scopes: str) -> Token:
            raise ClientAuthenticationError("No credential in this chain.\nPages\nof\nreasons")

    with pytest.raises(Unauthorized, match="No credential in this chain") as caught:
        TokenChain(Nothing).token()
    assert "Pages" not in str(caught.value)
    assert "az login" in caught.value.hint


def test_the_personal_token_wins_over_the_chain() -> None:
    credentials = from_environment({"AZURE_DEVOPS_EXT_PAT": " pat \n"})
    assert isinstance(credentials, PersonalToken)
    assert credentials.token().reveal() == "pat"
    assert credentials.renew(credentials.token()).reveal() == "pat"
    assert isinstance(from_environment({"AZURE_DEVOPS_EXT_PAT": ""}), TokenChain)
    assert isinstance(from_environment({}), TokenChain)


def test_a_secret_does_not_show() -> None:
    secret = Secret("hunter2")
    for shown in (
        repr(secret),
        str(secret),
        f"{secret}",
        f"{secret:>20}",
        f"{[secret]}",
        "".join(map(str, [secret])),
    ):
        assert "hunter2" not in shown
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    assert not hasattr(secret, "__dict__")


def test_foreign_text_is_cleaned_of_every_spelling() -> None:
    secret = Secret("hunter2hunter2")
    header = base64.b64encode(b":hunter2hunter2").decode()
    text = redact(f"hunter2hunter2 Basic {header} {header.rstrip('=')} rest", [secret])
    assert text == "*** Basic *** *** rest"
    assert redact("a b", [Secret(""), Secret("a")]) == "a b"
