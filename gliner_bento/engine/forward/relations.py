"""The relation head of the joint models: which relations hold between the entities that were found in a row.

gliner scores every pair of proposed spans (the square of thousands, at a low threshold) and keeps those whose ends are
answered. A pair's score does not depend on the others, so here only those pairs are scored, unless the model's
adjacency is one that looks at all proposals together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional as F

from gliner_bento.adapters.linear import Owners
from gliner_bento.engine.adaptable import Layers, Part
from gliner_bento.engine.base import Prepared
from gliner_bento.engine.decode import Span, probabilities, too_many
from gliner_bento.engine.forward.findings import FoundRelation
from gliner_bento.engine.forward.layers import linears

Boundary = tuple[int, int]
Represent = Callable[[Sequence[Boundary]], torch.Tensor]
"""Spans of a row, by first and last word -> their representations, (E, D)."""
Owner = Callable[[int], "Owners | None"]
"""How many rows a matrix of one text's has -> whose they are."""

# Adjacencies that score a pair by its two ends: "none" proposes every pair.
_PAIRWISE = {"none", "dot", "mlp", "bilinear"}

# Spans of one item between which relations are scored: pairs grow with the square. A joint adjacency looks at all
# proposals, but the pairs that are scored after it are between answered spans here too.
MAX_RELATED_SPANS = 512
MAX_JOINT_PROPOSALS = 2048
_PAIRS_AT_ONCE = 8192


class PairScorer:
    """gliner's `pair_rep_layer`, taken apart as span heads are: first layer per span, last layer carried to labels."""

    def __init__(self, scorer: Any, layers: Layers) -> None:
        hidden, out = linears(scorer)
        size = hidden.in_features // 2
        self._head = layers.linear(Part(hidden, inputs=slice(size)))
        self._tail = layers.linear(Part(hidden, inputs=slice(size, None), biased=False))
        self._carry_back = layers.linear(Part(out, "transposed"))
        self._out_bias = layers.linear(Part(out, "bias"))

    def __call__(
        self, ends: torch.Tensor, heads: torch.Tensor, tails: torch.Tensor, relations: torch.Tensor, owner: Owner
    ) -> torch.Tensor:
        """Logits (N, R) of pairs, by places (N) among `ends` (E, D), for `relations` (R, D)."""
        owners = owner(len(ends))
        hidden = F.relu(self._head(ends, owners)[heads] + self._tail(ends, owners)[tails])
        owners = owner(len(relations))
        return F.linear(hidden, self._carry_back(relations, owners), self._out_bias(relations, owners)[:, 0])


class TripleScorer:
    """gliner's `triples_score_layer`, which scores head, relation and tail together."""

    def __init__(self, layer: Any, layers: Layers) -> None:
        layers.adapt(layer)
        self._layer = layer

    def __call__(
        self, ends: torch.Tensor, heads: torch.Tensor, tails: torch.Tensor, relations: torch.Tensor, _: Owner
    ) -> torch.Tensor:
        """As `PairScorer`."""
        shape = (len(heads), *relations.shape)
        triples = (
            ends[heads][:, None].expand(shape),
            relations[None].expand(shape),
            ends[tails][:, None].expand(shape),
        )
        logits: torch.Tensor = self._layer(*(part.reshape(-1, shape[-1]) for part in triples)).view(shape[:2])
        return logits


class RelationHead:
    """Finds relations in one row."""

    def __init__(self, model: Any, layers: Layers) -> None:
        self._adjacency = getattr(model, "relations_rep_layer", None)
        if self._adjacency is not None:
            layers.adapt(self._adjacency)
        self._joint = model.config.relations_layer not in _PAIRWISE
        self._score: PairScorer | TripleScorer
        if hasattr(model, "pair_rep_layer"):
            self._score = PairScorer(model.pair_rep_layer, layers)
        else:
            self._score = TripleScorer(model.triples_score_layer, layers)

    def __call__(
        self,
        row: Prepared,
        spans: Sequence[Span],
        proposed: Sequence[Boundary],
        represent: Represent,
        relations: torch.Tensor,
        owner: Owner,
    ) -> list[FoundRelation]:
        """Relations between `spans`, in gliner's order; `proposed` are the spans that the model's adjacency looks at.

        Several labels on the same words are one end of a relation: the first of them stands for it. Where a token
        model proposes the same words for several labels, gliner repeats their relations and relates them to
        themselves; here a relation is found once, between two.
        """
        place: dict[Boundary, int] = {}
        for number, span in enumerate(spans):
            place.setdefault((span.first, span.last), number)
        if not self._joint:
            proposed = list(dict.fromkeys(boundary for boundary in proposed if boundary in place))
        if len(place) < 2 or len(proposed) < 2:
            return []
        for number, limit in ((len(place), MAX_RELATED_SPANS), (len(proposed), MAX_JOINT_PROPOSALS)):
            if number > limit:
                raise too_many(number, limit)
        ends = represent(proposed)
        places = torch.tensor([place.get(boundary, -1) for boundary in proposed], device=ends.device)
        heads, tails = self._pairs(ends, places, row.item.threshold)
        found: dict[tuple[int, int, int], float] = {}
        for part in range(0, len(heads), _PAIRS_AT_ONCE):
            head, tail = heads[part : part + _PAIRS_AT_ONCE], tails[part : part + _PAIRS_AT_ONCE]
            scores = probabilities(self._score(ends, head, tail, relations, owner))
            pair, relation = (scores.double() > row.item.relation_threshold).nonzero(as_tuple=True)
            of = torch.stack([relation, places[head[pair]], places[tail[pair]]], dim=-1)
            for key, score in zip(of.tolist(), scores[pair, relation].tolist(), strict=True):
                found.setdefault((key[0], key[1], key[2]), score)
        return [FoundRelation(*key, score) for key, score in found.items()]

    def _pairs(self, ends: torch.Tensor, places: torch.Tensor, threshold: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Heads and tails among `ends` (E, D) that are answered, at different `places` (E; -1: not answered): every
        two, or those that the model's adjacency proposes."""
        answered = places >= 0
        proposed = answered[:, None] & answered & (places[:, None] != places)
        if self._adjacency is not None:
            mask = torch.ones(1, len(ends), dtype=torch.long, device=ends.device)
            adjacency = self._adjacency(ends[None], mask)[0]
            if bool(adjacency.isnan().any()):
                raise ArithmeticError("the model's adjacency is not a number")
            proposed &= adjacency > threshold
        heads, tails = proposed.nonzero(as_tuple=True)
        return heads, tails
