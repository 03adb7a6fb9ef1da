"""Names that users may write and tools silently ignore when they are misspelt, so we check them.

All of them are data (`data/names.json`). The short names of passes are those that hypotheses and
findings use.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

_NAMES = json.loads((Path(__file__).parent / "data" / "names.json").read_text(encoding="ascii"))

OPERATORS = (*_NAMES["operators"]["standard"], *_NAMES["operators"]["fused"])
"""Those of the ONNX standard, and those that ONNX Runtime makes of them when it fuses."""
BASIC_PASSES = tuple(_NAMES["passes"]["basic"])
EXTENDED_PASSES = tuple(_NAMES["passes"]["extended"])
"""Of ONNX Runtime."""
FLAGS = tuple(_NAMES["winml_flags"])
"""The switches of winml-cli's optimizer."""
CANDIDATES: Mapping[str, str] = {name: one["what"] for name, one in _NAMES["fusions"].items()}
"""Places of a graph that a pass could rewrite, by its short name (`workers.measure.insight`)."""
CONCERNS: Mapping[str, tuple[str, ...]] = {
    name: tuple(one["operators"]) for name, one in _NAMES["fusions"].items() if "operators" in one
}
"""The operators in whose time a pass could save something."""
SESSION_OPTIONS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    provider: {name: tuple(values) for name, values in options.items()}
    for provider, options in _NAMES["session_options"].items()
}
"""The options of each provider with their values; no values: a whole number."""
PROVIDER_OPTIONS: Mapping[str, tuple[str, ...]] = {
    provider: tuple(names) for provider, names in _NAMES["provider_options"].items()
}
"""What the providers whose options are known take when they compile."""

_LEVEL = re.compile(r"L[12]$")
_WORDS = re.compile(r"[A-Z]+(?=[A-Z][a-z]|$|_)|[A-Z]?[a-z]+|[A-Z]+|\d+")


def pass_name(name: str) -> str:
    """A pass by its short name: `GeluFusionL2` and `gelu_fusion` are both `gelu`."""
    text = name
    if name[:1].isupper():
        plain = _LEVEL.sub("", name).replace("MatMul", "Matmul")
        text = "_".join(_WORDS.findall(plain)).casefold()
    return text.removesuffix("_fusion").removesuffix("_transformer")
