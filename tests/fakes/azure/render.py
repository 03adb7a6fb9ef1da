"""How the service writes its records as JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tests.fakes.azure.model import EPOCH, Feed, Package, Version


def feed_json(feed: Feed) -> dict[str, Any]:
    """A feed."""
    project = {"project": {"id": feed.id[::-1], "name": feed.project}} if feed.project else {}
    return {"id": feed.id, "name": feed.name, "isReadOnly": feed.read_only, **project}


def view_json(view: str) -> dict[str, Any]:
    """A view."""
    return {"id": f"id-{view}", "name": view, "type": "implicit" if view == "Local" else "release"}


def package_json(package: Package) -> dict[str, Any]:
    """A package of a listing."""
    return {
        "id": package.id,
        "normalizedName": package.name,
        "name": package.name,
        "protocolType": package.protocol,
        "versions": [],
    }


def version_json(version: Version) -> dict[str, Any]:
    """A version of a listing."""
    gone = (
        {"isDeleted": True, "deletedDate": iso_date(version.deleted)}
        if version.deleted and version.indexed
        else {}
    )
    return {
        "id": version.id,
        "version": version.version,
        "normalizedVersion": version.version,
        "isLatest": False,
        "isListed": True,
        "publishDate": iso_date(version.published),
        "views": [view_json(view) for view in ["Local", *version.views]],
        "description": version.description,
        "author": "6d1c",
        "storageId": version.manifest_id,
        "protocolMetadata": {"schemaVersion": 1, "data": {}},
        **gone,
    }


def iso_date(moment: datetime | None) -> str:
    """Seven digits after the dot, as the service writes them."""
    return (moment or EPOCH).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + "7Z"
