"""The routes of the stand-in: path patterns, and the answers of the good service."""

from __future__ import annotations

import json
import random
import re
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.azure.locations import LOCATIONS
from tests.fakes.azure.model import Feed, Organization, Problem, absent
from tests.fakes.azure.render import feed_json, iso_date, package_json, version_json, view_json
from tests.fakes.azure.toolkit import Releases

PAGE = 1000


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    query: Mapping[str, str]
    body: bytes
    token: str | None
    base: str
    part: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """One reply."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json; charset=utf-8; api-version=7.1-preview.1"

    @classmethod
    def of(cls, value: Any) -> Answer:
        """JSON."""
        return cls(body=json.dumps(value).encode())

    @classmethod
    def collection(cls, items: list[Any]) -> Answer:
        """The wrapper around every list."""
        return cls.of({"count": len(items), "value": items})


Handler = Callable[[Asked], Answer]


class Routes:
    """What the service answers when nothing is wrong."""

    def __init__(self, organization: Organization, releases: Releases) -> None:
        self._org = organization
        self._releases = releases
        self.page = PAGE
        chance = random.Random(len(organization.name))
        self._order: Callable[[Any], Any] = lambda _package: chance.random()
        """The service promises no order, so every request gets another one."""
        feeds = r"/feeds/ORG(?:/(?P<project>[^/]+))?/_apis/Packaging/Feeds"
        feed = rf"{feeds}/(?P<feed>[^/]+)"
        named = r"/upack/packages/(?P<name>[^/]+)/versions"
        pkgs = r"/pkgs/ORG(?:/(?P<project>[^/]+))?"
        api = rf"{pkgs}/_apis/packaging/feeds/(?P<feed>[^/]+){named}/(?P<version>[^/]+)"
        names = rf"{pkgs}/_packaging/(?P<feed>[^/]+){named}"
        tools = r"/vsblob/ORG/_apis/clienttools/ArtifactTool/release"
        table: list[tuple[str, str, str, Handler]] = [
            ("areas", "GET", r"/ORG/_apis/ResourceAreas", self._areas),
            ("connection", "GET", r"/ORG/_apis/connectionData", self._connection),
            ("locations", "OPTIONS", r"/(?P<host>feeds/|pkgs/|vsblob/|)ORG/_apis", self._options),
            ("feeds", "GET", feeds, self._feeds),
            ("feed", "GET", feed, self._feed),
            ("packages", "GET", rf"{feed}/Packages", self._packages),
            ("versions", "GET", rf"{feed}/Packages/(?P<id>[^/]+)/Versions", self._versions),
            ("views", "GET", rf"{feed}/Views", self._views),
            ("version", "GET", api, self._version),
            ("promote", "PATCH", api, self._promote),
            ("names", "GET", names, self._names),
            ("metadata", "GET", rf"{names}/(?P<version>[^/]+)", self._metadata),
            ("register", "PUT", rf"{names}/(?P<version>[^/]+)", self._register),
            ("blob-put", "PUT", r"/vsblob/ORG/blobs/(?P<id>\w+)", self._put_blob),
            ("blob-get", "GET", r"/vsblob/ORG/blobs/(?P<id>\w+)", self._get_blob),
            ("release", "GET", tools, self._release),
            ("archive", "GET", r"/signed/(?P<version>[^/]+)\.zip", self._archive),
        ]
        self._table = [
            (name, method, re.compile(pattern.replace("ORG", organization.name)), handler)
            for name, method, pattern, handler in table
        ]

    def keep_order(self) -> None:
        """Answer in the order of names, as the service may do for a while."""
        self._order = lambda package: package[0]

    def find(self, asked: Asked) -> tuple[str, Mapping[str, str], Handler]:
        """The route of a request."""
        for name, method, pattern, handler in self._table:
            match = pattern.fullmatch(asked.path)
            if match and method == asked.method:
                parts = {k: urllib.parse.unquote(v) for k, v in match.groupdict().items() if v}
                return name, parts, handler
        return "unknown", {}, _nothing

    # -- the organization

    def _areas(self, asked: Asked) -> Answer:
        hosts = {
            "7ab4e64e-c4d8-4f50-ae73-5ef2e21642a5": ("Packaging", "feeds/"),
            "d397749b-f115-4027-b6dd-77a65dd10d21": ("upack", "pkgs/"),
            "3fda18ba-dff2-42e6-8d10-c521b23b85fc": ("clienttools", "vsblob/"),
        }
        return Answer.collection(
            [
                {"id": key, "name": name, "locationUrl": f"{asked.base}/{host}{self._org.name}/"}
                for key, (name, host) in hosts.items()
            ]
        )

    def _connection(self, _asked: Asked) -> Answer:
        return Answer.of({"authenticatedUser": {"providerDisplayName": "Release Bot"}})

    def _options(self, asked: Asked) -> Answer:
        return Answer.collection(
            [
                {
                    "id": key,
                    "area": area,
                    "resourceName": resource,
                    "routeTemplate": template,
                    "resourceVersion": 1,
                    "minVersion": "1.0",
                    "maxVersion": "7.2",
                    "releasedVersion": "0.0",
                }
                for key, area, resource, template in LOCATIONS[asked.part.get("host", "")]
            ]
        )

    # -- the feeds host

    def _feeds(self, asked: Asked) -> Answer:
        role = asked.query.get("feedRole", "reader")
        project = asked.part.get("project")
        allowed = self._org.allows(asked.token, role)
        scoped = [f for f in self._org.feeds if allowed and (f.project or None) == project]
        return Answer.collection([feed_json(feed) for feed in scoped])

    def _feed(self, asked: Asked) -> Answer:
        return Answer.of(feed_json(self._feed_of(asked)))

    def _views(self, asked: Asked) -> Answer:
        views = self._feed_of(asked).views
        return Answer.collection([view_json(view) for view in views])

    def _packages(self, asked: Asked) -> Answer:
        feed, query = self._feed_of(asked), asked.query
        protocol = query.get("protocolType", "").lower()
        part = query.get("packageNameQuery", "").lower()
        deleted = query.get("includeDeleted", "").lower() == "true"
        found = [
            package
            for (kind, name), package in sorted(feed.packages.items(), key=self._order)
            if (not protocol or kind == protocol)
            and part in name
            and any((deleted if v.deleted else v.indexed) for v in package.versions.values())
        ]
        skip, top = int(query.get("$skip", 0)), min(int(query.get("$top", PAGE)), self.page)
        return Answer.collection([package_json(package) for package in found[skip : skip + top]])

    def _versions(self, asked: Asked) -> Answer:
        feed = self._feed_of(asked)
        for package in feed.packages.values():
            if package.id == asked.part["id"]:
                versions = [v for v in package.versions.values() if v.indexed or v.deleted]
                return Answer.collection([version_json(version) for version in versions])
        raise Problem(
            404,
            "PackageNotFoundException",
            f"The package with ID '{asked.part['id']}' was not found in feed with ID {feed.id}",
        )

    # -- the packages host

    def _version(self, asked: Asked) -> Answer:
        feed, name, version = self._named(asked)
        package = feed.upack(name)
        found = package.versions.get(version) if package else None
        shown = asked.query.get("showDeleted", "").lower() == "true"
        if found is None or (found.deleted and not shown):
            raise absent(feed, name, version)
        gone = {"deletedDate": iso_date(found.deleted)} if found.deleted else {}
        return Answer.of({"id": found.id, "name": name, "version": version, **gone})

    def _promote(self, asked: Asked) -> Answer:
        feed, name, version = self._named(asked)
        self._require(asked, "contributor", "Promote")
        change = json.loads(asked.body)["views"]
        assert (change["op"], change["path"]) == ("add", "/views/-")
        if change["value"] not in feed.views:
            raise Problem(404, "FeedViewNotFoundException", f"No view '{change['value']}'.")
        found = self._org.live(feed, name, version)
        if change["value"] not in found.views:
            found.views.append(change["value"])
        return Answer()

    def _names(self, asked: Asked) -> Answer:
        feed = self._feed_of(asked)
        package = feed.upack(asked.part["name"])
        live = [v for v in package.versions.values() if not v.deleted] if package else []
        if not live:
            raise absent(feed, asked.part["name"], "*")
        shown = live[: self._org.listed_by_name]
        return Answer.collection(
            [{"version": v.version, "description": v.description} for v in shown]
        )

    def _metadata(self, asked: Asked) -> Answer:
        feed, name, version = self._named(asked)
        found = self._org.live(feed, name, version)
        return Answer.of(
            {
                "version": version,
                "description": found.description,
                "manifestId": found.manifest_id,
                "superRootId": found.manifest_id[:-2] + "02",
                "packageSize": found.size,
            }
        )

    def _register(self, asked: Asked) -> Answer:
        feed, name, version = self._named(asked)
        self._require(asked, "contributor", "AddPackage")
        self._org.register(feed, name, version, json.loads(asked.body))
        return Answer(204)

    # -- the blob host and the signed addresses

    def _put_blob(self, asked: Asked) -> Answer:
        self._org.blobs[asked.part["id"]] = asked.body
        return Answer(204)

    def _get_blob(self, asked: Asked) -> Answer:
        blob = self._org.blobs[asked.part["id"]]
        return Answer(body=blob, content_type="application/octet-stream")

    def _release(self, asked: Asked) -> Answer:
        release = self._releases.lookup(asked.query)
        uri = f"{asked.base}/signed/{release}.zip?sv=2026&se=soon&sig=s3cret-signature"
        return Answer.of(
            {"name": "ArtifactTool", "rid": "linux-x64", "version": release, "uri": uri}
        )

    def _archive(self, asked: Asked) -> Answer:
        if asked.token is not None or asked.query.get("sig") != "s3cret-signature":
            return Answer(403, b"<?xml?><Error>AuthenticationFailed</Error>", "application/xml")
        content = self._releases.archives[asked.part["version"]]
        return Answer(body=content, content_type="application/zip")

    def _feed_of(self, asked: Asked) -> Feed:
        return self._org.feed(asked.part.get("project"), asked.part["feed"])

    def _named(self, asked: Asked) -> tuple[Feed, str, str]:
        return self._feed_of(asked), asked.part["name"], asked.part["version"]

    def _require(self, asked: Asked, role: str, permission: str) -> None:
        if not self._org.allows(asked.token, role):
            raise Problem(
                403,
                "FeedNeedsPermissionsException",
                "User '6d1c' lacks permission to complete this action. "
                f"You need to have '{permission}'.",
            )


def _nothing(asked: Asked) -> Answer:
    return Answer(404, b"The resource cannot be found.", "text/html")
