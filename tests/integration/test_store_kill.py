"""kill -9 at random moments of an ingest: the store is consistent every time."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from machine.files import hash_file
from workers.store import Store, usage_of

REPOSITORY = Path(__file__).parents[2]
ROUNDS = 25

WRITER = """
import random, sys
from pathlib import Path
from matrix.digest import value_digest
from workers.store import Action, Store

store = Store(Path(sys.argv[1]))
numbers = random.Random(int(sys.argv[2]))
while True:
    print("next", flush=True)
    out = store.scratch.new_folder()
    seed = numbers.randrange(60)
    for name in "abc":
        (out / name).write_bytes(random.Random(f"{seed}{name}").randbytes(200_000))
    store.ingest(out, Action(value_digest(seed), {}, (), {}, {}, 0, 0, str(seed)))
    if numbers.random() < 0.1:
        store.gc(8_000_000)
"""


def check(root: Path) -> int:
    """Every record's bytes are there and right; nothing lies about; returns the records."""
    for path in (root / "blobs").glob("*/*"):
        assert hash_file(path)[0] == path.name, "a blob with other bytes than its name says"
    store = Store(root)
    keys = [path.stem for path in (root / "actions").glob("*/*.json")]
    for key in keys:
        action = store.lookup(key)
        assert action is not None, "a record without its bytes"
        assert len(action.files) == 3
    assert [path.name for path in (root / "tmp").iterdir() if path.is_dir()] == [
        store.scratch.folder.name
    ], "working folders of the dead"
    store.close()
    return len(keys)


def test_a_killed_ingest_leaves_a_consistent_store(tmp_path: Path) -> None:
    root, chance, recorded = tmp_path / "store", random.Random(20260609), 0
    for number in range(ROUNDS):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(root), str(number)],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
        )
        assert writer.stdout is not None
        with writer.stdout:
            # What it has done counts, not the time that a busy machine takes for it.
            for _ingest in range(chance.randint(1, 4)):
                assert writer.stdout.readline() == b"next\n"
            try:
                writer.wait(chance.random() * 0.04)  # the moment of the kill is the test
            except subprocess.TimeoutExpired:
                writer.kill()
        assert writer.wait() != 1, "the writer must be killed, not fail"
        recorded = max(recorded, check(root))
    assert recorded > 5
    store = Store(root)
    store.gc(0)
    assert usage_of(store.root).size == 0
    store.close()
