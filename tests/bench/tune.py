"""Whether a tuning's verdicts can be trusted: `python -m tests.bench.tune [--tunings N]`.

Tunings with known truth: so many hypotheses that change nothing and one that makes the model 10 %
faster, on noise of every kind in `tests.measuring.noise` and on recorded sessions. Ours beside the
rules of the tools that it replaces, which measure three sessions of each build one after the other
and the baseline once, at the beginning: how many of the hypotheses that change nothing are called
better, and how often the gain is found.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from flows.output.table import render
from flows.tune import decision
from matrix.trials import Verdict
from tests.measuring.noise import KINDS, Noise, drawn, experiment, gaussian, recorded
from tests.tunings import rules
from workers.measure.verdict import Round, judge

NULLS = 10
"""Hypotheses of a tuning that change nothing, beside one that gains."""
GAIN = 0.10
MIN_GAIN = 5.0
SESSIONS = 3
ASKED = {"CV 5 %": gaussian(0.05), "CV 5 %, sessions differ by 1 %": gaussian(0.05, 0.01)}
"""Where a gain of 10 % must be found."""

SHARED = (
    ("two speeds of the machine", lambda random: 1.3 if random.random() < 0.3 else 1.0),
    ("two speeds, far apart", lambda random: 12.0 if random.random() < 0.2 else 1.0),
    ("the machine's speed differs by 5 %", lambda random: float(np.exp(random.normal(0, 0.05)))),
)
"""What whole sessions share, whichever build runs in them: clocks, heat, other programs."""

Draw = Callable[[Any, float], list[list[Round]]]
"""A comparison whose subject is slower by that share."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tunings", type=int, default=40)
    tunings = parser.parse_args().tunings
    rows = [row(name, draw, tunings) for name, draw in draws().items()]
    print(f"{tunings} tunings of {NULLS} hypotheses that change nothing and one that gains 10 %:")
    print("called better of those that change nothing, and the gain found")
    print(render(["noise", "ours", "", "NPU rule", "", "GPU rule", "", "loop", ""], rows))


def draws() -> Mapping[str, Draw]:
    """By name, the noise that tunings are drawn from."""
    found: dict[str, Draw] = {}
    for name, noise in {**ASKED, **KINDS}.items():
        found[name] = partial(_simulated, noise)
    for name, speed in SHARED:
        found[name] = partial(_shared, speed)
    for name, sessions in recorded().items():
        found[f"recorded {name}"] = partial(_recorded, sessions)
    return found


def _simulated(noise: Noise, random: Any, slower: float) -> list[list[Round]]:
    return experiment(noise, random, slower, SESSIONS)


def _shared(speed: Callable[[Any], float], random: Any, slower: float) -> list[list[Round]]:
    sessions = experiment(KINDS["sessions differ by 1 %"], random, slower, SESSIONS)
    factors = [speed(random) for _ in sessions]
    return [
        [Round(one.this * factor, one.other * factor, one.null * factor) for one in rounds]
        for rounds, factor in zip(sessions, factors, strict=True)
    ]


def _recorded(sessions: Any, random: Any, slower: float) -> list[list[Round]]:
    return drawn(sessions, random, slower, SESSIONS)


def row(name: str, draw: Draw, tunings: int) -> list[str]:
    """Of each rule, the share of null hypotheses called better and of gains found."""
    random = np.random.default_rng(2026)
    told = [name]
    for rule in (ours, npu, gpu, loop):
        found = sum((tuning(rule, draw, random) for _ in range(tunings)), Counter[str]())
        told += [f"{found['false'] / tunings / NULLS:.1%}", f"{found['found'] / tunings:.0%}"]
    return told


Rule = Callable[[Draw, Any, list[float], float], bool]
"""Whether a hypothesis with that gain is called better; the list is the baseline's sessions."""


def tuning(rule: Rule, draw: Draw, random: Any) -> Counter[str]:
    """What a rule calls better in one tuning."""
    baseline = [float(np.median([one.other for one in turns])) for turns in draw(random, 0.0)]
    false = sum(rule(draw, random, baseline, 0.0) for _ in range(NULLS))
    return Counter({"false": false, "found": rule(draw, random, baseline, GAIN)})


def ours(draw: Draw, random: Any, baseline: list[float], gain: float) -> bool:
    """Compared with the baseline in turns, then confirmed in fresh sessions, the roles swapped."""
    chance = decision.level(NULLS + 1)
    first = judge(draw(random, -gain), int(random.integers(2**31)), chance)
    if decision.decide(first, MIN_GAIN).verdict is not Verdict.BETTER:
        return False
    again = judge(draw(random, 1 / (1 - gain) - 1), int(random.integers(2**31)), chance)
    return decision.confirm(again, MIN_GAIN).verdict is Verdict.BETTER


def npu(draw: Draw, random: Any, baseline: list[float], gain: float) -> bool:
    """The opset rule of the sweep on an NPU."""
    return rules.npu_opset_rule(baseline, _sessions(draw, random, gain)) == "true"


def gpu(draw: Draw, random: Any, baseline: list[float], gain: float) -> bool:
    """Medians, then two more sessions; all must gain."""
    candidate = _sessions(draw, random, gain)
    if rules.gpu_verdict(_gained(baseline, candidate)) != "KEEP":
        return False
    more = [*candidate, *_sessions(draw, random, gain)[:2]]
    return rules.gpu_confirmation(rules.median(baseline), more) == "KEEP_CONFIRMED"


def loop(draw: Draw, random: Any, baseline: list[float], gain: float) -> bool:
    """The loop for one model on a CPU: the median against the spread."""
    candidate = _sessions(draw, random, gain)
    spread = float(np.std(candidate)) / rules.median(candidate) * 100
    return rules.loop_verdict(_gained(baseline, candidate), spread) == "KEEP"


def _sessions(draw: Draw, random: Any, gain: float) -> list[float]:
    return [float(np.median([one.this for one in turns])) for turns in draw(random, -gain)]


def _gained(baseline: list[float], candidate: list[float]) -> float:
    return rules.gain(rules.median(baseline), rules.median(candidate))


if __name__ == "__main__":
    main()
