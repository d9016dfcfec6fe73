"""Entities on their way from the scheduler's threads to an answer that is sent while the text is still being read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from typing import Any

from gliner_bento.types import Entity

# Windows that have been read and not been sent: with more, their reader waits for whoever reads the answer.
_MOST_UNSENT = 32


class Feed:
    """What a scheduler tells about one item, in the order in which it tells it; a `Watch`.

    Made, and iterated over once, in the event loop; `take` and `end` are for other threads.
    """

    def __init__(self, go_on: Callable[[], None]) -> None:
        """go_on: called when there is room again."""
        self._go_on = go_on
        self._loop = asyncio.get_running_loop()
        self._told: asyncio.Queue[Sequence[Entity] | None] = asyncio.Queue()
        self._taken = 0  # changed by the scheduler alone, and
        self._sent = 0  # by the event loop

    @property
    def has_room(self) -> bool:
        """Whether what is found will be sent soon."""
        return self._taken - self._sent < _MOST_UNSENT

    def take(self, entities: Sequence[Entity]) -> None:
        """The next entities."""
        self._taken += 1
        self._loop.call_soon_threadsafe(self._told.put_nowait, entities)

    def end(self, _: Future[Any]) -> None:
        """There are no more."""
        self._loop.call_soon_threadsafe(self._told.put_nowait, None)

    async def __aiter__(self) -> AsyncIterator[Sequence[Entity]]:
        while (entities := await self._told.get()) is not None:
            yield entities
            self._sent += 1
            if self.has_room:
                self._go_on()


def line(data: dict[str, Any]) -> str:
    """A line of JSON, in ASCII: BentoML cuts a stream anywhere, and decodes the pieces one by one."""
    return f"{json.dumps(data)}\n"
