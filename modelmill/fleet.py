"""The flows of a fleet under a name that a Prefect worker finds safely on every machine."""

from __future__ import annotations

from flows.fleet.entrypoints import parent, slot

__all__ = ["parent", "slot"]
