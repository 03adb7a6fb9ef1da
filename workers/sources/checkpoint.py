"""Which of a model's weights come from its checkpoint: what that lacks, and what it has besides.

Transformers gives random values to weights that a checkpoint lacks. A model that computes with such
weights is another model, so only a head may be new, and only if the catalog says so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workers.sources.errors import export_error

_DERIVED = frozenset({
    "attn_mask_probs", "diagonal_decay", "empty_weight", "final_logits_bias", "inv_freq",
    "key_decay", "masked_bias", "n_points_scale", "num_points_scale", "pos_idx_to_embed",
    "query_decay", "slope_rate",
})  # fmt: skip
"""Buffers that follow from the configuration; others are statistics or codes of the training."""
_HEAD = re.compile(r"head|classifier|score|pooler|predict|outputs?$")
"""A first module with such a name is a head, in classes that do not name their body."""
_POOLER = re.compile(r"(^|\.)\w*pooler\.")
"""Part of the body by name, but trained for a task of its own."""
_MOST = 0.1
"""Of the weights: a checkpoint that lacks more is another model's; nothing is run to see if."""
_NAMED = 3
"""Tensors that a message names."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What Transformers says of the weights that it loaded."""

    missing: Sequence[str] = ()
    """Tensors of the model that the checkpoint lacks; tied and derived ones are left out."""
    ignored: Sequence[str] = ()
    """Tensors of the checkpoint that the model has no place for."""


def read(model: Any, info: Mapping[str, Collection[str]]) -> Checkpoint:
    """From `output_loading_info`. Raises `StageError` for weights of other shapes or of layers that
    the configuration leaves out."""
    if wrong := sorted(info["mismatched_keys"]):
        raise export_error(
            f"{len(wrong)} tensors of the checkpoint have other shapes than its config.json says: "
            f"{_few(wrong)}",
            "use the config.json that was saved with these weights",
        )
    known = {re.sub(r"\d+", "0", name) for name in model.state_dict()}
    ignored = sorted(info["unexpected_keys"])
    body = f"{model.base_model_prefix}."
    if cut := [name for name in ignored if _numbered(name, body) & known]:
        raise export_error(
            f"the checkpoint has {len(cut)} tensors of layers that its config.json leaves out: "
            f"{_few(cut)}",
            "use the config.json that was saved with these weights",
        )
    buffers = dict(model.named_buffers())
    missing = [
        name for name in sorted(info["missing_keys"])
        if name not in buffers
        or (buffers[name].is_floating_point() and name.rpartition(".")[2] not in _DERIVED)
    ]  # fmt: skip
    return Checkpoint(missing, ignored)


def _numbered(name: str, body: str) -> set[str]:
    """A tensor of any layer of its list, as the model may call it; empty: it is in no list."""
    plain = re.sub(r"\d+", "0", name)
    return {plain, body + plain} if re.search(r"\.\d+\.", name) else set()


def settle(
    model: Any, found: Checkpoint, run: Callable[[], Sequence[Any]], *, new_head: bool
) -> dict[str, Any]:
    """For the facts, the share of the weights that came from the checkpoint.

    `run` gives the outputs that are exported. Raises `StageError` if they depend on missing
    weights, unless those are of a head that may be new.
    """
    sizes = {name: one.numel() for name, one in model.named_parameters()}
    absent = sum(sizes.get(name, 0) for name in found.missing)
    whole = max(sum(sizes.values()), 1)
    used = list(found.missing)
    if used and absent <= _MOST * whole:
        used = _used(model, found.missing, run)
    if body := [name for name in used if not _of_head(model, name)]:
        share = sum(sizes.get(name, 0) for name in used) / whole
        raise export_error(
            f"the checkpoint lacks {len(used)} of the model's {len(model.state_dict())} tensors, "
            f"{share:.1%} of its weights: {_few(body)}",
            _besides(found)
            or "its config.json is another model's, or its weights are not all here",
        )
    if used and not new_head:
        raise export_error(
            f"the checkpoint has no weights for the model's head, they would be random: "
            f"{_few(used)}",
            "choose the task that it was trained for, or if the head is to be new, say so in the "
            'catalog: new_head = "why"',
        )
    unused = absent - sum(sizes.get(name, 0) for name in used)
    new = sum(sizes.get(name, 0) for name in used)
    share = math.floor(1e6 * (1 - new / max(whole - unused, 1))) / 1e6
    return {"from_source": share, "new": used, "ignored": len(found.ignored)}


def _used(model: Any, names: Sequence[str], run: Callable[[], Sequence[Any]]) -> list[str]:
    """The tensors on whose values an output depends: many checkpoints lack what only training
    needs (the embedding of masked sounds, poolers)."""
    import torch

    before = [_numbers(one) for one in run()]
    state = model.state_dict()
    found = []
    for name in names:
        kept = state[name].clone()
        with torch.no_grad():
            state[name].fill_(math.nan)
        try:
            after = [_numbers(one) for one in run()]
        except (ValueError, RuntimeError, IndexError):
            after = []  # the model looks at the value
        finally:
            with torch.no_grad():
                state[name].copy_(kept)
        same = len(after) == len(before)
        if not same or any(not torch.equal(*pair) for pair in zip(before, after, strict=True)):
            found.append(name)
    return found


def _numbers(output: Any) -> Any:
    """An output without the bits in which two runs may differ: where it is a number at all."""
    return output.isfinite() if output.is_floating_point() else output


def _of_head(model: Any, name: str) -> bool:
    if _POOLER.search(name):
        return True
    body = model.base_model_prefix
    if body and hasattr(model, body):
        return not name.startswith(f"{body}.")
    return bool(_HEAD.search(name.partition(".")[0])) and "." in name


def _besides(found: Checkpoint) -> str:
    if not found.ignored:
        return ""
    return (
        f"it has {len(found.ignored)} others ({_few(found.ignored, 1)}): save the model again with "
        "Transformers' save_pretrained"
    )


def _few(names: Sequence[str], count: int = _NAMED) -> str:
    rest = f" and {len(names) - count} more" if len(names) > count else ""
    return ", ".join(names[:count]) + rest
