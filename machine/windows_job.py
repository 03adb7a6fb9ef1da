"""Windows: a Job Object, so that a child and all it starts end together, and with their owner."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    import ctypes
    from ctypes import wintypes

    KILL_ON_JOB_CLOSE = 0x2000
    EXTENDED_LIMIT_INFORMATION = 9

    class _Basic(ctypes.Structure):
        _fields_ = (
            ("PerProcessUserTimeLimit", ctypes.c_int64),
            ("PerJobUserTimeLimit", ctypes.c_int64),
            ("LimitFlags", wintypes.DWORD),
            ("MinimumWorkingSetSize", ctypes.c_size_t),
            ("MaximumWorkingSetSize", ctypes.c_size_t),
            ("ActiveProcessLimit", wintypes.DWORD),
            ("Affinity", ctypes.c_size_t),
            ("PriorityClass", wintypes.DWORD),
            ("SchedulingClass", wintypes.DWORD),
        )

    class _Extended(ctypes.Structure):
        _fields_ = (
            ("Basic", _Basic),
            ("IoInfo", ctypes.c_uint64 * 6),
            ("ProcessMemoryLimit", ctypes.c_size_t),
            ("JobMemoryLimit", ctypes.c_size_t),
            ("PeakProcessMemoryUsed", ctypes.c_size_t),
            ("PeakJobMemoryUsed", ctypes.c_size_t),
        )

    class Job:
        """A job that one process and its descendants belong to."""

        def __init__(self, process_handle: int) -> None:
            self._api = ctypes.WinDLL("kernel32", use_last_error=True)
            self._api.CreateJobObjectW.restype = wintypes.HANDLE
            self._handle: wintypes.HANDLE | None = wintypes.HANDLE(
                self._api.CreateJobObjectW(None, None)
            )
            limits = _Extended()
            limits.Basic.LimitFlags = KILL_ON_JOB_CLOSE
            done = self._api.SetInformationJobObject(
                self._handle,
                EXTENDED_LIMIT_INFORMATION,
                ctypes.byref(limits),
                ctypes.sizeof(limits),
            ) and self._api.AssignProcessToJobObject(self._handle, wintypes.HANDLE(process_handle))
            self.holds = bool(done)

        def end(self) -> None:
            """Terminate every process of the job."""
            if self._handle:
                self._api.TerminateJobObject(self._handle, 1)

        def close(self) -> None:
            """Give the handle back (and end what is left); a second time does no harm."""
            handle, self._handle = self._handle, None
            if handle:
                self._api.CloseHandle(handle)
