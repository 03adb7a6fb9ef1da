"""The comparison counts error against what varies, and only where the reference counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from matrix.verification import Limit
from workers.numerics.compare import MOST_DB, compare, fault
from workers.numerics.kept import counted, from_arrays, keep, to_arrays

W8A16 = Limit.usual("w8a16")
FP32 = Limit.usual("fp32")


def samples(count: int = 8, shape: tuple[int, ...] = (1, 12, 16), seed: int = 0) -> list[Any]:
    random = np.random.default_rng(seed)
    return [random.standard_normal(shape).astype(np.float32) for _ in range(count)]


def figures(found: list[Any], wanted: list[Any], limit: Limit = W8A16, **more: Any) -> Any:
    return compare([{"y": one} for one in found], [{"y": one} for one in wanted], limit, **more)[
        "y"
    ]


def test_error_is_measured_against_what_varies_not_against_a_shared_offset() -> None:
    wanted = [100 + one for one in samples()]
    other = [100 + one for one in samples(seed=1)]
    row = figures(other, wanted)
    assert row["cosine"] > 0.9998, "the old measure has nothing against another model"
    assert row["snr"] < 0
    assert fault(row, W8A16).startswith("signal-to-noise ratio -")


def test_an_added_offset_is_an_error() -> None:
    wanted = samples()
    assert figures([one + 1 for one in wanted], wanted)["snr"] == pytest.approx(0, abs=0.3)


def test_the_worst_sample_decides() -> None:
    wanted = samples()
    found = [one.copy() for one in wanted]
    found[3] = samples(seed=5)[0]
    row = figures(found, wanted)
    assert row["snr"] < 0 < row["overall"]


def test_noise_of_a_tenth_is_twenty_decibels() -> None:
    wanted, noise = samples(shape=(1, 64, 64)), samples(shape=(1, 64, 64), seed=9)
    row = figures([one + 0.1 * more for one, more in zip(wanted, noise, strict=True)], wanted)
    assert row["snr"] == pytest.approx(20, abs=0.3)
    assert row["varies"] == pytest.approx(1, abs=0.05)


def test_equal_outputs_have_no_noise() -> None:
    wanted = samples()
    row = figures(wanted, wanted, FP32)
    assert (row["snr"], row["max_abs"], row["cosine"]) == (MOST_DB, 0.0, 1.0)
    assert not fault(row, FP32)


def test_what_hardly_varies_is_compared_by_value() -> None:
    wanted = [np.full((1, 4), 7.0, np.float32) for _ in range(4)]
    row = figures([one + 0.07 for one in wanted], wanted)
    assert row["fixed"]
    assert row["snr"] == pytest.approx(40, abs=0.1)


def test_samples_of_other_shapes_are_compared_with_the_mean_of_a_column() -> None:
    random = np.random.default_rng(0)
    wanted = [random.standard_normal((1, size, 8)).astype(np.float32) for size in (3, 9, 5)]
    assert figures([one + 1 for one in wanted], wanted)["snr"] == pytest.approx(0, abs=1)
    alone = figures([wanted[0] + 1], wanted[:1])
    assert alone["snr"] == pytest.approx(0, abs=2)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (np.full((1, 12, 16), np.nan, np.float32), "it holds NaN or infinity"),
        (np.zeros((1, 12, 15), np.float32), "[1, 12, 15], the reference's [1, 12, 16]"),
    ],
)
def test_what_cannot_be_compared_says_why(value: Any, said: str) -> None:
    row = figures([value] * 8, samples())
    assert said in str(row)
    assert compare([{}] * 8, [{"y": one} for one in samples()], FP32)["y"] == {
        "absent": "the output is missing"
    }


def test_infinities_of_the_reference_must_be_there() -> None:
    wanted = samples()
    for one in wanted:
        one[0, 0, 0] = -np.inf
    assert not fault(figures(wanted, wanted, FP32), FP32)
    assert "finite" in fault(figures([np.nan_to_num(one) for one in wanted], wanted), W8A16)


def test_positions_that_a_mask_hides_do_not_count() -> None:
    wanted = samples(4, (1, 6, 8))
    mask = np.array([[1, 1, 1, 1, 0, 0]])
    found = [np.where(mask[..., None] > 0, one, 99) for one in wanted]
    inputs = {"attention_mask": ["batch", "sequence"]}
    declared: dict[str, list[int | str | None]] = {"y": ["batch", "sequence", 8]}
    counts = [counted({"attention_mask": mask}, inputs, {"y": one}, declared) for one in wanted]
    assert figures(found, wanted, counts=counts)["snr"] == MOST_DB
    assert figures(found, wanted)["snr"] < 0
    fixed = counted(
        {"attention_mask": mask}, {"attention_mask": [1, 6]}, {"y": wanted[0]}, {"y": [1, 6, 8]}
    )
    assert np.array_equal(fixed["y"].ravel(), mask.ravel() > 0)


def test_spans_are_decided_among_the_positions_that_count() -> None:
    wanted = [one[:, :, 0] for one in samples(6, (1, 10, 1))]
    shown = np.arange(10)[None] < 7
    found = [np.where(shown, one, 50.0).astype(np.float32) for one in wanted]
    row = compare(
        [{"start_logits": one} for one in found],
        [{"start_logits": one} for one in wanted],
        W8A16,
        task="question-answering",
        counts=[{"start_logits": shown}] * 6,
    )["start_logits"]
    assert (row["snr"], row["agreement"]) == (MOST_DB, 1.0)


def test_a_kept_selection_gives_the_figures_of_its_rows_after_it_was_written() -> None:
    wanted, noise = samples(6, (1, 50, 30)), samples(6, (1, 50, 30), seed=3)
    found = [one + 0.2 * more for one, more in zip(wanted, noise, strict=True)]
    kept = [keep(one, name="y", most=10 * 30 * 4) for one in wanted]
    assert {len(one.values) for one in kept} == {10}
    read = [from_arrays(to_arrays("y", one))["y"] for one in kept]
    row = figures(found, read)
    assert row == figures(found, kept)
    assert row["snr"] == pytest.approx(14, abs=1)


def test_regions_keep_all_classes_of_a_place() -> None:
    random = np.random.default_rng(0)
    wanted = [random.standard_normal((1, 5, 8, 8)).astype(np.float32) for _ in range(4)]
    kept = [keep(one, name="logits", most=5 * 4 * 20, axis=1) for one in wanted]
    read = [{"logits": from_arrays(to_arrays("logits", one))["logits"]} for one in kept]
    row = compare([{"logits": one} for one in wanted], read, W8A16, task="semantic-segmentation")[
        "logits"
    ]
    assert (row["agreement"], row["decisions"] + row["ties"]) == (1.0, 80)
    swapped = [{"logits": one[:, ::-1]} for one in wanted]
    assert compare(swapped, read, W8A16, task="semantic-segmentation")["logits"]["agreement"] < 0.3


def test_classes_that_the_reference_decides_by_less_than_the_tolerance_are_ties() -> None:
    wanted = [np.array([[0.0, 3.0, 1.0]]), np.array([[2.0, 2.01, -1.0]]), np.array([[4.0, 0, 0]])]
    found = [np.array([[0.1, 3.0, 1.0]]), np.array([[2.05, 2.0, -1.0]]), np.array([[4.0, 0, 0.1]])]
    row = compare(
        [{"logits": one} for one in found],
        [{"logits": one} for one in wanted],
        W8A16,
        task="image-classification",
    )["logits"]
    assert (row["agreement"], row["decisions"], row["ties"], row["classes"]) == (1.0, 2, 1, 2)
    found[0] = np.array([[3.5, 3.0, 1.0]])
    row = compare(
        [{"logits": one} for one in found],
        [{"logits": one} for one in wanted],
        W8A16,
        task="image-classification",
    )["logits"]
    assert "of 2 decisions agree" in fault(row, Limit(snr=-90, agreement=0.97))


def test_texts_are_compared_after_greedy_decoding() -> None:
    def line(*classes: int) -> Any:
        return np.eye(5, dtype=np.float32)[list(classes)][None] * 9

    wanted = [line(0, 1, 1, 0, 2, 0), line(0, 0, 3, 0, 3, 0)]
    found = [line(1, 1, 0, 0, 2, 2), line(0, 0, 3, 3, 0, 0)]
    row = compare(
        [{"logits": one} for one in found],
        [{"logits": one} for one in wanted],
        W8A16,
        task="automatic-speech-recognition",
    )["logits"]
    assert (row["agreement"], row["decisions"]) == (0.75, 4)


def test_embeddings_agree_on_what_is_more_similar() -> None:
    wanted = samples(6, (1, 32))
    turned = [one @ np.linalg.qr(samples(1, (32, 32))[0])[0] for one in wanted]
    rows = [{"embedding": one} for one in wanted]
    row = compare([{"embedding": one} for one in turned], rows, W8A16, task="feature-extraction")
    assert row["embedding"]["agreement"] == 1.0, "a rotation keeps all similarities"
    assert fault(row["embedding"], W8A16), "but it is not the same output"
    other = [{"embedding": one} for one in samples(6, (1, 32), seed=7)]
    row = compare(other, rows, W8A16, task="feature-extraction")
    assert row["embedding"]["agreement"] < 0.8


def test_integers_and_texts_are_equal_or_not() -> None:
    wanted = [np.array([1, 2, 3, 4]), np.array([1, 1, 1, 1])]
    row = figures([np.array([1, 2, 3, 5]), np.array([1, 1, 1, 1])], wanted)
    assert row == {"agreement": 0.875}
    assert "87.5% of the values agree" in fault(row, W8A16)


def test_hidden_positions_of_a_cache_of_fixed_size_do_not_count() -> None:
    mask = np.array([[0, 0, 1, 1, 1]])
    outputs = {"present.0.key": np.zeros((1, 2, 5, 4)), "logits": np.zeros((1, 5, 9))}
    declared = {name: value.shape for name, value in outputs.items()}
    found = counted({"attention_mask": mask}, {"attention_mask": (1, 5)}, outputs, declared)
    assert found["present.0.key"].shape == (1, 1, 5, 1)
    assert found["present.0.key"].ravel().tolist() == [False, False, True, True, True]
    assert found["logits"].shape == (1, 5, 1)
