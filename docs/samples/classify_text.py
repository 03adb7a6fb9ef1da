"""Classifies a text with a package: FOLDER TEXT."""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

folder, text = Path(sys.argv[1]), sys.argv[2]
session = onnxruntime.InferenceSession(folder / "model.onnx")
inputs = {one.name: one for one in session.get_inputs()}
tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
length = inputs["input_ids"].shape[-1]
if isinstance(length, int):  # a fixed shape: every text has so many tokens, the rest is padding
    pad = json.loads((folder / "config.json").read_text("utf-8")).get("pad_token_id") or 0
    tokenizer.enable_truncation(length)
    tokenizer.enable_padding(length=length, pad_id=pad)
found = tokenizer.encode(text)
values = {
    "input_ids": found.ids,
    "attention_mask": found.attention_mask,
    "token_type_ids": found.type_ids,
}
kinds = {name: np.int32 if "int32" in one.type else np.int64 for name, one in inputs.items()}
logits = session.run(None, {name: np.array([values[name]], kinds[name]) for name in inputs})[0]
labels = json.loads((folder / "config.json").read_text("utf-8"))["id2label"]
print(labels[str(logits[0].argmax())])
