"""What OPTIONS answers on each host: the ids and templates that the SDK looks for."""

from __future__ import annotations

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
