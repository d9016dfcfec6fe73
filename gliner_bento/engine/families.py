"""The one table of model families: how each of gliner's checkpoint classes is served.

A new family is a row here, and a module for each part that no other family has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from gliner import model as gliner_models

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.checkpoint.find import ModelError
from gliner_bento.engine.checkpoint.gliner2 import GLiNER2Boundary, GLiNER2Span
from gliner_bento.engine.encoders.bi import BiEncoder
from gliner_bento.engine.encoders.output import Encoder, EncoderOutput
from gliner_bento.engine.encoders.uni import UniEncoder, schema_encoder
from gliner_bento.engine.heads.boundary_head import BoundaryHead
from gliner_bento.engine.heads.decode import decode_padded_spans, decode_padded_tags
from gliner_bento.engine.heads.predictions import Predictions, SpanTable
from gliner_bento.engine.heads.relations import RelationHead
from gliner_bento.engine.heads.schema_head import SchemaHead
from gliner_bento.engine.heads.span_head import SpanHead
from gliner_bento.engine.heads.token_head import TokenHead
from gliner_bento.engine.layers.factory import LayerFactory
from gliner_bento.engine.options import EngineOptions
from gliner_bento.engine.text.collate import PaddedCollator
from gliner_bento.engine.text.prompts import InlineLabels, Prompts, SeparateLabels
from gliner_bento.engine.text.schema_prompts import SchemaPrompts


class Head(Protocol):
    """Turns an encoder's output into predictions. name: how it computes, for `/v1/model`."""

    name: str

    def scores(self, encoded: EncoderOutput) -> Any:
        """The input of `predictions`, on the device. For padded batches, does not wait for the device."""

    def predictions(self, scores: Any, encoded: EncoderOutput, texts: Sequence[Prepared]) -> list[Predictions]:
        """The predictions of each text. Raises `ScoresNotFinite`."""


MakeEncoder = Callable[[Any, LayerFactory, EngineOptions], Encoder]
"""(gliner's inner model, layers, options) -> the encoder."""
MakeHead = Callable[[Any, LayerFactory, "RelationHead | None"], Head]
"""(gliner's inner model, layers, relation head) -> the head."""


@dataclass(frozen=True, slots=True)
class Family:
    """How models of one class are served. The class is gliner's, or for gliner2's models one of `checkpoint/gliner2`.

    prompts: the class that encodes labels, in a text's prompt or separately.
    encoder, head: make the encoder and the head.
    label_projection: labels pass gliner's `prompt_rep_layer` before they are scored.
    relations: the model predicts relations.
    onnx: ONNX files of the family are served. gliner's export of other families is incomplete: it fixes threshold and
        relations to those of the export's example, and cannot export a generative decoder.
    fallback: replaces the family after a failed self-test, and runs gliner2's modules; None: use `GlinerForward`.
    """

    prompts: type[Prompts]
    encoder: MakeEncoder
    head: MakeHead
    label_projection: bool = False
    relations: bool = False
    onnx: bool = False
    fallback: Family | None = None

    @property
    def tasks(self) -> Sequence[str]:
        """See `ModelInfo`."""
        relations = ("relations",) if self.relations else ()
        schema_tasks = ("classifications", "structures") if self.prompts.schema else ()
        return ("entities", *relations, *schema_tasks)

    def max_width(self, config: Any) -> int | None:
        """Maximum number of words of a span, from the model's configuration; None: no limit (token models)."""
        return config.max_width if self.head is SpanHead or self.prompts.schema else None

    def decode(self, logits: torch.Tensor, texts: Sequence[Prepared]) -> list[SpanTable]:
        """The spans above each label's threshold, from gliner's padded logits."""
        decode_padded = decode_padded_spans if self.head is SpanHead else decode_padded_tags
        return decode_padded(logits, texts)

    def collator(self, model: Any) -> PaddedCollator:
        """Makes the padded tensors that gliner's `model` takes."""
        processor = model.data_processor
        labels_pad_id = None if self.prompts.inline else processor.labels_tokenizer.pad_token_id
        return PaddedCollator(processor.transformer_tokenizer.pad_token_id, labels_pad_id, self.max_width(model.config))


_BOUNDARY = Family(SchemaPrompts, schema_encoder, BoundaryHead, relations=True)

FAMILIES: Mapping[type, Family] = {
    gliner_models.UniEncoderSpanGLiNER: Family(InlineLabels, UniEncoder, SpanHead, label_projection=True, onnx=True),
    gliner_models.UniEncoderTokenGLiNER: Family(InlineLabels, UniEncoder, TokenHead, onnx=True),
    gliner_models.BiEncoderSpanGLiNER: Family(SeparateLabels, BiEncoder, SpanHead, label_projection=True, onnx=True),
    gliner_models.BiEncoderTokenGLiNER: Family(SeparateLabels, BiEncoder, TokenHead, onnx=True),
    gliner_models.UniEncoderSpanDecoderGLiNER: Family(InlineLabels, UniEncoder, SpanHead, label_projection=True),
    gliner_models.UniEncoderTokenDecoderGLiNER: Family(InlineLabels, UniEncoder, TokenHead),
    GLiNER2Span: Family(
        SchemaPrompts,
        schema_encoder,
        SchemaHead.packed,
        relations=True,
        fallback=Family(SchemaPrompts, schema_encoder, SchemaHead.own_modules, relations=True),
    ),
    GLiNER2Boundary: replace(_BOUNDARY, fallback=_BOUNDARY),  # fallback: same head (gliner2's modules), plain options
    gliner_models.UniEncoderSpanRelexGLiNER: Family(
        InlineLabels, UniEncoder, SpanHead, label_projection=True, relations=True
    ),
    gliner_models.UniEncoderTokenRelexGLiNER: Family(
        InlineLabels, UniEncoder, TokenHead, label_projection=True, relations=True
    ),
}


EncoderModel = gliner_models.BaseEncoderGLiNER
"""The base class of gliner's checkpoint classes. Its methods generate no labels, unlike those of decoders."""


def family_of(model: Any, name: str) -> Family:
    """The family of gliner's model. Raises ModelError for a class that is not in the table."""
    family = FAMILIES.get(type(model))
    if family is None:
        raise ModelError(f"{name!r} is a {type(model).__name__}, which is not served")
    if isinstance(model, GLiNER2Boundary) and not model.model.enable_relations:
        return replace(family, relations=False)
    return family
