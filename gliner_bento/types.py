"""The public names of what clients send and get: an extraction's types, and the model's."""

from __future__ import annotations

from gliner_bento.status_types import AbortResponse, ModelCard, ModelInfo, SelfTest
from gliner_bento.tasks.base import BASE_ADAPTER_ID, ExtractionWarning, Usage
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
    "LongText",
    "ModelCard",
    "ModelInfo",
    "Relation",
    "RelationArgument",
    "SelfTest",
    "StreamedEnd",
    "StreamedEntity",
    "Usage",
]
