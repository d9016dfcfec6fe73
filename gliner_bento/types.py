"""The public names of what clients send and get: an extraction's types, and the model's."""

from __future__ import annotations

from gliner_bento.status_types import AbortResponse, ModelCard, ModelInfo, SelfTest
from gliner_bento.tasks.base import BASE_ADAPTER_ID, ExtractionWarning, RequestOptions, Usage
from gliner_bento.tasks.extraction import (
    LIMIT_WARNINGS,
    MAX_ENTITIES,
    MAX_RELATIONS,
    BatchResult,
    Entity,
    ExtractBatchRequest,
    ExtractBatchResponse,
    Extraction,
    ExtractionOptions,
    ExtractItem,
    ExtractRequest,
    ExtractResponse,
    LongText,
    Relation,
    RelationArgument,
    StreamedEnd,
    StreamedEntity,
)
from gliner_bento.tasks.extraction import ExtractionItem as Item
from gliner_bento.tasks.fields import Name, Names, Score, Strict
from gliner_bento.tasks.labels import LabelOptions, Labels, RelationOptions, Relations

__all__ = [
    "BASE_ADAPTER_ID",
    "LIMIT_WARNINGS",
    "MAX_ENTITIES",
    "MAX_RELATIONS",
    "AbortResponse",
    "BatchResult",
    "Entity",
    "ExtractBatchRequest",
    "ExtractBatchResponse",
    "ExtractItem",
    "ExtractRequest",
    "ExtractResponse",
    "Extraction",
    "ExtractionOptions",
    "ExtractionWarning",
    "Item",
    "LabelOptions",
    "Labels",
    "LongText",
    "ModelCard",
    "ModelInfo",
    "Name",
    "Names",
    "Relation",
    "RelationArgument",
    "RelationOptions",
    "Relations",
    "RequestOptions",
    "Score",
    "SelfTest",
    "StreamedEnd",
    "StreamedEntity",
    "Strict",
    "Usage",
]
