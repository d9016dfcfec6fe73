"""The head of span models: a score for each span and label, and relations between the predicted entities.

After the encoder, the result of a text depends neither on padding nor on the options of other texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.encoders.output import EncoderOutput
from gliner_bento.engine.heads.decode import PaddedSpans, above_own_threshold, decode_spans, lowest_threshold
from gliner_bento.engine.heads.overlap import resolve
from gliner_bento.engine.heads.predictions import Predictions, SpanTable
from gliner_bento.engine.heads.relations import RelationHead, RelationTask, predict_relations
from gliner_bento.engine.heads.span_scores import span_scorer
from gliner_bento.engine.layers.factory import LayerFactory


class SpanScores(NamedTuple):
    """spans: all spans of a batch, encoded. logits: of each text, if the batch is not padded. padded: the spans above
    the thresholds, if the batch is padded."""

    spans: Any
    logits: Sequence[torch.Tensor]
    padded: PaddedSpans | None


class SpanHead:
    """The `Head` of span models."""

    def __init__(self, model: Any, layers: LayerFactory, relations: RelationHead | None) -> None:
        self._scorer = span_scorer(model, layers)
        self._relate = relations
        self.name = self._scorer.name

    def scores(self, encoded: EncoderOutput) -> SpanScores:
        spans = self._scorer(encoded.words, encoded.rows.words)
        logits = self._scorer.scores(spans, encoded.labels, encoded.rows.labels)
        if encoded.thresholds is None:
            return SpanScores(spans, [text[0] for text in logits], None)
        return SpanScores(spans, (), PaddedSpans.of(logits[0], encoded))

    def predictions(self, scores: SpanScores, encoded: EncoderOutput, texts: Sequence[Prepared]) -> list[Predictions]:
        spans, logits, padded = scores
        if padded is None:
            above = decode_spans(logits, [lowest_threshold(text.item) for text in texts])
        else:
            above = padded.read(len(texts))
        outcomes = [Predictions.or_error(self._outcome, *of_text) for of_text in zip(texts, above, strict=True)]
        return predict_relations(outcomes, self._relate, partial(self._scorer.represent, spans), encoded)

    def _outcome(self, text: Prepared, spans: SpanTable) -> RelationTask | Predictions:
        """See `outcomes` of `predict_relations`. spans: above the text's lowest threshold. Raises LimitExceeded."""
        resolved = resolve(text, above_own_threshold(text, spans))
        if self._relate is None or not text.item.relations:
            return Predictions(*resolved)
        return RelationTask.of(text, resolved, sorted(spans.index_of_words()), joint=self._relate.joint)
