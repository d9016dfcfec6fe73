"""The relation head: the relations between the predicted entities of a text.

*Proposed spans* are those above the lowest threshold, before overlap resolution. gliner scores every pair of them
(millions, at a low threshold) and keeps the relations between entities. A pair's score does not depend on other pairs,
so here only pairs of entities are scored. A model may have an *adjacency*, a layer that selects the pairs to score. A
*joint* adjacency takes all proposed spans as input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, islice
from math import inf
from typing import Any

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
"""(numbers of texts with the same adapter, the spans of each text) -> representations of all these spans (E, D)."""
SlotRowsOf = Callable[[int], "SlotRows | None"]
"""The number of rows of a matrix, which all belong to one adapter -> the rows of each slot."""
ScorePairs = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(heads, tails) of each text's pairs, (texts, P) each, as row numbers of `ends` -> logits (texts, P, R)."""

# Values of `relations_layer` for no adjacency, or for an adjacency that scores each pair by its two ends alone. With
# any other value, the adjacency is joint.
_PAIRWISE = {"none", "dot", "mlp", "bilinear"}

# Maximum number of spans between which a text's relations are scored, and of proposed spans that a joint adjacency
# takes: the number of pairs grows with the square of the number of spans. A text with more spans fails or, if
# `on_limit` is `truncate`, only its `MAX_RELATED_SPANS` entities with the highest scores are taken.
MAX_RELATED_SPANS = 512
MAX_JOINT_PROPOSALS = 2048

# Limits of one chunk of pairs: the number of pairs, and the bytes of all temporary tensors. The limits of a padded
# batch are `_PADDED_FACTOR` times as high.
_MAX_PAIRS = 8192
_CHUNK_BYTES = 32 << 20
_PADDED_FACTOR = 16
# Temporary bytes for each pair and relation: logit, score, score in double precision, flag, position and key.
_SCORE_BYTES = 4 + 4 + 8 + 1 + 16 + 24


class PairScorer:
    """gliner's `pair_rep_layer`, factorised like `MarkerV0`.

    The first layer is computed once per span, and the last layer is folded into the relations."""

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
        """Returns a function that scores pairs of `ends` (E, D) for `relations` (texts, R, D), all of one adapter."""
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
        """Bytes of the temporary tensors that scoring one pair takes: four hidden states."""
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
                logits: torch.Tensor = self._layer(*(part.reshape(-1, shape[-1]) for part in triples)).view(shape[:3])
            return logits

        return score

    def pair_bytes(self, relations: torch.Tensor) -> int:
        """As `PairScorer`: the three parts of the triples of all relations, and as much inside the layer."""
        return 6 * relations[0].numel() * relations.element_size()


