"""The head of span models: a score for each span and label, and relations between the predicted entities.

Every text is scored on its own, after the encoder: no padding and no option of another text can change its result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.encoders.output import EncoderOutput
from gliner_bento.engine.heads.decode import PaddedSpans, above_own_threshold, decode_spans, lowest_threshold
from gliner_bento.engine.heads.overlap import predictions_of, resolve
from gliner_bento.engine.heads.predictions import Predictions, SpanTable
from gliner_bento.engine.heads.relations import RelationHead, RelationTask, predict_relations
from gliner_bento.engine.heads.span_scores import EncodedSpans, span_scorer
from gliner_bento.engine.layers.factory import LayerFactory


class SpanScores(NamedTuple):
    """The spans of a batch, and the logits of each text; of a padded batch, the spans above the thresholds."""

    spans: EncodedSpans
    logits: Sequence[torch.Tensor]
    padded: PaddedSpans | None


class SpanHead:
    """A `Head`."""

    def __init__(self, model: Any, layers: LayerFactory, relations: RelationHead | None) -> None:
        self._encode_spans = span_scorer(model, layers)
        self._relate = relations
        self.name = self._encode_spans.name

    def scores(self, encoded: EncoderOutput) -> SpanScores:
        """See `Head`."""
        spans = self._encode_spans(encoded.words, encoded.rows.words)
        logits = spans.scores(encoded.labels, encoded.rows.labels)
        if encoded.thresholds is None:
            return SpanScores(spans, [text[0] for text in logits], None)
        return SpanScores(spans, (), PaddedSpans.of(logits[0], encoded))

    def predictions(self, scores: SpanScores, encoded: EncoderOutput, texts: Sequence[Prepared]) -> list[Predictions]:
        """See `Head`."""
        spans, logits, padded = scores
        if padded is None:
            above = decode_spans(logits, [lowest_threshold(text.item) for text in texts])
        else:
            above = padded.read(len(texts))
        if self._relate is None:
            above = list(map(above_own_threshold, texts, above))
            return [Predictions.or_error(predictions_of, *pair) for pair in zip(texts, above, strict=True)]
        outcomes = [
            Predictions.or_error(self._task, number, *of_text)
            for number, of_text in enumerate(zip(texts, above, strict=True))
        ]
        return predict_relations(outcomes, self._relate, spans.represent, encoded)

    def _task(self, number: int, text: Prepared, spans: SpanTable) -> RelationTask | Predictions:
        """spans: above the text's lowest threshold. Raises LimitExceeded."""
        assert self._relate is not None
        resolved = resolve(text, above_own_threshold(text, spans))
        if not text.item.relations:
            return Predictions(*resolved)
        proposed = sorted(set(zip(spans.first.tolist(), spans.last.tolist(), strict=True)))
        return RelationTask.of(number, text, resolved, proposed, joint=self._relate.joint)
