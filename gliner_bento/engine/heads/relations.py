"""The relation head of joint models: the relations between the predicted entities of a text.

gliner scores every pair of proposed spans (millions, at a low threshold) and keeps those between entities. A pair's
score does not depend on other pairs, so only pairs of entities are scored here, unless the model has a joint adjacency,
which takes all proposed spans as input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional as F

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.heads.decode import probabilities, too_many
from gliner_bento.engine.heads.predictions import PredictedRelation, Span, WordSpan
from gliner_bento.engine.layers.factory import LayerFactory, WeightSlice
from gliner_bento.engine.layers.projection import linear_layers
from gliner_bento.engine.layers.rows import SlotRows
from gliner_bento.errors import ScoresNotFinite

Represent = Callable[[Sequence[WordSpan]], torch.Tensor]
"""Spans of a text -> their representations, (E, D)."""
SlotRowsOf = Callable[[int], "SlotRows | None"]
"""The number of rows of one text's matrix -> their slot."""

# Adjacencies that score a pair by its two ends; "none" proposes every pair.
_PAIRWISE = {"none", "dot", "mlp", "bilinear"}

# Limits for one text, because pairs grow with the square: of entities between which relations are scored, and of
# proposed spans that a joint adjacency takes.
MAX_RELATED_SPANS = 512
MAX_JOINT_PROPOSALS = 2048
_MAX_PAIRS = 8192


class PairScorer:
    """gliner's `pair_rep_layer`, factorised as in `span_scores`: first layer per span, last one folded into labels."""

    def __init__(self, scorer: Any, layers: LayerFactory) -> None:
        hidden, out = linear_layers(scorer)
        self._own_shapes = layers.own_shapes
        size = hidden.in_features // 2
        self._head = layers.linear(WeightSlice(hidden, inputs=slice(size)))
        self._tail = layers.linear(WeightSlice(hidden, inputs=slice(size, None), biased=False))
        self._fold = layers.linear(WeightSlice(out, "transposed"))
        self._out_bias = layers.linear(WeightSlice(out, "bias"))

    def __call__(
        self,
        ends: torch.Tensor,
        heads: torch.Tensor,
        tails: torch.Tensor,
        relations: torch.Tensor,
        slot_rows_of: SlotRowsOf,
    ) -> torch.Tensor:
        """Logits (N, R) of pairs, given by indexes (N) into `ends` (E, D), for `relations` (R, D)."""
        slot_rows = slot_rows_of(len(ends))
        hidden = F.relu(self._head(ends, slot_rows)[heads] + self._tail(ends, slot_rows)[tails])
        slot_rows = slot_rows_of(len(relations))
        weight, bias = self._fold(relations, slot_rows), self._out_bias(relations, slot_rows)[:, 0]
        with self._own_shapes():
            return F.linear(hidden, weight, bias)


class TripleScorer:
    """gliner's `triples_score_layer`, which scores head, relation and tail together."""

    def __init__(self, layer: Any, layers: LayerFactory) -> None:
        layers.adapt(layer)
        self._layer = layer
        self._own_shapes = layers.own_shapes

    def __call__(
        self, ends: torch.Tensor, heads: torch.Tensor, tails: torch.Tensor, relations: torch.Tensor, _: SlotRowsOf
    ) -> torch.Tensor:
        """As `PairScorer`."""
        shape = (len(heads), *relations.shape)
        triples = (
            ends[heads][:, None].expand(shape),
            relations[None].expand(shape),
            ends[tails][:, None].expand(shape),
        )
        with self._own_shapes():
            logits: torch.Tensor = self._layer(*(one.reshape(-1, shape[-1]) for one in triples)).view(shape[:2])
        return logits


class RelationHead:
    """Predicts the relations of one text at a time."""

    def __init__(self, model: Any, layers: LayerFactory) -> None:
        config = model.config
        self._adjacency = None if config.relations_layer == "none" else model.relations_rep_layer
        if self._adjacency is not None:
            layers.adapt(self._adjacency)
        self._own_shapes = layers.own_shapes
        self._joint = config.relations_layer not in _PAIRWISE
        self._score: PairScorer | TripleScorer
        if config.triples_layer is None:
            self._score = PairScorer(model.pair_rep_layer, layers)
        else:
            self._score = TripleScorer(model.triples_score_layer, layers)

    def __call__(
        self,
        text: Prepared,
        entities: Sequence[Span],
        proposed: Sequence[WordSpan],
        represent: Represent,
        relations: torch.Tensor,
        slot_rows_of: SlotRowsOf,
    ) -> list[PredictedRelation]:
        """Relations between `entities`, in gliner's order. proposed: the spans that the model's adjacency takes.

        Several labels of the same words are one end of a relation, represented by the first of them. If a token
        model proposes the same words for several labels, gliner repeats their relations and adds self-relations; here
        a relation is returned once, between two entities.
        """
        index_of: dict[WordSpan, int] = {}
        for index, span in enumerate(entities):
            index_of.setdefault((span.first, span.last), index)
        if not self._joint:
            proposed = list(dict.fromkeys(span for span in proposed if span in index_of))
        if len(index_of) < 2 or len(proposed) < 2:
            return []
        for number, limit in ((len(index_of), MAX_RELATED_SPANS), (len(proposed), MAX_JOINT_PROPOSALS)):
            if number > limit:
                raise too_many(number, limit)
        ends = represent(proposed)
        indexes = torch.tensor([index_of.get(span, -1) for span in proposed], device=ends.device)
        heads, tails = self._pairs(ends, indexes, text.item.threshold)
        predicted: dict[tuple[int, int, int], float] = {}
        for at in range(0, len(heads), _MAX_PAIRS):
            head, tail = heads[at : at + _MAX_PAIRS], tails[at : at + _MAX_PAIRS]
            scores = probabilities(self._score(ends, head, tail, relations, slot_rows_of))
            pair, relation = (scores.double() > text.item.relation_threshold).nonzero(as_tuple=True)
            keys = torch.stack([relation, indexes[head[pair]], indexes[tail[pair]]], dim=-1)
            for key, score in zip(keys.tolist(), scores[pair, relation].tolist(), strict=True):
                predicted.setdefault((key[0], key[1], key[2]), score)
        return [PredictedRelation(*key, score) for key, score in predicted.items()]

    def _pairs(self, ends: torch.Tensor, indexes: torch.Tensor, threshold: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Heads and tails as indexes into `ends` (E, D): every two different entities, or those that the model's
        adjacency proposes. indexes: (E), of the entity of each end; -1: no entity."""
        is_entity = indexes >= 0
        proposed = is_entity[:, None] & is_entity & (indexes[:, None] != indexes)
        if self._adjacency is not None:
            mask = torch.ones(1, len(ends), dtype=torch.long, device=ends.device)
            with self._own_shapes():
                adjacency = self._adjacency(ends[None], mask)[0]
            if bool(adjacency.isnan().any()):
                raise ScoresNotFinite
            proposed &= adjacency > threshold
        heads, tails = proposed.nonzero(as_tuple=True)
        return heads, tails
