"""Request ids that are refused for a while after an abort, in this process."""

from __future__ import annotations

import time
from collections.abc import Callable

from gliner_bento.errors import Aborted

_MAX_IDS = 10_000


class BlockedIds:
    """A request with a blocked id fails like an aborted one. Beyond `_MAX_IDS` ids, the oldest are unblocked."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._until_s: dict[str, float] = {}
        self._clock = clock

    def block(self, request_id: str, duration_s: float) -> None:
        """Refuse `request_id` for `duration_s` from now on."""
        self._until_s.pop(request_id, None)
        self._until_s[request_id] = self._clock() + duration_s
        while len(self._until_s) > _MAX_IDS:
            del self._until_s[next(iter(self._until_s))]

    def check(self, request_id: str) -> None:
        """Raise `Aborted` for an id that is blocked now."""
        until_s = self._until_s.get(request_id)
        if until_s is None:
            return
        if self._clock() < until_s:
            raise Aborted("the request has been cancelled by another `abort_request` request")
        del self._until_s[request_id]
