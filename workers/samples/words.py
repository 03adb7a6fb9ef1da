"""Tokens: the model's own tokenizer on our texts, as its task has them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workers.samples.datasets import Texts
from workers.samples.material import texts
from workers.samples.values import filled, told
from workers.sources.errors import export_error

_IDS = ("input_ids", "decoder_input_ids")
_STARTS = ("decoder_start_token_id", "bos_token_id", "pad_token_id")
_PAIRS = 4
"""One text of so many is a pair, where a model knows two types of tokens."""
_LONG = 8
"""One text of so many fills the input."""
_LEAST = 8
"""Tokens of a text that is cut short."""
Row = dict[str, Any]
Shapes = Mapping[str, tuple[int, ...]]


class Words:
    """The inputs that are texts."""

    origin = "the model's tokenizer on packaged texts"

    @staticmethod
    def takes(shapes: Shapes) -> bool:
        """Whether a graph reads text."""
        return any(name in shapes and len(shapes[name]) > 1 for name in _IDS)

    @staticmethod
    def load(folder: Path, remote_code: bool) -> Any:
        """The tokenizer beside a model."""
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=remote_code
        )

    def __init__(
        self,
        tokenizer: Any,
        task: str,
        config: Any,
        shapes: Shapes,
        file: str,
        given: Sequence[Texts] | None,
    ) -> None:
        self._tokenizer, self._task, self._config = tokenizer, task, config
        self._shapes, self._file, self._given = shapes, file, given
        if tokenizer.pad_token is None:  # as apps do
            tokenizer.pad_token = (
                tokenizer.eos_token or tokenizer.unk_token or tokenizer.convert_ids_to_tokens(0)
            )
        tokenizer.deprecation_warnings["Asking-to-pad-a-fast-tokenizer"] = True  # one at a time
        self._check([tokenizer.vocab_size - 1])
        self._with_boxes = "boxes" in inspect.signature(type(tokenizer).__call__).parameters
        """Whether it takes the words of a page and where they are."""
        if not given:
            self._check_known()

    def row(self, number: int) -> Row:
        """The inputs of the text of this number."""
        found: Row = {}
        decodes = any(name.startswith("encoder_hidden_states") for name in self._shapes)
        if "input_ids" in self._shapes:
            found |= self._written("", number) if decodes else self._read(number)
        if "decoder_input_ids" in self._shapes:
            found |= self._written("decoder_", number)
        if "encoder_attention_mask" in self._shapes:
            length = self._shapes["encoder_attention_mask"][-1]
            found["encoder_attention_mask"] = self._encoded(number, length)["attention_mask"]
        return {name: one for name, one in found.items() if name in self._shapes}

    def _read(self, number: int) -> Row:
        """What the model reads: a text, a pair, or a beginning with its possible ends."""
        import numpy as np

        *before, length = self._shapes["input_ids"]
        if len(before) > 1:
            start, ends = texts.choice(number)
            if self._given:
                start, end = self._item(number, length)
                ends = [end or start]
            rows = [
                self._tokens(number, start, ends[one % len(ends)], length)
                for one in range(before[-1])
            ]
            return {name: np.stack([row[name] for row in rows]) for name in rows[0]}
        found = self._encoded(number, length)
        ids, mask = found["input_ids"], found["attention_mask"]
        self._check(ids)
        if self._task == "fill-mask" and self._tokenizer.mask_token_id is not None:
            own = np.flatnonzero((mask > 0) & ~np.isin(ids, self._tokenizer.all_special_ids))
            if own.size:
                ids[own[number * 7 % own.size]] = self._tokenizer.mask_token_id
        positions = np.arange(length) if mask[0] else np.maximum(np.cumsum(mask) - 1, 0)
        axes = self._shapes.get("position_ids", ())[:-2]
        found["position_ids"] = np.broadcast_to(positions, (*axes, length))
        found["global_attention_mask"] = (np.arange(length) == 0) * mask
        return found

    def _encoded(self, number: int, length: int) -> Row:
        import numpy as np

        image = told(self._config, "image_token_id", "image_token_index")
        if image is None or "image_features" not in self._shapes:
            return self._tokens(number, *self._item(number, length), length)
        deeper = getattr(self._config.vision_config, "deepstack_visual_indexes", None) or ()
        count = self._shapes["image_features"][0] // (1 + len(deeper))
        found = self._tokens(number, *self._item(number, length), length - count)
        ids = found["input_ids"]
        ids[ids == image] = image - 1 if image else 1
        start = int(np.argmax(found["attention_mask"])) + 1
        return {name: np.insert(one, [start] * count, image if name == "input_ids" else 1)
                for name, one in found.items()}  # fmt: skip

    def _item(self, number: int, length: int) -> tuple[str, str | None]:
        """A text for the task, with a second one if it is a pair."""
        if self._given:
            return self._given[number % len(self._given)]
        least = length * 6 if number % _LONG == _LONG - 1 else 0
        config = self._config
        if self._task == "question-answering":
            return texts.question(number, least)
        if self._pairs(number):
            return texts.pair(number, least)
        if self._task == "visual-question-answering":
            text = texts.question(number)[0]
        elif self._task == "text2text-generation" or getattr(config, "is_encoder_decoder", False):
            prefix = self._prefixes()
            text = prefix[number % len(prefix)] + texts.single(number, least)
        elif self._task in {"text-generation", "image-text-to-text"}:
            text = self._prompt(number, least)
        elif hasattr(config, "text_config") and hasattr(config, "vision_config"):
            text = texts.caption(number)
        else:
            text = texts.single(number, least)
        return text, texts.hypothesis(number) if self._judges() else None

    def _judges(self) -> bool:
        """Whether it is a model that judges whether a text follows from another one."""
        labels = " ".join(map(str, (getattr(self._config, "id2label", None) or {}).values()))
        return bool(re.search("entail|contradict", labels.casefold()))

    def _pairs(self, number: int) -> bool:
        """Whether the text of this number is a pair."""
        if self._task != "text-classification" or not self._judges():
            types = told(self._config, "type_vocab_size") or 0
            if "token_type_ids" in self._shapes and types > 1 and number % _PAIRS == 1:
                return True
            labels = getattr(self._config, "num_labels", 0)
            ranks = self._task == "text-classification" and labels == 1
            return ranks and number % _PAIRS > 1
        return number % 2 == 0

    def _prefixes(self) -> list[str]:
        """What a model is told to do with a text."""
        tasks = getattr(self._config, "task_specific_params", None) or {}
        found = [one.get("prefix") for one in tasks.values() if isinstance(one, dict)]
        return [one for one in found if isinstance(one, str)] or [""]

    def _prompt(self, number: int, least: int) -> str:
        """What somebody asks, as the model is told of it, or the beginning of a text."""
        if getattr(self._tokenizer, "chat_template", None) and number % _PAIRS and not least:
            turns = texts.dialogue(number)
            return str(
                self._tokenizer.apply_chat_template(
                    turns, tokenize=False, add_generation_prompt=True
                )
            )
        return texts.single(number, least)

    def _tokens(self, number: int, first: str, second: str | None, length: int) -> Row:
        """A text, padded or cut to a length; of those that fill it every third is cut shorter."""
        import numpy as np

        encoded = self._cut(first, second, length)
        if len(encoded["input_ids"]) == length and number % 3 == 1:
            least = _LEAST + (self._count(first) if second else 0)
            short = max(filled(number // 3 * 2 + 1, length), least)
            encoded = self._cut(first, second, min(short, length))
        padded = self._tokenizer.pad(
            encoded, padding="max_length", max_length=length, return_attention_mask=True
        )
        found: Row = {name: np.asarray(one, np.int64)[:length] for name, one in padded.items()}
        if "bbox" in self._shapes and "bbox" not in found and self._tokenizer.is_fast:
            found["bbox"] = np.zeros((length, 4))
            found["bbox"][found["attention_mask"] > 0] = [_box(word) for word in encoded.word_ids()]
        if "bbox" in found and self._config.model_type == "bros":
            found["bbox"] = found["bbox"] / 1000
        return found

    def _cut(self, first: str, second: str | None, length: int) -> Any:
        """Cut as an app does it: of a question's text the end is lost, not the question."""
        asked = second and self._task == "question-answering"
        room = asked and self._count(first) + _LEAST <= length
        how = {"truncation": "only_second" if room else True, "max_length": length}
        if not self._with_boxes:
            return self._tokenizer(first, second, **how)
        words = (second or first).split()
        boxes = [_box(number) for number in range(len(words))]
        return self._tokenizer(*([first] if second else []), words, boxes=boxes, **how)

    def _count(self, text: str) -> int:
        """The tokens of a text and those around it."""
        return len(self._tokenizer.tokenize(text)) + 2

    def _written(self, prefix: str, number: int) -> Row:
        """What a decoder has written so far; without a mask it has written all."""
        import numpy as np

        length = self._shapes[f"{prefix}input_ids"][-1]
        masked = f"{prefix}attention_mask" in self._shapes
        text = texts.target(number, 0 if masked and number % 2 else length * 6)
        ids = self._tokenizer(text_target=text, truncation=True, max_length=length)["input_ids"]
        parts = (self._config, getattr(self._config, "decoder", None))
        known = [found for name in _STARTS for one in parts
                 if isinstance(found := getattr(one, name, None), int)]  # fmt: skip
        start = known[0] if known else ids[0]
        ids = (ids if ids[:1] == [start] else [start, *ids])[:length]
        self._check(ids)
        missing = length - len(ids)
        return {
            f"{prefix}input_ids": np.asarray(ids + [self._tokenizer.pad_token_id] * missing),
            f"{prefix}attention_mask": np.arange(length) < len(ids),
        }

    def _check_known(self) -> None:
        """Raise `ValueError` if our texts are not what it is made for, such as one of formulas."""
        unknown = self._tokenizer.unk_token_id
        rows = [self._cut(texts.single(number), None, 256)["input_ids"] for number in range(32)]
        ids = [one for row in rows for one in row]
        if unknown is not None and ids.count(unknown) > len(ids) / 2:
            share = ids.count(unknown) / len(ids)
            raise ValueError(f"it does not know {share:.0%} of the tokens of ordinary texts")

    def _check(self, ids: Any) -> None:
        """Raise `StageError` unless the model has these tokens."""
        size = told(self._config, "src_vocab_size", "vocab_size")
        if size is not None and len(ids) and max(ids) >= size:
            raise export_error(
                f"{self._file} makes the token {max(ids)}, but the model has {size} tokens",
                "put the tokenizer of this model beside it, or delete the one that is there",
            )


def _box(word: int | None) -> list[int]:
    """Where a word stands on a page, in thousandths; None: it is a token around a text."""
    if word is None:
        return [0, 0, 0, 0]
    left, top = 40 + word % 9 * 104, (50 + word // 9 * 38) % 940
    return [left, top, left + 35 + word * 13 % 60, top + 22]
