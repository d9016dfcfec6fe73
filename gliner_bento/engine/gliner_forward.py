"""The forward pass of gliner's own modules, text by text. Used after a failed self-test; slower than `Forward`.

gliner computes all scores up to the sigmoid; the engine makes words and tokens, applies adapters, and decodes. A
relation pass is given its entities, but gliner scores relations between the spans that it predicts itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.heads.decode import DecodePadded, lowest_threshold, probabilities, thresholds_of
from gliner_bento.engine.heads.overlap import Resolved, resolve
from gliner_bento.engine.heads.predictions import Predictions, SpanTable
from gliner_bento.engine.heads.relations import RelationCollector
from gliner_bento.engine.heads.typed_relations import relation_thresholds_of
from gliner_bento.engine.layers.factory import LayerFactory, without
from gliner_bento.engine.layers.lora import on_slot
from gliner_bento.engine.layers.rows import TextSlots
from gliner_bento.engine.limits import too_many_candidates
from gliner_bento.engine.text.collate import PaddedCollator, ordered

# gliner scores all pairs of spans above the threshold in one product, so memory grows with the square of their number.
MAX_PROPOSALS = 256
_RELATION_MODULES = ("relations_rep_layer", "pair_rep_layer", "triples_score_layer")


class GlinerForward:
    """Runs gliner's `model`, whose linear layers are made adaptable in place.

    pad, decode: from texts to the model's inputs, and from its logits to spans. relations: the model predicts some.
    packs: texts run one by one, without padding. name: how it computes, for `/v1/model`.
    """

    packs = True
    collate = staticmethod(ordered)
    encoded_labels = 0

    def __init__(
        self, model: Any, layers: LayerFactory, pad: PaddedCollator, decode: DecodePadded, *, relations: bool
    ) -> None:
        layers.adapt(model.model)
        self._device = model.device
        self._own_shapes = layers.own_shapes
        self._entity_model = without(model.model, "decoder", *_RELATION_MODULES)  # generated labels are not served
        self._relation_model = model.model if relations else None
        self._decode = decode
        self._pad = pad
        self._proposes_spans_once = pad.max_width is not None  # token models propose a span once for each label
        self.name = f"gliner's {type(model.model).__name__}, text by text"

    def __call__(self, slots: TextSlots | None, texts: Sequence[Prepared]) -> list[Predictions]:
        """The predictions of each text."""
        predictions = []
        for index, text in enumerate(texts):
            slot = slots.slot_of_text[index] if slots else None
            with on_slot(slot), self._own_shapes():
                predictions.append(Predictions.or_error(self._predicted, text))
        return predictions

    def _predicted(self, text: Prepared) -> Predictions:
        tensors = {
            name: value.to(self._device) if isinstance(value, torch.Tensor) else value
            for name, value in self._pad([text]).inputs.items()
        }
        lowest = lowest_threshold(text.item)
        output = self._entity_model(**tensors, threshold=lowest)
        spans = self._spans(output, text)
        resolved = resolve(text, spans)
        if not text.item.relations or len(resolved.entities) < 2:
            return Predictions(*resolved)
        assert self._relation_model is not None
        if text.item.label_thresholds:  # gliner relates all spans above the lowest threshold
            spans = self._spans(output, replace(text, item=replace(text.item, threshold=lowest, label_thresholds={})))
        proposal_count = len(np.unique(spans.word_keys)) if self._proposes_spans_once else len(spans)
        if proposal_count > MAX_PROPOSALS:
            raise too_many_candidates(proposal_count, MAX_PROPOSALS)
        thresholds = {"threshold": lowest, "adjacency_threshold": text.item.threshold}
        return with_relations(self._relation_model(**tensors, **thresholds), text, resolved)

    def _spans(self, output: Any, text: Prepared) -> SpanTable:
        """The spans above their label's threshold."""
        if getattr(output, "span_logits", None) is None:
            return self._decode(output.logits, [text])[0]
        scores = probabilities(output.span_logits[0]).cpu().numpy()
        inside = output.span_mask[0].bool().cpu().numpy()
        span, label = ((scores > thresholds_of(text.item)) & inside[:, None]).nonzero()
        first, last = output.span_idx[0].cpu().numpy()[span].T
        return SpanTable(first, last, label, scores[span, label].astype(np.float64))


def with_relations(output: Any, text: Prepared, resolved: Resolved) -> Predictions:
    """The text's entities, and the relations between them. output: what gliner's model returns for this text alone."""
    index_of = resolved.entities.index_of_words()
    spans = output.entity_spans[0].tolist()
    entity_of_span = np.array([index_of.get((first, last), -1) for first, last in spans], np.int64)
    scores = probabilities(output.rel_logits[0]).cpu().numpy()
    above = scores.astype(np.float64) > relation_thresholds_of(text.item)
    pair, relation = (above & output.rel_mask[0].bool().cpu().numpy()[:, None]).nonzero()
    head, tail = entity_of_span[output.rel_idx[0].cpu().numpy()[pair]].T
    valid = (head >= 0) & (tail >= 0) & (head != tail)
    collector = RelationCollector(text, resolved)
    collector.add(relation[valid], np.stack([head, tail])[:, valid], scores[pair, relation][valid])
    return collector.predictions()
