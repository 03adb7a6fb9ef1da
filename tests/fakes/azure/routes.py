"""The routes of the stand-in: path patterns, and the answers of the good service."""

from __future__ import annotations

import json
import re
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.fakes.azure.model import EPOCH, Feed, Organization, Package, Problem, Version, absent
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


class Routes:
    """What the service answers when nothing is wrong."""

    def __init__(self, organization: Organization, releases: Releases) -> None:
        self._org = organization
        self._releases = releases
        self.page = PAGE
        scope, packages = r"(?:/(?P<project>[^/]+))?", r"/upack/packages/(?P<name>[^/]+)/versions"
        table: list[tuple[str, str, str, Callable[[Asked], Answer]]] = [
            ("areas", "GET", r"/ORG/_apis/ResourceAreas", self._areas),
            ("connection", "GET", r"/ORG/_apis/connectionData", self._connection),
            ("locations", "OPTIONS", r"/(?P<host>feeds/|pkgs/|vsblob/|)ORG/_apis", self._options),
            ("feeds", "GET", rf"/feeds/ORG{scope}/_apis/Packaging/Feeds", self._feeds),
            (
                "feed",
                "GET",
                rf"/feeds/ORG{scope}/_apis/Packaging/Feeds/(?P<feed>[^/]+)",
                self._feed,
            ),
            (
                "packages",
                "GET",
                rf"/feeds/ORG{scope}/_apis/Packaging/Feeds/(?P<feed>[^/]+)/Packages",
                self._packages,
            ),
            (
                "versions",
                "GET",
                rf"/feeds/ORG{scope}/_apis/Packaging/Feeds/(?P<feed>[^/]+)/Packages/(?P<id>[^/]+)/Versions",
                self._versions,
            ),
            (
                "views",
                "GET",
                rf"/feeds/ORG{scope}/_apis/Packaging/Feeds/(?P<feed>[^/]+)/Views",
                self._views,
            ),
            (
                "version",
                "GET",
                rf"/pkgs/ORG{scope}/_apis/packaging/feeds/(?P<feed>[^/]+){packages}/(?P<version>[^/]+)",
                self._version,
            ),
            (
                "promote",
                "PATCH",
                rf"/pkgs/ORG{scope}/_apis/packaging/feeds/(?P<feed>[^/]+){packages}/(?P<version>[^/]+)",
                self._promote,
            ),
            (
                "names",
                "GET",
                rf"/pkgs/ORG{scope}/_packaging/(?P<feed>[^/]+){packages}",
                self._names,
            ),
            (
                "metadata",
                "GET",
                rf"/pkgs/ORG{scope}/_packaging/(?P<feed>[^/]+){packages}/(?P<version>[^/]+)",
                self._metadata,
            ),
            (
                "register",
                "PUT",
                rf"/pkgs/ORG{scope}/_packaging/(?P<feed>[^/]+){packages}/(?P<version>[^/]+)",
                self._register,
            ),
            ("blob-put", "PUT", r"/vsblob/ORG/blobs/(?P<id>\w+)", self._put_blob),
            ("blob-get", "GET", r"/vsblob/ORG/blobs/(?P<id>\w+)", self._get_blob),
            (
                "release",
                "GET",
                r"/vsblob/ORG/_apis/clienttools/ArtifactTool/release",
                self._release,
            ),
            ("archive", "GET", r"/signed/(?P<version>[^/]+)\.zip", self._archive),
        ]
        self._table = [
            (name, method, re.compile(pattern.replace("ORG", organization.name)), handler)
            for name, method, pattern, handler in table
        ]

    def find(self, asked: Asked) -> tuple[str, Mapping[str, str], Callable[[Asked], Answer]]:
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
        return Answer.collection([_feed_json(feed) for feed in scoped])

    def _feed(self, asked: Asked) -> Answer:
        return Answer.of(_feed_json(self._feed_of(asked)))

    def _views(self, asked: Asked) -> Answer:
        views = self._feed_of(asked).views
        return Answer.collection([_view_json(view) for view in views])

    def _packages(self, asked: Asked) -> Answer:
        feed, query = self._feed_of(asked), asked.query
        protocol = query.get("protocolType", "").lower()
        part = query.get("packageNameQuery", "").lower()
        deleted = query.get("includeDeleted", "").lower() == "true"
        found = [
            package
            for (kind, name), package in sorted(feed.packages.items())
            if (not protocol or kind == protocol)
            and part in name
            and any(v.indexed and (deleted or not v.deleted) for v in package.versions.values())
        ]
        skip, top = int(query.get("$skip", 0)), min(int(query.get("$top", PAGE)), self.page)
        return Answer.collection([_package_json(package) for package in found[skip : skip + top]])

    def _versions(self, asked: Asked) -> Answer:
        feed = self._feed_of(asked)
        for package in feed.packages.values():
            if package.id == asked.part["id"]:
                versions = [v for v in package.versions.values() if v.indexed]
                return Answer.collection([_version_json(version) for version in versions])
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
        gone = {"deletedDate": _date(found.deleted)} if found.deleted else {}
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


