"""Which samples a model will get, as far as the files on this machine tell; nothing is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flows.plan.configs import snapshot
from matrix.datasets import SYNTHETIC
from matrix.model import PlannedModel, SourceKind
from matrix.policy import quantized
from workers.samples import parts
from workers.sources.weights import PICKLES, SAFETENSORS, matching

PROCESSORS = (
    "tokenizer.json", "tokenizer.model", "vocab.txt", "vocab.json", "*.spm", "spiece.model",
    "sentencepiece*.model", "preprocessor_config.json", "processor_config.json",
)  # fmt: skip
"""Files of which a model with a tokenizer, or another processor, has one."""
GIVE = "give it a dataset, or say why in `samples`: its quantized cells cannot be verified"


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is expected of a model's samples."""

    kind: str
    """dataset, processor, synthetic; `processor or synthetic`: the model is not on this machine."""
    origin: str
    """For people."""
    parts: Mapping[str, int]
    """The usual sizes: large samples are fewer, and so are those of a small dataset."""


def outlook(planned: PlannedModel, engine: str) -> Outlook:
    """The outlook for one model."""
    model, source = planned.model, planned.model.source
    folder = snapshot(source) if source.kind is SourceKind.HUB else Path(source.ref)
    if source.kind is SourceKind.RANDOM or folder is None or not folder.is_dir():
        folder = None
    names = [path.name for path in folder.iterdir()] if folder else []
    weights = [source.file] if source.file else matching(names, (*SAFETENSORS, *PICKLES))
    files = [folder / name for name in weights] if folder else []
    size = sum(file.stat().st_size for file in files if file.is_file())
    fits = {one.policy.build.get("samples") for one in planned.cells if one.skip is None}
    # The option counts winml-cli's own samples where that calibrates.
    fit = fits.pop() if len(fits) == 1 and engine != "winml" else None
    sizes = parts.sizes(parts.rule(model.exported_as or model.task, fit), size)
    if model.dataset is not None:
        return Outlook("dataset", Path(model.dataset["path"]).name, sizes)
    if engine == "tabular":
        return Outlook(SYNTHETIC, "rows near the thresholds of the model", sizes)
    if source.kind is SourceKind.RANDOM:
        return Outlook(SYNTHETIC, "random weights have nothing else", sizes)
    if folder is None:
        return Outlook("processor or synthetic", "of the model, if it has a processor", sizes)
    if found := matching(names, PROCESSORS):
        return Outlook("processor", found[0], sizes)
    reason = model.samples.get("reason", "")
    if not reason and any(quantized(one.policy.precision) for one in planned.cells):
        reason = GIVE
    return Outlook(SYNTHETIC, f"no tokenizer or processor; {reason}".removesuffix("; "), sizes)
