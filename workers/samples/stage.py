"""The stage `inputs`: the samples of all components of a model, in their three parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from workers import generation
from workers.composition import Composition, split
from workers.engine import StageError, StageJob
from workers.samples import datasets, files, loops, parts
from workers.samples.parts import FIT, ORDER, PARTS
from workers.samples.processors import Source
from workers.samples.sources import DATASET, KINDS, Maker, kind_of
from workers.sources import model_file, runtime
from workers.sources.errors import quantize_error

_SPREAD = (0, 3, 7, 15)
"""Steps of every generation that calibrate a decoder: its values drift with the length of the text.
Of the other parts each prompt gives one step, the next prompt the step after that."""
_PATIENCE = 4
"""So many times as many samples as are needed are made to find that many different ones."""
Sample = dict[str, Any]


def opened(job: StageJob) -> datasets.Dataset | None:
    """The catalog's dataset, if the model has one."""
    if "dataset" not in job.params:
        return None
    most = parts.most(job.params["parts"])
    return datasets.opened(job.request.model["dataset"], most)


def decides(dataset: datasets.Dataset | None) -> bool:
    """Whether the values of a dataset have the shapes that a graph takes."""
    return dataset is not None and dataset.form == datasets.TENSORS


def write(job: StageJob, exported: Path, record: Composition, maker: Maker) -> dict[str, Any]:
    """Write the samples of every component; returns the facts of the stage."""
    notices = [maker.dataset.notice] if maker.dataset and maker.dataset.notice else []
    maker = replace(maker, notice=notices.append)
    step = record.loop.step if record.loop else ""
    names = [one.name for one in record.components if not step or one.name != step]
    sources = {}
    for name in names:
        job.progress(f"making inputs for {name}" if name else "making inputs")
        sources[name] = maker.source(name, runtime.signature(model_file.find(exported, name)))
    _check_used(maker.dataset, sources.values())
    wanted = parts.sizes(job.params["parts"], files.size(exported))
    rows = _drawn(job, record, sources, wanted)
    given = parts.divided(len(rows), parts.bounded(wanted, _bytes(rows[0])))
    found = {name: [row[name] for row in rows] for name in names}
    prompts = []
    for name in names:
        files.check_even(found[name])
        if record.loop is not None and name == record.loop.begin:
            start = _start(exported)
            prompts = loops.begun(record.loop, found, start, own=sources[name].own)
        _link(found, name, exported, record)
    divided = {name: parts.cut(found[name], given) for name in names}
    if record.loop is not None:
        job.progress(f"making inputs for {step}")
        past = maker.sizes[loops.PAST]
        divided[step] = _stepped(record, found, prompts, exported, past, given)
    for name, sets in divided.items():
        files.save(sets, job.out, name)
    kinds = {name: _kinds(record, name, source) for name, source in sources.items()}
    content = [kind_of(one) for one in kinds.values()]
    origins = dict.fromkeys(source.origin for source in sources.values())
    kind = min(content, key=KINDS.index)
    facts = files.facts(divided, kind, " and ".join(origins), kinds)
    return facts | ({"notice": "; ".join(notices)} if notices else {})


def _check_used(dataset: datasets.Dataset | None, sources: Iterable[Source]) -> None:
    """Raise `StageError` if no component takes what the dataset holds."""
    if dataset is None or any(DATASET in one.kinds.values() for one in sources):
        return
    raise quantize_error(
        f"no input of the model takes the {dataset.form} of the dataset {dataset.name} as they are",
        "put the model's own tokenizer or processor beside it, or give tensors (.npz)",
    )


def _drawn(
    job: StageJob, record: Composition, sources: Mapping[str, Source], wanted: Mapping[str, int]
) -> list[dict[str, Sample]]:
    """Different samples, each with what every component takes.

    A component that others feed differs where they do. The first number belongs to the prompt of
    the generation that verification repeats.
    """
    roots = [name for name in sources if not record.into(name)] or list(sources)
    counts = [source.count for source in sources.values() if source.count is not None]
    total, most = sum(wanted.values()), min(counts, default=None)
    start = 0 if most is not None or record.loop is None else 1
    numbers = range(start, start + (_PATIENCE * total if most is None else most))
    seen: dict[str, set[str]] = {name: set() for name in roots}
    rows: list[dict[str, Sample]] = []
    for number in numbers:
        if len(rows) == total:
            break
        job.progress(f"making inputs {len(rows) + 1}/{total}")
        row = {name: source.sample(number) for name, source in sources.items()}
        if not rows:
            total = sum(parts.bounded(wanted, _bytes(row)).values())
        digests = {name: parts.digest([row[name]]) for name in roots}
        if any(digests[name] in seen[name] for name in roots):
            continue
        for name in roots:
            seen[name].add(digests[name])
        rows.append(row)
    return rows


def _bytes(row: Mapping[str, Sample]) -> int:
    """The size of the largest sample of a row."""
    return max(sum(int(value.nbytes) for value in one.values()) for one in row.values())


def _start(exported: Path) -> list[int]:
    """The tokens that every text of a decoder without a mask begins with."""
    return [int(files.sample(exported / generation.FILE)[generation.PROMPT][0])]


def _stepped(
    record: Composition,
    found: Mapping[str, Sequence[Sample]],
    prompts: Sequence[Any],
    exported: Path,
    past: int,
    given: Mapping[str, int],
) -> dict[str, list[Sample]]:
    """The samples of the component that is repeated, each part from prompts of its own."""
    asked = {part: count * (len(_SPREAD) if part == FIT else 1) for part, count in given.items()}
    most = parts.bounded(asked, loops.cache_bytes(record, exported, past))
    which: dict[str, list[int]] = {}
    places: dict[int, Sequence[int]] = {}
    first = 0
    for part in ORDER:
        count = max(most[part] * given[part] // asked[part], 1)
        which[part] = list(range(first, first + given[part]))[:count]
        for number in which[part]:
            places[number] = _SPREAD if part == FIT else (len(places) % generation.COUNT,)
        first += given[part]
    steps = loops.steps(record, found, prompts, exported, past, places)
    return {part: [one for number in which[part] for one in steps[number]] for part in PARTS}


def _link(
    found: Mapping[str, list[Sample]], name: str, exported: Path, record: Composition
) -> None:
    """Replace made inputs by the outputs of earlier components, where the shapes agree."""
    feeds: dict[str, list[tuple[str, str]]] = {}
    for link in record.into(name):
        giver, output = split(link.output)
        feeds.setdefault(giver, []).append((output, split(link.input)[1]))
    for giver, pairs in feeds.items():
        try:
            session = runtime.session(model_file.find(exported, giver))
            given = [runtime.run(session, sample) for sample in found[giver]]
        except StageError:
            continue
        for sample, outputs in zip(found[name], given, strict=True):
            for output, taken in pairs:
                if record.loop or outputs[output].shape == sample[taken].shape:
                    sample[taken] = outputs[output]


def _kinds(record: Composition, name: str, source: Source) -> dict[str, str]:
    """The kind of each input; what other components give follows from their samples."""
    given = {split(link.input)[1] for link in record.into(name)}
    own = {key: kind for key, kind in source.kinds.items() if key not in given}
    return own or dict(source.kinds)
