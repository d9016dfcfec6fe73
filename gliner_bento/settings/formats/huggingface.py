"""Hugging Face's tasks."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings

from gliner_bento.settings.field_types import LabelNames


class Fields(BaseSettings):
    """Hugging Face's tasks."""

    huggingface_labels: LabelNames = Field(
        ("person", "organization", "location", "date", "event", "product"),
        description="Entity types of Hugging Face's token-classification requests, which name none.",
    )
