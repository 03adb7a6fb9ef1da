"""The providers of Windows ML: found in its catalog, prepared, and registered in this process.

Windows ML registers none for Python: its call for that reaches another copy of ONNX Runtime than
the one that Python has loaded. The catalog only says where a provider's library is, once the
provider is ready. What is not on the machine is downloaded only if that was asked for.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from workers.engine import version
from workers.runtimes.ort import OrtService, device_of, devices
from workers.runtimes.plugins import PluginService, told_version
from workers.runtimes.runtime import WINDOWS_ML
from workers.sources.errors import one_line, unsupported

_TELL = 1.0
"""Seconds between two words about a download."""


class WindowsMlService(OrtService):
    """All providers that Windows offers for the devices of this machine."""

    kind = WINDOWS_ML.name
    by_device = PluginService.by_device

    def __init__(self) -> None:
        import windowsml

        catalog = windowsml.EpCatalog()
        # For the life of the process: its providers belong to it, and on some machines the process
        # crashes when it is released.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(catalog))
        self._states = windowsml.EpReadyState
        self._providers = {one.name: one for one in catalog.find_all_providers()}
        self._registered: set[str] = set()

    def call(self, op: str, args: dict[str, Any], progress: Callable[[str], None]) -> Any:
        """Answer one request."""
        if op == "install":
            return self._install(str(args["provider"]), progress)
        if op == "discover" and args.get("download"):
            for one in self._providers.values():
                if one.ready_state == self._states.NotPresent:
                    self._install(one.name, progress)
        return super().call(op, args, progress)

    def discover(self) -> list[dict[str, Any]]:
        """Every provider of the catalog: its devices, or why it cannot be used."""
        rows: list[dict[str, Any]] = []
        for one in self._providers.values():
            why, hint = self._prepared(one)
            found = [] if why else list(self._rows(one))
            why = why or "it has no device on this machine"
            missing = {"provider": one.name, "device": "", "why": f"{_name(one)}: {why}"}
            rows += found or [{**missing, "hint": hint}]
        return rows

    def _rows(self, one: Any) -> Iterator[dict[str, Any]]:
        for item in devices():
            if item.ep_name.casefold() == one.name.casefold():
                told = told_version(_name(one), item)
                yield self._row(item.ep_name, device_of(item), told, detail=str(item.device.vendor))

    def _prepared(self, one: Any) -> tuple[str, str]:
        """Register a provider; why it cannot be, and the command that changes it."""
        if one.name in self._registered:
            return "", ""
        again = f"modelmill doctor --install-ep {one.name}"
        if one.ready_state == self._states.NotPresent:
            return "it can be downloaded, and is not on this machine", again
        import onnxruntime

        try:
            one.ensure_ready()  # adds it to what this process may load: this downloads nothing
            path = one.library_path
            if not path:
                return "it is ready, but names no library", again
            onnxruntime.register_execution_provider_library(one.name, path)
        except Exception as error:  # noqa: BLE001 - whatever a provider's package raises
            return f"it cannot be loaded: {one_line(error)}", again
        self._registered.add(one.name)
        return "", ""

    def _install(self, name: str, progress: Callable[[str], None]) -> Mapping[str, str]:
        """Download a provider and make it ready, however long that takes."""
        own = {one.casefold(): one for one in self._providers}
        if name.casefold() not in own:
            there = ", ".join(self._providers) or "none"
            raise unsupported(f"Windows ML offers {there} for this machine, and no {name}")
        one = self._providers[own[name.casefold()]]
        done, share = threading.Event(), [0.0]
        try:
            operation = one.ensure_ready_async(on_complete=done.set, on_progress=share.append)
            while not done.wait(_TELL):
                progress(f"downloading {one.name}: {share[-1]:.0%}")
            operation.get_status()
            operation.close()
        except OSError as error:
            raise unsupported(f"{one.name} cannot be downloaded: {one_line(error)}") from error
        return {"provider": one.name, "version": one.version, "state": one.ready_state.name}


def _name(one: Any) -> str:
    """A provider's version is known to the catalog, except for some that were never ready."""
    of = f" {one.version}" if one.version else ""
    return f"Windows ML {version('windowsml')}'s {one.name}{of}"
