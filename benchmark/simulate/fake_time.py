"""An event loop whose time passes only while all tasks sleep, in one step: hours of timeouts in milliseconds."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.SelectSelector):
    """Waiting for a timeout moves the time forward."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        """See `selectors`."""
        self.now_s += timeout or 0.0
        return super().select(0)


class FakeTimeLoop(asyncio.SelectorEventLoop):
    """`time()` starts at 0."""

    def __init__(self) -> None:
        self._fake = _Selector()
        super().__init__(self._fake)

    def time(self) -> float:
        """Seconds of simulated time."""
        return self._fake.now_s

    def run_in_executor(self, executor: Any, work: Any, *arguments: Any) -> Any:  # type: ignore[override]
        """Work of threads takes no time."""
        done = self.create_future()
        try:
            done.set_result(work(*arguments))
        except Exception as error:
            done.set_exception(error)
        return done


def run_fast(scene: Callable[[], Awaitable[T]], *, give_up_s: float = 3600.0) -> T:
    """The scene's result, on a loop of its own. A scene that takes `give_up_s` of its time hangs, and fails."""
    loop = FakeTimeLoop()
    try:
        return loop.run_until_complete(asyncio.wait_for(scene(), give_up_s))
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.close()
