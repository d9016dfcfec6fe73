"""Every constant of fairness and overload, with what it protects. What an operator chooses is a setting instead:
queue_capacity, max_queued_tokens, max_queue_wait_s, request_timeout_s, max_tenant_concurrency,
max_tenant_requests_per_s, max_connections, header_timeout_s, body_timeout_s, keep_alive_timeout_s (docs/settings.md).
"""

from __future__ import annotations

# Sharing among tenants

SHARED_OVERFLOW = 2
"""Tenants with little find room in a full queue, up to so many times its capacity in all: see `SharedCapacity`."""

MAX_REMEMBERED_TENANTS = 1024
"""Memory: the virtual times of so many tenants without waiting work are kept."""

MAX_IDLE_TENANTS = 10_000
"""Memory: the token buckets of so many tenants without requests are kept."""

# Sharing among the requests of a tenant

ITEMS_PER_TURN = 32
"""Small requests: one that counts as more items is large, and leaves lanes and batches to small ones."""

CHARS_PER_PLACE = 250
"""Small requests beside long texts: a text counts as one item more for each of so many characters."""

PLACES_OF_PASS = 8
"""Small requests beside chunked ones: a pass counts as so many items."""

# Sharing lanes, batches and preparation threads

SENDS_S = 2.0
"""Who sends little: for so long after an item of theirs, lanes and batches are kept from what would fill all."""

SHARES_OF_BATCH = 4
"""Who sends little: what others send has at most this part of a batch, so that the batch ends soon."""

SLICE_S = 0.01
"""Who waits to be prepared: a burst leaves its thread after so much CPU time, and whenever another tenant waits."""

PAUSE_S = 0.002
"""All other threads: one that works through a long text without a pause keeps Python's interpreter lock from them."""

LANE_NICE = 5
"""Refusals and probes on a machine without a GPU: the threads that compute give way to those that answer."""

# Estimated costs, in tokens

TOKENS_PER_CHARACTER, REMEMBERED_CHARACTERS = 0.3, 100_000
"""The first estimate of an item's cost, and how fast results replace it: half of its weight after so many."""

ITEM_TOKENS = 256
"""Balance of replicas: what an item counts besides its tokens where their loads are compared (docs/scaling.md)."""

SHORT_TOKENS, PASS_TOKENS = 64, 512
"""Short requests: the cost of one that has not been read is between that of a short one and that of a pass."""

BYTES_PER_TOKEN = 5
"""Long requests are refused before they are read: their cost is estimated from Content-Length."""

FIRST_AVERAGE_TOKENS, AVERAGE_WEIGHT = 64.0, 0.1
"""Requests that are being read are not forgotten: they count as the average of those before, each with this weight."""

# Refusals

MARGIN, BATCH_TOKENS = 1.5, 1024
"""The deadlines of admitted requests: one is refused if MARGIN x its estimated time is more than it has, or if less
than the time of a batch of BATCH_TOKENS is left then, because it ends with its batch."""

MEASURED_S, REACH = 1.0, 2
"""Ordinary clients of a server that has just started: nobody is refused for a wait before the throughput has been
measured for MEASURED_S, nor for a wait of more than REACH x the measured time."""

HALF_LIFE_S = 5.0
"""The estimate follows the load: the weight of a measured throughput halves in so much busy time."""

ELSEWHERE_S = 1.0
"""Streams behind several gateway processes: while it is busy, each asks so often what the replica has of the others."""

LARGE_FRACTION = 7 / 8
"""Short requests: larger ones than a pass fill at most this part of `max_queued_tokens`."""

PASS_CHARS = 2048
"""Streams of long texts: each so many characters may take `request_timeout_s`."""

MAX_READ_BYTES = 2**16
"""Cheap refusals: a larger body is not read for its `timeout_ms` before the app gets it."""

# Connections

MAX_HEADER_BYTES = 2**16
"""Memory: of a request without its body, trailers included."""

PACE_BYTES = 2**16
"""Connections: a body has `body_timeout_s` for so many bytes, or for the rest of it."""
