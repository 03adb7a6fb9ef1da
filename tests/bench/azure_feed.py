"""What the Azure feed costs, against the local stand-in of the service.

    python -m tests.bench.azure_feed [PUBLISHES]

Listings: requests and seconds by number of versions. Publishing: a sweep with a fault on every
third publish, from four threads, against bare runs of the tool's stand-in. Prints numbers and
ratios of one run; asserts only what must hold (nothing twice, nothing lost). Times are those of
the stand-in on this machine, not of the real service.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from feed.publisher import Publisher
from matrix.digest import tree_digest
from tests.fakes.azure.faults import Effect, Fault, When
from tests.fakes.azure.harness import AzureHarness, tree

THREADS = 4
NAME = "modelmill-bench"


def listings(harness: AzureHarness) -> None:
    """Requests for one package, whatever it holds."""
    feed = harness.feed()
    list(feed.packages())
    list(feed.versions("nothing"))
    for count in (1, 1000, 5000):
        name = f"listed-{count}"
        description = f"tree=sha256:{'ab' * 32} cell"
        versions = {f"0.0.0-20260609-{number}": description for number in range(count)}
        harness.standin.organization.seed(harness.standin.feed, name, versions)
        harness.standin.forget()
        start = time.perf_counter()
        found = len(list(feed.versions(name)))
        seconds = time.perf_counter() - start
        requests = harness.standin.counts().total()
        assert found == count
        print(f"listing {count:5} versions: {requests} requests, {seconds:.2f} s")


def plan_faults(harness: AzureHarness, count: int) -> None:
    """Every third registration: lost before, lost after, or answered with 503 after it was done."""
    harness.standin.plan(
        Fault("register", effect=Effect.RESET, every=9, times=count),
        Fault("register", effect=Effect.RESET, when=When.AFTER, every=9, times=count, seen=3),
        Fault("register", status=503, when=When.AFTER, every=9, times=count, seen=6),
    )


def publishes(harness: AzureHarness, count: int) -> float:
    """The sweep; seconds of one thread for each version."""
    packages = {f"0.0.0-{number}": harness.package(str(number)) for number in range(count)}
    feed = harness.feed()
    publisher = Publisher(feed, sleep=lambda event, _seconds: event.is_set())
    plan_faults(harness, count)
    harness.standin.forget()

    def publish(version: str) -> int:
        files = packages[version]
        return publisher.publish(NAME, version, files, tree=tree(files)).attempts

    start = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        attempts = sum(pool.map(publish, packages))
    seconds = time.perf_counter() - start
    registered = harness.standin.organization.registrations
    assert len(registered) == len(set(registered)) == count
    for version, files in packages.items():
        assert tree_digest(feed.files(NAME, version)) == tree(files)
        assert all(file.source.stat().st_size == file.entry.size for file in files)
    struck = harness.standin.faults.struck["register"]
    requests = harness.standin.counts().total()
    print(
        f"publishing {count} versions, {struck} faults: {seconds:.1f} s, "
        f"{attempts / count:.2f} tool runs and {requests / count:.1f} requests for each, "
        "none twice, none lost"
    )
    return seconds * THREADS / count


def bare_runs(harness: AzureHarness, name: str, count: int = 40) -> float:
    """Seconds of a run of the tool's stand-in alone, with as many at once."""
    tool = harness.root / "tool" / "artifacttool"
    files = harness.package(name)
    arguments = f"universal publish --service {harness.standin.base}/acme --patvar T --project Lab"
    fixed = [str(tool), *arguments.split(), "--feed", "models", "--package-name", name]
    folder = str(files[0].source.parent)

    def run(number: int) -> None:
        command = [*fixed, "--package-version", f"0.0.0-{number}", "--path", folder]
        subprocess.run(command, env={"T": "good-token"}, check=True, capture_output=True)

    start = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(run, range(count)))
    return (time.perf_counter() - start) * THREADS / count


def main() -> None:
    """Run all."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    with tempfile.TemporaryDirectory() as folder, AzureHarness(Path(folder)) as harness:
        listings(harness)
        bare_runs(harness, "warm")
        bare = bare_runs(harness, "bare")
        harness.standin.organization.registrations.clear()
        each = publishes(harness, count)
        print(f"{each / bare:.2f} times a bare run of the tool for each version, faults included")


if __name__ == "__main__":
    main()
