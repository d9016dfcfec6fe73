"""Limits of an answer: which entities and relations are kept, in one pass and over all windows of a text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.encoders.output import EncoderOutput
from gliner_bento.engine.heads import relations as relation_head
from gliner_bento.engine.heads.overlap import Resolved, resolve
from gliner_bento.engine.heads.predictions import Predictions, Span, SpanTable
from gliner_bento.engine.heads.relations import RelationCollector, RelationHead, RelationTask, predict_relations
from gliner_bento.engine.layers.rows import BatchRows, TextRows
from gliner_bento.engine.limits import CHARS_PER_RESULT, kept_of
from gliner_bento.engine.results import result_of
from gliner_bento.engine.text.prompts import NO_ROOM
from gliner_bento.engine.text.tokenize import Tokenized
from gliner_bento.engine.text.words import NO_WORDS
from gliner_bento.errors import LimitExceeded
from gliner_bento.tasks.extraction import ExtractionItem as Item

TEXT = "a bb ccc dddd eeeee"
WORDS = [(0, 1), (2, 4), (5, 8), (9, 13), (14, 19)]
ITEM = Item(TEXT, {"x": "x", "y": "y"}, {"r": "r", "s": "s"}, multi_label=True)
SCORES = st.lists(st.integers(0, 5).map(float), max_size=40)


def tokenized(bounds: Sequence[tuple[int, int]]) -> Tokenized:
    return Tokenized(NO_ROOM, replace(NO_WORDS, counts=np.ones(len(bounds), np.int64), bounds=np.array(bounds)))


def prepared(item: Item) -> Prepared:
    return Prepared(item, tokens=9, words=len(WORDS), payload=tokenized(WORDS))


def words(*scores: float, label: int = 0) -> list[Span]:
    """A span of each word."""
    return [Span(number, number, label, score) for number, score in enumerate(scores)]


@given(SCORES, st.integers(1, 50))
def test_the_best_by_score_are_kept_in_order(scores: list[float], maximum: int) -> None:
    item = replace(ITEM, max_entities=maximum, on_limit="truncate")
    kept = kept_of(item, "max_entities", np.array(scores), np.zeros(len(scores), np.int64))
    best = sorted(range(len(scores)), key=lambda index: (-scores[index], index))[:maximum]
    assert (list(range(len(scores))) if kept is None else kept.tolist()) == sorted(best)
    assert (kept is None) == (len(scores) <= maximum)


def test_the_texts_of_results_are_limited_too() -> None:
    item = replace(ITEM, max_entities=2, on_limit="truncate")
    chars = np.array([CHARS_PER_RESULT, 2 * CHARS_PER_RESULT], np.int64)
    assert kept_of(item, "max_entities", np.array([0.9, 0.8]), chars // 2) is None
    kept = kept_of(item, "max_entities", np.array([0.9, 0.8]), chars)
    assert kept is not None
    assert kept.tolist() == [0]
    with pytest.raises(LimitExceeded):
        kept_of(replace(item, on_limit="error"), "max_entities", np.array([0.9, 0.8]), chars)


def test_an_answer_with_too_many_entities_is_an_error_of_its_text_or_cut() -> None:
    item = replace(ITEM, max_entities=2)
    spans = SpanTable.of(words(0.5, 0.9, 0.6, 0.8))
    failed = Predictions.or_error(lambda: Predictions(*resolve(prepared(item), spans)))
    error = result_of(prepared(item), failed)
    assert isinstance(error, LimitExceeded)
    assert (error.param, "max_entities" in error.message) == ("threshold", True)
    cut = prepared(replace(item, on_limit="truncate"))
    answer = result_of(cut, Predictions(*resolve(cut, spans)))
    assert [entity.text for entity in answer.entities] == ["bb", "dddd"]
    assert [warning.code for warning in answer.warnings] == ["max_entities"]
    enough = prepared(replace(item, max_entities=4))
    assert not result_of(enough, Predictions(*resolve(enough, spans))).warnings


def test_relations_are_counted_as_they_are_found() -> None:
    entities = SpanTable.of(words(0.9, 0.9, 0.9))
    keys = np.array([[0, 0, 1], [1, 0, 1], [0, 1, 0], [0, 0, 1]], np.int64)  # the last repeats the first
    scores = np.array([0.6, 0.9, 0.8, 0.7], np.float32)
    found = RelationCollector(prepared(replace(ITEM, max_relations=3)), Resolved(entities))
    found.add(keys[:, 0], keys[:, 1:].T, scores)
    assert [one[:3] for one in found.predictions().relations] == [(0, 0, 1), (1, 0, 1), (0, 1, 0)]
    found.add(np.array([1]), np.array([[2], [1]]), scores[:1])
    error = found.predictions().error
    assert error is not None
    assert error.param == "relation_threshold"
    assert found.least_score == math.inf
    cut = RelationCollector(prepared(replace(ITEM, max_relations=2, on_limit="truncate")), Resolved(entities))
    for at in range(4):
        cut.add(keys[at : at + 1, 0], keys[at : at + 1, 1:].T, scores[at : at + 1])
    predictions = cut.predictions()
    assert [one[:3] for one in predictions.relations] == [(1, 0, 1), (0, 1, 0)]
    assert predictions.cut == ["max_relations"]


class _Pairs:
    """Scores pairs; counts how many it scored."""

    def __init__(self) -> None:
        self.chunks: list[int] = []

    def __call__(self, *_: object) -> object:
        def score(heads: torch.Tensor, tails: torch.Tensor) -> torch.Tensor:
            self.chunks.append(heads.shape[1])
            return (heads * 10 + tails).float()[..., None].expand(-1, -1, 2)

        return score

    def pair_bytes(self, _: torch.Tensor) -> int:
        return 1000


def head_of(scorer: _Pairs) -> RelationHead:
    head = RelationHead.__new__(RelationHead)
    head._adjacency, head.joint, head._padded, head._score = None, False, False, scorer  # type: ignore[assignment]
    return head


def relate(head: RelationHead, text: Prepared, number: int) -> Predictions:
    """Between `number` entities of one word each, whose scores rise; every 100th has the label y."""
    spans = SpanTable.of(Span(n, n, int(n % 100 == 0), 0.5 + n / 10_000) for n in range(number))
    encoded = EncoderOutput(*[torch.zeros(2, 4)] * 3, BatchRows(*[TextRows((2,))] * 4))
    task = RelationTask.of(text, Resolved(spans), list(spans.index_of_words()), joint=False)
    return predict_relations([task], head, lambda _, ends: torch.zeros(len(ends[0]), 4), encoded)[0]


def test_pairs_are_scored_in_chunks_of_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    item = replace(ITEM, max_relations=10**6)
    whole = relate(head_of(scorer := _Pairs()), prepared(item), 9)
    assert scorer.chunks == [72]
    monkeypatch.setattr(relation_head, "_CHUNK_BYTES", 10 * (1000 + 2 * relation_head._SCORE_BYTES))
    assert relate(head_of(scorer := _Pairs()), prepared(item), 9).relations == whole.relations
    assert scorer.chunks == [10] * 7 + [2]


def test_relations_that_cannot_be_among_the_best_are_not_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Falling(_Pairs):
        """The scores of the pairs fall, but for some in the second half that are the best."""

        def __call__(self, *_: object) -> object:
            def score(heads: torch.Tensor, tails: torch.Tensor) -> torch.Tensor:
                self.chunks.append(heads.shape[1])
                logits = 3 - (heads * 40 + tails).float() / 1000 + 2 * ((heads > 20) & (tails == 3))
                return logits[..., None].expand(-1, -1, 2)

            return score

    joined = []
    kept_of = relation_head.kept_of
    monkeypatch.setattr(relation_head, "kept_of", lambda *args: joined.append(len(args[2])) or kept_of(*args))
    text = prepared(replace(ITEM, max_relations=30, on_limit="truncate"))
    text = replace(text, payload=tokenized([(n, n + 1) for n in range(40)]))
    whole = relate(head_of(Falling()), text, 40)
    assert joined.pop(0) == 2 * 40 * 39
    monkeypatch.setattr(relation_head, "_MAX_PAIRS", 50)
    joined.clear()
    assert relate(head_of(scorer := Falling()), text, 40).relations == whole.relations
    assert len(scorer.chunks) == 32
    assert sum(joined) < 400  # of 3,120
    refused = replace(text, item=replace(text.item, on_limit="error"))
    assert isinstance(relate(head_of(scorer := Falling()), refused, 40).error, LimitExceeded)
    assert len(scorer.chunks) == 1


def test_scoring_ends_when_the_item_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relation_head, "_MAX_PAIRS", 10)
    text = prepared(ITEM)
    text.ended = True
    relate(head_of(scorer := _Pairs()), text, 9)
    assert not scorer.chunks


def test_the_ends_of_relations_are_limited_by_score_before_pairs_are_made() -> None:
    number = relation_head.MAX_RELATED_SPANS + 10
    many = replace(ITEM, relation_threshold=1.0)
    with pytest.raises(LimitExceeded):
        relate(head_of(_Pairs()), prepared(many), number)
    scorer = _Pairs()
    related = relate(head_of(scorer), prepared(replace(many, on_limit="truncate")), number)
    assert sum(scorer.chunks) == relation_head.MAX_RELATED_SPANS * (relation_head.MAX_RELATED_SPANS - 1)
    assert related.cut
    typed = replace(many, on_limit="truncate", relation_heads={"r": [0], "s": [0]}, relation_tails={"r": [0], "s": [0]})
    assert relate(head_of(_Pairs()), prepared(typed), number).cut