def _feed_json(feed: Feed) -> dict[str, Any]:
    project = {"project": {"id": feed.id[::-1], "name": feed.project}} if feed.project else {}
    return {"id": feed.id, "name": feed.name, "isReadOnly": feed.read_only, **project}


def _view_json(view: str) -> dict[str, Any]:
    return {"id": f"id-{view}", "name": view, "type": "implicit" if view == "Local" else "release"}


def _package_json(package: Package) -> dict[str, Any]:
    return {
        "id": package.id,
        "normalizedName": package.name,
        "name": package.name,
        "protocolType": package.protocol,
        "versions": [],
    }


def _version_json(version: Version) -> dict[str, Any]:
    gone = {"isDeleted": True, "deletedDate": _date(version.deleted)} if version.deleted else {}
    return {
        "id": version.id,
        "version": version.version,
        "normalizedVersion": version.version,
        "isLatest": False,
        "isListed": True,
        "publishDate": _date(version.published),
        "views": [_view_json(view) for view in ["Local", *version.views]],
        "description": version.description,
        "author": "6d1c",
        "storageId": version.manifest_id,
        "protocolMetadata": {"schemaVersion": 1, "data": {}},
        **gone,
    }


def _date(moment: datetime | None) -> str:
    """Seven digits after the dot, as the service writes them."""
    return (moment or EPOCH).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + "7Z"


_FEED = "{project}/_apis/{area}/Feeds/{feedId}"
_UPACK = "{project}/_apis/packaging/feeds/{feedId}/{area}/packages/{packageName}"
LOCATIONS = {
    "": [
        ("e81700f7-3be2-46de-8624-2eb35882fcaa", "Location", "ResourceAreas", "_apis/{resource}"),
        ("00d9565f-ed9c-4a06-9a50-00e7896ccab4", "Location", "connectionData", "_apis/{resource}"),
    ],
    "feeds/": [
        (
            "c65009a7-474a-4ad1-8b42-7d852107ef8c",
            "Packaging",
            "Feeds",
            "{project}/_apis/{area}/{resource}/{feedId}",
        ),
        (
            "7a20d846-c929-4acc-9ea2-0d5a7df1b197",
            "Packaging",
            "Packages",
            f"{_FEED}/{{resource}}/{{packageId}}",
        ),
        (
            "3b331909-6a86-44cc-b9ec-c1834c35498f",
            "Packaging",
            "Versions",
            f"{_FEED}/Packages/{{packageId}}/{{resource}}/{{packageVersionId}}",
        ),
        (
            "42a8502a-6785-41bc-8c16-89477d930877",
            "Packaging",
            "Views",
            f"{_FEED}/{{resource}}/{{viewId}}",
        ),
    ],
    "pkgs/": [
        (
            "72f61ca4-e07c-4eca-be75-6c0b2f3f4051",
            "upack",
            "versions",
            f"{_UPACK}/versions/{{packageVersion}}",
        ),
        (
            "4cdb2ced-0758-4651-8032-010f070dd7e5",
            "upack",
            "packages",
            "{project}/_packaging/{feedId}/{area}/{resource}/{packageName}/versions/{packageVersion}",
        ),
    ],
    "vsblob/": [
        (
            "187ec90d-dd1e-4ec6-8c57-937d979261e5",
            "clienttools",
            "release",
            "_apis/{area}/{toolName}/{resource}",
        ),
    ],
}
