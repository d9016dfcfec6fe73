"""The forward pass of gliner's own modules, text by text: what is served after a failed self-test.

Slower than `Forward`. All scores before the sigmoid are gliner's; `layers` adds only what adapters change. Words,
tokens and decoding are the engine's.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import torch

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.families import Family
from gliner_bento.engine.heads.decode import (
    decode_padded_spans,
    decode_padded_tags,
    probabilities,
    too_many,
)
from gliner_bento.engine.heads.overlap import entities_of, suppressed_of
from gliner_bento.engine.heads.predictions import PredictedRelation, Predictions, Span, WordSpan
from gliner_bento.engine.layers.factory import LayerFactory
from gliner_bento.engine.layers.lora import on_slot
from gliner_bento.engine.text.collate import PackedInputs, PaddedCollator

# gliner scores the relations of all pairs of spans above the threshold in one product: memory grows with the square.
MAX_PROPOSALS = 256
_RELATION_MODULES = ("relations_rep_layer", "pair_rep_layer", "triples_score_layer")


class GlinerForward:
    """Over gliner's model. Its linear layers become adaptable, in place.

    packs: texts run one by one, without padding. name: how it computes, for `/v1/model`.
    """

    packs = True
    encoded_labels = 0

    def __init__(self, model: Any, family: Family, layers: LayerFactory) -> None:
        layers.adapt(model.model)
        self._own_shapes = layers.own_shapes
        self._entities = without(model.model, "decoder", *_RELATION_MODULES)  # the decoder generates unserved labels
        self._relations = model.model if family.relations else None
        self._decode = decode_padded_spans if family.span_width else decode_padded_tags
        self._once_per_span = family.span_width  # token models propose a span once for each label
        self._collate = PaddedCollator.of(
            model.data_processor,
            separate_labels=not family.prompts.inline,
            max_width=model.config.max_width if family.span_width else None,
        )
        self.name = f"gliner's {type(model.model).__name__}, text by text"

    def __call__(self, inputs: PackedInputs, texts: Sequence[Prepared]) -> list[Predictions]:
        """The predictions of each text."""
        predictions = []
        for number, text in enumerate(texts):
            with on_slot(inputs.token_rows.slot(number)), self._own_shapes():
                predictions.append(self._predicted(text, inputs.token_ids.device))
        return predictions

    def _predicted(self, text: Prepared, device: torch.device) -> Predictions:
        tensors = {
            name: value.to(device) if isinstance(value, torch.Tensor) else value
            for name, value in self._collate([text]).inputs.items()
        }
        spans = self._spans(self._entities(**tensors, threshold=text.item.threshold), text)
        entities = entities_of(text, spans)
        relations: Sequence[PredictedRelation] = ()
        if text.item.relations and len(entities) > 1:
            assert self._relations is not None
            proposals = len({(span.first, span.last) for span in spans}) if self._once_per_span else len(spans)
            if proposals > MAX_PROPOSALS:
                raise too_many(proposals, MAX_PROPOSALS)
            thresholds = {"threshold": text.item.threshold, "adjacency_threshold": text.item.threshold}
            relations = related(self._relations(**tensors, **thresholds), entities, text.item.relation_threshold)
        return Predictions(entities, relations, suppressed_of(text, spans, entities))

    def _spans(self, output: Any, text: Prepared) -> list[Span]:
        """The spans above the text's threshold."""
        if getattr(output, "span_logits", None) is None:
            return self._decode(output.logits, [text])[0]
        scores = probabilities(output.span_logits[0]).cpu()
        above = (scores > text.item.threshold) & output.span_mask[0].bool().cpu()[:, None]
        words = output.span_idx[0].tolist()
        return [Span(words[i][0], words[i][1], label, float(scores[i, label])) for i, label in above.nonzero().tolist()]


def without(module: torch.nn.Module, *names: str) -> torch.nn.Module:
    """The same module, sharing its weights, without these children. gliner's models skip what they do not have."""
    less = copy(module)
    less._modules = {name: child for name, child in module._modules.items() if name not in names}
    return less


def related(output: Any, entities: Sequence[Span], threshold: float) -> list[PredictedRelation]:
    """Relations between `entities` in gliner's output for one text, in gliner's order; see `RelationHead`."""
    index_of: dict[WordSpan, int] = {}
    for index, span in enumerate(entities):
        index_of.setdefault((span.first, span.last), index)
    proposed = [index_of.get((first, last), -1) for first, last in output.entity_spans[0].tolist()]
    scores = probabilities(output.rel_logits[0]).cpu()
    above = (scores.double() > threshold) & output.rel_mask[0].bool().cpu()[:, None]
    pairs = output.rel_idx[0].tolist()
    predicted: dict[tuple[int, int, int], float] = {}
    for pair, relation in above.nonzero().tolist():
        head, tail = (proposed[index] for index in pairs[pair])
        if head >= 0 and tail >= 0 and head != tail:
            predicted.setdefault((relation, head, tail), float(scores[pair, relation]))
    return [PredictedRelation(*key, score) for key, score in predicted.items()]
