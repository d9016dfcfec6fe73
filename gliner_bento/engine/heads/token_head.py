"""The head of token models: scores of start, end and inside for each word and label.

If the model represents spans, the tags only propose spans, and the spans' own scores decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.encoders.output import EncoderOutput
from gliner_bento.engine.heads.decode import (
    decode_tags,
    lowest_threshold,
    on_device,
    padded_tag_report,
    probabilities,
    proposed_spans,
    read_padded_tags,
    tag_scores,
    thresholds_of,
)
from gliner_bento.engine.heads.overlap import resolve
from gliner_bento.engine.heads.predictions import NO_SPANS, Predictions, SpanTable, WordSpan
from gliner_bento.engine.heads.relations import RelationHead, Represent, SlotRowsOf, with_relations
from gliner_bento.engine.heads.tag_scores import TagScorer
from gliner_bento.engine.layers.factory import LayerFactory
from gliner_bento.engine.layers.kernels import Kernels
from gliner_bento.engine.layers.lora import on_slot


class TagLogits(NamedTuple):
    """Of each text, or of the padded block with its `padded_tag_report`."""

    logits: Sequence[torch.Tensor]
    report: torch.Tensor | None


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

    def scores(self, encoded: EncoderOutput) -> TagLogits:
        """See `Head`."""
        logits = self._tag(encoded.words, encoded.word_rows, encoded.labels, encoded.label_rows)
        if encoded.thresholds is None:
            return TagLogits([text[0] for text in logits], None)
        return TagLogits(logits, padded_tag_report(logits[0], encoded))

    def predictions(self, scores: TagLogits, encoded: EncoderOutput, texts: Sequence[Prepared]) -> list[Predictions]:
        """See `Head`."""
        logits, report = scores
        tags = tag_scores(logits) if report is None else read_padded_tags(report, logits[0].shape, texts)
        words, labels = encoded.word_rows.split(encoded.words), encoded.label_rows.split(encoded.labels)
        relations = encoded.relation_rows.split(encoded.relations)
        predictions = []
        for number, (text, of_text) in enumerate(zip(texts, tags, strict=True)):
            represent = partial(self._represent, words[number])
            slot_rows_of = partial(encoded.word_rows.slot_rows_of, number)
            tensors = represent, labels[number], relations[number], slot_rows_of
            with on_slot(encoded.word_rows.slot(number)):
                predictions.append(Predictions.or_error(self._predicted, text, of_text, *tensors))
        return predictions

    def _predicted(
        self,
        text: Prepared,
        scores: NDArray[np.float32],
        represent: Represent,
        labels: torch.Tensor,
        relations: torch.Tensor,
        slot_rows_of: SlotRowsOf,
    ) -> Predictions:
        """The predictions of one text. Raises LimitExceeded."""
        proposed = proposed_spans(scores, lowest_threshold(text.item)) if self._uses_proposals(text) else []
        if self._scores_spans:
            with self._own_shapes():
                spans = score_spans(represent, labels, proposed, thresholds_of(text.item))
        else:
            spans = decode_tags(scores, thresholds_of(text.item))
        resolved = resolve(text, spans)
        if self._relate is None or not text.item.relations:
            return Predictions(*resolved)
        return with_relations(
            resolved, self._relate(text, resolved.entities, proposed, represent, relations, slot_rows_of)
        )

    def _uses_proposals(self, text: Prepared) -> bool:
        """Whether the spans that the tags propose are scored, or related."""
        return self._scores_spans or bool(self._relate and text.item.relations)

    def _represent(self, words: torch.Tensor, spans: Sequence[WordSpan]) -> torch.Tensor:
        """(E, D), of one text's words (W, D)."""
        assert self._represent_spans is not None
        with self._own_shapes():
            represented: torch.Tensor = self._represent_spans(words[None], torch.tensor([spans], device=words.device))
        return represented[0]


def score_spans(
    represent: Represent, labels: torch.Tensor, spans: Sequence[WordSpan], thresholds: float | NDArray[np.float64]
) -> SpanTable:
    """The spans whose own score for one of `labels` (C, D) is above the threshold of all labels, or of this one."""
    if not spans:
        return NO_SPANS
    scores = probabilities(represent(spans) @ labels.T).double()
    span, label = (scores > on_device(thresholds, scores.device)).nonzero(as_tuple=True)
    first, last = np.array(spans, np.int64)[span.cpu().numpy()].T
    return SpanTable(first, last, label.cpu().numpy(), scores[span, label].cpu().numpy())
