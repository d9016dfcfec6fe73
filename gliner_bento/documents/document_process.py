"""Reads documents, in a process of its own with bounded memory and time.

python -m gliner_bento.documents.document_process

Standard input has jobs (`process.Job`), standard output an answer to each, both as msgpack after their length in 8
bytes.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from gliner_bento.documents.base import DocumentError, DocumentTooLarge
from gliner_bento.documents.process import Answer, Job

_NICE = 5
"""Other processes have the processor first."""
_WORN_OUT = 0.5
"""Part of the memory after whose use the process ends, because freed memory may stay with it."""
_MAX_CHARS = 200


def _run(job: Job) -> Answer:
    """The answer to a job: any fault of a parser is an error of the document."""
    try:
        result = _result(job)
        _limit_memory(resource.RLIM_INFINITY)  # what was read is bounded, and msgspec crashes where it gets no memory
        return Answer(msgspec.msgpack.encode(result), ends=_is_worn_out(job))
    except DocumentError as error:
        too_large = isinstance(error, DocumentTooLarge)
        return Answer(error=_shown(str(error)), too_large=too_large, ends=_is_worn_out(job))
    except MemoryError:
        return Answer(error="needs too much memory", too_large=True, ends=True)
    except RecursionError:
        return Answer(error="is nested too deeply", ends=True)
    except Exception as error:
        detail = _shown(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
        return Answer(error=f"damaged: {detail}", ends=_is_worn_out(job))


def _result(job: Job) -> Any:
    from gliner_bento.documents import edit, read  # noqa: PLC0415  # inside the limit on memory

    if job.task == "list":
        return edit.listing_of(job.content, job.name, job.limits)
    if job.task == "edit":
        return edit.edited(job.content, job.name, job.edits, job.limits)
    return read.document_of(job.content, job.name, job.limits, job.encoding)


def _shown(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= _MAX_CHARS else f"{line[:_MAX_CHARS]}..."


def _is_worn_out(job: Job) -> bool:
    return _peak_bytes() > max(_START_BYTES, job.limits.max_memory_bytes * _WORN_OUT)


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _limit_memory(max_bytes: int) -> None:
    with suppress(ValueError, OSError):  # macOS has no limit on memory
        resource.setrlimit(resource.RLIMIT_AS, (max_bytes, resource.RLIM_INFINITY))


def _read(size: int) -> bytes | None:
    content = sys.stdin.buffer.read(size)
    return content if len(content) == size else None


_START_BYTES = _peak_bytes()
"""The peak at the start, which Linux takes over from the process that has started this one."""


def main() -> None:
    """Do jobs until standard input ends. The system ends the process when a job takes too long."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(_NICE)
    with suppress(OSError):  # Linux only: of a container's processes, this one is killed if the memory does not suffice
        Path("/proc/self/oom_score_adj").write_text("1000")
    while head := _read(8):
        content = _read(int.from_bytes(head, "big"))
        if content is None:
            return
        job = msgspec.msgpack.decode(content, type=Job)
        del content
        _limit_memory(job.limits.max_memory_bytes)
        signal.setitimer(signal.ITIMER_PROF, job.limits.max_cpu_s)
        answer = _run(job)
        signal.setitimer(signal.ITIMER_PROF, 0)
        message = msgspec.msgpack.encode(answer)
        sys.stdout.buffer.write(len(message).to_bytes(8, "big") + message)
        sys.stdout.buffer.flush()
        if answer.ends:
            return


if __name__ == "__main__":
    main()
