"""Runs callers' regular expressions, in a process of its own with bounded memory and time.

python -m gliner_bento.privacy.recognizers.expression_process

Standard input has jobs: a line with `{"expressions": [[expression, flags], ...], "texts": number, "first_only": bool}`,
then a line for each text. Each line, all JSON, gets a line in answer: `[]`, and for a text the starts and ends of the
matches of each expression. An error, `{"error": message, "expression": index, "ends": bool}`, ends the job and, if
`ends`, the process.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import regex

from gliner_bento.privacy.recognizers.expressions import (
    MAX_CPU_S,
    MAX_MATCHES,
    MAX_MEMORY_BYTES,
    TIMEOUT_S,
    Expression,
    ExpressionError,
    as_line,
)

_KNOWN_FLAGS = regex.I | regex.M | regex.S | regex.X | regex.A | regex.U
_WORN_OUT_BYTES = MAX_MEMORY_BYTES // 2
"""Peak memory after which the process ends, because freed memory may stay with it."""
_NICE = 5
"""Other processes have the processor first."""


@lru_cache(maxsize=100)
def _compiled(expression: str, flags: int) -> Any:
    return regex.compile(expression, flags & _KNOWN_FLAGS, cache_pattern=False)


class _Job:
    """The expressions of one request, and what they may still use."""

    def __init__(self, *, first_only: bool) -> None:
        self._first_only = first_only
        self._index = 0  # of the expression that is used
        self._matches_left = MAX_MATCHES
        self._patterns: list[Any] = []
        self._deadline_s = 0.0

    def compile(self, expressions: Sequence[Expression]) -> None:
        """Compile the expressions. Raises `ExpressionError`."""
        for index, (expression, flags) in enumerate(expressions):
            self._index = index
            try:
                self._patterns.append(_compiled(expression, flags))
            except MemoryError:
                raise
            except Exception:  # besides regex.error, some expressions raise errors of Python's
                raise ExpressionError("not a regular expression", index) from None
        self._deadline_s = time.process_time() + TIMEOUT_S

    def spans(self, text: str) -> list[list[int]]:
        """For each expression, starts and ends of its matches. Raises `ExpressionError`."""
        found = []
        for index, pattern in enumerate(self._patterns):
            self._index = index
            found.append([place for span in self._matches(pattern, text) for place in span])
        return found

    def error(self, error: Exception) -> Mapping[str, Any]:
        """The line for an error."""
        if isinstance(error, ExpressionError):
            return {"error": str(error), "expression": error.expression, "ends": False}
        messages = {MemoryError: "the pattern needs too much memory", TimeoutError: "the pattern takes too long"}
        message = messages.get(type(error), "the pattern cannot be run")
        return {"error": message, "expression": self._index, "ends": True}

    def _matches(self, pattern: Any, text: str) -> Sequence[tuple[int, int]]:
        """See `ExpressionProcess.spans`."""
        left_s = self._deadline_s - time.process_time()  # the package's timeout also counts the processor's time
        if left_s <= 0:
            raise TimeoutError
        spans = []
        for match in pattern.finditer(text, timeout=left_s):
            if time.process_time() > self._deadline_s:
                raise TimeoutError
            if self._first_only:
                return [match.span()]
            if match.end() > match.start():
                spans.append(match.span())
            self._matches_left -= 1
            if self._matches_left < 0:
                raise ExpressionError(f"the patterns have more than {MAX_MATCHES:,} matches", self._index)
        return spans


def _run(request: Mapping[str, Any]) -> bool:
    """Answer a job. Returns whether the process can take another one."""
    job = _Job(first_only=request["first_only"])
    try:
        job.compile(request["expressions"])
        _write([])
        for _ in range(request["texts"]):
            _write(job.spans(json.loads(sys.stdin.buffer.readline())))
    except Exception as error:
        answer = job.error(error)
        _write(answer)
        if answer["ends"]:
            return False
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 < _WORN_OUT_BYTES


def _write(answer: Any) -> None:
    sys.stdout.buffer.write(as_line(answer))
    sys.stdout.buffer.flush()


def main() -> None:
    """Run jobs until standard input ends. The system ends the process when a job exceeds `MAX_CPU_S`."""
    with suppress(ValueError, OSError):  # macOS has no limit on memory
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(_NICE)
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_PROF, MAX_CPU_S)
        if not _run(json.loads(line)):
            return
        signal.setitimer(signal.ITIMER_PROF, 0)


if __name__ == "__main__":
    main()