class RelationCollector:
    """Collects the relations between the entities of a text, in gliner's order.

    Keeps at most `max_relations` of the item, those with the highest scores, or fails if there are more (`on_limit`).
    least_score: only a relation with a higher score can still be kept; infinite if no relation can.
    """

    def __init__(self, text: Prepared, resolved: Resolved, *, incomplete: bool = False) -> None:
        """resolved: the text's entities. incomplete: relations of some entities are not scored."""
        entities = resolved.entities
        self._text = text
        self._resolved = resolved
        self._incomplete = incomplete
        self._allowed = AllowedEnds.of(text.item)
        self._shape = (len(text.item.relations), len(entities), len(entities))
        self._keys = np.empty((0, 3), np.int64)
        self._scores = np.empty(0, np.float64)
        self._added: list[tuple[NDArray[np.int64], NDArray[np.float32]]] = []
        self._count = 0
        self._failure: Predictions | None = None
        self.least_score = -inf

    def add(self, relation: NDArray[np.int64], ends: NDArray[np.int64], scores: NDArray[np.float32]) -> None:
        """Add N relations. A repeated relation counts once, with its first score.

        relation: (N,), indexes into the item's relations. ends: (2, N), heads and tails as indexes into the entities.
        """
        keys = np.stack([relation, *ends], axis=-1)
        if self._allowed:
            labels = self._resolved.entities.label
            permitted = self._allowed.permit(relation, *labels[ends])
            keys, scores = keys[permitted], scores[permitted]
        self._added.append((keys, scores))
        self._count += len(keys)
        # Once relations have been dropped, each join sorts, so twice as many are collected before the next join.
        factor = 2 if self.least_score > -inf else 1
        if self._failure is None and self._count > factor * self._text.item.max_relations:
            self._failure = Predictions.or_error(self._join)
            if self._failure is not None:
                self.least_score = inf

    def predictions(self) -> Predictions:
        """The text's entities and relations, or the error."""
        return Predictions.or_error(self._result) if self._failure is None else self._failure

    def _result(self) -> Predictions:
        item, resolved = self._text.item, self._resolved
        self._join()
        if 2 * len(self._keys) * len(item.text) > item.max_relations:  # else the texts of the ends are within the limit
            chars = chars_of(self._text, resolved.entities)
            self._limit(chars[self._keys[:, 1]] + chars[self._keys[:, 2]])
        scored = zip(self._keys.tolist(), self._scores.tolist(), strict=True)
        relations = [PredictedRelation(relation, head, tail, score) for (relation, head, tail), score in scored]
        cut = ["max_relations"] if self._incomplete or self.least_score > -inf else []
        return Predictions(resolved.entities, resolved.suppressed, [*resolved.cut, *cut], relations)

    def _join(self) -> None:
        """Join the added relations with the earlier ones, without repetitions. Raises LimitExceeded."""
        if not self._added:
            return
        keys = np.concatenate([self._keys, *(keys for keys, _ in self._added)])
        scores = np.concatenate([self._scores, *(scores for _, scores in self._added)])
        self._added = []
        _, first = np.unique(np.ravel_multi_index(tuple(keys.T), self._shape), return_index=True)
        first.sort()
        self._keys, self._scores = keys[first], scores[first]
        self._limit(np.zeros(len(first), np.int64))  # `_result` applies the limit on characters
        self._count = len(self._keys)

    def _limit(self, chars: NDArray[np.int64]) -> None:
        """Drop relations beyond the limit. chars: for each relation, the length of both ends' texts.

        Raises LimitExceeded."""
        fitting = kept_of(self._text.item, "max_relations", self._scores, chars)
        if fitting is not None:
            self._keys, self._scores = self._keys[fitting], self._scores[fitting]
            self.least_score = float(self._scores.min(initial=inf))


