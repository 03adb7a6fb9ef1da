"""Which judged samples travel in a package: as many as are small beside it.

The stage `inputs` writes them one by one, `judge/NN.npz` below the folder of a component; in the
package they are `samples/NN.npz`. The verdict is given on exactly those.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from matrix.digest import SAMPLES, FileEntry

LEAST_BYTES = 5_000_000
SHARE = 0.05
"""Of the bytes of the package, if that is more than `LEAST_BYTES`: samples and the outputs of the
reference together."""
FOR_OUTPUTS = 0.25
"""The share of that for the outputs."""
LEAST = 2
"""Samples that are there however large they are: with one, nothing could vary."""
JUDGE = "judge"
_JUDGED = re.compile(rf"(?:(?P<component>.+)/)?{JUDGE}/(?P<number>\d+)\.npz")


def most_bytes(package: int) -> int:
    """For the samples of a package of so many bytes, with the outputs of the reference."""
    return max(LEAST_BYTES, int(package * SHARE))


def packaged(inputs: Iterable[FileEntry], package: int) -> tuple[FileEntry, ...]:
    """Of the files of the stage `inputs`, those of the first samples that fit, by their names in a
    package whose other files have so many bytes. A sample counts with all its components."""
    found: dict[str, list[FileEntry]] = {}
    for file in inputs:
        if match := _JUDGED.fullmatch(file.path):
            component = f"{match['component']}/" if match["component"] else ""
            path = f"{SAMPLES}/{component}{match['number']}.npz"
            found.setdefault(match["number"], []).append(replace(file, path=path))
    left = most_bytes(package) * (1 - FOR_OUTPUTS)
    taken: list[FileEntry] = []
    for place, (_, files) in enumerate(sorted(found.items())):
        left -= sum(file.size for file in files)
        if left < 0 and place >= LEAST:
            break
        taken += files
    return tuple(taken)
