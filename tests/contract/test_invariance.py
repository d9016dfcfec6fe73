"""A text has the same scores, bit for bit, alone and in any batch, with one thread and with two."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from checkpoints import LABELS, RELATIONS, TEXTS, load_engine, named

from gliner_bento.engine import invariance
from gliner_bento.engine.engine import GLiNEREngine
from gliner_bento.engine.layers.int8 import multiplies_int8
from gliner_bento.tasks.extraction import Extraction
from gliner_bento.tasks.extraction import ExtractionItem as Item

PRECISIONS = {
    "float32": {"dtype": "float32"},
    "bfloat16": {"dtype": "bfloat16"},
    "int8": {"dtype": "float32", "quantization": "int8"},
}
CASES: list[tuple[str, str, dict[str, Any]]] = [
    *(("span", precision, {"backbone": "bert"}) for precision in PRECISIONS),
    *(("span", precision, {"backbone": "deberta"}) for precision in PRECISIONS),
    ("span", "bfloat16", {"backbone": "modernbert", "span_mode": "marker"}),
    ("span", "float32", {"backbone": "convbert"}),
    ("span", "float32", {"backbone": "bert", "span_mode": "markerV1"}),
    ("token-spans", "bfloat16", {"backbone": "deberta", "subtoken_pooling": "mean"}),
    ("bi-span", "bfloat16", {"backbone": "roberta"}),
    ("bi-token", "float32", {"post_fusion_schema": "l2l-l2t-t2t-t2l", "num_post_fusion_layers": 2, "seed": 4}),
    ("relex-span", "bfloat16", {"backbone": "bert", "relations_layer": "mlp"}),
    ("relex-token-gat", "float32", {"backbone": "deberta"}),
    ("relex-span-triples", "int8", {"backbone": "bert"}),
]

RUNNABLE = [case for case in CASES if case[1] != "int8" or multiplies_int8()]


def identifier(value: object) -> str:
    return "-".join(map(str, value.values())) if isinstance(value, dict) else str(value)


def load(folder: Path, precision: str, **options: Any) -> GLiNEREngine:
    return load_engine(folder, **PRECISIONS[precision], **options)


def some_items(*, relations: bool) -> list[Item]:
    """Items of 1 to 40 words, with labels and options of their own."""
    draw = random.Random(1)
    words = " ".join(TEXTS).split()
    return [
        Item(
            " ".join(draw.choices(words, k=count)),
            named(draw.sample(LABELS, draw.randint(1, len(LABELS)))),
            named(draw.sample(RELATIONS, 2)) if relations and count < 8 else {},
            threshold=0.02,
            relation_threshold=0.02,
            flat_ner=draw.random() < 0.5,
            multi_label=True,
        )
        for count in (1, 2, 3, 3, 5, 7, 7, 12, 17, 24, 32, 40)
    ]


def extracted(engine: GLiNEREngine, items: list[Item], threads: int) -> list[Extraction]:
    """The results of one batch."""
    return engine.decode(engine.forward(engine.collate([engine.prepare(item) for item in items]), threads))


def assert_invariant(engine: GLiNEREngine, batches: list[tuple[int, int]]) -> None:
    """batches: the number of items and of threads of each."""
    assert engine.info.batch_invariant
    items = some_items(relations=engine.info.supports_relations)
    alone = [extracted(engine, [item], 1)[0] for item in items]
    assert sum(len(answer.entities) for answer in alone) > 20
    draw = random.Random(0)
    for size, threads in batches:
        chosen = draw.sample(range(len(items)), size)
        answers = extracted(engine, [items[number] for number in chosen], threads)
        assert answers == [alone[number] for number in chosen], (chosen, threads)


@pytest.mark.parametrize(("family", "precision", "options"), RUNNABLE, ids=identifier)
def test_results_are_the_same_bits_in_any_batch(
    family: str, precision: str, options: dict[str, Any], checkpoint: Any
) -> None:
    assert_invariant(load(checkpoint(family, **{"seed": 3, **options}), precision), [(12, 1), (5, 1), (3, 1)])


def test_results_are_the_same_bits_with_two_threads(checkpoint: Any) -> None:
    """With a hidden layer so wide that MKL divides the sums of span scores among threads."""
    folder = checkpoint("span", seed=5, backbone="bert", hidden_size=512)
    assert_invariant(load(folder, "float32", inference_lanes=2), [(6, 2), (1, 2), (6, 1)])


@pytest.mark.parametrize("options", [{"batch_invariant": False}, {"enable_sequence_packing": False}], ids=identifier)
def test_a_model_is_not_called_invariant_if_nothing_makes_it_so(options: dict[str, Any], checkpoint: Any) -> None:
    assert not load(checkpoint("span", seed=3, backbone="bert"), "float32", **options).info.batch_invariant


def test_a_model_that_fails_the_check_is_not_called_invariant(
    checkpoint: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a machine whose kernels round otherwise with two threads: here the second result is another text's."""
    folder, results = checkpoint("span", seed=3, backbone="bert"), invariance._results
    monkeypatch.setattr(invariance, "_results", lambda engine, items, threads: results(engine, items[:1], threads))
    assert not load(folder, "float32").info.batch_invariant
    assert "may differ by rounding" in caplog.text


def test_results_are_the_same_bits_in_the_express_lane_which_has_one_thread(checkpoint: Any) -> None:
    assert invariance.thread_counts(lanes=2, torch_threads=2) == (1, 2, 4)
    engine = load(checkpoint("span", seed=5, backbone="bert", hidden_size=512), "float32", torch_threads=2)
    assert_invariant(engine, [(6, 2), (1, 1), (6, 1)])
