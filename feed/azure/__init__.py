"""Azure Artifacts: universal packages through the official SDK and Microsoft's ArtifactTool.

    feed        the `Feed` of this package
     |- preflight, promotion, listing, contents   what it does, one noun each
     |- service   calls to the organization: repeated where safe, every error typed
     |   |- sdk      the SDK, imported late and tamed
     |   |- wire     what a reply means          - pace   slowing down when asked
     |- artifacttool  one run of the tool
         |- toolbox   where the tool comes from (archive, platforms)
         |- child     a process, its pipes, its deadline, its end
         |- events    its log                    - verdict  what its end means

The service knows names, versions and descriptions at once and by name; file lists it does not
tell (see `contents`). Importing this package does not import the SDK; the first call does.
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
