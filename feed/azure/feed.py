"""The feed on Azure Artifacts: the SDK looks, ArtifactTool moves bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from feed import errors
from feed.azure.address import Address
from feed.azure.artifacttool import ArtifactTool
from feed.azure.child import RunLimits
from feed.azure.contents import Contents, check_tree
from feed.azure.credentials import Credentials
from feed.azure.listing import AT_ONCE, Listing
from feed.azure.options import Options
from feed.azure.service import Service
from feed.azure.staging import Stage, work_folder
from feed.azure.tool_cache import ToolCache
from feed.checked import refuse_unsafe
from feed.interface import LocalFile, Progress, Published
from feed.rules import STRICTEST, check_publish, headroom_problems, matching
from machine.files import unlink
from matrix.credentials import without_credentials
from matrix.digest import FileEntry
from matrix.errors import UsageError, in_lines

_WRITERS = ("contributor", "administrator")
_WORST = (errors.Unauthorized, errors.Unavailable)
"""The error for several problems has the first of these classes that one of them has."""


class AzureFeed(Listing):
    """A feed of universal packages: its listing and its bytes. Safe to use from several threads."""

    limits = STRICTEST
    """The documented limits of universal packages."""
    is_new = False
    """Only an administrator makes a feed."""

    def __init__(
        self,
        address: Address,
        credentials: Credentials,
        options: Options,
        environ: Mapping[str, str],
        *,
        service: Service | None = None,
    ) -> None:
        service = service or Service(address, credentials, options)
        super().__init__(service)
        self.name = address.name
        self._work = options.work
        limits = RunLimits(options.idle_timeout, options.total_timeout)
        tool_cache = ToolCache(service, options)
        environ = without_credentials(environ)
        self._tool = ArtifactTool(tool_cache.executable, address, credentials, limits, environ)
        self._contents = Contents(service, self, self._tool, options.work)

    def check(self) -> None:
        """Everything that needs no plan."""
        self.preflight()

    def preflight(self, plan: Sequence[tuple[str, str]] = ()) -> None:
        """Check credentials, feed, role, tool, names, versions and headroom, all at once."""
        problems: list[errors.FeedError] = []
        if _gather(problems, self._check_feed):
            _gather(problems, lambda: self._check_headroom(plan))
        _gather(problems, self._check_tool)
        if len(problems) == 1:
            raise problems[0]
        if problems:
            kind = next((k for k in _WORST if any(isinstance(p, k) for p in problems)), None)
            title = f"{self.name}: {len(problems)} problems:"
            raise (kind or type(problems[0]))(in_lines(title, problems))

    def _check_feed(self) -> None:
        """Refuse a feed that is read-only, and a role that the service clearly names as reader."""
        read = self._service.read
        feed = read(lambda clients: clients.feeds.get_feed(self._feed, self._project))
        if feed.is_read_only:
            raise errors.Rejected(f"{self.name} is read-only")

        def has_role(role: str) -> bool:
            feeds = read(
                lambda clients: clients.feeds.get_feeds(
                    self._project, feed_role=role, include_urls=False
                )
            )
            return any(entry.id == feed.id for entry in feeds or ())

        if not any(map(has_role, _WRITERS)) and has_role("reader"):
            raise errors.Unauthorized(
                f"{self._service.credentials.identity} may read {self.name}, but not publish to it",
                hint="ask an owner of the feed to give it the role Feed Publisher (Contributor)",
            )

    def _check_headroom(self, plan: Sequence[tuple[str, str]]) -> None:
        wanted = sorted({package for package, _ in plan})
        with ThreadPoolExecutor(AT_ONCE, "azure-preflight") as pool:
            taken = dict(zip(wanted, pool.map(self.taken, wanted), strict=True))
        full = headroom_problems(STRICTEST, plan, taken.__getitem__)
        if full:
            raise errors.Rejected("; ".join(full))

    def _check_tool(self) -> None:
        with work_folder(self._work) as folder:
            self._tool.check(folder)

    def publish(
        self,
        package: str,
        version: str,
        files: Sequence[LocalFile],
        description: str,
        *,
        timeout: float | None = None,
        progress: Progress | None = None,
    ) -> Published:
        """Lay the files out, check them, and let the tool publish them as one version."""
        entries = [file.entry for file in files]
        check_publish(self.limits, package, version, entries)
        with work_folder(self._work) as folder:
            stage = Stage(folder / "package", files)
            stage.fill()
            manifest_id = self._tool.publish(
                package, version, stage.root, description, timeout=timeout, progress=progress
            )
            stage.check_untouched()
        self._contents.sent(manifest_id, entries)
        return Published(package, version, description)

    def files(self, package: str, version: str) -> tuple[FileEntry, ...]:
        """What the feed holds for a version, proven (see `feed.azure.contents`)."""
        return self._contents.files(package, version)

    def fetch(
        self,
        package: str,
        version: str,
        dest: Path,
        patterns: Sequence[str] = ("*",),
        *,
        progress: Progress | None = None,
    ) -> tuple[FileEntry, ...]:
        """Download matching files, and check each."""
        there = self.live(package, version)
        entries = self.files(package, version)
        check_tree(package, version, there.description, entries)
        chosen = matching(entries, patterns)
        if not chosen:
            return ()
        wanted = () if len(chosen) == len(entries) else [entry.path for entry in chosen]
        refuse_unsafe(chosen)
        with errors.local_errors(dest):
            dest.mkdir(parents=True, exist_ok=True)
            if any(dest.iterdir()):
                raise UsageError(f"{dest} is not empty")
        got = self._contents.download(package, version, dest, wanted, progress=progress)
        came = {entry.path: entry for entry in got}
        for entry in chosen:
            if (found := came.pop(entry.path, None)) != entry:
                what = "was downloaded with other content" if found else "was not downloaded"
                raise errors.Corrupt(
                    f"{package} {version}: {entry.path} {what}", hint=errors.PULL_AGAIN
                )
        for path in came:  # the tool may not take a filter literally
            unlink(dest / path)
        return chosen


def _gather(problems: list[errors.FeedError], check: Callable[[], None]) -> bool:
    """Run one check and keep what it finds."""
    try:
        check()
    except errors.FeedError as problem:
        # Credentials that do not work fail every check in the same words.
        if str(problem) not in map(str, problems):
            problems.append(problem)
        return False
    return True
