"""Azure Artifacts: universal packages through the official SDK and Microsoft's ArtifactTool.

    feed        the `Feed` of this package
     |- listing, contents   what the feed holds
     |- service   calls to the organization: repeated if safe, with typed errors
     |   |- sdk      the SDK, imported late
     |   |- wire     what a reply means
     |- artifacttool  one run of the tool
         |- tool_cache  where the tool comes from
         |- child       a process, its pipes, its deadline, its end
         |- failures    what its log and its end mean

The service lists names, versions and descriptions, but no files (see `contents`). The SDK is
imported by the first call, not with this package.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from feed.interface import Feed


def open_azure(url: str, *, environ: Mapping[str, str] | None = None) -> Feed:
    """The feed at `https://dev.azure.com/ORG/PROJECT/FEED`; no request is made yet."""
    from feed.azure.address import parse
    from feed.azure.credentials import from_environment
    from feed.azure.feed import AzureFeed
    from feed.azure.options import Options

    environ = os.environ if environ is None else environ
    options = Options.from_environment(environ)
    return AzureFeed(parse(url), from_environment(environ), options, environ)
