"""The content store: bytes by digest, and records of which stage made which bytes.

    CACHEDIR.TAG     what this folder is; without it nothing here is ever removed
    blobs/ab/<sha>   read-only bytes, named by their SHA-256
    actions/ab/<key> one record per stage run: its outputs by digest, facts, cost; its time of
                     last change is its last use
    notes/<kind>/    small records that may be lost (verification results, last keys)
    tmp/             working folders and pins of living processes; those of the dead are swept
    locks/           a few thousand empty files at most: who runs which stage
    gate.lock        held for the moments in which several of these change together

Order makes it safe: bytes are hashed and synced first, moved into place under the gate, and the
record that names them is written last. A record whose bytes are not all there does not count. Bytes
that are not what their name says are removed, as is what stands in the place of a file or a folder
of the store: what should be there is made anew.
"""

from workers.store.actions import Action, GcReport
from workers.store.store import Store, usage_of

__all__ = ["Action", "GcReport", "Store", "usage_of"]
