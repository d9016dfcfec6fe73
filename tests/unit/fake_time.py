"""An event loop whose time passes only while all tasks sleep, in one step: hours of timeouts in milliseconds."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")

GIVE_UP_S = 3600.0


class _Selector(selectors.SelectSelector):
    """Waiting for a timeout moves the time forward."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.now_s += timeout or 0.0
        return super().select(0)


class FakeTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._fake = _Selector()
        super().__init__(self._fake)

    def time(self) -> float:
        return self._fake.now_s

    def run_in_executor(self, executor: Any, work: Any, *arguments: Any) -> Any:
        """Work of threads takes no time."""
        done = self.create_future()
        try:
            done.set_result(work(*arguments))
        except Exception as error:
            done.set_exception(error)
        return done


def now_s() -> float:
    """The running loop's time."""
    return asyncio.get_running_loop().time()


def run_fast(scene: Callable[[], Awaitable[T]]) -> T:
    """The scene's result, on a loop of its own. A scene that takes an hour of its time hangs, and fails."""
    loop = FakeTimeLoop()
    try:
        return loop.run_until_complete(asyncio.wait_for(scene(), GIVE_UP_S))
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.close()
