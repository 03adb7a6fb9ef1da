"""The state of the stand-in: feeds, packages, versions, blobs, and who may do what."""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

EPOCH = datetime(2026, 6, 9, 12, 0, 0, 123456, tzinfo=UTC)
ROLES = ("reader", "contributor", "administrator")


@dataclass
class Version:
    """One version of a package."""

    version: str
    description: str
    manifest_id: str
    size: int
    published: datetime
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    deleted: datetime | None = None
    views: list[str] = field(default_factory=list)
    indexed: bool = True
    """Whether the feeds host knows it, and, if it was deleted, that it was."""


@dataclass
class Package:
    """A package of one protocol; names are unique within it."""

    name: str
    protocol: str = "UPack"
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    versions: dict[str, Version] = field(default_factory=dict)


@dataclass
class Feed:
    """A feed of a project, or of the organization."""

    name: str
    project: str | None
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    read_only: bool = False
    views: list[str] = field(default_factory=lambda: ["Local", "Prerelease", "Release"])
    packages: dict[tuple[str, str], Package] = field(default_factory=dict)

    def upack(self, name: str) -> Package | None:
        """A universal package by name."""
        return self.packages.get(("upack", name))

    def add(self, package: Package) -> Package:
        """Keep a package under its protocol and name."""
        return self.packages.setdefault((package.protocol.lower(), package.name), package)


class Problem(Exception):
    """An error the service answers with."""

    def __init__(self, status: int, key: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = {
            "$id": "1",
            "innerException": None,
            "message": message,
            "typeName": f"Microsoft.VisualStudio.Services.{key}, Microsoft.VisualStudio",
            "typeKey": key,
            "errorCode": 0,
            "eventId": 3000,
        }


class Organization:
    """All feeds of one organization, its blobs and its tokens."""

    def __init__(self, name: str = "acme") -> None:
        self.name = name
        self.feeds: list[Feed] = []
        self.blobs: dict[str, bytes] = {}
        self.tokens: dict[str, str] = {"good-token": "contributor"}
        self.lagging = False
        self.listed_by_name: int | None = None
        self.purged: set[tuple[str, str, str]] = set()
        self.registrations: list[tuple[str, str]] = []

    def feed(self, project: str | None, name: str) -> Feed:
        """A feed by scope and name or id, without regard to case."""
        for feed in self.feeds:
            same_scope = (feed.project or "").lower() == (project or "").lower()
            if same_scope and name.lower() in {feed.name.lower(), feed.id}:
                return feed
        raise Problem(404, "FeedIdNotFoundException", f"The feed with ID '{name}' doesn't exist.")

    def live(self, feed: Feed, name: str, version: str) -> Version:
        """A version that is not deleted."""
        package = feed.upack(name)
        found = package.versions.get(version) if package else None
        if found is None or found.deleted:
            raise absent(feed, name, version)
        return found

    def register(self, feed: Feed, name: str, version: str, body: dict[str, Any]) -> None:
        """The one step that makes a version exist."""
        package = feed.upack(name) or feed.add(Package(name))
        there = package.versions.get(version)
        if (there and there.deleted) or (feed.id, name, version) in self.purged:
            raise Problem(
                409,
                "PackageVersionDeletedException",
                f"The package {name} {version} in {feed.name} has been deleted, "
                "and cannot be republished",
            )
        if there:
            raise Problem(
                409,
                "PackageExistsException",
                f"The feed already contains file '{name}' {version}.",
            )
        manifest = self.blobs[body["manifestId"]]
        items = json.loads(manifest)["items"]
        assert all(item["blob"]["id"] in self.blobs for item in items)
        package.versions[version] = Version(
            version,
            body["description"],
            body["manifestId"],
            sum(item["blob"]["size"] for item in items) + len(manifest),
            EPOCH + timedelta(seconds=len(self.registrations)),
            indexed=not self.lagging,
        )
        self.registrations.append((name, version))

    def seed(self, feed: Feed, name: str, versions: dict[str, str]) -> Package:
        """Versions with descriptions, without content."""
        package = feed.upack(name) or feed.add(Package(name))
        for version, description in versions.items():
            package.versions[version] = Version(version, description, "0" * 64 + "01", 0, EPOCH)
        return package

    def delete(self, feed: Feed, name: str, version: str) -> None:
        """To the recycle bin."""
        found = self.live(feed, name, version)
        found.deleted, found.indexed = EPOCH, not self.lagging

    def purge(self, feed: Feed, name: str, version: str) -> None:
        """Out of the recycle bin: nothing shows the version any more, but it stays taken."""
        package = feed.upack(name)
        assert package is not None
        del package.versions[version]
        self.purged.add((feed.id, name, version))

    def settle(self) -> None:
        """The index of the feeds host catches up."""
        for feed in self.feeds:
            for package in feed.packages.values():
                for version in package.versions.values():
                    version.indexed = True

    def allows(self, token: str | None, role: str) -> bool:
        """Whether a token stands for at least this role."""
        held = self.tokens.get(token or "")
        return held in ROLES and ROLES.index(held) >= ROLES.index(role)


def absent(feed: Feed, name: str, version: str) -> Problem:
    """The answer for a version that is not there."""
    return Problem(
        404,
        "PackageNotFoundException",
        f"Cannot find the package '{name}' with version '{version}' in feed '{feed.name}'",
    )


def blob_id(content: bytes) -> str:
    """The id of a blob that is one chunk."""
    return hashlib.sha512(content).hexdigest()[:64].upper() + "01"
