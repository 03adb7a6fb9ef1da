"""Calls to one organization through the SDK: safe ones are repeated, all errors are typed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from feed.azure import sdk
from feed.azure.address import Address
from feed.azure.credentials import Credentials, Secret, redact, with_token
from feed.azure.options import Options
from feed.azure.wire import Reply, TokenRefused, judge
from feed.errors import FeedError, Unauthorized, Unavailable
from feed.pauses import Pauses, pause_after

T = TypeVar("T")
Call = Callable[[sdk.Clients], T]

ATTEMPTS = 5
"""How often a reading call is made before it counts as failed."""
LONGEST_WAIT = 120.0
"""The longest pause between two attempts; a service that asks for more is an error."""
_BROKEN = (AttributeError, KeyError, TypeError, ValueError)
"""What the SDK raises where an answer has another shape than it expects."""


@dataclass(eq=False)
class Service:
    """The calls to an organization. Safe to use from several threads."""

    address: Address
    credentials: Credentials
    options: Options
    sleep: Callable[[float], None] = time.sleep
    pauses: Pauses = field(default_factory=Pauses)
    _connecting: threading.Lock = field(default_factory=threading.Lock, init=False)
    _clients: sdk.Clients | None = field(default=None, init=False)
    _used: threading.local = field(default_factory=threading.local, init=False)

    def read(self, call: Call[T]) -> T:
        """Make a call that changes nothing, repeated while the service is unavailable."""
        return self.patiently(lambda: self.once(call))

    def patiently(self, action: Callable[[], T]) -> T:
        """Repeat a safe action while the service is unavailable."""
        attempt = 0
        while True:
            attempt += 1
            try:
                return action()
            except Unavailable as error:
                if attempt == ATTEMPTS or (error.retry_after or 0) > LONGEST_WAIT:
                    error.lasts = True
                    raise
                pause = pause_after(error, attempt, LONGEST_WAIT)
                self.pauses.tell(error.message, pause)
            self.sleep(pause)

    def once(self, call: Call[T]) -> T:
        """Make a call once; if its token is refused, once more with another one."""

        def attempt(token: Secret) -> T:
            self._used.token = token
            return self._try(call)

        return with_token(self.credentials, attempt)

    def _try(self, call: Call[T]) -> T:
        import requests
        from msrest.exceptions import ClientException

        self.pauses.wait(f"{self.address.service} asks for a pause", self.sleep)
        try:
            return call(self._connected())
        except FeedError:
            raise
        except (ClientException, requests.RequestException, OSError) as error:
            raise Unavailable(self._explain(error)) from error
        except _BROKEN as error:
            self._forget()
            raise Unavailable(f"an unexpected answer: {self._explain(error)}") from error

    def _connected(self) -> sdk.Clients:
        with self._connecting:
            clients = self._clients
            if clients is None:
                timeouts = (self.options.connect_timeout, self.options.read_timeout)
                clients = self._clients = sdk.connect(
                    self.address.service, self._sign, self._watch, timeouts
                )
            return clients

    def _forget(self) -> None:
        """Look the hosts and their routes up anew: what the SDK remembers may be broken."""
        sdk.forget_locations()
        self._clients = None

    def _sign(self) -> tuple[str, str]:
        return "", self._used.token.reveal()

    def _watch(self, reply: Reply) -> None:
        if reply.retry_after and reply.status < 300:
            self.pauses.hold(min(reply.retry_after, LONGEST_WAIT))
        error = judge(reply)
        if error is None:
            return
        if reply.method == "OPTIONS":
            self._forget()
        error.args = (self._clean(error.message),)
        error.message = error.args[0]
        if isinstance(error, Unauthorized) and not isinstance(error, TokenRefused):
            error.hint = (
                f"ask an owner of the feed to give {self.credentials.identity} the role Feed "
                "Publisher (Contributor)"
            )
        raise error

    def _explain(self, error: BaseException) -> str:
        """The innermost reason on one line: the SDK only says that an error occurred."""
        inner: BaseException = error
        while (cause := getattr(inner, "inner_exception", None)) and cause is not inner:
            inner = cause
        text = " ".join(str(inner).split())[:300]
        return self._clean(f"{self.address.service}: {type(inner).__name__}: {text}")

    def _clean(self, text: str) -> str:
        token: Secret | None = getattr(self._used, "token", None)
        return redact(text, [token] if token else [])
