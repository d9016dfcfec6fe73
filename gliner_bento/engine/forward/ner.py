"""Forwards: a reader, a head for entities and, for joint models, one for relations. Chosen by what the model has.

Every row is scored by itself, after the encoder: neither padding nor another row's options can reach it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from gliner.modeling.base import BaseBiEncoderModel

from gliner_bento.adapters.linear import on_slot
from gliner_bento.engine.adaptable import Layers
from gliner_bento.engine.base import Prepared
from gliner_bento.engine.collate import PackedInputs
from gliner_bento.engine.decode import Span, probabilities, spans_found, tagged_boundaries, tagged_spans, tags_found
from gliner_bento.engine.forward.findings import Findings, displaced, entities
from gliner_bento.engine.forward.reading import BiReader, Reader, UniReader
from gliner_bento.engine.forward.relations import Boundary, RelationHead, Represent
from gliner_bento.engine.forward.spans import span_head
from gliner_bento.engine.forward.tags import TagHead
from gliner_bento.engine.kernels import EAGER, Kernels, compiled
from gliner_bento.engine.loading import ModelError
from gliner_bento.engine.options import EngineOptions


class EngineForward(ABC):
    """What a model is computed with, and what it says of itself.

    packs: rows stand side by side without padding. name: how it computes, in words.
    """

    def __init__(self, model: Any, reader: Reader, head: str, layers: Layers) -> None:
        self._read = reader
        self._relate = RelationHead(model, layers) if has_relations(model) else None
        self.packs = reader.packs
        self.name = f"{reader.name}, {head}"

    @property
    def encoded_labels(self) -> int:
        """See `GLiNEREngine`."""
        return self._read.encoded_labels

    @abstractmethod
    def __call__(self, inputs: PackedInputs, rows: Sequence[Prepared]) -> list[Findings]:
        """What each row holds."""


class SpanForward(EngineForward):
    """Span models: a score for each span and label, and relations between the spans that stand."""

    def __init__(self, model: Any, reader: Reader, layers: Layers, kernels: Kernels) -> None:
        self._mark = span_head(model, layers, kernels)
        super().__init__(model, reader, self._mark.name, layers)

    def __call__(self, inputs: PackedInputs, rows: Sequence[Prepared]) -> list[Findings]:
        """What each row holds."""
        read = self._read(inputs)
        marked = self._mark(read.words, read.of_words)
        above = spans_found(marked.scores(read.labels, read.of_labels), rows)
        found = [entities(row, spans) for row, spans in zip(rows, above, strict=True)]
        rest = [displaced(row, *spans) for row, *spans in zip(rows, above, found, strict=True)]
        if self._relate is None:
            return [Findings(spans, displaced=others) for spans, others in zip(found, rest, strict=True)]
        findings = []
        prompts = read.of_relations.split(read.relations)
        for number, (row, spans) in enumerate(zip(rows, found, strict=True)):
            proposed = sorted({(span.first, span.last) for span in above[number]}) if row.item.relations else []
            represent, owner = partial(marked.represent, number), partial(read.of_words.owner, number)
            with on_slot(read.of_words.slot(number)):
                related = self._relate(row, spans, proposed, represent, prompts[number], owner)
            findings.append(Findings(spans, related, rest[number]))
        return findings


class TokenForward(EngineForward):
    """Token models: scores of start, end and inside for each word and label; where the model represents spans, these
    only propose them, and the spans' own scores decide."""

    def __init__(self, model: Any, reader: Reader, layers: Layers) -> None:
        self._tag = TagHead(model.scorer, layers)
        super().__init__(model, reader, self._tag.name, layers)
        self._spans = getattr(model, "span_rep_layer", None)
        if self._spans is not None:
            layers.adapt(self._spans)
        self._scores_spans = self._relate is None and self._spans is not None

    def __call__(self, inputs: PackedInputs, rows: Sequence[Prepared]) -> list[Findings]:
        """What each row holds."""
        read = self._read(inputs)
        tags = tags_found(self._tag(read.words, read.of_words, read.labels, read.of_labels))
        words, labels = read.of_words.split(read.words), read.of_labels.split(read.labels)
        prompts = read.of_relations.split(read.relations)
        findings = []
        for number, (row, scores) in enumerate(zip(rows, tags, strict=True)):
            represent, owner = partial(self._represent, words[number]), partial(read.of_words.owner, number)
            boundaries = tagged_boundaries(scores, row.item.threshold) if self._proposes(row) else []
            with on_slot(read.of_words.slot(number)):
                if self._scores_spans:
                    spans = scored(represent, labels[number], boundaries, row.item.threshold)
                else:
                    spans = tagged_spans(scores, row.item.threshold)
                found = entities(row, spans)
                related = (
                    self._relate(row, found, boundaries, represent, prompts[number], owner) if self._relate else ()
                )
            findings.append(Findings(found, related, displaced(row, spans, found)))
        return findings

    def _proposes(self, row: Prepared) -> bool:
        """Whether something is done with the spans that the tags propose."""
        return self._scores_spans or bool(self._relate and row.item.relations)

    def _represent(self, words: torch.Tensor, boundaries: Sequence[Boundary]) -> torch.Tensor:
        """(E, D), of one row's words (W, D)."""
        assert self._spans is not None
        represented: torch.Tensor = self._spans(words[None], torch.tensor([boundaries], device=words.device))
        return represented[0]


def forward_of(model: Any, options: EngineOptions, layers: Layers) -> EngineForward:
    """The forward of gliner's inner model, made of `layers`. Raises ModelError for options that it cannot have."""
    kernels = compiled() if options.enable_compilation else EAGER
    pack = options.enable_sequence_packing
    reader: Reader
    if isinstance(model, BaseBiEncoderModel):
        reader = BiReader(model, layers, kernels, pack=pack, label_cache_size=options.label_cache_size)
    else:
        reader = UniReader(model, layers, kernels, pack=pack)
    if options.quantization == "int8" and not reader.packs:
        raise ModelError(f"quantization int8 needs a packed encoder; this one is {reader.name}")
    forward = (
        TokenForward(model, reader, layers) if hasattr(model, "scorer") else SpanForward(model, reader, layers, kernels)
    )
    if options.enable_compilation:
        forward.name += ", compiled"
    return forward


def has_relations(model: Any) -> bool:
    """Whether gliner's model scores relations."""
    return hasattr(model, "pair_rep_layer") or hasattr(model, "triples_score_layer")


def scored(represent: Represent, labels: torch.Tensor, boundaries: Sequence[Boundary], threshold: float) -> list[Span]:
    """Of spans, those whose own score for one of `labels` (C, D) is above the threshold."""
    if not boundaries:
        return []
    scores = probabilities(represent(boundaries) @ labels.T).tolist()
    return [
        Span(first, last, label, score)
        for (first, last), of_labels in zip(boundaries, scores, strict=True)
        for label, score in enumerate(of_labels)
        if score > threshold
    ]
