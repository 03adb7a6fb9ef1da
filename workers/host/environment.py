"""The environment of a child: quiet, deterministic, and without the sweep's credentials."""

from __future__ import annotations

from collections.abc import Mapping

from matrix.credentials import without_credentials

NEEDED_CREDENTIAL = "HF_TOKEN"
"""Gated models need it; it is masked in everything the child leaves behind."""

OTHER_INTERPRETER = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")
"""Variables that would lead another interpreter to our packages."""

SETTINGS = {
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "DO_NOT_TRACK": "1",
    "DISABLE_TELEMETRY": "1",
    "ORT_DISABLE_TELEMETRY": "1",  # read when ONNX Runtime is imported
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONHASHSEED": "0",  # the order of a set must not change a byte of an artifact
    "PYTHONUTF8": "1",
    "NO_COLOR": "1",
    "TERM": "dumb",
}

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def child_environment(
    parent: Mapping[str, str], extra: Mapping[str, str], *, foreign: bool, threads: int = 0
) -> dict[str, str]:
    """The allowed part of `parent`, then our settings, then `extra`; later ones win."""
    passed = without_credentials(parent, lambda name: name == NEEDED_CREDENTIAL)
    if foreign:
        passed = {name: text for name, text in passed.items() if name not in OTHER_INTERPRETER}
    limits = dict.fromkeys(THREADS, str(threads)) if threads else {}
    return {**passed, **SETTINGS, **limits, **extra}


def mask(text: str, secret: str | None) -> str:
    """`text` with the secret masked, unless that is too short to be one."""
    return text.replace(secret, "*" * len(secret)) if secret and len(secret) >= 8 else text
