"""Batches, lanes, the queue and deadlines."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings

from gliner_bento.settings.field_types import BatchSizes, Count, CountOrAuto, Threads, ThreadsOrAuto
from gliner_bento.settings.marks import DAY_S, FlagOfCommands, ForOneCaller, OfAllModels


class SchedulingFields(BaseSettings):
    """Batches, lanes, the queue and deadlines."""

    max_batch_size: Count = Field(32, description="Maximum number of items in a batch.")
    max_batch_tokens: Annotated[CountOrAuto, FlagOfCommands()] = Field(
        0,
        description="Maximum cost of a batch, in tokens, prompts included. Items with long texts or many labels "
        "cost more than their tokens; in a padded batch every item costs as much as the most expensive "
        "one; 0: 1024 on CPU, 16384 on CUDA.",
    )
    batch_wait_timeout_ms: float = Field(
        0.0,
        ge=0,
        le=10_000,
        description="Maximum time to hold a partial batch while other items are being tokenized, in ms after the "
        "arrival of its oldest item; 0: no wait.",
    )
    batch_lookahead: Count = Field(
        128, description="Maximum number of waiting items, oldest first, that are considered for a batch."
    )
    target_memory_fraction: float = Field(
        0.8,
        gt=0,
        le=1,
        description="Fraction of the GPU memory left free by the loaded model that batches may use (CUDA only); "
        "max_batch_tokens is lowered to fit.",
    )
    memory_overhead_factor: float = Field(
        1.3, ge=1, le=10, description="Safety factor on the measured memory of a batch (CUDA only)."
    )
    queue_capacity: Count = Field(
        4096,
        description="Maximum number of waiting items; requests beyond it are refused (429 with Retry-After). While the "
        "queue is full, a tenant with less than an equal share of it may still add items, up to twice queue_capacity "
        "in all. A short text takes about 3 kB while it waits; max_queued_tokens limits long ones.",
    )
    max_queued_tokens: Annotated[CountOrAuto, ForOneCaller(0)] = Field(
        2**22,
        description="Maximum number of tokens of all requests under way, estimated from their characters; requests "
        "beyond it are refused (429 with Retry-After). Tenants share it as they share queue_capacity. A token takes "
        "about 0.2 kB while it waits, so the default is 0.8 GB; 0: no limit.",
    )
    max_queue_wait_s: Annotated[float, ForOneCaller(0.0)] = Field(
        5.0,
        ge=0,
        le=86_400,
        description="Maximum estimated wait in a queue that stands, in seconds (CoDel's target): once a tenant's "
        "estimated wait has been longer for queue_wait_interval_s, requests that would wait longer are refused (429 "
        "with Retry-After). 0: only requests that would miss their deadline are refused.",
    )
    queue_wait_interval_s: float = Field(
        5.0,
        ge=0,
        le=86_400,
        description="Time for which the estimated wait may exceed max_queue_wait_s, in seconds (CoDel's interval), so "
        "that a burst is answered as a whole. 0: requests that would wait longer are refused immediately.",
    )
    request_timeout_s: Annotated[float, OfAllModels(), ForOneCaller(DAY_S)] = Field(
        30.0,
        gt=0,
        le=86_400,
        description="Deadline of a request, in seconds after its arrival; then it fails (504). A stream "
        "(/v1/extract/stream) may take longer, and fails after this time without progress.",
    )
    hang_timeout_s: Annotated[float, OfAllModels()] = Field(
        120.0,
        gt=0,
        le=86_400,
        description="Time after which an unfinished stage of a batch, an unfinished preparation or a blocked event "
        "loop counts as hung, in seconds; then its requests fail, and its process is restarted.",
    )
    inference_lanes: Annotated[ThreadsOrAuto, OfAllModels(), FlagOfCommands()] = Field(
        0,
        description="Number of lanes: threads that run batches on the shared weights; 0: one per core, at most 4, "
        "on CPU; 1 on CUDA. One more thread runs short texts while all lanes are busy.",
    )
    torch_threads: Annotated[ThreadsOrAuto, FlagOfCommands()] = Field(
        0,
        description="Number of torch threads per lane; the first lane also uses those of idle lanes; 0: cores / "
        "inference_lanes.",
    )
    tokenizer_threads: Threads = Field(1, description="Number of tokenizer threads.")
    precompiled_batch_sizes: BatchSizes = Field(
        (1, 2, 4, 8, 16, 32),
        description="Batch sizes to warm up before the server is ready; sizes above queue_capacity are skipped.",
    )
    warmup_iterations: Annotated[int, Field(ge=0, le=1000), ForOneCaller(0)] = Field(
        1, description="Number of warm-up runs per batch size; 0: a single item only."
    )
    decoding_threads: int = Field(
        1,
        ge=0,
        le=256,
        description="Number of threads that decode while the lanes run the next batches; 0: each lane decodes its "
        "own batches.",
    )
