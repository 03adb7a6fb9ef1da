"""Adds SBOM and provenance to a verified package, and a signature if a key is set.

package + build record --> sbom.cdx.json --> provenance.json --> provenance.intoto.jsonl
                           (lists files)     (lists both)        (the same bytes, signed)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime

import orjson

from matrix.digest import PROVENANCE, SBOM, SIGNATURE, STATEMENT, package_uri
from matrix.model import Cell
from workers.attest.provenance import recipe_of, statement
from workers.attest.sbom import Component, environment_of, sbom
from workers.build.built import Built
from workers.build.package import compact_bytes, write_record
from workers.build.stage_runner import os_failure
from workers.engine import version
from workers.host.client import EngineHost
from workers.runtimes.pool import Runtimes

STAGE = "provenance"

Sign = Callable[[bytes], bytes]
"""Takes a statement, returns its signed envelope."""


@dataclass(slots=True)
class Attester:
    """Writes the attestations of one engine host's packages."""

    host: EngineHost
    _: KW_ONLY
    allow: Mapping[str, bool] = field(default_factory=dict)
    """What the flags allow: `remote_code`, `pickle`."""
    builder: str = ""
    sign: Sign | None = None
    runtimes: Runtimes | None = None
    """Their environment made what was compiled from a package; None: nothing is."""
    _environments: dict[bool, list[Component]] = field(default_factory=dict, init=False)

    def attest(self, built: Built, cell: Cell) -> Built:
        """The same package with its attestations; `cell` has the version that is published.

        The last step before publishing: a statement about a file must hold when it is published.
        """
        try:
            return self._attest(built, cell)
        except OSError as error:
            raise os_failure(STAGE, error) from error

    def _attest(self, built: Built, cell: Cell) -> Built:
        earlier = STATEMENT | {SBOM}  # of an attempt before: they are written again
        named = [file for file in built.files if file.entry.path not in earlier]
        recipe, modelmill = recipe_of(cell, allow=self._allowed(cell)), version("modelmill")
        document = sbom(
            built.manifest,
            built.build_record,
            recipe,
            [file.entry for file in named],
            self._components(built, cell),
            name=built.cell_id,
            tree=built.tree,
            modelmill=modelmill,
        )
        # Hundreds of components, the same in every package: compact, for machines.
        named.append(write_record(built.folder, SBOM, orjson.dumps(document)))
        origin = cell.origin
        stated = compact_bytes(
            statement(
                built.manifest,
                built.build_record,
                recipe,
                [file.entry for file in named],
                builder=self.builder,
                modelmill=modelmill,
                finished=datetime.now(UTC),
                origin=package_uri(cell.package, origin.version)
                if origin and origin.version
                else "",
            )
        )
        named.append(write_record(built.folder, PROVENANCE, stated))
        if self.sign is not None:
            named.append(write_record(built.folder, SIGNATURE, self.sign(stated)))
        return replace(built, files=tuple(named))

    def _allowed(self, cell: Cell) -> dict[str, bool]:
        """Permitted is what both the catalog entry and the flag allow; what a package was made
        with before it was compiled stays as it was."""
        asked = {"remote_code": cell.model.remote_code, "pickle": cell.model.pickle}
        if cell.origin is not None:
            return asked
        return {name: given and self.allow.get(name, False) for name, given in asked.items()}

    def _components(self, built: Built, cell: Cell) -> list[Component]:
        compiled = cell.origin is not None and self.runtimes is not None
        if compiled not in self._environments:
            host = self.runtimes.checker if compiled and self.runtimes else self.host
            tools = built.manifest["engine"]["tools"]
            self._environments[compiled] = environment_of(host.environment(), tools)
        return self._environments[compiled]
