"""The page about Azure says what the code does."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from feed.azure.address import parse
from feed.azure.credentials import PAT_VARIABLE
from feed.azure.options import OVERRIDE_VARIABLE, Options
from feed.rules import STRICTEST

PAGE = (Path(__file__).parents[4] / "docs" / "azure.md").read_text("utf-8")


def test_every_setting_is_described_with_its_default() -> None:
    for field in fields(Options):
        name = "TOOL" if field.name == "tool_folder" else field.name.upper()
        row = next(line for line in PAGE.splitlines() if f"`MODELMILL_AZURE_{name}`" in line)
        if isinstance(field.default, float):
            assert f"| {field.default:g} |" in row
    assert PAT_VARIABLE in PAGE
    assert OVERRIDE_VARIABLE in PAGE
    assert f"{STRICTEST.versions:,} versions" in PAGE


def test_the_addresses_on_the_page_are_read() -> None:
    shown = {word.strip("`") for word in PAGE.split() if word.strip("`").startswith("azure:http")}
    assert len(shown) == 4
    for address in shown:
        assert parse(address).feed == "FEED"
