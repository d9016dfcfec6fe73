"""The head of span models: a score for each span and label, and relations between the predicted entities.

Every text is scored on its own, after the encoder: no padding and no option of another text can change its result.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.encoders.output import EncoderOutput
from gliner_bento.engine.heads.decode import PaddedSpans, above_own_threshold, decode_spans
from gliner_bento.engine.heads.overlap import predictions_of, resolve
from gliner_bento.engine.heads.predictions import Predictions, SpanTable
from gliner_bento.engine.heads.relations import RelationHead, Represent, SlotRowsOf, with_relations
from gliner_bento.engine.heads.span_scores import EncodedSpans, span_scorer
from gliner_bento.engine.layers.factory import LayerFactory
from gliner_bento.engine.layers.kernels import Kernels
from gliner_bento.engine.layers.lora import on_slot


class SpanScores(NamedTuple):
    """Of a batch: its spans, and the logits of each text or, padded, the spans above the thresholds."""

    spans: EncodedSpans
    logits: Sequence[torch.Tensor]
    padded: PaddedSpans | None


class SpanHead:
    """A `Head`."""

    def __init__(self, model: Any, layers: LayerFactory, kernels: Kernels, relations: RelationHead | None) -> None:
        self._encode_spans = span_scorer(model, layers, kernels)
        self._relate = relations
        self.name = self._encode_spans.name

    def scores(self, encoded: EncoderOutput) -> SpanScores:
        """See `Head`."""
        spans = self._encode_spans(encoded.words, encoded.word_rows)
        logits = spans.scores(encoded.labels, encoded.label_rows)
        if encoded.thresholds is None:
            return SpanScores(spans, [text[0] for text in logits], None)
        return SpanScores(spans, (), PaddedSpans.of(logits[0], encoded))

    def predictions(self, scores: SpanScores, encoded: EncoderOutput, texts: Sequence[Prepared]) -> list[Predictions]:
        """See `Head`."""
        spans, logits, padded = scores
        above = decode_spans(logits, texts) if padded is None else padded.read(len(texts))
        if self._relate is None:
            above = list(map(above_own_threshold, texts, above))
            return [Predictions.or_error(predictions_of, *pair) for pair in zip(texts, above, strict=True)]
        relations = encoded.relation_rows.split(encoded.relations)
        predictions = []
        for number, (text, found) in enumerate(zip(texts, above, strict=True)):
            ends = partial(spans.represent, number), relations[number]
            slot_rows_of = partial(encoded.word_rows.slot_rows_of, number)
            with on_slot(encoded.word_rows.slot(number)):
                predictions.append(Predictions.or_error(self._related, text, found, *ends, slot_rows_of))
        return predictions

    def _related(
        self, text: Prepared, spans: SpanTable, represent: Represent, relations: torch.Tensor, slot_rows_of: SlotRowsOf
    ) -> Predictions:
        """The predictions of one text with relations. spans: above its lowest threshold. Raises LimitExceeded."""
        assert self._relate is not None
        resolved = resolve(text, above_own_threshold(text, spans))
        if not text.item.relations:
            return Predictions(*resolved)
        proposed = sorted(set(zip(spans.first.tolist(), spans.last.tolist(), strict=True)))
        return with_relations(
            resolved, self._relate(text, resolved.entities, proposed, represent, relations, slot_rows_of)
        )