@dataclass(frozen=True, slots=True)
class RelationTask:
    """One text whose relations are to be scored.

    spans: the spans that may be ends of relations, or all input spans of a joint adjacency.
    entity_of_span: (spans,), the index of each span's entity; -1: the span is no entity.
    labels: the label of each entity. collected: collects the scored relations.
    """

    text: Prepared
    spans: Sequence[WordSpan]
    entity_of_span: NDArray[np.int64]
    labels: NDArray[np.int64]
    collected: RelationCollector

    @classmethod
    def of(cls, text: Prepared, resolved: Resolved, proposed: Sequence[WordSpan], *, joint: bool) -> RelationTask:
        """Relations between the entities of a text.

        joint: whether the model has a joint adjacency. Its input is the `proposed` spans or, in a relation pass, the
        entities that the pass is given.

        Several entities of the same words count as one end of relations, represented by the first of them. If a token
        model proposes the same words for several labels, gliner repeats their relations and adds self-relations; here
        a relation is returned once, between two entities. Raises LimitExceeded.
        """
        entities = resolved.entities
        index_of = entities.index_of_words()
        if text.payload.entities is not None:
            proposed = sorted(index_of)
        allowed = AllowedEnds.of(text.item)
        if allowed and not joint:
            usable = allowed.usable_entities(entities.label)
            index_of = {span: index for span, index in index_of.items() if usable[index]}
        too_many = len(index_of) > MAX_RELATED_SPANS or (joint and len(proposed) > MAX_JOINT_PROPOSALS)
        if too_many:
            index_of = _best(text, entities, index_of, len(proposed))
        if too_many or not joint:
            proposed = list(dict.fromkeys(span for span in proposed if span in index_of))
        if len(index_of) < 2:
            proposed = ()
        entity_of_span = np.array([index_of.get(span, -1) for span in proposed], np.int64)
        collected = RelationCollector(text, resolved, incomplete=too_many)
        return cls(text, proposed, entity_of_span, entities.label, collected)

    def pairs(self, adjacent: Flags | None) -> NDArray[np.int64]:
        """(2, P): heads and tails of the pairs to score, as indexes into `spans`. A head and its tail are different
        entities.

        adjacent: (spans, spans), the pairs that the model's adjacency proposes; None: all."""
        entity = self.entity_of_span
        is_entity = entity >= 0
        related = is_entity[:, None] & is_entity & (entity[:, None] != entity)
        if adjacent is not None:
            related &= adjacent
        if allowed := AllowedEnds.of(self.text.item):
            related &= allowed.pairs(self.labels[entity])
        return np.stack(related.nonzero())


