"""Trains a small model on reviews.csv: does its writer like the thing or not?

    python train.py FOLDER

writes the model with its tokenizer into FOLDER/model, and puts the reviews and the catalog there.
"""

import csv
import shutil
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

here, folder = Path(__file__).parent, Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
for name in ("reviews.csv", "catalog.toml"):
    shutil.copyfile(here / name, folder / name)
with (folder / "reviews.csv").open(encoding="utf-8", newline="") as file:
    rows = list(csv.DictReader(file))
texts, stars = [row["review"] for row in rows], [int(row["stars"]) for row in rows]

tokens = Tokenizer(models.WordPiece(unk_token="[UNK]"))  # noqa: S106 - a token of the vocabulary
tokens.normalizer = normalizers.BertNormalizer()
tokens.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
tokens.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=400, special_tokens=special))
tokens.post_processor = processors.TemplateProcessing(
    single="[CLS] $A [SEP]",
    special_tokens=[(one, tokens.token_to_id(one)) for one in ("[CLS]", "[SEP]")],
)
tokenizer = BertTokenizerFast(tokenizer_object=tokens, model_max_length=64)
tokenizer.save_pretrained(folder / "model")

torch.set_num_threads(1)  # more threads only wait for each other on a busy machine
torch.manual_seed(7)
model = BertForSequenceClassification(
    BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=64,
        id2label={0: "bad", 1: "good"},
        label2id={"bad": 0, "good": 1},
    )
)
given = tokenizer(texts, padding=True, return_tensors="pt")
wanted = torch.tensor([int(one > 3) for one in stars])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _step in range(60):
    optimizer.zero_grad()
    loss = model(**given, labels=wanted).loss
    loss.backward()
    optimizer.step()
model.eval().save_pretrained(folder / "model")
print(f"{len(texts)} reviews, loss {loss.item():.3f}")
