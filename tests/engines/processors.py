"""Tokenizers and processors made on the spot, as they lie beside a model."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from workers.samples.material import texts

CHAT = "{% for turn in messages %}<{{ turn['role'] }}>{{ turn['content'] }}{% endfor %}<assistant>"


def corpus() -> Iterable[str]:
    return (texts.single(number) for number in range(100))


def wordpiece(folder: Path, size: int = 800) -> Path:
    """BERT's kind: pairs have two types, padding is at the end."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import BertTokenizerFast

    made: Any = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    made.train_from_iterator(
        corpus(), trainers.WordPieceTrainer(vocab_size=size, special_tokens=special)
    )
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    BertTokenizerFast(tokenizer_object=made).save_pretrained(str(folder))
    return folder


def byte_pairs(folder: Path, *, chat: bool = True, side: str = "right") -> Path:
    """GPT's kind: no token for padding."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import GPT2TokenizerFast

    made: Any = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        corpus(),
        trainers.BpeTrainer(vocab_size=700, special_tokens=["<end>"], initial_alphabet=letters),
    )
    GPT2TokenizerFast(
        tokenizer_object=made,
        eos_token="<end>",
        bos_token="<end>",
        unk_token="<end>",
        padding_side=side,
        chat_template=CHAT if chat else None,
    ).save_pretrained(str(folder))
    return folder


def unigram(folder: Path) -> Path:
    """T5's kind: an end after each text."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
    from transformers import T5TokenizerFast

    made: Any = Tokenizer(models.Unigram())
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    made.train_from_iterator(
        corpus(),
        trainers.UnigramTrainer(vocab_size=900, special_tokens=special, unk_token="<unk>"),
    )
    made.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    T5TokenizerFast(tokenizer_object=made, extra_ids=0).save_pretrained(str(folder))
    return folder


def processor(folder: Path, kind: str, **settings: Any) -> Path:
    """An image processor or a feature extractor of Transformers."""
    import transformers

    getattr(transformers, kind)(**settings).save_pretrained(str(folder))
    return folder
