"""Loads a GLiNER2 checkpoint with the package gliner2, as an object with the attributes of gliner's models.

The package is imported when the first such checkpoint is loaded, because that takes seconds. It would run a
checkpoint's code (`trust_remote_code=True`), so `check_config` must have refused a checkpoint with code.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from gliner_bento.engine.checkpoint.find import GLINER2_MAX_WORDS, ModelError, read_json
from gliner_bento.engine.checkpoint.reasons import reason
from gliner_bento.engine.checkpoint.weights import Tensors
from gliner_bento.errors import install_hint
from gliner_bento.storage.other_models import OTHER_CONFIG
from gliner_bento.tasks.extraction import ExtractionItem as Item

CharSpan = tuple[int, int]
_ENCODER_CONFIG = "encoder_config/config.json"


class GLiNER2Span:
    """gliner2's `SpanExtractor` as `model`, with the attributes of gliner's models that the engine reads."""

    is_runtime_model = False

    def __init__(self, extractor: Any, max_words: int) -> None:
        self.model = extractor
        self.config = SimpleNamespace(
            max_len=max_words,
            max_types=None,
            max_width=getattr(extractor, "max_width", None),
            subtoken_pooling=extractor.processor.token_pooling,
            words_splitter_type="gliner2",
        )
        pattern = extractor.processor.word_splitter._PATTERN
        words = re.compile(f"(?xi:{pattern.pattern})")  # flags are inside, because the engine reads only `.pattern`
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

    def scores(self, item: Item) -> tuple[dict[tuple[CharSpan, str], float], dict[str, float]]:
        """gliner2's own scores of a text: those of each span and label, then those of each relation and class.

        A relation has the score of its best instance. Classifications run with `multi_label`.
        """
        schema: dict[str, Any] = {"entities": dict.fromkeys(item.labels, "")}
        schema["relations"] = [{name: {"head": "", "tail": ""}} for name in item.relations]
        schema["classifications"] = [
            {"task": name, "labels": list(task.labels), "multi_label": True, "cls_threshold": 0.0}
            for name, task in item.classifications.items()
        ]
        options = {"threshold": 0.0, "include_confidence": True, "include_spans": True, "overlap_policy": "allow"}
        answer = self.model.batch_extract([item.text], schema, **options)[0]
        size = len(item.text)  # gliner2 may append a period, which is no part of the text
        span_scores: dict[tuple[CharSpan, str], float] = {}
        for label, entities in answer.get("entities", {}).items():
            for span in entities:
                if span["start"] < size:
                    key = (span["start"], min(span["end"], size)), label
                    span_scores[key] = max(span["confidence"], span_scores.get(key, 0.0))
        text_scores = {label["label"]: label["confidence"] for name in item.classifications for label in answer[name]}
        for relation, instances in answer.get("relation_extraction", {}).items():
            for instance in instances:
                head, tail = instance["head"], instance["tail"]
                if max(head["start"], tail["start"]) < size:
                    score = instance.get("confidence", min(head["confidence"], tail["confidence"]))
                    text_scores[relation] = max(score, text_scores.get(relation, 0.0))
        return span_scores, text_scores

    def save_pretrained(self, folder: Path, **_: Any) -> None:
        """As gliner's `save_pretrained`."""
        self.model.save_pretrained(str(folder))

    def eval(self) -> None:
        """As `nn.Module.eval`."""
        self.model.eval()


class GLiNER2Boundary(GLiNER2Span):
    """gliner2's `BoundaryExtractor` as `model`."""


def build_gliner2(folder: Path, name: str, tensors: Tensors, *, max_words: int = 0, max_span_width: int = 0) -> Any:
    """gliner2's model of the checkpoint in a folder, with random weights, in float32 on the CPU. Raises ModelError.

    Also returns `tensors`, the checkpoint's, with token embeddings of as many rows as the model's.
    max_words, max_span_width: replace the checkpoint's `max_len` and `max_width` unless 0.
    """
    if find_spec("gliner2") is None:
        raise ModelError(f"{name!r} is a GLiNER2 model, which needs the package gliner2; {install_hint('serve')}")
    from gliner2.configuration import ExtractorConfig  # noqa: PLC0415  # see above
    from gliner2.inference.engine import SpanExtractor  # noqa: PLC0415
    from gliner2.models.base import load_extractor_tokenizer  # noqa: PLC0415
    from gliner2.models.boundary.engine import BoundaryExtractor  # noqa: PLC0415
    from gliner2.models.loading import reconcile_encoder_embeddings  # noqa: PLC0415
    from transformers import AutoConfig  # noqa: PLC0415

    try:
        config = ExtractorConfig.from_dict(read_json(folder / OTHER_CONFIG))
        if max_span_width:
            config.max_width = max_span_width
        boundary = config.architecture == "boundary"
        extractor_class = BoundaryExtractor if boundary else SpanExtractor
        extractor = extractor_class(
            config,
            encoder_config=AutoConfig.from_pretrained(folder / _ENCODER_CONFIG),
            tokenizer=load_extractor_tokenizer(str(folder)),
        )
        if not boundary and not hasattr(extractor, "count_embed"):
            raise ValueError(f"counting_layer {config.counting_layer!r} is unknown")
        fitted = dict(tensors)
        reconcile_encoder_embeddings(extractor, fitted)
    except Exception as error:
        raise ModelError(f"gliner2 cannot load {name!r}: {reason(error, folder)}") from error
    wrapper = GLiNER2Boundary if boundary else GLiNER2Span
    return wrapper(extractor, max_words or config.max_len or GLINER2_MAX_WORDS), fitted
