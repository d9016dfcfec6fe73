"""The operator's own code around a task: `preprocess` and `postprocess` of the Python file in the setting `handler`.

    def preprocess(item: Item) -> Item: ...
    def postprocess(item: Item, result: Extraction) -> Extraction: ...

Either may be missing. Both run for each text, in a thread. A `GLiNERBentoError` that they raise is the text's error;
any other exception, and a wrong return type, is an internal error of that text, whose details are in the log.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from gliner_bento.errors import DeadlineExceeded, GLiNERBentoError, InternalError, NotReady, StartupError, one_line
from gliner_bento.replicas.base import Call, Outcome
from gliner_bento.tasks.base import Item, Result

logger = logging.getLogger("gliner_bento.gateway")

_STEPS = ("preprocess", "postprocess")
_THREADS = 32


class Handler:
    """Runs the functions of a file. Raises `StartupError` if it cannot be imported or has none of the functions."""

    def __init__(self, path: Path) -> None:
        spec = spec_from_file_location("gliner_bento_handler", path)
        if spec is None or spec.loader is None:
            raise StartupError(f"handler: {path}: not a Python file (.py)")
        module = module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            raise StartupError(f"handler: {path}: {type(error).__name__}: {one_line(error)}") from error
        self._functions = {step: getattr(module, step) for step in _STEPS if callable(getattr(module, step, None))}
        if not self._functions:
            raise StartupError(f"handler: {path}: has neither preprocess nor postprocess")
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="handler")
        self._hanging: set[Future[list[Any]]] = set()

    async def run(
        self, items: Sequence[Item], call: Call, extract: Callable[[Sequence[Item]], Awaitable[Sequence[Outcome]]]
    ) -> Sequence[Outcome]:
        """Run `preprocess`, `extract` and `postprocess`. Returns an outcome per item.

        Raises `DeadlineExceeded` if a step takes longer than the request may, and `NotReady` while such overdue steps
        occupy all threads.
        """
        prepared = await self._step("preprocess", [(item,) for item in items], call)
        prepared_items = [item for item in prepared if isinstance(item, Item)]
        outcomes = _replaced(prepared, Item, await extract(prepared_items) if prepared_items else ())
        pairs = [pair for pair in zip(prepared, outcomes, strict=True) if isinstance(pair[1], Result)]
        return _replaced(outcomes, Result, await self._step("postprocess", pairs, call))

    async def _step(self, step: str, arguments: Sequence[tuple[Any, ...]], call: Call) -> list[Any]:
        """For each tuple of arguments, the result or error of the function `step`. If the file has no such function,
        the value that it would have changed: the last argument."""
        if step not in self._functions or not arguments:
            return [last for *_, last in arguments]
        self._hanging = {future for future in self._hanging if not future.done()}
        if len(self._hanging) >= _THREADS:
            raise NotReady(f"the handler hangs in all of its {_THREADS} threads")
        timeout_s = min(call.deadline_s - time.monotonic(), call.idle_timeout_s)
        future = self._threads.submit(self._call_each, step, arguments)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), timeout_s)
        except asyncio.TimeoutError:
            if future.running():
                self._hanging.add(future)
                logger.error("the handler's %s runs past its deadline in %d threads", step, len(self._hanging))
            raise DeadlineExceeded.before(f"the handler's {step} finished") from None

    def _call_each(self, step: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        return [self._call(step, *values) for values in arguments]

    def _call(self, step: str, *arguments: Any) -> Any:
        expected = type(arguments[-1])
        try:
            returned = self._functions[step](*arguments)
        except GLiNERBentoError as error:
            return error
        except (Exception, SystemExit):
            logger.exception("the handler's %s failed", step)
            return InternalError(f"the handler's {step} failed; the server's log has the details")
        if isinstance(returned, expected):
            return returned
        return InternalError(f"the handler's {step} returned {type(returned).__name__}, not {expected.__name__}")


def _replaced(values: Sequence[Any], kind: type, replacements: Sequence[Any]) -> list[Any]:
    """Replace each value of the type `kind` with the next replacement. The other values, which are errors, are kept."""
    remaining = iter(replacements)
    return [next(remaining) if isinstance(value, kind) else value for value in values]
