"""The official SDK, imported late, without a disk cache, with our timeouts and retries.

Switched off here: a cache file that all programs of the user share and parallel processes tear,
silent retries for many seconds, redirects to a sign-in page, and `.netrc` passwords in place of our
token. `Watch` sees every reply first.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from feed.azure.address import is_safe
from feed.azure.wire import Reply
from feed.errors import Unavailable

if TYPE_CHECKING:
    import requests

FEEDS_AREA = "7ab4e64e-c4d8-4f50-ae73-5ef2e21642a5"
UPACK_AREA = "d397749b-f115-4027-b6dd-77a65dd10d21"
TOOLS_AREA = "3fda18ba-dff2-42e6-8d10-c521b23b85fc"
TOOLS_LOCATION = "187ec90d-dd1e-4ec6-8c57-937d979261e5"
_CACHE_VARIABLE = "AZURE_DEVOPS_CACHE_DIR"

Watch = Callable[[Reply], None]
"""Gets every reply before the SDK and raises the error it stands for."""

Sign = Callable[[], tuple[str, str]]
"""User name and password of the next request."""

_importing = threading.Lock()


@dataclass(frozen=True, slots=True)
class Clients:
    """The SDK's clients for the hosts of an organization."""

    feeds: Any
    upack: Any
    packaging: Any
    tools: Any


def connect(service: str, sign: Sign, watch: Watch, timeouts: tuple[float, float]) -> Clients:
    """Ask the organization for its hosts and make a client for each.

    `timeouts`: seconds to connect and to read.
    """
    with _importing:
        _import_without_cache()
    from azure.devops.client import Client
    from azure.devops.v7_1.feed.feed_client import FeedClient
    from azure.devops.v7_1.location.location_client import LocationClient
    from azure.devops.v7_1.upack_api.upack_api_client import UPackApiClient
    from azure.devops.v7_1.upack_packaging.upack_packaging_client import UPackPackagingClient

    def client(kind: Any, url: str) -> Any:
        return _client(kind, url, sign, watch, timeouts)

    location = client(LocationClient, service)
    areas = {area.id.lower(): area.location_url for area in location.get_resource_areas() or ()}

    def at(area: str) -> str:
        url = areas.get(area)
        if not url:
            raise Unavailable(
                f"{service} does not name its host for packages (area {area})",
                hint="name an organization of Azure DevOps Services with --feed: only those have "
                "universal packages",
            )
        if not is_safe(url):
            raise Unavailable(f"{service} names a host that is not https: {url}")
        return str(url)

    return Clients(
        feeds=client(FeedClient, at(FEEDS_AREA)),
        upack=client(UPackApiClient, at(UPACK_AREA)),
        packaging=client(UPackPackagingClient, at(UPACK_AREA)),
        # The public SDK has no class for the client tools; its base class can make the call.
        tools=client(Client, at(TOOLS_AREA)),
    )


def forget_locations() -> None:
    """Drop what the SDK remembers of routes: a broken answer would stay for the process."""
    import azure.devops.client as client_module

    client_module.Client._locations_cache.clear()
    client_module.OPTIONS_FILE_CACHE.clear()


def _import_without_cache() -> None:
    """Import the SDK so that it neither reads nor leaves files.

    Importing it makes its cache folder, in the user's home unless a variable says otherwise;
    a throw-away folder serves for that moment, and the cache is kept in memory afterwards.
    """
    if "azure.devops.client" not in sys.modules:
        throw_away = tempfile.TemporaryDirectory(prefix="modelmill-sdk-")
        with throw_away as folder, _variable(_CACHE_VARIABLE, folder):
            importlib.import_module("azure.devops.client")
    import azure.devops.client as client_module

    if not isinstance(client_module.OPTIONS_FILE_CACHE, defaultdict):
        client_module.OPTIONS_FILE_CACHE = defaultdict(dict)


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


class _Signer:
    """The SDK asks this for the credentials of each request, so a new token is used at once."""

    def __init__(self, sign: Sign) -> None:
        self._sign = sign

    def signed_session(self, session: requests.Session) -> requests.Session:
        """Sign with `auth`, which a `.netrc` cannot override and no redirect carries along."""
        session.auth = self._sign()
        return session


def _client(kind: Any, url: str, sign: Sign, watch: Watch, timeouts: tuple[float, float]) -> Any:
    client = kind(url, _Signer(sign))
    config = client.config
    config.connection.timeout = timeouts
    config.redirect_policy.allow = False
    policy = config.retry_policy.policy
    # Changed in place: the session of this thread holds the same object already.
    policy.total, policy.connect, policy.read = 0, 0, False
    policy.status_forcelist = frozenset()
    policy.respect_retry_after_header = False
    config.hooks.append(_hook(watch))
    return client


def _hook(watch: Watch) -> Callable[..., None]:
    def on_response(response: requests.Response, *_args: Any, **_kwargs: Any) -> None:
        request = response.request
        watch(
            Reply(
                method=request.method or "",
                url=(request.url or "").partition("?")[0],
                status=response.status_code,
                headers=response.headers,
                # Reading it all here shows a body that was cut short before anyone uses it.
                body=response.content,
            )
        )

    return on_response
