"""The engine's decoding is gliner's."""

from __future__ import annotations

import time
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gliner2.inference import overlap
from hypothesis import given, settings
from hypothesis import strategies as st

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.heads.decode import decode_padded_spans, decode_tags, proposed_spans, tag_scores
from gliner_bento.engine.heads.overlap import kept_spans, resolve
from gliner_bento.engine.heads.predictions import Span, SpanTable
from gliner_bento.engine.text.prompts import NO_ROOM
from gliner_bento.engine.text.tokenize import Tokenized
from gliner_bento.engine.text.words import NO_WORDS
from gliner_bento.errors import LimitExceeded, ScoresNotFinite
from gliner_bento.tasks.extraction import ExtractionItem as Item

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from gliner.decoding import SpanDecoder, TokenDecoder
    from gliner.decoding.decoder import Span as GlinersSpan
    from gliner.modeling.utils import extract_spans_from_tokens

SPANS = st.lists(
    st.builds(
        lambda first, width, label, score: Span(first, first + width, label, score / 8),
        st.integers(0, 9),
        st.integers(0, 5),
        st.integers(0, 2),
        st.integers(1, 8),  # few scores, many ties
    ),
    max_size=30,
    unique_by=lambda span: (span.first, span.last, span.label),
)
SEEDS = st.integers(0, 10_000)
THRESHOLDS = st.sampled_from([0.0, 0.2, 0.5, 0.9])


def row(words: int, labels: int, threshold: float) -> Prepared:
    item = Item("", {str(i): str(i) for i in range(labels)}, threshold=threshold)
    return Prepared(item, tokens=1, words=words, payload=Tokenized(NO_ROOM, NO_WORDS))


def kept(spans: SpanTable, *, flat: bool, multi_label: bool) -> list[Span]:
    item = Item("", flat_ner=flat, multi_label=multi_label)
    return list(spans.take(kept_spans(spans, item, within_labels=False)))


@given(SPANS, st.booleans(), st.booleans())
def test_overlap_resolution_is_gliners(spans: list[Span], flat: bool, multi_label: bool) -> None:
    theirs = TokenDecoder(None).greedy_search([GlinersSpan(*span) for span in spans], flat, multi_label)
    ours = kept(SpanTable.of(spans), flat=flat, multi_label=multi_label)
    assert ours == [(span.start, span.end, span.entity_type, span.score) for span in theirs]


@given(SPANS, st.sampled_from(["allow", "nested", "flat", "longest"]), st.booleans(), SEEDS)
def test_overlap_policies_are_gliner2s(spans: list[Span], policy: Any, within_labels: bool, seed: int) -> None:
    """Over all labels, or within each. Without equal scores: of several sets with one sum, either may be kept."""
    scores = np.random.default_rng(seed).permutation(len(spans)) / 64 + 0.1 + np.linspace(0, 1e-3, len(spans)) ** 2
    spans = [span._replace(score=float(score)) for span, score in zip(sorted(spans), scores, strict=True)]
    groups = [[span for span in spans if span.label == label] for label in range(3)] if within_labels else [spans]
    expected = [
        span
        for group in groups
        for span in overlap.resolve_overlaps(
            group, policy, score=lambda one: one.score, start=lambda one: one.first, end=lambda one: one.last + 1
        )
    ]
    table = SpanTable.of(spans)
    ours = list(table.take(kept_spans(table, Item("", {}, overlap=policy), within_labels=within_labels)))
    assert sorted(ours) == sorted(expected)
    assert [span.first for span in ours] == sorted(span.first for span in ours)


def test_all_labels_of_a_kept_span_count_if_it_may_have_several() -> None:
    table = SpanTable.of([Span(0, 3, 0, 0.5), Span(0, 3, 1, 0.4), Span(1, 2, 1, 0.9)])
    item = Item("", {}, overlap="longest", multi_label=True)
    assert [span.label for span in table.take(kept_spans(table, item, within_labels=False))] == [0, 1]


