"""The forward pass in torch: a family's encoder, then its head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.checkpoint.find import ModelError
from gliner_bento.engine.encoders.output import Encoder
from gliner_bento.engine.families import Family, Head
from gliner_bento.engine.heads.predictions import Predictions
from gliner_bento.engine.heads.relations import RelationHead
from gliner_bento.engine.layers.factory import LayerFactory
from gliner_bento.engine.layers.kernels import EAGER, compiled
from gliner_bento.engine.layers.projection import Projection
from gliner_bento.engine.options import EngineOptions
from gliner_bento.engine.text.collate import PackedInputs


class Forward:
    """packs: texts are packed without padding. name: how it computes, for `/v1/model`."""

    def __init__(self, encoder: Encoder, head: Head, *, compiled: bool = False) -> None:
        self._encode = encoder
        self._head = head
        self.packs = encoder.packs
        self.name = f"{encoder.name}, {head.name}{', compiled' if compiled else ''}"

    @property
    def encoded_labels(self) -> int:
        """See `Encoder`."""
        return self._encode.encoded_labels

    def __call__(self, inputs: PackedInputs, texts: Sequence[Prepared]) -> list[Predictions]:
        """The predictions of each text. Raises `ScoresNotFinite`."""
        encoded = self._encode(inputs)
        encoded.check_finite()
        return self._head(encoded, texts)


def make_forward(model: Any, family: Family, options: EngineOptions, layers: LayerFactory) -> Forward:
    """The forward pass of gliner's inner model. Raises ModelError for options that the model does not support."""
    kernels = compiled() if options.enable_compilation else EAGER
    projection = Projection(model.prompt_rep_layer, layers) if family.label_projection else None
    encoder = family.encoder(model, layers, kernels, options, family.relations, projection)
    if options.quantization == "int8" and not encoder.packs:
        raise ModelError(f"quantization int8 needs a packed encoder; this one is {encoder.name}")
    relations = RelationHead(model, layers) if family.relations else None
    head = family.head(model, layers, kernels, relations)
    return Forward(encoder, head, compiled=options.enable_compilation)
