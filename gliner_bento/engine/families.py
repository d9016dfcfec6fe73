"""The one table of model families: how each of gliner's checkpoint classes is served.

A new family is a row here, and a module for each part that no other family has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from gliner import model as gliner_models

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.checkpoint.find import ModelError
from gliner_bento.engine.encoders.bi import BiEncoder
from gliner_bento.engine.encoders.output import Encoder, EncoderOutput
from gliner_bento.engine.encoders.uni import UniEncoder
from gliner_bento.engine.heads.decode import decode_padded_spans, decode_padded_tags
from gliner_bento.engine.heads.predictions import Predictions, SpanTable
from gliner_bento.engine.heads.relations import RelationHead
from gliner_bento.engine.heads.span_head import SpanHead
from gliner_bento.engine.heads.token_head import TokenHead
from gliner_bento.engine.layers.factory import LayerFactory
from gliner_bento.engine.layers.projection import Projection
from gliner_bento.engine.options import EngineOptions
from gliner_bento.engine.text.prompts import InlineLabels, Prompts, SeparateLabels


class Head(Protocol):
    """From an encoder's output to predictions. name: how it computes, for `/v1/model`."""

    name: str

    def scores(self, encoded: EncoderOutput) -> Any:
        """What `predictions` needs, on the device. Padded batches: without waiting for the device."""

    def predictions(self, scores: Any, encoded: EncoderOutput, texts: Sequence[Prepared]) -> list[Predictions]:
        """The predictions of each text. Raises `ScoresNotFinite`."""


MakeEncoder = Callable[[Any, LayerFactory, EngineOptions, bool, "Projection | None"], Encoder]
"""(gliner's inner model, layers, options, relations in the prompt, label projection) -> the encoder."""
MakeHead = Callable[[Any, LayerFactory, "RelationHead | None"], Head]
"""(gliner's inner model, layers, relation head) -> the head."""
DecodeLogits = Callable[[torch.Tensor, Sequence[Prepared]], list[SpanTable]]
"""(padded logits, texts) -> the spans above each text's threshold."""


@dataclass(frozen=True, slots=True)
class Family:
    """How a checkpoint class is served.

    prompts: where labels go. encoder, head: see above. span_width: whether the config's `max_width` limits a span.
    label_projection: labels pass gliner's `prompt_rep_layer` before they are scored.
    relations: the model predicts relations.
    decode_onnx: decodes the one output of a checkpoint's ONNX file. None: not served from ONNX, because gliner's export
        is incomplete (threshold and relations are fixed to those of the export's example; a generative decoder cannot
        be exported).
    """

    prompts: type[Prompts]
    encoder: MakeEncoder
    head: MakeHead
    span_width: bool
    label_projection: bool
    relations: bool = False
    decode_onnx: DecodeLogits | None = None


FAMILIES: Mapping[type, Family] = {
    gliner_models.UniEncoderSpanGLiNER: Family(
        InlineLabels, UniEncoder, SpanHead, span_width=True, label_projection=True, decode_onnx=decode_padded_spans
    ),
    gliner_models.UniEncoderTokenGLiNER: Family(
        InlineLabels, UniEncoder, TokenHead, span_width=False, label_projection=False, decode_onnx=decode_padded_tags
    ),
    gliner_models.BiEncoderSpanGLiNER: Family(
        SeparateLabels, BiEncoder, SpanHead, span_width=True, label_projection=True, decode_onnx=decode_padded_spans
    ),
    gliner_models.BiEncoderTokenGLiNER: Family(
        SeparateLabels, BiEncoder, TokenHead, span_width=False, label_projection=False, decode_onnx=decode_padded_tags
    ),
    gliner_models.UniEncoderSpanDecoderGLiNER: Family(
        InlineLabels, UniEncoder, SpanHead, span_width=True, label_projection=True
    ),
    gliner_models.UniEncoderTokenDecoderGLiNER: Family(
        InlineLabels, UniEncoder, TokenHead, span_width=False, label_projection=False
    ),
    gliner_models.UniEncoderSpanRelexGLiNER: Family(
        InlineLabels, UniEncoder, SpanHead, span_width=True, label_projection=True, relations=True
    ),
    gliner_models.UniEncoderTokenRelexGLiNER: Family(
        InlineLabels, UniEncoder, TokenHead, span_width=False, label_projection=True, relations=True
    ),
}


EncoderModel = gliner_models.BaseEncoderGLiNER
"""What all of gliner's checkpoint classes derive from: its methods leave out the labels that a decoder generates."""


def family_of(model: Any, name: str) -> Family:
    """The family of gliner's model. Raises ModelError for a class that is not in the table."""
    family = FAMILIES.get(type(model))
    if family is None:
        raise ModelError(f"{name!r} is a {type(model).__name__}, which is not served")
    return family
