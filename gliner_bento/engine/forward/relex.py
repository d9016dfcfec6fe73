"""Forwards of the joint models: entities, then relations between them. gliner's layers, each row on its own terms.

gliner's forward takes one threshold for the batch, proposes entities from padded labels too, and scores every pair of
proposed spans (the square of thousands, at a low threshold), to keep the pairs whose ends are answered. A score of a
pair does not depend on the others, so here only those pairs are scored, unless the model's adjacency is one that looks
at all proposals together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from gliner.modeling.utils import extract_prompt_features

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.decode import (
    Span,
    probabilities,
    spans_above,
    tag_scores,
    tagged_boundaries,
    tagged_spans,
    too_many,
)
from gliner_bento.engine.forward.findings import Findings, FoundRelation, entities

Boundary = tuple[int, int]

# Adjacencies that score a pair by its two ends: "none" proposes every pair.
_PAIRWISE = {"none", "dot", "mlp", "bilinear"}

# Spans of one item between which relations are scored: pairs grow with the square. A joint adjacency looks at all
# proposals, but the pairs that are scored after it are between answered spans here too.
MAX_RELATED_SPANS = 512
MAX_JOINT_PROPOSALS = 2048
_PAIRS_AT_ONCE = 8192


class _Read:
    """What the encoder gives: words (B, W, D), labels (B, C, D) and relations (B, R, D)."""

    def __init__(self, model: Any, inputs: dict[str, Any]) -> None:
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        tokens = model.token_rep_layer(ids, mask)
        labels, _, words, words_mask = model._extract_prompt_features_and_word_embeddings(
            tokens, ids, mask, inputs["text_lengths"], inputs["words_mask"]
        )
        if hasattr(model, "rnn"):
            words = model.rnn(words, words_mask, lengths=inputs["word_lengths"])
        config = model.config
        self.words = words
        self.labels = model.prompt_rep_layer(labels)
        self.relations, _ = extract_prompt_features(
            config.rel_token_index, tokens, ids, mask, len(ids), tokens.shape[-1], config.embed_rel_token
        )


def find_spans_and_relations(model: Any, inputs: dict[str, Any], rows: Sequence[Prepared]) -> list[Findings]:
    """Span models."""
    read = _Read(model, inputs)
    spans = model.span_rep_layer(read.words, inputs["span_idx"] * inputs["span_mask"][..., None])
    logits = torch.einsum("BLKD,BCD->BLKC", spans, read.labels)
    findings = []
    for number, (row, above) in enumerate(zip(rows, spans_above(logits, rows), strict=True)):
        proposed = sorted({(span.first, span.last) for span in above}) if row.item.relations else []

        def represent(boundaries: Sequence[Boundary], of: torch.Tensor = spans[number]) -> torch.Tensor:
            first, last = torch.tensor(boundaries, device=of.device).T
            return of[first, last - first]

        found = entities(row, above)
        prompts = read.relations[number]
        related = _relations(model, row, found, proposed, represent=represent, prompts=prompts)
        findings.append(Findings(found, related))
    return findings


def find_tags_and_relations(model: Any, inputs: dict[str, Any], rows: Sequence[Prepared]) -> list[Findings]:
    """Token models."""
    read = _Read(model, inputs)
    findings = []
    tags = tag_scores(model.scorer(read.words, read.labels), rows)
    for number, (row, scores) in enumerate(zip(rows, tags, strict=True)):
        proposed = tagged_boundaries(scores, row.item.threshold) if row.item.relations else []

        def represent(
            boundaries: Sequence[Boundary], words: torch.Tensor = read.words[number : number + 1, : row.words]
        ) -> torch.Tensor:
            represented: torch.Tensor = model.span_rep_layer(words, torch.tensor([boundaries], device=words.device))
            return represented[0]

        found = entities(row, tagged_spans(scores, row.item.threshold))
        prompts = read.relations[number]
        related = _relations(model, row, found, proposed, represent=represent, prompts=prompts)
        findings.append(Findings(found, related))
    return findings


def _relations(
    model: Any,
    row: Prepared,
    spans: Sequence[Span],
    proposed: Sequence[Boundary],
    *,
    represent: Callable[[Sequence[Boundary]], torch.Tensor],
    prompts: torch.Tensor,
) -> list[FoundRelation]:
    """Relations of one row, in gliner's order.

    Several labels on the same words are one end of a relation: the first of them stands for it. Where a token model
    proposes the same words for several labels, gliner repeats their relations and relates them to themselves; here a
    relation is found once, between two.
    """
    place: dict[Boundary, int] = {}
    for number, span in enumerate(spans):
        place.setdefault((span.first, span.last), number)
    if model.config.relations_layer in _PAIRWISE:
        proposed = list(dict.fromkeys(boundary for boundary in proposed if boundary in place))
    if len(place) < 2 or len(proposed) < 2:
        return []
    for number, limit in ((len(place), MAX_RELATED_SPANS), (len(proposed), MAX_JOINT_PROPOSALS)):
        if number > limit:
            raise too_many(number, limit)
    ends = represent(proposed)
    places = torch.tensor([place.get(boundary, -1) for boundary in proposed], device=ends.device)
    heads, tails = _pairs(model, ends, places, row.item.threshold)
    prompts = prompts[: len(row.item.relations)]
    found: dict[tuple[int, int, int], float] = {}
    for part in range(0, len(heads), _PAIRS_AT_ONCE):
        head, tail = heads[part : part + _PAIRS_AT_ONCE], tails[part : part + _PAIRS_AT_ONCE]
        logits = _score(model, ends[head], ends[tail], prompts)
        scores = probabilities(logits, torch.ones_like(logits, dtype=torch.bool))
        pair, relation = (scores.double() > row.item.relation_threshold).nonzero(as_tuple=True)
        of = torch.stack([relation, places[head[pair]], places[tail[pair]]], dim=-1)
        for key, score in zip(of.tolist(), scores[pair, relation].tolist(), strict=True):
            found.setdefault((key[0], key[1], key[2]), score)
    return [FoundRelation(*key, score) for key, score in found.items()]


def _pairs(model: Any, ends: torch.Tensor, places: torch.Tensor, threshold: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Heads and tails among `ends` (E, D) that are answered, at different `places` (E; -1: not answered): every two, or
    those that the model's adjacency proposes."""
    answered = places >= 0
    proposed = answered[:, None] & answered & (places[:, None] != places)
    if hasattr(model, "relations_rep_layer"):
        mask = torch.ones(1, len(ends), dtype=torch.long, device=ends.device)
        adjacency = model.relations_rep_layer(ends[None], mask)[0]
        if bool(adjacency.isnan().any()):
            raise ArithmeticError("the model's adjacency is not a number")
        proposed &= adjacency > threshold
    heads, tails = proposed.nonzero(as_tuple=True)
    return heads, tails


def _score(model: Any, heads: torch.Tensor, tails: torch.Tensor, prompts: torch.Tensor) -> torch.Tensor:
    """Logits (N, R) of pairs (N, D) for relations (R, D)."""
    logits: torch.Tensor
    if hasattr(model, "pair_rep_layer"):
        logits = model.pair_rep_layer(torch.cat((heads, tails), dim=-1)) @ prompts.T
        return logits
    shape = (len(heads), *prompts.shape)
    triples = (heads[:, None].expand(shape), prompts[None].expand(shape), tails[:, None].expand(shape))
    logits = model.triples_score_layer(*(part.reshape(-1, shape[-1]) for part in triples)).view(shape[:2])
    return logits
