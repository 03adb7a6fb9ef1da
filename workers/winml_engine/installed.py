"""What the engine finds around it: an installed winml-cli, and whether the hub can be reached.

winml-cli is read without importing it. It calibrates with a dataset of the Hugging Face hub and
falls back to random samples when it cannot get it: a model quantized offline has other bytes than
one quantized online. Which of the two applies is decided once per process and part of the key.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import urllib.request
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from workers.engine import version
from workers.sources import runtime
from workers.sources.errors import unsupported
from workers.winml_engine.patches import VERSION

PYTHON = (3, 11)
"""winml-cli 0.4.0 says `>=3.11,<3.12`."""

REPAIR = "modelmill engine install winml; modelmill doctor says more"
PROVIDERS = "winml/modelkit/analyze/utils/avalizble_ep_device_ops/avaliable_providers.json"
COMPATIBILITY = "winml/modelkit/export/compatibility_rules.json"
PATTERNS = "winml/modelkit/pattern/rules/{}.json"
VENDORS = {
    "QNNExecutionProvider": "qnn",
    "OpenVINOExecutionProvider": "openvino",
    "VitisAIExecutionProvider": "quark",
    "MIGraphXExecutionProvider": "quark",
    "NvTensorRTRTXExecutionProvider": "nvidia",
    "CUDAExecutionProvider": "nvidia",
    "CPUExecutionProvider": "microsoft",
    "DmlExecutionProvider": "microsoft",
}
"""The vendor whose pattern rules winml-cli adds for an EP, where it ships such a file."""
HUB = "hub"
LOCAL = "local"
OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")
CONNECT_TIMEOUT = 3.0
"""Seconds for one connection, spent at most once per host process."""

_TRUE = {"1", "on", "yes", "true"}


def check() -> None:
    """Raise unless this is the Python and the winml-cli that the engine supports."""
    if sys.version_info[:2] != PYTHON:
        found = ".".join(map(str, sys.version_info[:3]))
        wanted = ".".join(map(str, PYTHON))
        raise unsupported(f"winml-cli needs Python {wanted}, not {found}", REPAIR)
    installed = version("winml-cli")
    if not installed:
        raise unsupported(f"winml-cli is not installed for {sys.executable}", REPAIR)
    if installed != VERSION:
        raise unsupported(f"this engine drives winml-cli {VERSION}, not {installed}", REPAIR)
    if not runtime.installed():
        raise unsupported("winml-cli's environment lacks onnxruntime", REPAIR)


@cache
def rule_data(provider: str, device: str) -> str | None:
    """The name of the rule data that winml-cli's analyzer has for a target; None: it has none.

    Without rule data the analysis depends on the graph alone, so all such targets get the same
    model.
    """
    devices = _data(PROVIDERS).get(provider, {}).get("devices", {})
    looked_up = bool(devices.get(device.upper(), {}).get("valid"))
    vendor = VENDORS.get(provider)
    patterns = vendor is not None and _file(PATTERNS.format(vendor)).exists()
    return f"{provider}_{device.upper()}" if looked_up or patterns else None


@cache
def compatibility(provider: str, device: str) -> dict[str, Any]:
    """The settings of winml-cli's export for a target; equal settings share an export."""
    merged: dict[str, Any] = {}
    for rule in _data(COMPATIBILITY)["rules"]:
        match = rule["match"]
        if match["ep"] not in (None, provider) or match["device"] not in (None, device):
            continue
        merged.update({key: value for key, value in rule["export"].items() if value is not None})
    return merged


@cache
def _data(path: str) -> Any:
    file = _file(path)
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise unsupported(f"winml-cli is damaged: {file.name} cannot be read", REPAIR) from error


def _file(path: str) -> Path:
    return Path(str(metadata.distribution("winml-cli").locate_file(path)))


@cache
def calibration() -> str:
    """HUB if datasets can be fetched, else LOCAL, which also sets the libraries offline."""
    asked = any(os.environ.get(name, "").strip().lower() in _TRUE for name in OFFLINE)
    if asked or not reachable():
        os.environ.update(dict.fromkeys(OFFLINE, "1"))
        return LOCAL
    return HUB


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
