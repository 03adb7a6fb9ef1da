"""The memory of this process. Standard library only."""

from __future__ import annotations

import contextlib
import ctypes
import sys

from workers.host.child import memory


def resident() -> int:
    """The memory of this process in bytes; 0 where the system has no cheap answer."""
    return memory("VmRSS")


def give_back() -> None:
    """Return the memory that a closed session has freed to the system.

    The allocator would keep it: a process that waits for its next model would hold the memory of
    the last one, while another process of the same slot opens that model too.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # a C library without it
            ctypes.CDLL(None).malloc_trim(0)
