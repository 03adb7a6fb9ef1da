"""The files of a model that matter, and whether its weights are complete; without torch."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from machine.files import read_json
from workers.engine import StageError
from workers.sources.errors import export_error, one_line

SAFETENSORS = ("model*.safetensors",)
PICKLES = ("pytorch_model*.bin",)
INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
UNFINISHED = ("*.incomplete", "*.part", "*.crdownload", "*.lock")

SIDE_FILES = (
    "config.json", "generation_config.json", "preprocessor_config.json", "processor_config.json",
    "feature_extractor_config.json", "image_processor_config.json",
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.json", "vocab.txt", "merges.txt", "normalizer.json", "*.spm", "spiece.model",
    "sentencepiece.bpe.model", "sentencepiece.model", "tokenizer.model", "bpe.codes",
    "chat_template.json", "chat_template.jinja", "modules.json", "sentence_bert_config.json",
    "config_sentence_transformers.json", "1_Pooling/config.json", "LICENSE", "LICENSE.*", "NOTICE",
)  # fmt: skip
"""Small files that a user of the exported model needs beside it."""


def patterns(*, pickle: bool, remote_code: bool) -> tuple[str, ...]:
    """The files that are taken from a source and that its digest covers."""
    code = ("*.py",) if remote_code else ()
    bins = (*PICKLES, INDEXES[1]) if pickle else ()
    return (*SIDE_FILES, *SAFETENSORS, INDEXES[0], *bins, *code)


def matching(names: Iterable[str], wanted: Iterable[str]) -> list[str]:
    """Relative POSIX names that match a pattern; a pattern without a folder stays at the top."""
    globs = tuple(wanted)
    return sorted(
        name
        for name in names
        if any(
            fnmatch(name, glob) and len(PurePosixPath(name).parts) == len(PurePosixPath(glob).parts)
            for glob in globs
        )
    )


def float_bytes(file: Path) -> int:
    """Bytes of a file's weights as float32, in which models are exported."""
    from safetensors import safe_open

    if file.suffix != ".safetensors":
        return file.stat().st_size
    with safe_open(file, framework="numpy") as weights:
        names = list(weights.keys())
        return sum(4 * math.prod(weights.get_slice(name).get_shape()) for name in names)


def check_complete(folder: Path, where: str, *, pickle: bool) -> None:
    """Raise unless the folder is a model with complete weights; torch's errors are far worse."""
    if not (folder / "config.json").is_file():
        raise export_error(f"{where}: there is no config.json", "is this a Transformers model?")
    if unfinished := matching((item.name for item in folder.iterdir()), UNFINISHED):
        raise _incomplete(where, f"{unfinished[0]} is an unfinished download")
    tensors = matching((item.name for item in folder.iterdir()), SAFETENSORS)
    index = folder / INDEXES[0]
    if index.is_file():
        _check_index(folder, index, where)
    if tensors:
        for name in tensors:
            _check_safetensors(folder / name, where)
        return
    bins = matching((item.name for item in folder.iterdir()), PICKLES)
    if not bins:
        raise export_error(f"{where}: there are no weights", "expected model.safetensors")
    if not pickle:
        raise export_error(
            f"{where}: the weights are pickles ({bins[0]}), which can run code when loaded",
            "convert them to safetensors, or allow pickle in the catalog and by flag",
        )
    if (folder / INDEXES[1]).is_file():
        _check_index(folder, folder / INDEXES[1], where)


def _check_safetensors(file: Path, where: str) -> None:
    """Raise unless header and size of a safetensors file agree."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="numpy"):
            pass
    except (SafetensorError, OSError) as error:
        text = f"{file.name} is cut off or damaged ({one_line(error, 120)})"
        raise _incomplete(where, text) from error


def _check_index(folder: Path, index: Path, where: str) -> None:
    try:
        shards = set(read_json(index)["weight_map"].values())
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise export_error(f"{where}: {index.name} cannot be read", "download it again") from error
    names = {item.name for item in folder.iterdir()}
    if missing := sorted(shards - names, key=str):
        raise _incomplete(
            where, f"{missing[0]} is missing ({len(missing)} of {len(shards)} shards)"
        )


def _incomplete(where: str, what: str) -> StageError:
    return export_error(f"{where}: weights are incomplete: {what}", "download the model again")
