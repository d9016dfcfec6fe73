"""HTTP requests of tests: a busy machine is no failure, and no connection is left open.

One client: making one for each request, as `httpx.get` does, takes 30 ms of CPU time.
"""

from __future__ import annotations

import httpx

TIMEOUT_S = 240.0

_CLIENT = httpx.Client(timeout=TIMEOUT_S, limits=httpx.Limits(max_keepalive_connections=0))
get, post, put = _CLIENT.get, _CLIENT.post, _CLIENT.put
