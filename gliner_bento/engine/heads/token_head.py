"""The head of token models: scores of start, end and inside for each word and label.

If the model represents spans, the tags only propose spans, and the spans' own scores decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.encoders.output import EncoderOutput
from gliner_bento.engine.heads.decode import decode_tags, probabilities, proposed_spans, tag_scores
from gliner_bento.engine.heads.overlap import entities_of, suppressed_of
from gliner_bento.engine.heads.predictions import Predictions, Span, WordSpan
from gliner_bento.engine.heads.relations import RelationHead, Represent
from gliner_bento.engine.heads.tag_scores import TagScorer
from gliner_bento.engine.layers.factory import LayerFactory
from gliner_bento.engine.layers.kernels import Kernels
from gliner_bento.engine.layers.lora import on_slot


class TokenHead:
    """A `Head`."""

    def __init__(self, model: Any, layers: LayerFactory, _: Kernels, relations: RelationHead | None) -> None:
        self._tag = TagScorer(model.scorer, layers)
        self._relate = relations
        self.name = self._tag.name
        self._represent_spans = getattr(model, "span_rep_layer", None)
        if self._represent_spans is not None:
            layers.adapt(self._represent_spans)
        self._own_shapes = layers.own_shapes
        self._scores_spans = relations is None and self._represent_spans is not None

    def __call__(self, encoded: EncoderOutput, texts: Sequence[Prepared]) -> list[Predictions]:
        """See `Head`."""
        tags = tag_scores(self._tag(encoded.words, encoded.word_rows, encoded.labels, encoded.label_rows))
        words, labels = encoded.word_rows.split(encoded.words), encoded.label_rows.split(encoded.labels)
        relations = encoded.relation_rows.split(encoded.relations)
        predictions = []
        for number, (text, scores) in enumerate(zip(texts, tags, strict=True)):
            represent = partial(self._represent, words[number])
            proposed = proposed_spans(scores, text.item.threshold) if self._uses_proposals(text) else []
            with on_slot(encoded.word_rows.slot(number)):
                if self._scores_spans:
                    with self._own_shapes():
                        spans = score_spans(represent, labels[number], proposed, text.item.threshold)
                else:
                    spans = decode_tags(scores, text.item.threshold)
                entities = entities_of(text, spans)
                slot_rows_of = partial(encoded.word_rows.slot_rows_of, number)
                related = (
                    self._relate(text, entities, proposed, represent, relations[number], slot_rows_of)
                    if self._relate
                    else ()
                )
            predictions.append(Predictions(entities, related, suppressed_of(text, spans, entities)))
        return predictions

    def _uses_proposals(self, text: Prepared) -> bool:
        """Whether the spans that the tags propose are scored, or related."""
        return self._scores_spans or bool(self._relate and text.item.relations)

    def _represent(self, words: torch.Tensor, spans: Sequence[WordSpan]) -> torch.Tensor:
        """(E, D), of one text's words (W, D)."""
        assert self._represent_spans is not None
        with self._own_shapes():
            represented: torch.Tensor = self._represent_spans(words[None], torch.tensor([spans], device=words.device))
        return represented[0]


def score_spans(represent: Represent, labels: torch.Tensor, spans: Sequence[WordSpan], threshold: float) -> list[Span]:
    """The spans whose own score for one of `labels` (C, D) is above the threshold."""
    if not spans:
        return []
    scores = probabilities(represent(spans) @ labels.T).tolist()
    return [
        Span(first, last, label, score)
        for (first, last), of_labels in zip(spans, scores, strict=True)
        for label, score in enumerate(of_labels)
        if score > threshold
    ]
