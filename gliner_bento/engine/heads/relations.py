"""The relation head of joint models: the relations between the predicted entities of a text.

gliner scores every pair of proposed spans (millions, at a low threshold) and keeps those between entities. A pair's
score does not depend on other pairs, so only pairs of entities are scored here, unless the model has a joint adjacency,
which takes all proposed spans as input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.heads.decode import on_device, probabilities
from gliner_bento.engine.heads.overlap import Resolved, chars_of
from gliner_bento.engine.heads.predictions import PredictedRelation, Predictions, SpanTable, WordSpan
from gliner_bento.engine.heads.typed_relations import AllowedEnds, relation_thresholds_of
from gliner_bento.engine.layers.factory import LayerFactory, WeightSlice
from gliner_bento.engine.layers.projection import linear_layers
from gliner_bento.engine.layers.rows import SlotRows
from gliner_bento.engine.limits import kept_of, too_many_candidates
from gliner_bento.errors import ScoresNotFinite

Represent = Callable[[Sequence[WordSpan]], torch.Tensor]
"""Spans of a text -> their representations, (E, D)."""
SlotRowsOf = Callable[[int], "SlotRows | None"]
"""The number of rows of one text's matrix -> their slot."""
ScorePairs = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Heads and tails of N pairs, as indexes of ends -> logits (N, R)."""

# Adjacencies that score a pair by its two ends; "none" proposes every pair.
_PAIRWISE = {"none", "dot", "mlp", "bilinear"}

# Limits for one text, because pairs grow with the square: of words between which relations are scored, and of proposed
# spans that a joint adjacency takes. If a text has more, those with the highest scores are taken (see `on_limit`).
MAX_RELATED_SPANS = 512
MAX_JOINT_PROPOSALS = 2048

# Limits of the pairs that are scored together: their number, and the bytes of all temporary tensors.
_MAX_PAIRS = 8192
_CHUNK_BYTES = 32 << 20
# Of a pair and a relation: logit, score, score in double precision, flag, position and key.
_SCORE_BYTES = 4 + 4 + 8 + 1 + 16 + 24


class PairScorer:
    """gliner's `pair_rep_layer`, factorised as in `span_scores`: first layer per span, last one folded into labels."""

    def __init__(self, scorer: Any, layers: LayerFactory) -> None:
        hidden, out = linear_layers(scorer)
        self._own_shapes = layers.own_shapes
        size = hidden.in_features // 2
        self._hidden_size = hidden.out_features
        self._head = layers.linear(WeightSlice(hidden, inputs=slice(size)))
        self._tail = layers.linear(WeightSlice(hidden, inputs=slice(size, None), biased=False))
        self._fold = layers.linear(WeightSlice(out, "transposed"))
        self._out_bias = layers.linear(WeightSlice(out, "bias"))

    def __call__(self, ends: torch.Tensor, relations: torch.Tensor, slot_rows_of: SlotRowsOf) -> ScorePairs:
        """Scores pairs of `ends` (E, D) for `relations` (R, D)."""
        slot_rows = slot_rows_of(len(ends))
        of_heads, of_tails = self._head(ends, slot_rows), self._tail(ends, slot_rows)
        slot_rows = slot_rows_of(len(relations))
        weight, bias = self._fold(relations, slot_rows), self._out_bias(relations, slot_rows)[:, 0]

        def score(heads: torch.Tensor, tails: torch.Tensor) -> torch.Tensor:
            hidden = F.relu(of_heads[heads] + of_tails[tails])
            with self._own_shapes():
                return F.linear(hidden, weight, bias)

        return score

    def pair_bytes(self, relations: torch.Tensor) -> int:
        """Bytes of the tensors that scoring one pair takes."""
        return 4 * self._hidden_size * relations.element_size()


class TripleScorer:
    """gliner's `triples_score_layer`, which scores head, relation and tail together."""

    def __init__(self, layer: Any, layers: LayerFactory) -> None:
        layers.adapt(layer)
        self._layer = layer
        self._own_shapes = layers.own_shapes

    def __call__(self, ends: torch.Tensor, relations: torch.Tensor, _: SlotRowsOf) -> ScorePairs:
        """As `PairScorer`."""

        def score(heads: torch.Tensor, tails: torch.Tensor) -> torch.Tensor:
            shape = (len(heads), *relations.shape)
            triples = (
                ends[heads][:, None].expand(shape),
                relations[None].expand(shape),
                ends[tails][:, None].expand(shape),
            )
            with self._own_shapes():
                logits: torch.Tensor = self._layer(*(one.reshape(-1, shape[-1]) for one in triples)).view(shape[:2])
            return logits

        return score

    def pair_bytes(self, relations: torch.Tensor) -> int:
        """As `PairScorer`: three copies of all triples, and as much inside the layer."""
        return 6 * relations.numel() * relations.element_size()


class Related(NamedTuple):
    """The relations of a text, in gliner's order. cut: some were dropped (`max_relations`)."""

    relations: Sequence[PredictedRelation] = ()
    cut: bool = False


