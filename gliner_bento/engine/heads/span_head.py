"""The head of span models: a score for each span and label, and relations between the predicted entities.

Every text is scored on its own, after the encoder: no padding and no option of another text can change its result.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.encoders.output import EncoderOutput
from gliner_bento.engine.heads.decode import decode_spans
from gliner_bento.engine.heads.overlap import entities_of, suppressed_of
from gliner_bento.engine.heads.predictions import Predictions
from gliner_bento.engine.heads.relations import RelationHead
from gliner_bento.engine.heads.span_scores import span_scorer
from gliner_bento.engine.layers.factory import LayerFactory
from gliner_bento.engine.layers.kernels import Kernels
from gliner_bento.engine.layers.lora import on_slot


class SpanHead:
    """A `Head`."""

    def __init__(self, model: Any, layers: LayerFactory, kernels: Kernels, relations: RelationHead | None) -> None:
        self._encode_spans = span_scorer(model, layers, kernels)
        self._relate = relations
        self.name = self._encode_spans.name

    def __call__(self, encoded: EncoderOutput, texts: Sequence[Prepared]) -> list[Predictions]:
        """See `Head`."""
        spans = self._encode_spans(encoded.words, encoded.word_rows)
        above = decode_spans(spans.scores(encoded.labels, encoded.label_rows), texts)
        entities = [entities_of(text, found) for text, found in zip(texts, above, strict=True)]
        suppressed = [suppressed_of(text, *found) for text, *found in zip(texts, above, entities, strict=True)]
        if self._relate is None:
            return [Predictions(kept, suppressed=rest) for kept, rest in zip(entities, suppressed, strict=True)]
        predictions = []
        relations = encoded.relation_rows.split(encoded.relations)
        for number, (text, kept) in enumerate(zip(texts, entities, strict=True)):
            proposed = sorted({(span.first, span.last) for span in above[number]}) if text.item.relations else []
            represent, slot_rows_of = partial(spans.represent, number), partial(encoded.word_rows.slot_rows_of, number)
            with on_slot(encoded.word_rows.slot(number)):
                related = self._relate(text, kept, proposed, represent, relations[number], slot_rows_of)
            predictions.append(Predictions(kept, related, suppressed[number]))
        return predictions
