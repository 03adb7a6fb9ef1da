"""Whether the Hugging Face hub is reachable: decided once per host process, part of the key.

winml-cli calibrates with a dataset of the hub and falls back to random samples when it cannot get
it: a model quantized offline has other bytes than one quantized online. Which of the two applies is
therefore a parameter of the stage.
"""

from __future__ import annotations

import os
import socket
import urllib.request
from collections.abc import Mapping
from functools import cache
from urllib.parse import urlsplit

HUB = "hub"
LOCAL = "local"
OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")
CONNECT_TIMEOUT = 3.0
"""Seconds for one connection, spent at most once per host process."""

_TRUE = {"1", "on", "yes", "true"}


@cache
def calibration() -> str:
    """HUB if datasets can be fetched, else LOCAL, which also sets the libraries offline."""
    if asked_offline(os.environ) or not reachable():
        os.environ.update(dict.fromkeys(OFFLINE, "1"))
        return LOCAL
    return HUB


def asked_offline(env: Mapping[str, str]) -> bool:
    """Whether the user has switched the hub off."""
    return any(env.get(name, "").strip().lower() in _TRUE for name in OFFLINE)


def reachable() -> bool:
    """Whether the hub, or the proxy in front of it, accepts a connection."""
    endpoint = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    host = endpoint.hostname or ""
    proxy = urllib.request.getproxies().get(endpoint.scheme)
    if proxy and not urllib.request.proxy_bypass(host):
        endpoint = urlsplit(proxy if "//" in proxy else f"//{proxy}")
        host = endpoint.hostname or ""
    port = endpoint.port or (80 if endpoint.scheme == "http" else 443)
    try:
        with socket.create_connection((host, port), timeout=CONNECT_TIMEOUT):
            return True
    except OSError:
        return False
