"""HTTP requests of tests: a busy machine is no failure, and no connection is left open.

A server whose model process does not run for 2 s says 503 `not_ready`, and has not begun what was asked of it.

One client: making one for each request, as `httpx.get` does, takes 30 ms of CPU time.
"""

from __future__ import annotations

import time

import httpx

TIMEOUT_S = 240.0

_CLIENT = httpx.Client(timeout=TIMEOUT_S, limits=httpx.Limits(max_keepalive_connections=0))
get, post, put = _CLIENT.get, _CLIENT.post, _CLIENT.put


def until_ready(url: str) -> httpx.Response:
    """The answer of /readyz, when it is 200."""
    give_up_s = time.monotonic() + TIMEOUT_S
    while not (answer := get(f"{url}/readyz")).is_success and time.monotonic() < give_up_s:
        time.sleep(0.1)
    return answer.raise_for_status()


class UntilReady(httpx.HTTPTransport):
    """Repeats requests that get 503 `not_ready`."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        give_up_s = time.monotonic() + TIMEOUT_S
        while (answer := super().handle_request(request)).status_code == 503 and time.monotonic() < give_up_s:
            if b'"not_ready"' not in answer.read():
                break
            time.sleep(0.1)
        return answer
