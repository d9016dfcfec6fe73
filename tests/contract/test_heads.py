"""Factorised heads give the scores of gliner's layers, in any number of chunks, for any shape."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from checkpoints import HIDDEN, TEXTS, named
from comparison import assert_same, extract_one, gliner_extraction, random_item

from gliner_bento.engine.heads import relations, span_scores, tag_scores
from gliner_bento.engine.heads.relations import PairScorer
from gliner_bento.engine.heads.span_scores import span_scorer
from gliner_bento.engine.heads.tag_scores import TagScorer
from gliner_bento.engine.layers.factory import LayerFactory
from gliner_bento.engine.layers.rows import TextRows
from gliner_bento.tasks.extraction import ExtractionItem as Item

WORD_COUNTS = (1, 7, 1, 2, 40)  # texts shorter than the widest span, and of one word
LABEL_COUNTS = (130, 1, 2, 5, 3)
WIDTH = 6


pytestmark = pytest.mark.usefixtures("no_gradients")


@pytest.fixture
def words() -> torch.Tensor:
    return torch.randn(sum(WORD_COUNTS), HIDDEN, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def labels() -> torch.Tensor:
    return torch.randn(sum(LABEL_COUNTS), HIDDEN, generator=torch.Generator().manual_seed(2))


def spans_of(words: int) -> list[tuple[int, int]]:
    return [(first, last) for first in range(words) for last in range(first, min(first + WIDTH, words))]


@pytest.mark.parametrize("words_at_once", [1, 3, 100])
@pytest.mark.parametrize("mode", ["markerV0", "marker", "markerV1", "cat"])
def test_scores_the_spans_that_gliner_represents(
    mode: str, words_at_once: int, reference: Any, words: torch.Tensor, labels: torch.Tensor, monkeypatch: Any
) -> None:
    model = reference("span", seed=1, span_mode=mode, max_width=WIDTH).model.eval()
    # gliner's hidden layer is four times as wide as the words.
    monkeypatch.setitem(span_scores._MAX_ELEMENTS, "packed", words_at_once * WIDTH * 4 * HIDDEN)
    scorer = span_scorer(model, LayerFactory(model))
    encoded = scorer(words, TextRows(WORD_COUNTS))
    scores = scorer.scores(encoded, labels, TextRows(LABEL_COUNTS))
    rows = zip(words.split(WORD_COUNTS), labels.split(LABEL_COUNTS), strict=True)
    for number, (row, of_row) in enumerate(rows):
        assert scores[number].shape == (1, len(row), WIDTH, len(of_row))
        boundaries = spans_of(len(row))
        every = torch.zeros(len(row), WIDTH, 2, dtype=torch.long)  # gliner's span for those beyond the last word
        first, last = torch.tensor(boundaries).T
        every[first, last - first] = torch.tensor(boundaries)
        represented = model.span_rep_layer(row[None], every.flatten(0, 1)[None])[0][first, last - first]
        torch.testing.assert_close(scorer.represent(encoded, [number], [boundaries]), represented, atol=1e-4, rtol=1e-4)
        expected = represented @ of_row.T
        torch.testing.assert_close(scores[number][0][first, last - first], expected, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("pairs_at_once", [1, 7, 512, 100_000])
def test_tags_words_as_gliner_does(
    pairs_at_once: int, reference: Any, words: torch.Tensor, labels: torch.Tensor, monkeypatch: Any
) -> None:
    scorer = reference("token", seed=1).model.eval().scorer
    monkeypatch.setitem(tag_scores._MAX_PAIRS, "packed", pairs_at_once)
    scores = TagScorer(scorer, LayerFactory(scorer))(words, TextRows(WORD_COUNTS), labels, TextRows(LABEL_COUNTS))
    rows = zip(words.split(WORD_COUNTS), labels.split(LABEL_COUNTS), strict=True)
    for found, (row, of_row) in zip(scores, rows, strict=True):
        torch.testing.assert_close(found[0], scorer(row[None], of_row[None])[0], atol=1e-4, rtol=1e-4)


def test_scores_pairs_as_gliner_does(reference: Any, words: torch.Tensor, labels: torch.Tensor) -> None:
    layers = reference("relex-span", seed=1).model.eval().pair_rep_layer
    heads, tails = torch.arange(len(words)), torch.arange(len(words)).flip(0)
    expected = layers(torch.cat([words[heads], words[tails]], dim=-1)) @ labels.T
    found = PairScorer(layers, LayerFactory(layers))(words, labels[None], lambda _: None)(heads[None], tails[None])[0]
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("family", ["relex-span", "relex-span-dot", "relex-token"])
def test_relations_scored_in_chunks_are_the_same(family: str, engine: Any, monkeypatch: Any) -> None:
    served, found = engine(family, seed=1), 0
    items = [random_item(seed, relations=True) for seed in range(24)]
    whole = [extract_one(served, item) for item in items]
    monkeypatch.setattr(relations, "_MAX_PAIRS", 3)
    for item, expected in zip(items, whole, strict=True):
        answer = extract_one(served, item)
        assert_same(answer, expected)
        found += len(answer.relations)
    assert found > 10


@pytest.mark.parametrize("family", ["bi-span", "bi-token"])
@pytest.mark.parametrize("text", [TEXTS[1], "Apple", ""])
def test_results_for_many_labels(family: str, text: str, engine: Any, reference: Any) -> None:
    item = Item(text, named(f"city {number}" for number in range(130)), threshold=0.6, multi_label=True)
    answer = extract_one(engine(family, seed=1), item)
    if text:
        assert_same(answer, gliner_extraction(reference(family, seed=1), item))
    assert bool(answer.entities) == bool(text)


@pytest.mark.parametrize("mode", ["markerV0", "marker"])
def test_spans_may_be_wider_than_the_text(mode: str, engine: Any, reference: Any) -> None:
    options = {"seed": 1, "span_mode": mode, "max_width": 30}
    found = 0
    for text in ("Apple", "Bill Gates", TEXTS[0]):
        item = Item(text, named(("person", "city", "company")), threshold=0.3, flat_ner=False, multi_label=True)
        answer = extract_one(engine("span", **options), item)
        assert_same(answer, gliner_extraction(reference("span", **options), item))
        found += len(answer.entities)
    assert found
