"""Forwards of the models that find entities alone. gliner's own, except where its batching lets rows meet.

A token model with span representations proposes spans by the batch's one threshold, from padding too, and then scores
them: here each row proposes its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from gliner.modeling.base import UniEncoderSpanModel

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.decode import Span, probabilities, spans_above, tag_scores, tagged_boundaries, tagged_spans
from gliner_bento.engine.forward.findings import Findings, entities


def find_spans(model: Any, inputs: dict[str, Any], rows: Sequence[Prepared]) -> list[Findings]:
    """Span models: a score for each span and label."""
    logits = model(**inputs).logits
    return [Findings(entities(row, spans)) for row, spans in zip(rows, spans_above(logits, rows), strict=True)]


def find_spans_without_decoder(model: Any, inputs: dict[str, Any], rows: Sequence[Prepared]) -> list[Findings]:
    """Span models that could also write labels of their own: entities come from the scores alone, as in gliner."""
    logits = UniEncoderSpanModel.forward(model, **inputs).logits
    return [Findings(entities(row, spans)) for row, spans in zip(rows, spans_above(logits, rows), strict=True)]


def find_tags(model: Any, inputs: dict[str, Any], rows: Sequence[Prepared]) -> list[Findings]:
    """Token models: scores of start, end and inside for each word and label."""
    scores = tag_scores(model(**inputs).logits, rows)
    spans = [tagged_spans(scored, row.item.threshold) for row, scored in zip(rows, scores, strict=True)]
    return [Findings(entities(row, found)) for row, found in zip(rows, spans, strict=True)]


def find_tagged_spans(model: Any, inputs: dict[str, Any], rows: Sequence[Prepared]) -> list[Findings]:
    """Token models with `represent_spans`: tags propose spans, the spans' own scores decide."""
    read = model.get_representations(**inputs)
    tags = tag_scores(model.scorer(read.words_embedding, read.prompts_embedding), rows)
    findings = []
    for number, (row, scores) in enumerate(zip(rows, tags, strict=True)):
        words = read.words_embedding[number : number + 1, : row.words]
        labels = read.prompts_embedding[number, : len(row.item.labels)]
        boundaries = tagged_boundaries(scores, row.item.threshold)
        findings.append(Findings(entities(row, _scored(model, words, labels, boundaries, row.item.threshold))))
    return findings


def _scored(
    model: Any, words: torch.Tensor, labels: torch.Tensor, boundaries: Sequence[tuple[int, int]], threshold: float
) -> list[Span]:
    """Spans above the threshold; `words` has shape (1, W, D), `labels` (C, D)."""
    if not boundaries:
        return []
    represented = model.span_rep_layer(words, torch.tensor([boundaries], device=words.device))[0]
    logits = represented @ labels.T
    scores = probabilities(logits, torch.ones_like(logits, dtype=torch.bool)).tolist()
    return [
        Span(first, last, label, score)
        for (first, last), of_labels in zip(boundaries, scores, strict=True)
        for label, score in enumerate(of_labels)
        if score > threshold
    ]
