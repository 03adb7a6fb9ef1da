"""The flows of a fleet under a name that a Prefect worker finds safely on every machine."""

from __future__ import annotations

from flows.fleet.entrypoints import parent, slot
from machine.secrets import hide_credentials

__all__ = ["parent", "slot"]

hide_credentials()  # Prefect starts this process, not `modelmill`
