"""From token ids to what heads score: embeddings of words, labels and relations, packed row after row.

Owns the encoder, the pooling of sub-word tokens to words, and the LSTM. Knows nothing of spans and scores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from gliner.modeling.base import UniEncoderTokenDecoderModel

from gliner_bento.adapters.linear import on_slot
from gliner_bento.engine.adaptable import Layers
from gliner_bento.engine.collate import PackedInputs
from gliner_bento.engine.encoder import PackedEncoder, packed_encoder
from gliner_bento.engine.forward.labels import LabelEncoder
from gliner_bento.engine.forward.layers import Lstm, Projection
from gliner_bento.engine.kernels import Kernels
from gliner_bento.engine.packing import Layout, Rows


@dataclass(frozen=True, slots=True)
class Read:
    """Embeddings (N, D) of all rows, and how many of them are each row's."""

    words: torch.Tensor
    of_words: Rows
    labels: torch.Tensor
    of_labels: Rows
    relations: torch.Tensor
    of_relations: Rows


class Reader(Protocol):
    """Reads a batch.

    packs: rows stand side by side without padding, inside the encoder too.
    name: how it reads, in words.
    """

    packs: bool
    name: str

    @property
    def encoded_labels(self) -> int:
        """Labels encoded apart from a text, so far."""

    def __call__(self, inputs: PackedInputs) -> Read:
        """`inputs` are on the encoder's device."""


class UniReader:
    """Labels and relations stand in the prompt, before the text."""

    encoded_labels = 0

    def __init__(self, model: Any, layers: Layers, kernels: Kernels, *, pack: bool) -> None:
        config = model.config
        self._encode, self.name, self.packs = text_encoder(model.token_rep_layer, layers, kernels, pack=pack)
        self._pool = WordPooling(config.subtoken_pooling)
        self._lstm = Lstm(model.rnn) if hasattr(model, "rnn") else None
        self._label_projection = label_projection(model, layers)
        self._label_token = config.class_token_index
        self._label_shift = 0 if config.embed_ent_token else 1
        self._relation_token = getattr(config, "rel_token_index", None)
        self._relation_shift = 0 if getattr(config, "embed_rel_token", True) else 1

    def __call__(self, inputs: PackedInputs) -> Read:
        """See `Read`."""
        layout = Layout.of(inputs.tokens, inputs.token_ids.device)
        tokens = self._encode(inputs.token_ids, layout)
        words = self._pool(tokens, inputs)
        if self._lstm is not None:
            words = self._lstm(words, inputs.words)
        labels = tokens[inputs.places_of(self._label_token) + self._label_shift]
        if self._label_projection is not None:
            labels = self._label_projection(labels, inputs.labels.owners)
        relations = tokens[:0]
        if self._relation_token is not None:
            relations = tokens[inputs.places_of(self._relation_token) + self._relation_shift]
        return Read(words, inputs.words, labels, inputs.labels, relations, inputs.relations)


