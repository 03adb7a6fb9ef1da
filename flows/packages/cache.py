"""Opens the cache of stage results that the settings name."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from flows.packages.signing import signature_check, signer_of
from flows.settings.settings import Settings
from machine.waits import Told
from matrix.digest import STAGE_TYPE
from matrix.errors import UsageError
from workers.store import Store
from workers.store.cache import Cache, Place
from workers.store.cache_folder import FolderPlace
from workers.store.cache_http import HttpPlace

_USER, _PASSWORD, _TOKEN = (f"MODELMILL_CACHE_{name}" for name in ("USER", "PASSWORD", "TOKEN"))
"""Variables with the credentials. They are never flags and never recorded."""
_HERE = frozenset({"localhost", "127.0.0.1", "::1"})
WINDOWS = os.name == "nt"
_DRIVE = re.compile(r"/[A-Za-z]:")


def open_cache(settings: Settings, store: Store, told: Told) -> Cache | None:
    """The cache, which nothing is asked of yet; None: the settings name none. Machines that sign
    packages sign results too, and take no others: these become part of what they sign."""
    place = place_of(settings, os.environ)
    if place is None:
        return None
    return Cache(
        place,
        store,
        writes=not settings.cache_read_only,
        sign=signer_of(settings, STAGE_TYPE),
        check=signature_check(settings, signs=True, payload_type=STAGE_TYPE),
        told=told,
    )


def place_of(settings: Settings, environ: Mapping[str, str]) -> Place | None:
    """Where the cache is, which is asked nothing. Raises `UsageError`."""
    where = settings.cache
    if not where:
        return None
    url = urlsplit(where)
    if url.scheme == "file":
        path = unquote(url.path)
        return FolderPlace(Path(path[1:] if WINDOWS and _DRIVE.match(path) else path))
    if url.scheme not in {"http", "https"}:
        return FolderPlace(settings.path(where))
    headers = _credentials(environ)
    if headers and url.scheme == "http" and url.hostname not in _HERE:
        hint = f"use https, or unset {_PASSWORD} and {_TOKEN}"
        raise UsageError(f"the cache {where} would get credentials in plain text", hint=hint)
    return HttpPlace(where, headers)


def _credentials(environ: Mapping[str, str]) -> dict[str, str]:
    """The header of a request."""
    user, password = environ.get(_USER, ""), environ.get(_PASSWORD, "")
    token = environ.get(_TOKEN, "")
    if token:
        if not token.isprintable() or not token.isascii():
            raise UsageError(f"{_TOKEN} holds signs that no token has")
        return {"Authorization": f"Bearer {token}"}
    if not password:
        return {}
    if not user or ":" in user:
        raise UsageError(f"{_PASSWORD} is set without a user", hint=f"set {_USER}")
    pair = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}