class RelationHead:
    """Predicts relations: text by text or, in padded batches, for groups of texts with similar numbers of spans."""

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

    def __call__(self, tasks: Mapping[int, RelationTask], represent: Represent, encoded: EncoderOutput) -> None:
        """Add the relations of all tasks to their `collected`. tasks: by the number of their text in the batch.

        A group of texts ends early when all its items are cancelled. Raises `ScoresNotFinite`."""
        rows = encoded.rows.relations
        relations = rows.split(encoded.relations)
        for group in rows.groups({number: len(task.spans) for number, task in tasks.items() if len(task.spans) > 1}):
            with on_slot(rows.slot(group[0])):
                self._collect(group, [tasks[number] for number in group], represent, relations, rows)

    def _collect(
        self,
        texts: Sequence[int],
        tasks: Sequence[RelationTask],
        represent: Represent,
        relations: Sequence[torch.Tensor],
        rows: TextRows,
    ) -> None:
        """Score the pairs of texts with the same adapter together. relations: (R, D) of each text of the batch."""
        counts = [len(task.spans) for task in tasks]
        ends = represent(texts, [task.spans for task in tasks])
        adjacent = self._adjacent(ends, counts, [task.text.item.threshold for task in tasks])
        pairs_of_texts = [task.pairs(flags) for task, flags in zip(tasks, adjacent, strict=True)]
        end_rows = copied(torch.from_numpy(_padded_pairs(pairs_of_texts, counts)), ends.device)
        block = pad_sequence([relations[text] for text in texts], batch_first=True)
        score = self._score(ends, block, partial(rows.slot_rows_of, texts[0]))
        thresholds = np.full(block.shape[:2], inf)
        for row, task in zip(thresholds, tasks, strict=True):
            row[: len(task.text.item.relations)] = relation_thresholds_of(task.text.item)
        for chunk in self._chunks(end_rows.shape[2], block):
            least = np.maximum(thresholds, [[task.collected.least_score] for task in tasks])
            if all(task.text.ended for task in tasks) or (least == inf).all():
                break
            scores = probabilities(score(end_rows[0, :, chunk], end_rows[1, :, chunk]))
            above = (scores.double() > copied(torch.from_numpy(least), ends.device)[:, None]).nonzero()
            values = scores[tuple(above.unbind(1))].cpu().numpy()
            task_index, pair, relation = above.cpu().numpy().T
            pair += chunk.start
            for index, (task, pairs) in enumerate(zip(tasks, pairs_of_texts, strict=True)):
                mask = (task_index == index) & (pair < pairs.shape[1])  # without padding
                task.collected.add(relation[mask], task.entity_of_span[pairs[:, pair[mask]]], values[mask])

    def _chunks(self, pairs: int, relations: torch.Tensor) -> Iterator[slice]:
        """Slices of each text's pairs, to be scored one after the other. All pairs are one slice if their tensors fit,
        because the size of a slice may change the rounding. relations: (texts, R, D)."""
        texts, relations_per_text, _ = relations.shape
        factor = _PADDED_FACTOR if self._padded else 1
        pair_bytes = texts * (self._score.pair_bytes(relations) + relations_per_text * _SCORE_BYTES)
        step = max(1, min(factor * _MAX_PAIRS // texts, factor * _CHUNK_BYTES // pair_bytes))
        return (slice(start, start + step) for start in range(0, pairs, step))

    def _adjacent(
        self, ends: torch.Tensor, counts: Sequence[int], thresholds: Sequence[float]
    ) -> Sequence[Flags | None]:
        """For each text: the pairs that the model's adjacency proposes, (spans, spans); None: all."""
        if self._adjacency is None:
            return [None] * len(counts)
        block = pad_sequence(list(ends.split_with_sizes(list(counts))), batch_first=True)
        device_counts = copied(torch.tensor(counts), ends.device)
        device_thresholds = copied(torch.tensor(thresholds), ends.device)
        mask = (torch.arange(block.shape[1], device=ends.device) < device_counts[:, None]).long()
        with self._own_shapes():
            adjacency = self._adjacency(block, mask)
        if bool(adjacency.isnan().any()):
            raise ScoresNotFinite
        adjacent = (adjacency > device_thresholds[:, None, None]).cpu().numpy()
        return [flags[:count, :count] for flags, count in zip(adjacent, counts, strict=True)]


def _padded_pairs(pairs_of_texts: Sequence[NDArray[np.int64]], counts: Sequence[int]) -> NDArray[np.int64]:
    """(2, texts, P): each text's pairs, padded with 0. A span is its row number among the spans of all texts.
    counts: the number of spans of each text."""
    padded = np.zeros((2, len(counts), max(pairs.shape[1] for pairs in pairs_of_texts)), np.int64)
    first_rows = accumulate(counts[:-1], initial=0)
    for number, (pairs, first_row) in enumerate(zip(pairs_of_texts, first_rows, strict=True)):
        padded[:, number, : pairs.shape[1]] = pairs + first_row
    return padded


def predict_relations(
    outcomes: Sequence[RelationTask | Predictions],
    relate: RelationHead | None,
    represent: Represent,
    encoded: EncoderOutput,
) -> list[Predictions]:
    """The predictions of all texts. outcomes: for each text, its predictions, or a task if its relations have to be
    scored. relate: None if the model predicts no relations, so that there are no tasks."""
    if relate is not None:
        tasks = {number: outcome for number, outcome in enumerate(outcomes) if isinstance(outcome, RelationTask)}
        relate(tasks, represent, encoded)
    return [outcome.collected.predictions() if isinstance(outcome, RelationTask) else outcome for outcome in outcomes]


def _best(text: Prepared, entities: SpanTable, index_of: dict[WordSpan, int], proposals: int) -> dict[WordSpan, int]:
    """The `MAX_RELATED_SPANS` entries of `index_of` with the highest scores. proposals: number of proposed spans.
    Raises LimitExceeded if `on_limit` is `error`."""
    if text.item.on_limit == "error":
        limit = MAX_RELATED_SPANS if len(index_of) > MAX_RELATED_SPANS else MAX_JOINT_PROPOSALS
        raise too_many_candidates(max(len(index_of), proposals), limit)
    by_score = entities.take(np.argsort(-entities.score, kind="stable"))
    best = (words for words in by_score.index_of_words() if words in index_of)
    return {words: index_of[words] for words in islice(best, MAX_RELATED_SPANS)}