def with_relations(resolved: Resolved, related: Related) -> Predictions:
    """The predictions of one text."""
    cut = [*resolved.cut, *(["max_relations"] if related.cut else [])]
    return Predictions(resolved.entities, resolved.suppressed, cut, related.relations)


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
        entities: SpanTable,
        proposed: Sequence[WordSpan],
        represent: Represent,
        relations: torch.Tensor,
        slot_rows_of: SlotRowsOf,
    ) -> Related:
        """Relations between `entities`, in gliner's order. proposed: the spans that the model's adjacency takes.

        Several labels of the same words are one end of a relation, represented by the first of them. If a token
        model proposes the same words for several labels, gliner repeats their relations and adds self-relations; here
        a relation is returned once, between two entities.

        Stops when the item is cancelled. Raises LimitExceeded.
        """
        index_of: dict[WordSpan, int] = {}
        for index, span in enumerate(zip(entities.first.tolist(), entities.last.tolist(), strict=True)):
            index_of.setdefault(span, index)
        allowed = AllowedEnds.of(text.item)
        if allowed and not self._joint:
            usable = allowed.ends(entities.label)
            index_of = {span: index for span, index in index_of.items() if usable[index]}
        cut = len(index_of) > MAX_RELATED_SPANS or (self._joint and len(proposed) > MAX_JOINT_PROPOSALS)
        if cut:
            index_of = _best(text, entities, index_of, len(proposed))
        if cut or not self._joint:
            proposed = list(dict.fromkeys(span for span in proposed if span in index_of))
        if len(index_of) < 2 or len(proposed) < 2:
            return Related(cut=cut)
        ends = represent(proposed)
        index_list = [index_of.get(span, -1) for span in proposed]
        indexes = torch.tensor(index_list, device=ends.device)
        related = self._related(ends, indexes, text.item.threshold)
        if allowed:
            labels = entities.label[index_list]
            related &= torch.from_numpy(allowed.pairs(labels)).to(ends.device)
            head_flags, tail_flags = (
                torch.from_numpy(flags[:, labels].T).to(ends.device) for flags in (allowed.heads, allowed.tails)
            )
        heads, tails = related.nonzero(as_tuple=True)
        found = Found(text, entities, len(relations))
        thresholds = on_device(relation_thresholds_of(text.item), ends.device)
        score = self._score(ends, relations, slot_rows_of)
        for at in self._chunks(len(heads), relations):
            if text.cancellation.requested:
                break
            scores = probabilities(score(heads[at], tails[at]))
            above = scores.double() > thresholds
            if allowed:
                above &= head_flags[heads[at]] & tail_flags[tails[at]]
            pair, relation = above.nonzero(as_tuple=True)
            keys = torch.stack([relation, indexes[heads[at][pair]], indexes[tails[at][pair]]], dim=-1)
            found.add(keys.cpu().numpy(), scores[pair, relation].cpu().numpy())
        return found.related(cut=cut)

    def _chunks(self, pairs: int, relations: torch.Tensor) -> Iterator[slice]:
        """Pairs to score together. All, if their tensors fit: chunks may round differently."""
        pair_bytes = self._score.pair_bytes(relations) + len(relations) * _SCORE_BYTES
        step = max(1, min(_MAX_PAIRS, _CHUNK_BYTES // pair_bytes))
        return (slice(at, at + step) for at in range(0, pairs, step))

    def _related(self, ends: torch.Tensor, indexes: torch.Tensor, threshold: float) -> torch.Tensor:
        """Whether to score a pair of `ends` (E, D), (E, E): every two different entities, or those that the model's
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
        return proposed


class Found:
    """Collects relations, at most `max_relations` of the item: those with the highest scores, or LimitExceeded."""

    def __init__(self, text: Prepared, entities: SpanTable, relations: int) -> None:
        self._text = text
        self._entities = entities
        self._keys = np.empty((0, 3), np.int64)
        self._scores = np.empty(0, np.float64)
        self._shape = (relations, len(entities), len(entities))
        self._cut = False

    def add(self, keys: NDArray[np.int64], scores: NDArray[np.float32]) -> None:
        """Add relations, (N, 3): relation, head, tail. Of a repeated one the first counts."""
        if not len(keys):
            return
        keys, joined = np.concatenate([self._keys, keys]), np.concatenate([self._scores, scores])
        _, first = np.unique(np.ravel_multi_index(tuple(keys.T), self._shape), return_index=True)
        first.sort()
        self._keys, self._scores = keys[first], joined[first]
        self._limit(np.zeros(len(first), np.int64))

    def related(self, *, cut: bool = False) -> Related:
        """All of them, in the order in which they were added. cut: some were not scored."""
        item = self._text.item
        if 2 * len(self._keys) * len(item.text) > item.max_relations:  # else their texts are short enough
            chars = chars_of(self._text, self._entities)
            self._limit(chars[self._keys[:, 1]] + chars[self._keys[:, 2]])
        found = zip(self._keys.tolist(), self._scores.tolist(), strict=True)
        return Related([PredictedRelation(key[0], key[1], key[2], score) for key, score in found], cut or self._cut)

    def _limit(self, chars: NDArray[np.int64]) -> None:
        fitting = kept_of(self._text.item, "max_relations", self._scores, chars)
        if fitting is not None:
            self._keys, self._scores, self._cut = self._keys[fitting], self._scores[fitting], True


def _best(text: Prepared, entities: SpanTable, index_of: dict[WordSpan, int], proposed: int) -> dict[WordSpan, int]:
    """The words of the entities with the highest scores. Raises LimitExceeded unless `on_limit` is `truncate`."""
    if text.item.on_limit == "error":
        limit = MAX_RELATED_SPANS if len(index_of) > MAX_RELATED_SPANS else MAX_JOINT_PROPOSALS
        raise too_many_candidates(max(len(index_of), proposed), limit)
    best: dict[WordSpan, int] = {}
    firsts, lasts = entities.first.tolist(), entities.last.tolist()
    for index in np.argsort(-entities.score, kind="stable").tolist():
        span = firsts[index], lasts[index]
        best[span] = index_of[span]
        if len(best) == MAX_RELATED_SPANS:
            break
    return best
