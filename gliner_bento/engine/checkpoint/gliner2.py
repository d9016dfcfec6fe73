"""Loads a GLiNER2 checkpoint with the classes of the package gliner2, under the attributes that gliner's models have.

The package is imported with the first such checkpoint: that takes seconds. It would run a checkpoint's code
(`trust_remote_code=True`), so `check_config` must have refused such a checkpoint before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from gliner_bento.engine.checkpoint.find import GLINER2_MAX_WORDS, ModelError, read_json
from gliner_bento.engine.checkpoint.reasons import reason
from gliner_bento.engine.checkpoint.weights import Tensors
from gliner_bento.errors import install
from gliner_bento.storage.other_models import GLINER2_CONFIG

Found = dict[str, Any]
"""An entity or a relation, as gliner's models return it."""
_ENCODER_CONFIG = "encoder_config/config.json"


class GLiNER2Span:
    """gliner2's `SpanExtractor` as `model`, with what the engine reads of gliner's models."""

    is_runtime_model = False

    def __init__(self, extractor: Any, max_words: int) -> None:
        settings = extractor.config
        self.model = extractor
        self.config = SimpleNamespace(
            max_len=max_words,
            max_types=None,
            max_width=extractor.max_width,
            subtoken_pooling=extractor.processor.token_pooling,
            words_splitter_type="gliner2",
            num_rnn_layers=0,
            counting_layer=settings.counting_layer,
        )
        pattern = extractor.processor.word_splitter._PATTERN
        words = re.compile(f"(?xi:{pattern.pattern})")
        self.data_processor = SimpleNamespace(
            transformer_tokenizer=extractor.processor.tokenizer,
            words_splitter=SimpleNamespace(splitter=SimpleNamespace(whitespace_pattern=words)),
            config=self.config,
        )

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        device: torch.device = next(self.model.parameters()).device
        return device

    def inference(
        self, texts: Sequence[str], labels: Sequence[str], relations: Sequence[str], **_: Any
    ) -> tuple[list[list[Found]], list[list[Found]]]:
        """gliner2's own scores of all spans, and relations between them, in the form of gliner's `inference` with
        thresholds of 0. What is behind a text's end is left out."""
        schema: dict[str, Any] = {"entities": dict.fromkeys(labels, "")}
        if relations:
            schema["relations"] = [{name: {"head": "", "tail": ""}} for name in relations]
        options = {"threshold": 0.0, "include_confidence": True, "include_spans": True, "overlap_policy": "allow"}
        found = [_in_gliners_form(text, self.model.batch_extract([text], schema, **options)[0]) for text in texts]
        return [entities for entities, _ in found], [related for _, related in found]

    predict_relations = inference

    def save_pretrained(self, folder: Path, **_: Any) -> None:
        """As gliner's."""
        self.model.save_pretrained(str(folder))

    def eval(self) -> None:
        """As `nn.Module.eval`."""
        self.model.eval()


def _in_gliners_form(text: str, answer: dict[str, Any]) -> tuple[list[Found], list[Found]]:
    best: dict[tuple[int, int, str], float] = {}
    for label, spans in answer.get("entities", {}).items():
        for span in spans:
            key = span["start"], min(span["end"], len(text)), label
            if key[0] < key[1]:
                best[key] = max(span["confidence"], best.get(key, 0.0))
    entities = [
        {"start": start, "end": end, "label": label, "score": score} for (start, end, label), score in best.items()
    ]
    index_of = {(one["start"], one["end"]): number for number, one in enumerate(entities)}
    related = []
    for relation, instances in answer.get("relation_extraction", {}).items():
        for one in instances:
            ends = [index_of.get((end["start"], min(end["end"], len(text)))) for end in (one["head"], one["tail"])]
            if None not in ends:
                head, tail = ({"entity_idx": index} for index in ends)
                score = min(one["head"]["confidence"], one["tail"]["confidence"])
                related.append({"relation": relation, "head": head, "tail": tail, "score": score})
    return entities, sorted(related, key=lambda one: -one["score"])


def build_gliner2(folder: Path, name: str, tensors: Tensors, *, max_words: int = 0, max_span_width: int = 0) -> Any:
    """gliner2's model of the checkpoint in a folder, with random weights, in float32 on the CPU. Raises ModelError.

    tensors: of the checkpoint, whose embeddings may have more rows than the tokenizer has tokens. max_words,
    max_span_width: replace the checkpoint's `max_len` and `max_width` unless 0.
    """
    if find_spec("gliner2") is None:
        raise ModelError(f"{name!r} is a GLiNER2 model, which needs the package gliner2; {install('serve')}")
    from gliner2.configuration import ExtractorConfig  # noqa: PLC0415  # see above
    from gliner2.inference.engine import SpanExtractor  # noqa: PLC0415
    from gliner2.models.base import load_extractor_tokenizer  # noqa: PLC0415
    from gliner2.models.loading import reconcile_encoder_embeddings  # noqa: PLC0415
    from transformers import AutoConfig  # noqa: PLC0415

    try:
        config = ExtractorConfig.from_dict(read_json(folder / GLINER2_CONFIG))
        if max_span_width:
            config.max_width = max_span_width
        extractor = SpanExtractor(
            config,
            encoder_config=AutoConfig.from_pretrained(folder / _ENCODER_CONFIG),
            tokenizer=load_extractor_tokenizer(str(folder)),
        )
        if not hasattr(extractor, "count_embed"):
            raise ValueError(f"counting_layer {config.counting_layer!r} is unknown")
        resized = dict(tensors)
        reconcile_encoder_embeddings(extractor, resized)
    except Exception as error:
        raise ModelError(f"gliner2 cannot load {name!r}: {reason(error)}") from error
    return GLiNER2Span(extractor, max_words or config.max_len or GLINER2_MAX_WORDS), resized
