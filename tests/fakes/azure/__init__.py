"""A local stand-in of Azure Artifacts: a real HTTP server, and an executable for ArtifactTool.

The real SDK talks to it over loopback; one port plays all hosts (`/ORG`, `/feeds/ORG`,
`/pkgs/ORG`, `/vsblob/ORG`, and `/signed` for addresses that carry their own proof).

Facts (documented, read in published sources, or captured from the real service and tool):
- discovery: ResourceAreas on the organization, OPTIONS on each host, their ids and templates;
- names are unique per protocol, `packageNameQuery` finds parts of names, a page ends at 1,000
  packages without a mark, `$top`/`$skip`, `includeDeleted`;
- the versions of a package are asked for by GUID on the feeds host (live and deleted ones) and
  by name on the packages host;
- a version is never reusable, not even when it was deleted; views only grow;
- error bodies (WrappedException), their type keys and texts; 203 with a sign-in page and 302;
  throttling as 429, as 500 with the text of throttling, and as Retry-After on a good reply;
- client tools: the lookup's path, query, answer and 404; a zip without modes; the signed address
  must be fetched without credentials (here: it is refused with them);
- the tool's arguments, token variable, JSON log lines, progress events, result on stdout, exit
  codes 17, 19 and 20, the look before the upload, one registration PUT (204, 409), `packageSize`
  as the sum of all files and the manifest, `.artifactignore`, `.git` left out, no empty folders.

Guesses (nobody has published them; the code under test must not depend on them):
- by-name listing shows live versions only and answers 404 for an unknown package;
- the feeds host lags behind the packages host (here: until `settle()`, where a test asks for it);
- `feedRole` lists the feeds in which the caller has at least that role;
- the exit code and channel of a missing permission, a deleted version and a missing package;
- promoting twice is harmless; how the service words an unknown view;
- the upload protocol: here every file and the manifest is one blob, stored whole.
"""
