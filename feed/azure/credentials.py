"""Credentials for Azure DevOps: a personal access token, or azure-identity's default chain.

A token is a `Secret`, which cannot be printed by accident and is removed from foreign text.
"""

from __future__ import annotations

import base64
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from feed.azure.wire import TokenRefused
from feed.errors import Unauthorized
from matrix.codec import parse_json


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """A token. Only `reveal` shows it; repr, str, format and pickle do not."""

    _value: str

    def reveal(self) -> str:
        """The value itself, for the one place that must send it."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __reduce__(self) -> str:
        raise TypeError("a secret is not pickled")


def redact(text: str, secrets: Iterable[Secret]) -> str:
    """Foreign text (a tool's log, a server's message) without any spelling of the secrets."""
    for secret in secrets:
        value = secret.reveal()
        if len(value) < 4:
            continue
        encoded = base64.b64encode(f":{value}".encode()).decode()
        for spelling in (encoded, encoded.rstrip("="), value):
            text = text.replace(spelling, "***")
    return text


T = TypeVar("T")

PAT_VARIABLE = "AZURE_DEVOPS_EXT_PAT"

DEVOPS_SCOPE = "499b84ac-1321-427f-aa17-267ca6975798/.default"
"""The Azure DevOps resource; tokens for it live for about an hour."""

MARGIN = 300.0
"""Seconds that a token must still live to be used again."""

RENEW = (
    f"log in with `az login`, or set {PAT_VARIABLE} to a token with Packaging (read & write); "
    "then run the same command again: what is built is kept"
)


class PersonalToken:
    """A personal access token; nothing can renew it."""

    def __init__(self, token: Secret) -> None:
        self._token = token

    @property
    def identity(self) -> str:
        """The service would name the user; the token itself does not."""
        return f"the personal access token in {PAT_VARIABLE}"

    def token(self, *, fresh: bool = False) -> Secret:  # noqa: ARG002 - there is only this one
        """The same one, always; others give a `fresh` one for what cannot renew it by itself."""
        return self._token

    def renew(self, refused: Secret) -> Secret:
        """The same one: the service is asked once more, since it also refuses by mistake."""
        return refused


class TokenChain:
    """The first that works of environment, workload identity, managed identity, az login, ..."""

    def __init__(
        self, source: Callable[[], Any], *, clock: Callable[[], float] = time.time
    ) -> None:
        self._source = source
        self._clock = clock
        self._lock = threading.Lock()
        self._chain: Any = None
        self._last: Any = None
        self._identity = "no identity yet"

    @property
    def identity(self) -> str:
        """Taken from the claims of the last token."""
        return self._identity

    def token(self, *, fresh: bool = False) -> Secret:
        """The last token while it lives; asking the chain can cost a second (az is a process)."""
        with self._lock:
            if fresh or self._last is None or not self._lives(self._last):
                self._last = self._ask()
            if not self._lives(self._last):
                self._chain = None
                self._last = self._ask()
            return Secret(self._last.token)

    def renew(self, refused: Secret) -> Secret:
        """A token of a new chain, unless another thread has got one in the meantime."""
        with self._lock:
            if self._last is None or Secret(self._last.token) == refused:
                self._chain = None
                self._last = self._ask()
            return Secret(self._last.token)

    def _lives(self, token: Any) -> bool:
        return bool(token.expires_on - self._clock() >= MARGIN)

    def _ask(self) -> Any:
        from azure.core.exceptions import AzureError

        self._chain = self._chain or self._source()
        try:
            token = self._chain.get_token(DEVOPS_SCOPE)
        except AzureError as error:
            # The chain's own message is a page; its first line names what was tried.
            reason = (str(error).strip().splitlines() or ["no credential"])[0]
            raise Unauthorized(
                f"no Azure credential works on this machine: {reason}", hint=RENEW
            ) from error
        self._identity = _claimed_identity(token.token)
        return token


Credentials = PersonalToken | TokenChain
"""Where tokens come from. Safe to use from several threads."""


def with_token(
    credentials: Credentials, attempt: Callable[[Secret], T], *, fresh: bool = False
) -> T:
    """Make an attempt; if its token is refused, once more with another one."""
    token = credentials.token(fresh=fresh)
    try:
        return attempt(token)
    except TokenRefused:
        token = credentials.renew(token)
    try:
        return attempt(token)
    except TokenRefused as refused:
        raise Unauthorized(
            f"Azure DevOps does not accept {credentials.identity}: {refused.message}", hint=RENEW
        ) from refused


def from_environment(environ: Mapping[str, str]) -> Credentials:
    """The token in AZURE_DEVOPS_EXT_PAT where it is set, else the default chain."""
    if pat := environ.get(PAT_VARIABLE, "").strip():
        return PersonalToken(Secret(pat))

    def default_chain() -> Any:
        from azure.identity import DefaultAzureCredential

        # It logs a page of warnings for what our one-line error says as well.
        logging.getLogger("azure.identity").setLevel(logging.ERROR)
        return DefaultAzureCredential()

    return TokenChain(default_chain)


def _claimed_identity(token: str) -> str:
    """The name a token claims; not verified, only shown."""
    try:
        body = token.split(".")[1]
        claims = parse_json(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        names = ("upn", "unique_name", "preferred_username", "app_displayname", "appid", "oid")
        found = next((claims[name] for name in names if claims.get(name)), None)
    except (IndexError, ValueError, AttributeError, TypeError):
        found = None
    return str(found) if found else "an identity that its token does not name"
