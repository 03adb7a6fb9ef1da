"""Values as TOML, as far as catalogs, findings and champions have them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def as_toml(name: str, table: Mapping[str, Any]) -> str:
    """One entry of an array of tables; tables in it are inline."""
    lines = [f"[[{name}]]", *(f"{key_text(key)} = {value_text(one)}" for key, one in table.items())]
    return "\n".join(lines) + "\n"


def value_text(value: Any) -> str:
    """A text, number, truth value, list or table."""
    if isinstance(value, Mapping):
        inside = ", ".join(f"{key_text(key)} = {value_text(one)}" for key, one in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(value_text, value))}]"
    # TOML writes texts, numbers and truth values as JSON does, but for one control character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def key_text(name: str) -> str:
    """A key, quoted where it has to be."""
    plain = name.replace("_", "").replace("-", "")
    return name if plain.isascii() and plain.isalnum() else value_text(name)
