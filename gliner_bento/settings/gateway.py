"""The public API: defaults and limits."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_settings import BaseSettings

from gliner_bento.privacy.recognizers.find import DEFAULT_REGIONS
from gliner_bento.settings.field_types import (
    FORMATS,
    AbsolutePath,
    AllowListSource,
    ApiKeysSource,
    Band,
    Count,
    CountOrUnlimited,
    DenyListSource,
    Formats,
    HeaderName,
    LabelNames,
    Mcp,
    Origins,
    PhoneRegions,
    Probability,
    ProxyAddresses,
    RecognizerNames,
    RedactionKey,
    RedisUrl,
    Thresholds,
    Timeout,
    existing_file,
)
from gliner_bento.settings.marks import ForOneCaller, NoEffectWithRay, PerModel
from gliner_bento.tasks.extraction import MAX_ENTITIES, MAX_RELATIONS


class GatewayFields(BaseSettings):
    """The public API: defaults and limits."""

    default_threshold: Annotated[Probability, PerModel()] = Field(0.5, description="Default threshold for entities.")
    default_relation_threshold: Annotated[Probability, PerModel()] = Field(
        0.5, description="Default threshold for relations."
    )
    label_thresholds: Annotated[Thresholds, PerModel()] = Field(
        {},
        description="Default thresholds of single labels, as JSON: {person: 0.4}; `gliner-bento tune` finds them. A "
        "request's threshold, and a label's own, override them.",
    )
    relation_thresholds: Annotated[Thresholds, PerModel()] = Field(
        {},
        description="As label_thresholds, of relations; a request's relation_threshold, and a relation's own one, "
        "override them.",
    )
    review_band: Annotated[Band, PerModel()] = Field(
        (),
        description='Lowest and highest score of entities that /v1 marks for review ("review": true), as 0.4,0.6; '
        "unset: none are marked.",
    )
    max_labels: Annotated[CountOrUnlimited, PerModel()] = Field(
        1000,
        description="Maximum number of entity labels of a text, and of its relation labels. With classifications or "
        "structures, the limit applies to all labels and fields together. More are refused (422); "
        "-1: no limit.",
    )
    max_text_chars: Annotated[Count, PerModel()] = Field(
        2_000_000, description="Maximum length of a text, in characters; longer texts are refused (413)."
    )
    max_batch_items: Annotated[Count, PerModel()] = Field(
        256, description="Maximum number of texts in one request to /v1/extract/batch; more are refused (413)."
    )
    max_entities: Annotated[Count, PerModel()] = Field(
        MAX_ENTITIES,
        description="Maximum number of entities in an answer; their texts may have 200 times as many characters in "
        "total. The texts of a batch share both limits in proportion to their lengths. Beyond a limit, a request fails "
        "(422), or its answer is cut (`on_limit`).",
    )
    max_relations: Annotated[Count, PerModel()] = Field(
        MAX_RELATIONS,
        description="Maximum number of relations in an answer, with the same rules as max_entities; the texts of their "
        "heads and tails are counted.",
    )
    max_body_bytes: Count = Field(
        32 * 2**20, description="Maximum size of a request body, in bytes; larger bodies are refused (413)."
    )
    compat: Formats = Field(
        ("all",),
        description=f"Wire formats of other servers that are served: all, none, or some of {', '.join(FORMATS)}.",
    )
    recognizers: Annotated[RecognizerNames, PerModel()] = Field(
        ("all",),
        description="Recognizers (patterns and check digits): all, none, or some (CREDIT_CARD,EMAIL_ADDRESS); see "
        "docs/recognizers.md. They run for /analyze, the NIM's format, redact, and requests with a field recognizers.",
    )
    phone_regions: Annotated[PhoneRegions, PerModel()] = Field(
        DEFAULT_REGIONS,
        description="Regions whose phone numbers recognizers find without a country code, as ISO 3166 codes.",
    )
    allow_list: AllowListSource | None = Field(
        None,
        repr=False,
        description="YAML or JSON file of texts that are no finds, for all requests; or the entries themselves. They "
        "are those of a request's allow_list (docs/recognizers.md).",
    )
    deny_list: DenyListSource | None = Field(
        None,
        repr=False,
        description="YAML or JSON file of texts that are always found, for all requests; or the entries themselves. "
        "They are those of a request's deny_list (docs/recognizers.md).",
    )
    redaction_key: RedactionKey | None = Field(
        None,
        description="Secret key of the mappings that /v1/redact returns, and of hashes: the path of a file with a key "
        "per line, or keys of at least 32 characters, separated by commas. The first one seals, all open. Several "
        "servers for the same clients need the same key. Unset: ~/.cache/gliner-bento/redaction.key. A file that does "
        "not exist is made.",
    )
    max_mapping_bytes: Count = Field(
        2**20, description="Maximum size of a sealed mapping of /v1/redact, in bytes; larger ones are refused."
    )
    mapping_lifetime_s: Count = Field(
        7 * 86_400, description="Time after which a sealed mapping cannot be opened, in seconds; each turn renews it."
    )
    redis_url: RedisUrl | None = Field(
        None,
        description="Redis server in which sealed mappings wait between a request of LiteLLM's guardrail and its "
        "response, for several gateways with the same redaction_key: redis://user:password@host:6379/0, rediss:// for "
        "TLS, unix://path. Requires the extra redis. Unset: the memory of each gateway process.",
    )
    fastino_labels: LabelNames = Field(
        ("person", "organization", "location", "date", "event", "product"),
        description="Entity types of a request to /gliner-2 or /pooling that asks for relations and names no entity "
        "types.",
    )
    api_keys: Annotated[ApiKeysSource | None, ForOneCaller(None)] = Field(
        None,
        repr=False,
        description="YAML or JSON file of API keys (see docs/security.md), read again when it changes; or the keys "
        "themselves, as in such a file. Unset: no keys, and the server answers on the loopback address only, unless "
        "allow_anonymous.",
    )
    allow_anonymous: bool = Field(
        False,
        description="Serve without API keys on addresses other than loopback, to anyone who reaches them (except the "
        "scope admin).",
    )
    cors_origins: Origins = Field(
        (),
        description="Origins whose pages may call the server from a browser (https://app.example.com); * for all.",
    )
    enable_playground: Annotated[bool, ForOneCaller(False)] = Field(
        True, description="Serve /playground, a page that shows what the model extracts from a text."
    )
    enable_mcp: Mcp = Field(
        False,
        description="Serve /mcp, the tools extract_entities, extract_relations, classify, extract_structures and "
        "redact for language models (requires the extra mcp; see docs/api.md).",
    )
    handler: Annotated[AbsolutePath, AfterValidator(existing_file)] | None = Field(
        None,
        description="Python file of yours with the functions preprocess and postprocess, which run for each text; see "
        "docs/several-models.md.",
    )
    max_connections: Count = Field(
        2048,
        description="Maximum number of connections of a gateway process. Beyond it, a new connection replaces the one "
        "that has been idle or sending a request for longest; if all await responses, the new one is refused (503). A "
        "connection with a short request takes about 0.13 MB in the server's processes.",
    )
    header_timeout_s: Annotated[Timeout, NoEffectWithRay("Ray's proxy accepts the connections", proxied=True)] = Field(
        10.0, description="Time in which a request's headers must arrive, in seconds; then 408."
    )
    body_timeout_s: Annotated[Timeout, NoEffectWithRay("Ray's proxy accepts the connections", proxied=True)] = Field(
        30.0,
        description="Time in which a request's body, or its next 64 KiB (of /v1/restore/stream: its next byte), must "
        "arrive, in seconds; then 408. A client that does not read the rest of its response, or 64 KiB of it, in this "
        "time is disconnected.",
    )
    keep_alive_timeout_s: Count = Field(
        5,
        description="Time after which an idle connection is closed, in seconds; set it above a proxy's idle timeout.",
    )
    tenant_header: Annotated[HeaderName | None, ForOneCaller(None)] = Field(
        None,
        description="Request header that names the tenant, where there are no API keys; set it only behind a proxy "
        "that overwrites it. Unset, or not sent: the client's address is the tenant.",
    )
    forwarded_allow_ips: ProxyAddresses = Field(
        (),
        description="Addresses and networks of proxies whose X-Forwarded-For names the client (127.0.0.1,10.0.0.0/8); "
        "* for all. uvicorn's variable FORWARDED_ALLOW_IPS sets it too. Unset: the client's address is that of its "
        "connection.",
    )
    max_tenant_concurrency: Annotated[int, Field(ge=0), ForOneCaller(0)] = Field(
        0,
        description="Maximum number of a tenant's requests that run concurrently, for extractions and /anonymize; more "
        "are refused (429 with Retry-After); 0: no limit. An API key may have a limit of its own, max_concurrency.",
    )
    max_tenant_requests_per_s: Annotated[float, Field(ge=0, le=1_000_000), ForOneCaller(0.0)] = Field(
        0.0,
        description="Maximum number of a tenant's requests per second, for extractions and /anonymize; as many may "
        "arrive in one burst. More are refused (429 with Retry-After); 0: no limit. An API key may have a limit of its "
        "own, max_requests_per_s.",
    )
