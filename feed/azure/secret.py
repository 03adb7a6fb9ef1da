"""Secrets: values that cannot be printed by accident, and their removal from foreign text."""

from __future__ import annotations

import base64
from collections.abc import Iterable


class Secret:
    """A token. Only `reveal` shows it; repr, str, format and pickle do not."""

    __slots__ = ("__value",)

    def __init__(self, value: str) -> None:
        self.__value = value

    def reveal(self) -> str:
        """The value itself, for the one place that must send it."""
        return self.__value

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __reduce__(self) -> str:
        raise TypeError("a secret is not pickled")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other.reveal() == self.__value

    def __hash__(self) -> int:
        return hash(self.__value)


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
