"""The one table of model families: how each class of checkpoints is served.

A new family is a row here, and a module for each part that no other family has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gliner import model as gliner_models

from gliner_bento.engine.checkpoint.find import ModelError
from gliner_bento.engine.checkpoint.gliclass import GLiClass
from gliner_bento.engine.checkpoint.gliner2 import GLiNER2Boundary, GLiNER2Span
from gliner_bento.engine.checkpoint.limits import limits_of
from gliner_bento.engine.classify.family import ClassFamily
from gliner_bento.engine.encoders.bi import BiEncoder
from gliner_bento.engine.encoders.output import Encoder
from gliner_bento.engine.encoders.uni import UniEncoder, schema_encoder
from gliner_bento.engine.forward import Forward, Head, Scores, agree
from gliner_bento.engine.gliner_forward import GlinerForward
from gliner_bento.engine.graphs import CudaCapture, Graphs
from gliner_bento.engine.heads.boundary_head import BoundaryHead
from gliner_bento.engine.heads.decode import DecodePadded, decode_padded_spans, decode_padded_tags
from gliner_bento.engine.heads.relations import RelationHead
from gliner_bento.engine.heads.schema_head import SchemaHead
from gliner_bento.engine.heads.span_head import SpanHead
from gliner_bento.engine.heads.token_head import TokenHead
from gliner_bento.engine.layers.factory import LayerFactory
from gliner_bento.engine.layers.projection import Projection
from gliner_bento.engine.onnx_forward import OnnxForward
from gliner_bento.engine.options import EngineOptions
from gliner_bento.engine.parts import ForwardPass, Parts
from gliner_bento.engine.text.collate import PaddedCollator
from gliner_bento.engine.text.passes import PassLimits, PassPlanner
from gliner_bento.engine.text.prepare import ItemPreparer
from gliner_bento.engine.text.prompts import InlineLabels, Prompts, SeparateLabels
from gliner_bento.engine.text.relation_windows import RelationWindows
from gliner_bento.engine.text.schema_prompts import SchemaPrompts
from gliner_bento.engine.text.subwords import ModelLimits
from gliner_bento.engine.text.tokenize import ItemTokenizer
from gliner_bento.errors import InvalidField

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

    @property
    def decode(self) -> DecodePadded:
        """Decodes gliner's padded logits."""
        return decode_padded_spans if self.head is SpanHead else decode_padded_tags

    def collator(self, model: Any) -> PaddedCollator:
        """Makes the padded tensors that gliner's `model` takes."""
        processor = model.data_processor
        labels_pad_id = None if self.prompts.inline else processor.labels_tokenizer.pad_token_id
        return PaddedCollator(processor.transformer_tokenizer.pad_token_id, labels_pad_id, self.max_width(model.config))

    def parts(
        self, model: Any, name: str, options: EngineOptions, layers: LayerFactory | None, *, gliner_forward: bool
    ) -> Parts:
        """The parts of an engine over `model`. Raises ModelError for options that the model does not support.

        name: the model's name in messages. layers: None: an ONNX checkpoint. gliner_forward: run gliner's own forward
        pass; options that only the engine's forward pass has are ignored.
        """
        config = model.config
        limits = limits_of(model, separate_labels=not self.prompts.inline)
        max_labels = options.max_labels_per_pass or config.max_types or None
        tokenizer = ItemTokenizer(model.data_processor, config, limits, self.prompts, relations=self.relations)
        pass_limits = pass_limits_of(options, config, limits, max_labels, name)
        windows = pass_limits.relation_windows if self.relations else None
        return Parts(
            preparer=ItemPreparer(tokenizer, PassPlanner(tokenizer, pass_limits), name, self.tasks),
            forward=self._forward(model, options, layers, gliner_forward=gliner_forward),
            limits=limits,
            family=type(model).__name__,
            tasks=self.tasks,
            max_labels_per_pass=max_labels if self.prompts.inline else None,
            max_span_width=self.max_width(config),
            relation_window_sentences=windows.sentences if windows else None,
            cached_subwords=tokenizer.subwords.cached,
        )

    def _forward(
        self, model: Any, options: EngineOptions, layers: LayerFactory | None, *, gliner_forward: bool
    ) -> ForwardPass:
        if layers is None:
            has_span_scores = self.head is TokenHead and model.config.represent_spans
            if not self.onnx or has_span_scores:
                raise ModelError(f"runtime onnxruntime: the ONNX export of a {type(model).__name__} is incomplete")
            return OnnxForward(model, self.collator(model), self.decode)
        if not gliner_forward:
            return self._torch_forward(model.model, options, layers)
        if self.fallback is None:
            return GlinerForward(model, layers, self.collator(model), self.decode, relations=self.relations)
        plain = replace(options, quantization="none", enable_compilation=False, enable_sequence_packing=False)
        return self.fallback._torch_forward(model.model, plain, layers)

    def _torch_forward(self, model: Any, options: EngineOptions, layers: LayerFactory) -> Forward:
        """The forward pass of gliner's inner model, in the engine's layers."""
        projection = Projection(model.prompt_rep_layer, layers) if self.label_projection else None
        encoder = self.encoder(model, layers, options)
        if options.quantization == "int8" and not encoder.packs:
            raise ModelError(f"quantization int8 needs a packed encoder; this one is {encoder.name}")
        relations = RelationHead(model, layers) if self.relations and not self.prompts.schema else None
        head = self.head(model, layers, relations)
        device = next(model.parameters()).device
        captures = device.type == "cuda" and layers.padded and not (options.enforce_eager or options.enable_compilation)
        graphs: Graphs[Scores] | None = Graphs(CudaCapture(device), agree) if captures else None
        compiled = options.enable_compilation
        return Forward(encoder, head, device, projection, padded=layers.padded, compiled=compiled, graphs=graphs)


