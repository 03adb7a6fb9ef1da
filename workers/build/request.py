"""A planned cell as the request that an engine gets."""

from __future__ import annotations

from matrix.model import Cell, SourceKind, Target
from workers.engine import Request, to_json

_NO_INPUT = {"default", "asked", "notices"}
"""Fields of a policy that say how it came about; they change no byte."""


def request_for(
    cell: Cell, *, remote_code: bool = False, pickle: bool = False, offline: bool = False
) -> Request:
    """The request of a cell.

    Code or pickles from a model's repository run only if its catalog entry and the flag both say
    so: neither a copied catalog nor a habitual flag is enough.
    """
    model, source = cell.model, cell.model.source
    return Request(
        model={
            "id": model.id,
            "task": model.exported_as or model.task,
            "model_type": model.model_type,
            "source": {
                "kind": source.kind.value,
                "ref": source.ref,
                "revision": source.revision,
                "seed": source.seed,
                "config": dict(source.config),
                **({"file": source.file} if source.file else {}),
            },
            "dataset": dict(model.dataset) if model.dataset is not None else None,
            **({"offline": True} if offline and source.kind is SourceKind.HUB else {}),
            **({"recipes": model.recipes} if model.recipes else {}),
            **({"new_head": True} if model.new_head else {}),
            "allow": {
                "remote_code": model.remote_code and remote_code,
                "pickle": model.pickle and pickle,
            },
        },
        target=target_json(cell.target),
        policy={
            name: value for name, value in to_json(cell.policy).items() if name not in _NO_INPUT
        },
    )


def target_json(target: Target) -> dict[str, str]:
    """What requests and manifests say of a target."""
    return {
        "label": target.label,
        "ep": target.ep,
        "device": target.device,
        "provider": target.provider,
    }
