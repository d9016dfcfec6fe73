"""The relation head of joint models: the relations between the predicted entities of a text.

gliner scores every pair of proposed spans (millions, at a low threshold) and keeps those between entities. A pair's
score does not depend on other pairs, so only pairs of entities are scored here, unless the model has a joint adjacency,
which takes all proposed spans as input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from math import inf
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.encoders.output import EncoderOutput
from gliner_bento.engine.heads.decode import probabilities
from gliner_bento.engine.heads.overlap import Resolved, chars_of
from gliner_bento.engine.heads.predictions import PredictedRelation, Predictions, SpanTable, WordSpan
from gliner_bento.engine.heads.span_scores import multiplied
from gliner_bento.engine.heads.typed_relations import AllowedEnds, Flags, relation_thresholds_of
from gliner_bento.engine.layers.factory import LayerFactory, WeightSlice
from gliner_bento.engine.layers.lora import on_slot
from gliner_bento.engine.layers.projection import linear_layers
from gliner_bento.engine.layers.rows import SlotRows, TextRows, copied
from gliner_bento.engine.limits import kept_of, too_many_candidates
from gliner_bento.errors import ScoresNotFinite

Represent = Callable[[Sequence[int], Sequence[Sequence[WordSpan]]], torch.Tensor]
"""Texts of one adapter and spans of each -> the spans' representations, (E, D) in all."""
SlotRowsOf = Callable[[int], "SlotRows | None"]
"""The number of rows of a matrix, all of one adapter -> their slot."""
ScorePairs = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Heads and tails of each text's pairs, (texts, P), as rows of ends -> logits (texts, P, R)."""

# Adjacencies that score a pair by its two ends; "none" proposes every pair.
_PAIRWISE = {"none", "dot", "mlp", "bilinear"}

# Limits for one text, because pairs grow with the square: of words between which relations are scored, and of proposed
# spans that a joint adjacency takes. If a text has more, those with the highest scores are taken (see `on_limit`).
MAX_RELATED_SPANS = 512
MAX_JOINT_PROPOSALS = 2048

# Limits of the pairs that are scored together: their number, and the bytes of all temporary tensors. Those of a padded
# batch are `_PADDED` times as high.
_MAX_PAIRS = 8192
_CHUNK_BYTES = 32 << 20
_PADDED = 16
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
        """Scores pairs of `ends` (E, D) for `relations` (texts, R, D), all of one adapter."""
        slot_rows = slot_rows_of(len(ends))
        of_heads, of_tails = self._head(ends, slot_rows), self._tail(ends, slot_rows)
        rows = relations.flatten(0, 1)
        slot_rows = slot_rows_of(len(rows))
        weight, bias = self._fold(rows, slot_rows), self._out_bias(rows, slot_rows)[:, 0]
        weight, bias = weight.view(*relations.shape[:2], -1), bias.view(relations.shape[:2])

        def score(heads: torch.Tensor, tails: torch.Tensor) -> torch.Tensor:
            hidden = F.relu(of_heads[heads] + of_tails[tails])
            with self._own_shapes():
                return multiplied(hidden, weight, bias)

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
            shape = (*heads.shape, *relations.shape[1:])
            triples = (
                ends[heads][:, :, None].expand(shape),
                relations[:, None].expand(shape),
                ends[tails][:, :, None].expand(shape),
            )
            with self._own_shapes():
                logits: torch.Tensor = self._layer(*(one.reshape(-1, shape[-1]) for one in triples)).view(shape[:3])
            return logits

        return score

    def pair_bytes(self, relations: torch.Tensor) -> int:
        """As `PairScorer`: three copies of all triples, and as much inside the layer."""
        return 6 * relations[0].numel() * relations.element_size()


class Related(NamedTuple):
    """The relations of a text, in gliner's order. cut: some were dropped (`max_relations`)."""

    relations: Sequence[PredictedRelation] = ()
    cut: bool = False


def with_relations(resolved: Resolved, related: Related) -> Predictions:
    """The predictions of one text."""
    cut = [*resolved.cut, *(["max_relations"] if related.cut else [])]
    return Predictions(resolved.entities, resolved.suppressed, cut, related.relations)