_OWN_BOUNDARY = Family(SchemaPrompts, schema_encoder, BoundaryHead, relations=True)
_BOUNDARY = replace(_OWN_BOUNDARY, fallback=_OWN_BOUNDARY)  # the same head (gliner2's modules), with plain options

FAMILIES: Mapping[type, Family | ClassFamily] = {
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
    GLiNER2Boundary: _BOUNDARY,
    gliner_models.UniEncoderSpanRelexGLiNER: Family(
        InlineLabels, UniEncoder, SpanHead, label_projection=True, relations=True
    ),
    gliner_models.UniEncoderTokenRelexGLiNER: Family(
        InlineLabels, UniEncoder, TokenHead, label_projection=True, relations=True
    ),
    GLiClass: ClassFamily(),
}


EncoderModel = gliner_models.BaseEncoderGLiNER
"""The base class of gliner's checkpoint classes. Its methods generate no labels, unlike those of decoders."""


def family_of(model: Any, name: str) -> Family | ClassFamily:
    """The family of a loaded model. Raises ModelError for a class that is not in the table."""
    family = FAMILIES.get(type(model))
    if family is None:
        raise ModelError(f"{name!r} is a {type(model).__name__}, which is not served")
    if isinstance(model, GLiNER2Boundary) and not model.model.enable_relations:
        return replace(_BOUNDARY, relations=False)
    return family


def pass_limits_of(
    options: EngineOptions, config: Any, limits: ModelLimits, max_labels: int | None, name: str
) -> PassLimits:
    """The limits of a pass. Raises ModelError for windows longer than the model allows, or invalid relation windows.

    config: gliner's configuration, which may have the checkpoint's default relation windows."""
    window = options.window_words or limits.words
    if window > limits.words:
        raise ModelError(f"window_words is {window}; the maximum length of {name!r} is {limits.words} words")
    sentences = getattr(config, "relation_window_sentences", None)
    overlap = getattr(config, "relation_window_overlap_sentences", None)
    if not isinstance(sentences, int | None) or not isinstance(overlap, int | None):
        keys = "relation_window_sentences and relation_window_overlap_sentences"
        raise ModelError(f"{name!r}: {keys} in its gliner_config.json must be whole numbers")
    mode = None if options.relation_window == "auto" else options.relation_window
    try:
        relation_windows = RelationWindows.chosen(
            mode,
            options.relation_window_sentences,
            options.relation_window_overlap_sentences,
            default=RelationWindows.chosen(None, sentences, overlap, default=None),
        )
    except InvalidField as error:
        raise ModelError(error.message) from error
    return PassLimits(limits.words, window, options.window_overlap_words, max_labels, relation_windows)
