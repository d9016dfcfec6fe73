"""In bfloat16, scores are close to those in float32, and independent of batching."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from checkpoints import LABELS, RELATIONS, TEXTS, checkpoint_in, load_engine, named
from comparison import extract_batch, gliner_extraction
from gliner.modeling.layers import LstmSeq2SeqEncoder

from gliner_bento.engine.checkpoint.load import load
from gliner_bento.engine.layers.lstm import Lstm
from gliner_bento.engine.layers.rows import TextRows
from gliner_bento.tasks.extraction import Extraction
from gliner_bento.tasks.extraction import ExtractionItem as Item

LOWEST = 0.05
FAR = 0.5
SIZE = 32

CASES = [
    (family, backbone, {} if "token" in family else {"max_width": 1})
    for family in ("span", "token", "bi-span", "relex-span")
    for backbone in ("bert", "deberta", "modernbert")
]


@pytest.fixture(scope="module")
def bfloat16(checkpoint: Any) -> Any:
    return lambda *args, **options: load_engine(checkpoint(*args, **options), dtype="bfloat16")


def scores_of(answers: Iterable[Extraction]) -> dict[Any, float]:
    """Scores of entities and relations, by their keys."""
    scores: dict[Any, float] = {}
    for number, answer in enumerate(answers):
        scores |= {(number, entity.start, entity.label): entity.score for entity in answer.entities}
        scores |= {(number, r.head.start, r.tail.start, r.relation): r.score for r in answer.relations}
    return scores


def mean_error(found: dict[Any, float], expected: dict[Any, float]) -> float:
    errors = [abs(found[key] - score) for key, score in expected.items() if key in found]
    assert len(errors) > 20
    return sum(errors) / len(errors)


@pytest.mark.parametrize(("family", "backbone", "options"), CASES)
def test_scores_are_near(
    family: str, backbone: str, options: dict[str, Any], engine: Any, bfloat16: Any, checkpoint: Any
) -> None:
    """As near as gliner's own in bfloat16: the random weights of these tiny models make much of an error.

    Asked for spans of one word and all labels, so that none makes way for another."""
    options = {"backbone": backbone, "seed": 3, **options}
    exact, near = engine(family, **options), bfloat16(family, **options)
    assert near.info.dtype == "bfloat16"
    texts = re.findall(r"\w+", " ".join(TEXTS)) if "token" in family else TEXTS
    relations = named(RELATIONS[:2]) if exact.info.supports_relations else {}
    items = [
        Item(text, named(LABELS[:3]), relations, threshold=LOWEST, relation_threshold=LOWEST, multi_label=True)
        for text in texts
    ]
    expected, found = scores_of(extract_batch(exact, items)), scores_of(extract_batch(near, items))
    gliner = load(checkpoint_in(checkpoint(family, **options)), torch.device("cpu"), torch.bfloat16)
    theirs = scores_of(gliner_extraction(gliner, item) for item in items)
    assert mean_error(found, expected) < min(0.03, 1.5 * mean_error(theirs, expected) + 0.002)
    lost = [key for key in expected.keys() ^ found.keys() if len(key) == 3]  # entities; relations go with them
    assert all(max(expected.get(key, 0), found.get(key, 0)) < FAR for key in lost)


@pytest.mark.parametrize(("family", "backbone", "options"), CASES)
def test_texts_do_not_depend_on_other_texts(family: str, backbone: str, options: dict[str, Any], bfloat16: Any) -> None:
    """With other texts of the same lengths in the batch: exactly the same scores."""
    served = bfloat16(family, backbone=backbone, seed=3, **options)
    first, *others = [
        Item(text, named(LABELS[:3]), threshold=LOWEST, multi_label=True) for text in (*TEXTS, *TEXTS[:2])
    ]
    turned = [replace(item, text=" ".join(reversed(item.text.split()))) for item in others]
    before, after = extract_batch(served, [first, *others]), extract_batch(served, [first, *turned])
    assert [answer.usage.tokens for answer in before] == [answer.usage.tokens for answer in after]
    assert before[0] == after[0]
    assert before[0].entities
    assert before[1:] != after[1:]


def some_lstm(**options: Any) -> LstmSeq2SeqEncoder:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        encoder = LstmSeq2SeqEncoder(SimpleNamespace(hidden_size=SIZE), **options).eval()
        for parameter in encoder.parameters():
            parameter.data.normal_(0, 0.3)
    return encoder


def some_words(counts: list[int], seed: int = 0) -> torch.Tensor:
    return torch.randn(sum(counts), SIZE, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("counts", [[1], [1, 1], [5, 5, 5], [9, 1, 30, 4, 30], [60, 59]], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2}, {"bidirectional": False}], ids=str)
@torch.inference_mode()
def test_an_lstm_processes_each_text_separately(options: dict[str, Any], dtype: torch.dtype, counts: list[int]) -> None:
    encoder, words = some_lstm(**options), some_words(counts)
    expected = torch.cat([encoder.lstm(row[None])[0][0] for row in words.split(counts)])
    found = Lstm(encoder.to(dtype))(words.to(dtype), TextRows(tuple(counts)))
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), expected, atol=1e-5 if dtype == torch.float32 else 0.03, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.inference_mode()
def test_an_lstm_does_not_mix_texts(dtype: torch.dtype) -> None:
    counts, lstm = [3, 9, 1, 9, 6], Lstm(some_lstm().to(dtype))
    words = some_words(counts).to(dtype)
    others = 1000 * some_words(counts, seed=1).to(dtype)
    for number, mine in enumerate(words.split(counts)):
        spoilt = list(others.split(counts))
        spoilt[number] = mine
        before, after = (
            lstm(rows, TextRows(tuple(counts))).split(counts)[number] for rows in (words, torch.cat(spoilt))
        )
        assert torch.equal(before, after)
