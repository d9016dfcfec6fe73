"""The bi-encoder: labels are encoded separately from texts, and cached."""

from __future__ import annotations

from typing import Any

import torch

from gliner_bento.engine.encoders.inputs import Inputs, PromptTokens
from gliner_bento.engine.encoders.label_encoder import LabelEncoder
from gliner_bento.engine.encoders.output import EncoderOutput
from gliner_bento.engine.encoders.text_encoder import WordPooling, text_encoder
from gliner_bento.engine.layers.factory import LayerFactory
from gliner_bento.engine.layers.kernels import Kernels
from gliner_bento.engine.layers.lora import on_slot
from gliner_bento.engine.layers.projection import Projection
from gliner_bento.engine.options import EngineOptions


class BiEncoder:
    """An `Encoder`. relations: not supported by gliner's bi-encoders."""

    prompt = PromptTokens()

    def __init__(
        self,
        model: Any,
        layers: LayerFactory,
        kernels: Kernels,
        options: EngineOptions,
        relations: bool,
        label_projection: Projection | None,
    ) -> None:
        assert not relations
        pack = options.enable_sequence_packing
        self._encode, self.name, self.packs = text_encoder(model.token_rep_layer, layers, kernels, pack=pack)
        self._pool = WordPooling(model.config.subtoken_pooling)
        self._labels = LabelEncoder(model.token_rep_layer, options.label_cache_size, layers, kernels, pack=pack)
        self._own_shapes = layers.own_shapes
        self._fuse = model.cross_fuser if model.config.post_fusion_schema else None
        if self._fuse is not None:
            layers.adapt(self._fuse)
        self._label_projection = label_projection

    def __call__(self, inputs: Inputs) -> EncoderOutput:
        """See `Encoder`."""
        words = self._pool(self._encode(inputs.token_ids, inputs.layout), inputs)
        labels = self._labels(inputs.label_ids, inputs.label_rows).to(words.dtype)
        if self._fuse is not None:
            words, labels = self._fused(words, labels, inputs)
        if self._label_projection is not None:
            labels = self._label_projection(labels, inputs.label_rows.slot_rows)
        return EncoderOutput.of(inputs, words, labels, words[:0])

    @property
    def encoded_labels(self) -> int:
        """Labels that were not in the cache."""
        return self._labels.encoded_labels

    def _fused(self, words: torch.Tensor, labels: torch.Tensor, inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
        """gliner's `post_fusion_schema`: attention between each text's words and labels."""
        assert self._fuse is not None
        fused = []
        for number, (word, label) in enumerate(
            zip(inputs.word_rows.split(words), inputs.label_rows.split(labels), strict=True)
        ):
            with on_slot(inputs.word_rows.slot(number)), self._own_shapes():
                fused.append(
                    self._fuse(label[None], word[None], label.new_ones(1, len(label)), word.new_ones(1, len(word)))
                )
        return torch.cat([word[0] for _, word in fused]), torch.cat([label[0] for label, _ in fused])