class BiReader:
    """Labels are encoded apart from the text, and kept."""

    def __init__(self, model: Any, layers: Layers, kernels: Kernels, *, pack: bool, label_cache_size: int) -> None:
        self._encode, self.name, self.packs = text_encoder(model.token_rep_layer, layers, kernels, pack=pack)
        self._pool = WordPooling(model.config.subtoken_pooling)
        self._labels = LabelEncoder(model.token_rep_layer, label_cache_size, layers, kernels, pack=pack)
        self._fuse = getattr(model, "cross_fuser", None)
        if self._fuse is not None:
            layers.adapt(self._fuse)
        self._label_projection = label_projection(model, layers)

    def __call__(self, inputs: PackedInputs) -> Read:
        """See `Read`."""
        layout = Layout.of(inputs.tokens, inputs.token_ids.device)
        words = self._pool(self._encode(inputs.token_ids, layout), inputs)
        labels = self._labels(inputs.label_ids, inputs.labels).to(words.dtype)
        if self._fuse is not None:
            words, labels = self._fused(words, labels, inputs)
        if self._label_projection is not None:
            labels = self._label_projection(labels, inputs.labels.owners)
        return Read(words, inputs.words, labels, inputs.labels, words[:0], inputs.relations)

    @property
    def encoded_labels(self) -> int:
        """Those that were not in the table."""
        return self._labels.encoded_labels

    def _fused(
        self, words: torch.Tensor, labels: torch.Tensor, inputs: PackedInputs
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """gliner's `post_fusion_schema`: each row's words and labels look at each other."""
        assert self._fuse is not None
        fused = []
        for number, (word, label) in enumerate(
            zip(inputs.words.split(words), inputs.labels.split(labels), strict=True)
        ):
            with on_slot(inputs.words.slot(number)):
                fused.append(
                    self._fuse(label[None], word[None], label.new_ones(1, len(label)), word.new_ones(1, len(word)))
                )
        return torch.cat([word[0] for _, word in fused]), torch.cat([label[0] for label, _ in fused])


class WordPooling:
    """gliner's `subtoken_pooling`: one embedding for each word, of its marked tokens."""

    def __init__(self, pooling: str) -> None:
        self._reduce = {"mean": "mean", "max": "amax"}.get(pooling)

    def __call__(self, tokens: torch.Tensor, inputs: PackedInputs) -> torch.Tensor:
        """(T, D) -> (W, D)."""
        marked = tokens[inputs.word_places]
        if self._reduce is None:  # one token of each word is marked
            return marked
        words = tokens.new_zeros(sum(inputs.words.counts), tokens.shape[1])
        index = inputs.word_numbers[:, None].expand_as(marked)
        return words.scatter_reduce(0, index, marked, self._reduce, include_self=False)


def label_projection(model: Any, layers: Layers) -> Projection | None:
    """What labels pass before they are scored, if anything. (Token models with a decoder have it and leave it out.)"""
    if isinstance(model, UniEncoderTokenDecoderModel) or not hasattr(model, "prompt_rep_layer"):
        return None
    return Projection(model.prompt_rep_layer, layers)


def text_encoder(
    token_rep_layer: Any, layers: Layers, kernels: Kernels, *, pack: bool
) -> tuple[PackedEncoder, str, bool]:
    """gliner's text encoder over packed rows, what it is called, and whether it is without padding inside."""
    transformer, projection = token_rep_layer.bert_layer, getattr(token_rep_layer, "projection", None)
    kind = type(transformer.model).__name__
    packed = packed_encoder(transformer, projection, layers, kernels) if pack else None
    if packed is not None:
        return packed, f"packed {kind}", True
    encode = getattr(token_rep_layer, "encode_text", token_rep_layer)
    layers.adapt(transformer)
    if projection is not None:
        layers.adapt_child(token_rep_layer, "projection")
    if transformer.config.fuse_layers:  # its weights are means over a row, padding included
        return one_by_one(encode), f"transformers' {kind} row by row", True
    return padded(encode), f"transformers' {kind}", False


def padded(encode: Callable[..., torch.Tensor]) -> PackedEncoder:
    """An encoder of padded rows, (ids, mask) -> (rows, longest, D), for packed ones; each adapter's by themselves."""

    def run(token_ids: torch.Tensor, layout: Layout) -> torch.Tensor:
        around = Layout.padded(Rows(layout.lengths), token_ids.device)
        assert around.index is not None
        assert around.mask is not None
        parts, first = [], 0
        for slot, rows in layout.by_adapter():
            part = slice(first, first + rows)
            longest = max(layout.lengths[part])
            index, mask = around.index[part, :longest], around.mask[part, :longest]
            with on_slot(slot):
                parts.append(encode(token_ids[index], mask.long())[mask])
            first += rows
        return torch.cat(parts)

    return run


def one_by_one(encode: Callable[..., torch.Tensor]) -> PackedEncoder:
    """The same, without any company."""

    def run(token_ids: torch.Tensor, layout: Layout) -> torch.Tensor:
        encoded = []
        slots = layout.slots.of_rows if layout.slots else [None] * len(layout.lengths)
        for row, slot in zip(token_ids.split_with_sizes(list(layout.lengths)), slots, strict=True):
            with on_slot(slot):
                encoded.append(encode(row[None], torch.ones_like(row)[None])[0])
        return torch.cat(encoded)

    return run
