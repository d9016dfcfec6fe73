"""The head of token models: scores of start, end and inside for each word and label.

If the model represents spans and predicts no relations, the tags only propose spans, and the spans' own scores decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.encoders.output import EncoderOutput
from gliner_bento.engine.heads.decode import (
    decode_tags,
    lowest_threshold,
    padded_tag_report,
    probabilities,
    proposed_spans,
    read_padded_tags,
    tag_scores,
    thresholds_of,
)
from gliner_bento.engine.heads.overlap import predictions_of, resolve
from gliner_bento.engine.heads.predictions import NO_SPANS, Predictions, SpanTable, WordSpan
from gliner_bento.engine.heads.relations import RelationHead, RelationTask, predict_relations
from gliner_bento.engine.heads.span_scores import multiplied
from gliner_bento.engine.heads.tag_scores import TagScorer
from gliner_bento.engine.layers.factory import LayerFactory
from gliner_bento.engine.layers.lora import on_slot
from gliner_bento.engine.layers.rows import copied


class TagLogits(NamedTuple):
    """The logits of each text, or those of the padded block with its `padded_tag_report`."""

    logits: Sequence[torch.Tensor]
    report: torch.Tensor | None


class TokenHead:
    """The `Head` of token models."""

    def __init__(self, model: Any, layers: LayerFactory, relations: RelationHead | None) -> None:
        self._tag = TagScorer(model.scorer, layers)
        self._relate = relations
        self.name = self._tag.name
        self._span_layer = getattr(model, "span_rep_layer", None)
        if self._span_layer is not None:
            layers.adapt(self._span_layer)
        self._own_shapes = layers.own_shapes
        self._scores_spans = relations is None and self._span_layer is not None

    def scores(self, encoded: EncoderOutput) -> TagLogits:
        logits = self._tag(encoded.words, encoded.rows.words, encoded.labels, encoded.rows.labels)
        if encoded.thresholds is None:
            return TagLogits([text[0] for text in logits], None)
        return TagLogits(logits, padded_tag_report(logits[0], encoded))

    def predictions(self, scores: TagLogits, encoded: EncoderOutput, texts: Sequence[Prepared]) -> list[Predictions]:
        logits, report = scores
        tags = tag_scores(logits) if report is None else read_padded_tags(report, logits[0].shape, texts)
        if self._scores_spans:
            proposed = [
                Predictions.or_error(proposed_spans, of_text, lowest_threshold(text.item))
                for text, of_text in zip(texts, tags, strict=True)
            ]
            valid = {number: spans for number, spans in enumerate(proposed) if isinstance(spans, list)}
            scored = self._scored(valid, encoded, texts)
            return [
                outcome
                if isinstance(outcome, Predictions)
                else Predictions.or_error(predictions_of, text, scored[number])
                for number, (text, outcome) in enumerate(zip(texts, proposed, strict=True))
            ]
        outcomes = [Predictions.or_error(self._outcome, *of_text) for of_text in zip(texts, tags, strict=True)]
        return predict_relations(outcomes, self._relate, partial(self._represent, encoded), encoded)

    def _outcome(self, text: Prepared, scores: NDArray[np.float32]) -> RelationTask | Predictions:
        """See `outcomes` of `predict_relations`. scores: of the tags, (words, labels, 3). Raises LimitExceeded."""
        has_relations = self._relate is not None and bool(text.item.relations)
        proposed = proposed_spans(scores, lowest_threshold(text.item)) if has_relations else []
        resolved = resolve(text, decode_tags(scores, thresholds_of(text.item)))
        if self._relate is None or not has_relations:
            return Predictions(*resolved)
        return RelationTask.of(text, resolved, proposed, joint=self._relate.joint)

    def _scored(
        self, proposed: Mapping[int, Sequence[WordSpan]], encoded: EncoderOutput, texts: Sequence[Prepared]
    ) -> Mapping[int, SpanTable]:
        """For each text, by number, the proposed spans whose own score for a label is above the label's threshold."""
        scored = {number: NO_SPANS for number, spans in proposed.items() if not spans}
        rows, labels = encoded.rows.labels, encoded.rows.labels.split(encoded.labels)
        for group in rows.groups({number: len(spans) for number, spans in proposed.items() if spans}):
            with on_slot(rows.slot(group[0])), self._own_shapes():
                represented = self._represent(encoded, group, [proposed[number] for number in group])
                spans_of_texts = represented.split_with_sizes([len(proposed[number]) for number in group])
                span_block = pad_sequence(list(spans_of_texts), batch_first=True)
                label_block = pad_sequence([labels[number] for number in group], batch_first=True)
                padded_scores = probabilities(multiplied(span_block, label_block)).cpu().numpy()
            for number, of_text in zip(group, padded_scores, strict=True):
                spans, item = np.array(proposed[number], np.int64), texts[number].item
                scores = of_text[: len(spans), : len(item.labels)].astype(np.float64)
                span, label = (scores > thresholds_of(item)).nonzero()
                scored[number] = SpanTable(spans[span, 0], spans[span, 1], label, scores[span, label])
        return scored

    def _represent(
        self, encoded: EncoderOutput, texts: Sequence[int], spans: Sequence[Sequence[WordSpan]]
    ) -> torch.Tensor:
        """See `Represent`."""
        assert self._span_layer is not None
        words = encoded.rows.words.split(encoded.words)
        word_block = pad_sequence([words[text] for text in texts], batch_first=True)
        span_block = pad_sequence([torch.tensor(of_text) for of_text in spans], batch_first=True)
        counts = torch.tensor([len(of_text) for of_text in spans])
        is_span = torch.arange(span_block.shape[1]) < counts[:, None]
        with self._own_shapes():
            represented: torch.Tensor = self._span_layer(word_block, copied(span_block, word_block.device))
        if len(texts) == 1:
            return represented[0]
        return represented.flatten(0, 1)[copied(is_span.flatten().nonzero()[:, 0], word_block.device)]
