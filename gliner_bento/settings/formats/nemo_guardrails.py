"""NeMo Guardrails' detection of personal data."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings

from gliner_bento.settings.field_types import LabelNames, PathPrefix


class Fields(BaseSettings):
    """NeMo Guardrails' detection of personal data."""

    nemo_prefix: PathPrefix = Field(
        "/nemo",
        description="Path prefix of the routes of NeMo's earlier GLiNER server, which has a /v1/extract of its own.",
    )
    nemo_labels: LabelNames = Field(
        (
            *("name", "first_name", "last_name", "street_address", "city", "postcode", "email", "phone_number"),
            *("date_of_birth", "ssn", "national_id", "passport_number", "credit_debit_card", "account_number"),
            *("ipv4", "mac_address", "user_name", "password", "medical_record_number", "license_plate"),
        ),
        description="Labels for NeMo's requests that have none.",
    )