@settings(max_examples=30)
@given(SEEDS, THRESHOLDS)
def test_decoded_spans_are_gliners(seed: int, threshold: float) -> None:
    logits = torch.randn(1, 7, 3, 2, generator=torch.Generator().manual_seed(seed))
    options = {"flat_ner": False, "threshold": threshold, "multi_label": True}
    theirs = SpanDecoder(None).decode([["w"] * 7], {1: 0, 2: 1}, logits, **options)
    ours = kept(decode_padded_spans(logits, [row(7, 2, threshold)])[0], flat=False, multi_label=True)
    assert [span[:3] for span in ours] == [(span.start, span.end, span.entity_type) for span in theirs[0]]
    assert [span.score for span in ours] == pytest.approx([span.score for span in theirs[0]], abs=1e-6)


@settings(max_examples=30)
@given(SEEDS, THRESHOLDS)
def test_decoded_tags_are_gliners(seed: int, threshold: float) -> None:
    logits = torch.randn(1, 7, 2, 3, generator=torch.Generator().manual_seed(seed)) + 0.5
    options = {"flat_ner": False, "threshold": threshold, "multi_label": True}
    theirs = TokenDecoder(SimpleNamespace()).decode([["w"] * 7], {1: 0, 2: 1}, logits, **options)[0]
    scores = tag_scores([logits[0]])[0]
    ours = kept(decode_tags(scores, threshold), flat=False, multi_label=True)
    assert [span[:3] for span in ours] == [(span.start, span.end, span.entity_type) for span in theirs]
    assert [span.score for span in ours] == pytest.approx([span.score for span in theirs], abs=1e-6)


@settings(max_examples=30)
@given(SEEDS, THRESHOLDS)
def test_proposed_spans_are_gliners(seed: int, threshold: float) -> None:
    logits = torch.randn(1, 7, 2, 3, generator=torch.Generator().manual_seed(seed)) + 0.5
    theirs, mask = extract_spans_from_tokens(logits, None, threshold)
    scores = tag_scores([logits[0]])[0]
    assert proposed_spans(scores, threshold) == [tuple(pair) for pair in theirs[mask].tolist()]


def test_a_text_is_decoded_with_its_own_words_labels_and_threshold() -> None:
    logits = torch.full((2, 4, 2, 3), 1.0)
    rows = [row(4, 3, 0.5), row(2, 1, 0.9)]
    assert [len(found) for found in decode_padded_spans(logits, rows)] == [(4 + 3) * 3, 0]
    rows = [row(4, 3, 0.9), row(2, 1, 0.5)]
    assert list(decode_padded_spans(logits, rows)[1]) == [(0, 0, 0, pytest.approx(0.731, abs=1e-3))] + [
        (first, 1, 0, pytest.approx(0.731, abs=1e-3)) for first in (0, 1)
    ]


def test_nan_fails_only_inside_a_text() -> None:
    logits = torch.zeros(2, 3, 1, 2)
    logits[1, 2] = float("nan")
    assert decode_padded_spans(logits, [row(3, 2, 0.1), row(2, 2, 0.1)])
    with pytest.raises(ScoresNotFinite):
        decode_padded_spans(logits, [row(3, 2, 0.1), row(3, 2, 0.1)])


def test_overlap_resolution_takes_linear_time() -> None:
    draw = np.random.default_rng(0)
    spans = SpanTable.of(
        Span(first, first + width, label, draw.random())
        for first in range(400)
        for width in range(12)
        for label in range(10)
    )
    started_s = time.thread_time()
    for flat in (True, False):
        assert len(kept(spans, flat=flat, multi_label=False))
    assert time.thread_time() - started_s < 10


def test_more_spans_than_the_limit_are_refused() -> None:
    scores = np.ones((400, 10, 3), dtype=np.float32)
    with pytest.raises(LimitExceeded) as raised:
        decode_tags(scores, 0.0)
    assert raised.value.param == "threshold"
    text = row(400, 200, 0.0)
    with pytest.raises(LimitExceeded):
        resolve(text, decode_padded_spans(torch.zeros(1, 400, 12, 200), [text])[0])
