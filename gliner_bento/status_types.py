"""The types of `/v1/model`, `/v1/status` and `/v1/replicas`: the served model, and the current state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatus:
    """The load of the replica. Each pass of a long text counts as an item. An item's number of tokens includes a
    surcharge for long texts and many labels, as when the scheduler fills batches."""

    waiting_items: int
    waiting_tokens: int
    running_items: int
    running_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStatus:
    """The number of lanes: threads that run batches. A lane that is neither idle nor busy has died."""

    total: int
    busy: int
    idle: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterTiers:
    """How many adapters each tier holds."""

    device: int
    cpu: int
    disk: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Averages over the last minute, or since the start."""

    batches_per_s: float = 0.0
    items_per_s: Annotated[float, Field(description="Items and passes of long texts.")] = 0.0
    tokens_per_s: Annotated[float, Field(description="Without padding.")] = 0.0


@dataclass(frozen=True, slots=True)
class RecentError:
    """An answer with a status of 500 or higher."""

    code: str
    status: int
    request_id: str
    time: Annotated[str, Field(description="RFC 3339, UTC.", examples=["2026-01-31T12:00:00.000Z"])]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    """The answer of /v1/status. `queue`, `lanes` and `throughput` are null if the replica cannot be reached."""

    version: str
    model: Annotated[str | None, Field(description="Null if the replica could not be reached yet.")]
    ready: bool
    uptime_s: Annotated[float, Field(description="Of the process that answers.")]
    queue: QueueStatus | None
    lanes: LaneStatus | None
    throughput: Throughput | None
    adapters: Annotated[AdapterTiers | None, Field(description="Null if adapters are not enabled.")]
    recent_errors: Annotated[
        Sequence[RecentError], Field(description="Of the process that answers, latest first; at most 20.")
    ]


SelfTest = Literal["passed", "failed", "disabled"]
HealthState = Literal["starting", "ready", "not_ready", "suspect", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaHealth:
    """A replica, as the gateway sees it."""

    name: str
    state: Annotated[
        HealthState,
        Field(
            description="starting: it has not answered yet. ready: it gets requests. not_ready: it answers, but admits "
            "no requests. suspect: it does not answer. refused: it serves another model than the others."
        ),
    ]
    reason: Annotated[str | None, Field(description="Why it is not ready.")] = None
    requests: Annotated[int, Field(description="Number of this gateway process's calls to the replica.")] = 0
    outstanding_tokens: Annotated[
        int, Field(description="Estimated cost, in tokens, of this gateway process's calls without an answer yet.")
    ] = 0
    waiting_items: int = 0
    running_items: int = 0
    resident_adapters: Annotated[Sequence[str], Field(description="Ids of the adapters in the replica's memory.")] = ()


@dataclass(frozen=True, slots=True)
class ReplicaList:
    """The answer of /v1/replicas."""

    replicas: Sequence[ReplicaHealth]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """The model that a replica serves."""

    model: Annotated[str, Field(description="The model's name in requests; without one, hub id or folder name.")]
    family: Annotated[
        str, Field(description="gliner's class for the checkpoint.", examples=["UniEncoderSpanRelexGLiNER"])
    ]
    supports_relations: bool
    tasks: Annotated[
        Sequence[str],
        Field(
            description="Kinds of result that the model supports. A request for another kind is refused.",
            examples=[["entities"]],
        ),
    ] = ("entities",)
    supports_adapters: bool
    device: str
    dtype: str
    forward: Annotated[str, Field(description="Implementation of the forward pass, by encoder and head.")]
    max_words: Annotated[int, Field(description="Maximum length of one pass, in words.")]
    max_span_width: Annotated[int | None, Field(description="Maximum length of an entity, in words. Null: no limit.")]
    max_labels_per_pass: Annotated[
        int | None, Field(description="Maximum number of labels, and of relations, per pass. Null: no limit.")
    ] = None
    relation_window_sentences: Annotated[
        int | None,
        Field(
            description="Default number of sentences in which relations are scored at a time. Null: in all of the text "
            "that a pass reads."
        ),
    ] = None
    fingerprint: Annotated[
        str | None,
        Field(
            description="Identifies the weights, in any file format and dtype. Adapters are stored per fingerprint. "
            "Null for runtime onnxruntime.",
            examples=["5f0c8e1b7d3a9246"],
        ),
    ] = None
    unquantized_layers: Annotated[
        Sequence[str],
        Field(
            description="With quantization int8: layers of the encoder that would be too inexact, so stay as they are."
        ),
    ] = ()
    languages: Annotated[
        Sequence[str],
        Field(
            description="Languages that the model's card (README.md) lists, usually as ISO 639 codes. Empty: unknown.",
            examples=[["en"]],
        ),
    ] = ()
    self_test: Annotated[
        SelfTest,
        Field(
            description="Whether the scores equalled those of gliner's own code at start. failed: gliner's own forward "
            "pass serves instead. disabled: by the setting self_test."
        ),
    ] = "disabled"
    warnings: Annotated[
        Sequence[str],
        Field(
            description="Why all results may be poor. Obvious entities of the self-test's texts score low: the weights "
            "may be damaged, an upgrade may have broken the model, or it is made for other languages or labels."
        ),
    ] = ()
    batch_invariant: Annotated[
        bool,
        Field(
            description="Whether a text's scores are independent of batching, bit for bit. false: they may differ by "
            "rounding. Always false on a GPU, with runtime onnxruntime, for encoders that pad, and with "
            "batch_invariant=false."
        ),
    ] = False
    cached_subwords: Annotated[
        bool, Field(description="Whether tokens of recent words are cached. false: the tokenizer does not allow it.")
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard(ModelInfo):
    """The answer of /v1/model: what is served, and with which limits."""

    max_labels: int
    max_text_chars: int
    max_batch_items: int


@dataclass(frozen=True, slots=True)
class AbortResponse:
    """The answer of /v1/requests/{id}/abort."""

    request_id: str
    aborted: bool