@dataclass(frozen=True, slots=True)
class RelationTask:
    """The relations of one text, to be scored.

    number: of the text in the batch. spans: those that are ends of relations, or that the model's adjacency takes;
    indexes: the entity of each; -1: no entity. cut: some entities are left out.
    """

    number: int
    text: Prepared
    resolved: Resolved
    spans: Sequence[WordSpan]
    indexes: NDArray[np.int64]
    cut: bool

    @classmethod
    def of(
        cls, number: int, text: Prepared, resolved: Resolved, proposed: Sequence[WordSpan], *, joint: bool
    ) -> RelationTask:
        """Relations between the entities. proposed: the spans that the model's adjacency takes, if it is `joint`;
        of a pass over given entities, it takes these.

        Several labels of the same words are one end of a relation, represented by the first of them. If a token
        model proposes the same words for several labels, gliner repeats their relations and adds self-relations; here
        a relation is returned once, between two entities. Raises LimitExceeded.
        """
        entities = resolved.entities
        index_of: dict[WordSpan, int] = {}
        for index, span in enumerate(zip(entities.first.tolist(), entities.last.tolist(), strict=True)):
            index_of.setdefault(span, index)
        if text.payload.entities is not None:
            proposed = sorted(index_of)
        allowed = AllowedEnds.of(text.item)
        if allowed and not joint:
            usable = allowed.ends(entities.label)
            index_of = {span: index for span, index in index_of.items() if usable[index]}
        cut = len(index_of) > MAX_RELATED_SPANS or (joint and len(proposed) > MAX_JOINT_PROPOSALS)
        if cut:
            index_of = _best(text, entities, index_of, len(proposed))
        if cut or not joint:
            proposed = list(dict.fromkeys(span for span in proposed if span in index_of))
        if len(index_of) < 2:
            proposed = ()
        indexes = np.array([index_of.get(span, -1) for span in proposed], np.int64)
        return cls(number, text, resolved, proposed, indexes, cut)

    def pairs(self, adjacent: Flags | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Heads and tails to be scored, as numbers of spans: every two different entities. adjacent: (E, E), those that
        the model's adjacency proposes."""
        is_entity = self.indexes >= 0
        related = is_entity[:, None] & is_entity & (self.indexes[:, None] != self.indexes)
        if adjacent is not None:
            related &= adjacent
        if allowed := AllowedEnds.of(self.text.item):
            related &= allowed.pairs(self.resolved.entities.label[self.indexes])
        heads, tails = related.nonzero()
        return heads, tails


class RelationHead:
    """Predicts the relations of texts: one by one, or, if batches are padded, of those with similar numbers of ends."""

    def __init__(self, model: Any, layers: LayerFactory) -> None:
        config = model.config
        self._adjacency = None if config.relations_layer == "none" else model.relations_rep_layer
        if self._adjacency is not None:
            layers.adapt(self._adjacency)
        self._own_shapes = layers.own_shapes
        self._padded = layers.padded
        self.joint = config.relations_layer not in _PAIRWISE
        self._score: PairScorer | TripleScorer
        if config.triples_layer is None:
            self._score = PairScorer(model.pair_rep_layer, layers)
        else:
            self._score = TripleScorer(model.triples_score_layer, layers)

    def __call__(
        self, tasks: Sequence[RelationTask], represent: Represent, encoded: EncoderOutput
    ) -> Mapping[int, Predictions]:
        """The predictions of each task's text, by its number, with its relations in gliner's order.

        Ends early when the items of all texts that are scored together are cancelled. Raises `ScoresNotFinite`."""
        rows, predictions = encoded.rows.relations, {}
        for task in tasks:
            if len(task.spans) < 2:
                predictions[task.number] = with_relations(task.resolved, Related(cut=task.cut))
        scored = {task.number: task for task in tasks if len(task.spans) >= 2}
        relations = rows.split(encoded.relations)
        for group in rows.groups({number: len(task.spans) for number, task in scored.items()}):
            with on_slot(rows.slot(group[0])):
                predicted = self._predicted([scored[number] for number in group], represent, relations, rows)
            predictions |= zip(group, predicted, strict=True)
        return predictions

    def _predicted(
        self, group: Sequence[RelationTask], represent: Represent, relations: Sequence[torch.Tensor], rows: TextRows
    ) -> list[Predictions]:
        """The predictions of texts of one adapter. relations: (R, D) of each text of the batch."""
        numbers = [task.number for task in group]
        ends = represent(numbers, [task.spans for task in group])
        counts = [len(task.spans) for task in group]
        before = [0, *accumulate(counts[:-1])]
        adjacent = self._adjacent(ends, counts, [task.text.item.threshold for task in group])
        of_tasks = [np.stack(task.pairs(flags)) for task, flags in zip(group, adjacent, strict=True)]
        pairs = np.zeros((2, len(group), max(some.shape[1] for some in of_tasks)), np.int64)
        for number, some in enumerate(of_tasks):
            pairs[:, number, : some.shape[1]] = some + before[number]
        block = pad_sequence([relations[number] for number in numbers], batch_first=True)
        score = self._score(ends, block, partial(rows.slot_rows_of, numbers[0]))
        thresholds = np.full(block.shape[:2], inf)
        for number, task in enumerate(group):
            thresholds[number, : len(task.text.item.relations)] = relation_thresholds_of(task.text.item)
        ends_of = copied(torch.from_numpy(pairs), ends.device)
        collected = [TaskRelations(task) for task in group]
        for at in self._chunks(pairs.shape[2], block):
            least = np.maximum(thresholds, [[one.least_score] for one in collected])
            if all(task.text.cancellation.requested for task in group) or (least == inf).all():
                break
            scores = probabilities(score(ends_of[0, :, at], ends_of[1, :, at]))
            above = (scores.double() > copied(torch.from_numpy(least), ends.device)[:, None]).nonzero()
            values = scores[tuple(above.unbind(1))].cpu().numpy()
            text, pair, relation = above.cpu().numpy().T
            for number, some in enumerate(of_tasks):
                mine = (text == number) & (pair + at.start < some.shape[1])
                collected[number].add(relation[mine], some[:, pair[mine] + at.start], values[mine])
        return [relations_of.predictions() for relations_of in collected]

    def _chunks(self, pairs: int, relations: torch.Tensor) -> Iterator[slice]:
        """Pairs of each text to score together. All, if their tensors fit: chunks may round differently."""
        texts, number, _ = relations.shape
        more = _PADDED if self._padded else 1
        pair_bytes = texts * (self._score.pair_bytes(relations) + number * _SCORE_BYTES)
        step = max(1, min(more * _MAX_PAIRS // texts, more * _CHUNK_BYTES // pair_bytes))
        return (slice(at, at + step) for at in range(0, pairs, step))

    def _adjacent(
        self, ends: torch.Tensor, counts: Sequence[int], thresholds: Sequence[float]
    ) -> Sequence[Flags | None]:
        """For each text: the pairs that the model's adjacency proposes, (E, E); None: all."""
        if self._adjacency is None:
            return [None] * len(counts)
        block = pad_sequence(list(ends.split_with_sizes(list(counts))), batch_first=True)
        numbers, least = (copied(torch.tensor(values), ends.device) for values in (counts, thresholds))
        mask = (torch.arange(block.shape[1], device=ends.device) < numbers[:, None]).long()
        with self._own_shapes():
            adjacency = self._adjacency(block, mask)
        if bool(adjacency.isnan().any()):
            raise ScoresNotFinite
        adjacent = (adjacency > least[:, None, None]).cpu().numpy()
        return [flags[:count, :count] for flags, count in zip(adjacent, counts, strict=True)]


class TaskRelations:
    """The relations of a task so far, or its error if there are too many."""

    def __init__(self, task: RelationTask) -> None:
        self._task = task
        self._collected = RelationCollector(task.text, task.resolved.entities, len(task.text.item.relations))
        self._allowed = AllowedEnds.of(task.text.item)
        self._failed: Predictions | None = None

    def add(self, relation: NDArray[np.int64], ends: NDArray[np.int64], scores: NDArray[np.float32]) -> None:
        """Add relations. ends: (2, N), heads and tails, as indexes into the task's spans."""
        head, tail = self._task.indexes[ends]
        keys = np.stack([relation, head, tail], axis=-1)
        if self._allowed:
            labels = self._task.resolved.entities.label
            may = self._allowed.heads[relation, labels[head]] & self._allowed.tails[relation, labels[tail]]
            keys, scores = keys[may], scores[may]
        if self._failed is None:
            self._failed = Predictions.or_error(self._collected.add, keys, scores)

    @property
    def least_score(self) -> float:
        """Only relations above it can still count."""
        return inf if self._failed else self._collected.least_score

    def predictions(self) -> Predictions:
        """The predictions of the text, or its error."""
        return Predictions.or_error(self._with_relations) if self._failed is None else self._failed

    def _with_relations(self) -> Predictions:
        return with_relations(self._task.resolved, self._collected.related(cut=self._task.cut))


def predict_relations(
    outcomes: Sequence[RelationTask | Predictions],
    relate: RelationHead | None,
    represent: Represent,
    encoded: EncoderOutput,
) -> list[Predictions]:
    """The predictions of all texts. outcomes: of each text, in order; relate: None if there are no tasks."""
    predictions = {n: outcome for n, outcome in enumerate(outcomes) if isinstance(outcome, Predictions)}
    if relate is not None:
        tasks = [outcome for outcome in outcomes if isinstance(outcome, RelationTask)]
        predictions |= relate(tasks, represent, encoded)
    return [predictions[number] for number in range(len(outcomes))]


class RelationCollector:
    """Collects relations, at most `max_relations` of the item: those with the highest scores, or LimitExceeded.

    least_score: once some were dropped, only relations above it can still be among the best.
    """

    def __init__(self, text: Prepared, entities: SpanTable, relations: int) -> None:
        self._text = text
        self._entities = entities
        self._keys = np.empty((0, 3), np.int64)
        self._scores = np.empty(0, np.float64)
        self._added: list[tuple[NDArray[np.int64], NDArray[np.float32]]] = []
        self._number = 0
        self._shape = (relations, len(entities), len(entities))
        self.least_score = -inf

    def add(self, keys: NDArray[np.int64], scores: NDArray[np.float32]) -> None:
        """Add relations, (N, 3): relation, head, tail. Of a repeated one the first counts."""
        self._added.append((keys, scores))
        self._number += len(keys)
        dropped = self.least_score > -inf
        if self._number > self._text.item.max_relations * (1 + dropped):  # else they are sorted again for a few
            self._join()

    def related(self, *, cut: bool = False) -> Related:
        """All of them, in the order in which they were added. cut: some were not scored."""
        item = self._text.item
        self._join()
        if 2 * len(self._keys) * len(item.text) > item.max_relations:  # else their texts are short enough
            chars = chars_of(self._text, self._entities)
            self._limit(chars[self._keys[:, 1]] + chars[self._keys[:, 2]])
        found = zip(self._keys.tolist(), self._scores.tolist(), strict=True)
        relations = [PredictedRelation(key[0], key[1], key[2], score) for key, score in found]
        return Related(relations, cut or self.least_score > -inf)

    def _join(self) -> None:
        """Take what was added."""
        if not self._added:
            return
        keys = np.concatenate([self._keys, *(keys for keys, _ in self._added)])
        scores = np.concatenate([self._scores, *(scores for _, scores in self._added)])
        self._added = []
        _, first = np.unique(np.ravel_multi_index(tuple(keys.T), self._shape), return_index=True)
        first.sort()
        self._keys, self._scores = keys[first], scores[first]
        self._limit(np.zeros(len(first), np.int64))
        self._number = len(self._keys)

    def _limit(self, chars: NDArray[np.int64]) -> None:
        fitting = kept_of(self._text.item, "max_relations", self._scores, chars)
        if fitting is not None:
            self._keys, self._scores = self._keys[fitting], self._scores[fitting]
            self.least_score = float(self._scores.min(initial=inf))


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
