"""text-embeddings-inference."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings

from gliner_bento.settings.field_types import LabelNames


class Fields(BaseSettings):
    """text-embeddings-inference."""

    tei_labels: LabelNames = Field(
        ("positive", "negative", "neutral"),
        description="Labels that /tei/predict chooses from, because requests to text-embeddings-inference name none.",
    )
