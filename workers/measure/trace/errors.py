"""What a profile can be instead of readable."""

from __future__ import annotations


class Unreadable(ValueError):
    """It is damaged, cut off, or does not fit the iterations: status `parse_failed`."""


class NoData(ValueError):
    """It holds nothing about operators: status `no_data`."""
