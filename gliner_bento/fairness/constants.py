"""Every constant of fairness and overload, with what it protects. The limits that operators choose are settings:
queue_capacity, max_queued_tokens, max_queue_wait_s, queue_wait_interval_s, request_timeout_s, max_tenant_concurrency,
max_tenant_requests_per_s, max_connections, header_timeout_s, body_timeout_s, keep_alive_timeout_s (docs/settings.md).
"""

from __future__ import annotations

# Sharing among tenants

SHARED_OVERFLOW = 2
"""A full queue still admits tenants that use little of it, until it holds this multiple of its capacity.
See `SharedCapacity`."""

MAX_REMEMBERED_TENANTS = 1024
"""Limits memory: number of tenants without waiting work whose virtual time is kept."""

MAX_IDLE_TENANTS = 10_000
"""Limits memory: number of tenants without requests whose token bucket is kept."""

# Sharing among the requests of a tenant

MAX_SMALL_ITEMS = 32
"""Protects small requests: a request charged as more items is large; batches keep room for small ones."""

MAX_SHORT_ITEMS = 4
"""Protects short requests: a request charged as more items does not run in the express lane, and gets at most 1/4 of a
packed batch while short ones arrive."""

HEAD_START_ITEMS = 8
"""Protects short requests from many longer ones of their tenant: each longer one is ordered as if it was
charged HEAD_START_ITEMS more items."""

CHARS_PER_CHARGED_ITEM = 250
"""Protects small requests from long texts: a text is charged one more item per CHARS_PER_CHARGED_ITEM characters."""

CHARGED_ITEMS_OF_PASS = 8
"""Protects small requests from chunked ones: a pass is charged as CHARGED_ITEMS_OF_PASS items."""

# Sharing lanes, batches and preparation threads

SENDS_S = 2.0
"""Protects tenants that send little: for SENDS_S after they have sent an item that the express lane does not run, no
other tenant fills a batch."""

QUOTAS_PER_BATCH = 4
"""Protects tenants that send little: another tenant gets at most 1/4 of a batch, so that the batch ends soon. The
express lane's batches are at most as large."""

EXPRESS_LEAD_S = 0.5
"""Protects the other models of a device: a model whose batches took EXPRESS_LEAD_S more than those of a model that
waits runs nothing in its express lane."""

SLICE_S = 0.01
"""Protects waiting preparations: a burst (items of one request) gives up its thread after this CPU time, or
when another tenant waits."""

PAUSE_S = 0.002
"""Protects all other threads: preparing a long text without pauses would keep Python's interpreter lock."""

LANE_NICE = 10
"""Protects short requests, refusals and probes on a CPU: added to the niceness of the lanes' threads. The express lane
and the gateway keep theirs."""

# Estimated costs, in tokens

TOKENS_PER_CHARACTER, REMEMBERED_CHARACTERS = 0.3, 100_000
"""The first estimate of an item's cost, and how fast results replace it: with every REMEMBERED_CHARACTERS of further
items, the weight of what was known before halves."""

ITEM_TOKENS = 256
"""Balances replicas: added to an item's tokens when the loads of replicas are compared (docs/scaling.md)."""

SHORT_TOKENS, PASS_TOKENS = 64, 512
"""Bounds of the estimated cost of a request that has not been read: the costs of a short text, and of one pass."""

BYTES_PER_TOKEN = 5
"""Estimates the cost of a request from its Content-Length, so that a long one is refused before it is read."""

FIRST_AVERAGE_TOKENS, AVERAGE_WEIGHT = 64.0, 0.1
"""A request that is being read counts with the average cost of requests. This average begins at
FIRST_AVERAGE_TOKENS; each further request has the weight AVERAGE_WEIGHT."""

# Refusals

MARGIN, BATCH_TOKENS = 1.5, 1024
"""Protects the deadlines of admitted requests: a request is refused if MARGIN x (its estimated wait + the time of a
batch of BATCH_TOKENS) exceeds the time until its deadline."""

ARRIVALS_SHARE = 0.85
"""Refuses early: a request that arrives is refused if its estimated wait exceeds ARRIVALS_SHARE x its maximum wait.
Once let in, it is checked against the whole maximum, so that a small change of the estimate does not refuse it."""

CALM_FRACTION, ESTIMATES_PER_INTERVAL = 0.5, 50
"""Tell a standing queue from a burst (`StandingQueue`): once its wait is below CALM_FRACTION x `max_queue_wait_s`, the
next burst is absorbed again; the wait is estimated at most ESTIMATES_PER_INTERVAL times per `queue_wait_interval_s`."""

MEASURED_S, MAX_EXTRAPOLATION = 1.0, 2
"""Protects clients of a server that has just started: an estimated wait refuses nobody before the throughput has been
measured for MEASURED_S, nor a request whose maximum wait is longer than MAX_EXTRAPOLATION x the measured time."""

MEASURING_FRACTION = 0.5
"""The throughput is measured while at least this part of full batches is under way: else clients that send just as many
requests at a time as a batch holds would never show it."""

HALF_LIFE_S = 5.0
"""The weight of a measured throughput halves every HALF_LIFE_S of busy time, so that the estimate follows the load."""

OTHER_GATEWAYS_S = 1.0
"""At this interval, a busy gateway process asks the replica for the number of all unfinished items, to count those of
other gateways."""

LARGE_FRACTION = 7 / 8
"""Protects short requests: requests that cost more than a pass fill at most this part of `max_queued_tokens`."""

PASS_CHARS = 2048
"""The estimated deadline of a stream: one `request_timeout_s` per PASS_CHARS characters."""

MAX_READ_BYTES = 2**16
"""Keeps refusals cheap: a larger body is not searched for its `timeout_ms` before the app reads it."""

# Connections

MAX_HEADER_BYTES = 2**16
"""Limits memory: size of a request without its body, trailers included."""

PACE_BYTES = 2**16
"""Frees slow connections: each PACE_BYTES of a body, and the rest of it, must arrive within `body_timeout_s`."""
