"""NeMo's detection of jailbreaks."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings

from gliner_bento.settings.field_types import ClassNames


class Fields(BaseSettings):
    """NeMo's detection of jailbreaks."""

    nemo_jailbreak_labels: ClassNames = Field(
        ("jailbreak", "benign"),
        description="Labels that /v1/classify, NeMo's detection of jailbreaks, chooses from; the first is an attack.",
    )
