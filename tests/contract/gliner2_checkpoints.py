"""Tiny GLiNER2 checkpoints with random weights, built by gliner2's own classes without a network, and its answers.

tiny_gliner2(folder, counting_layer="count_lstm")   ->  folder, to be given to GLiNEREngine.load or gliner2
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from checkpoints import BACKBONES, is_lively, wordpiece_tokenizer
from transformers import AutoConfig

from gliner_bento.engine.checkpoint.gliner2 import GLiNER2Boundary, GLiNER2Span
from gliner_bento.tasks.extraction import ExtractionItem as Item

COUNTING_LAYERS = ("count_lstm", "count_lstm_v2", "count_lstm_moe")
BOUNDARY = ("boundary", "boundary_shared")
"""Models of the boundary architecture, whose candidates are of each query, or shared."""
MAX_WIDTH = 4
_BOUNDARY_HEAD = {"boundary_dim": 16, "pair_dim": 16, "record_dim": 16, "enable_span_content": True, "content_dim": 8}


def tiny_gliner2(
    folder: Path, *, counting_layer: str = "count_lstm", backbone: str = "deberta", seed: int = 0, **options: Any
) -> Path:
    """Write a span checkpoint into `folder`; `options` are ExtractorConfig's."""
    from gliner2.configuration import ExtractorConfig
    from gliner2.inference.engine import SpanExtractor
    from gliner2.models.boundary.engine import BoundaryExtractor

    tokenizer = wordpiece_tokenizer()
    encoder = dict(BACKBONES[backbone])
    boundary = counting_layer in BOUNDARY
    if boundary:
        pool = {"candidate_pool": "shared", "pool_size": 48} if counting_layer.endswith("shared") else {}
        options = {"architecture": "boundary", "boundary_head": _BOUNDARY_HEAD | pool} | options
    else:
        options = {"counting_layer": counting_layer, "span_head": {"max_width": MAX_WIDTH}} | options
    config = ExtractorConfig(model_name="tiny", max_len=48, **options)
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        encoder_config = AutoConfig.for_model(encoder.pop("model_type"), **encoder, vocab_size=len(tokenizer))
        extractor: Any = BoundaryExtractor if boundary else SpanExtractor
        served = GLiNER2Boundary if boundary else GLiNER2Span
        model = extractor(config, encoder_config=encoder_config, tokenizer=tokenizer)
        for _ in range(300):
            _draw_weights(model)
            if is_lively(served(model.eval(), 48)):
                break
        else:
            raise RuntimeError(f"{counting_layer} with {options} gives no lively model")
        model.save_pretrained(str(folder))
    return folder


@torch.no_grad()
def _draw_weights(model: Any) -> None:
    """Scores spread over (0, 1), and one to three instances are the likeliest numbers."""
    hot = 1.5 if hasattr(model, "count_pred") else 0.8
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            inputs = parameter.shape[1] if name.endswith((".w1", ".w2")) else parameter.shape[-1]
            scale = 1.5 if name.startswith("encoder.") else hot
            parameter.normal_(0.0, 3.0 if name.endswith("_embeddings.weight") else scale / inputs**0.5)
        elif "bias" in name:
            parameter.normal_(0.0, 0.2)
    if hasattr(model, "count_pred"):
        counts = model.count_pred[-1].bias
        counts.fill_(-6.0)
        counts[:4] = torch.tensor([-1.0, 2.0, 2.0, 1.5])


def reference_of(folder: Path) -> Any:
    """gliner2's own model of a checkpoint."""
    from gliner2 import AutoExtractor

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return AutoExtractor.from_pretrained(str(folder)).eval()


def schema_of(item: Item, *, records: bool) -> Any:
    """gliner2's schema of an item. records: structures as `extract_json` asks models with a record decoder for them."""
    from gliner2 import Schema

    schema = Schema()
    if item.labels:
        schema.entities(
            {
                name: {
                    **({"description": description} if description != name else {}),
                    "threshold": item.label_thresholds.get(name, item.threshold),
                }
                for name, description in item.labels.items()
            }
        )
    if item.relations:
        schema.relations(
            {
                name: {"threshold": item.relation_thresholds.get(name, item.relation_threshold)}
                for name in item.relations
            }
        )
    for name, one in item.classifications.items():
        described = {label: text for label, text in one.labels.items() if label != text}
        schema.classification(
            name,
            list(one.labels),
            one.multi_label,
            one.threshold,
            label_descriptions=described,
            prompt=one.description,
        )
    for name, fields in item.structures.items():
        anchor = next((field for field, one in fields.items() if not one.choices), next(iter(fields)))
        builder = schema.structure(name, **({"mode": "natural", "anchor": anchor} if records else {}))
        for field, one in fields.items():
            builder.field(
                field,
                {"string": "str", "list": "list"}[one.type],
                list(one.choices) or None,
                None if one.description == field else one.description,
                one.threshold if one.own_threshold else None,
                cardinality={"string": "required_one", "list": "zero_or_more"}[one.type] if records else None,
                exclusive=records,
            )
    return schema


def extracted(model: Any, item: Item) -> dict[str, Any]:
    """gliner2's answer to one call with one text."""
    return model.batch_extract(
        [item.text],
        schema_of(item, records=getattr(model, "enable_records", False)),
        threshold=item.threshold,
        include_confidence=True,
        include_spans=True,
        overlap_policy=item.overlap,
    )[0]
