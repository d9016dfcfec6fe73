"""The bi-encoder: labels are encoded separately from texts, and cached."""

from __future__ import annotations

from typing import Any

import torch

from gliner_bento.engine.encoders.inputs import Inputs
from gliner_bento.engine.encoders.label_encoder import LabelEncoder
from gliner_bento.engine.encoders.output import Encoder, EncoderOutput
from gliner_bento.engine.encoders.text_encoder import WordPooling, text_encoder
from gliner_bento.engine.layers.factory import LayerFactory
from gliner_bento.engine.layers.lora import on_slot
from gliner_bento.engine.layers.rows import BatchRows
from gliner_bento.engine.options import EngineOptions


class BiEncoder(Encoder):
    """Encodes texts, and labels that are not cached."""

    def __init__(self, model: Any, layers: LayerFactory, options: EngineOptions) -> None:
        pack = options.enable_sequence_packing
        self._encode, self.name, self.packs = text_encoder(model.token_rep_layer, layers, pack=pack)
        self._pool = WordPooling(model.config.subtoken_pooling)
        self._labels = LabelEncoder(model.token_rep_layer, options.label_cache_size, layers, pack=pack)
        self._own_shapes = layers.own_shapes
        self._fuse = model.cross_fuser if model.config.post_fusion_schema else None
        if self._fuse is not None:
            layers.adapt(self._fuse)

    def __call__(self, inputs: Inputs) -> EncoderOutput:
        rows = inputs.rows
        words = self._pool(self._encode(inputs.token_ids, rows.tokens, inputs.layout), inputs)
        labels = self._labels(inputs.label_ids, rows.labels).to(words.dtype)
        if self._fuse is not None:
            words, labels = self._fused(words, labels, rows)
        return EncoderOutput(words, labels, relations=words[:0], rows=rows, thresholds=inputs.thresholds)

    @property
    def encoded_labels(self) -> int:
        """See `Encoder`. Cached labels are not encoded again."""
        return self._labels.encoded_labels

    def _fused(self, words: torch.Tensor, labels: torch.Tensor, rows: BatchRows) -> tuple[torch.Tensor, torch.Tensor]:
        """gliner's `post_fusion_schema`: attention between each text's words and labels."""
        assert self._fuse is not None
        fused = []
        blocks = zip(rows.words.by_slot(words), rows.labels.by_slot(labels), strict=True)
        for (slot, word_block, word_mask), (_, label_block, label_mask) in blocks:
            with on_slot(slot), self._own_shapes():
                fused.append(_fused_block(self._fuse, word_block, label_block, word_mask, label_mask))
        fused_words, fused_labels = zip(*fused, strict=True)
        return rows.words.joined(fused_words), rows.labels.joined(fused_labels)


def _fused_block(
    fuse: Any, words: torch.Tensor, labels: torch.Tensor, word_mask: torch.Tensor, label_mask: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """As gliner's `CrossFuser`, but masks only keys. gliner also masks the rows of padded queries, which then attend to
    nothing.

    words, labels: (texts, rows, D). word_mask, label_mask: (texts, rows), False for padding.
    """
    for sublayers in fuse.layers:
        for direction, layer in zip(fuse.schema, sublayers, strict=True):  # "l2t": queries are labels, keys are words
            query_side, key_side = direction[0], direction[2]
            queries, keys = (words if side == "t" else labels for side in (query_side, key_side))
            mask = (word_mask if key_side == "t" else label_mask)[:, None].expand(-1, queries.shape[1], -1)
            queries = layer(queries, mask=mask) if query_side == key_side else layer(queries, keys, mask=mask)
            words, labels = (queries, labels) if query_side == "t" else (words, queries)
    return words, labels
