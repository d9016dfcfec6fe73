"""Reads documents in another process, with bounded time and memory: parsers of foreign files may hang, crash or take
all memory. `document_process.py` is its program."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

import msgspec

from gliner_bento.documents.base import (
    DEFAULT_LIMITS,
    Document,
    DocumentError,
    DocumentTooLarge,
    Edit,
    Limits,
    Listing,
    install_documents,
)
from gliner_bento.errors import StartupError
from gliner_bento.helper_process import HelperProcess

_PROGRAM = "gliner_bento.documents.document_process"
_WALL_FACTOR = 4
"""A document may take so many times its processor time, because other processes run too."""
_HEAD_BYTES = 8
_PIECE_BYTES = 2**20
_Answer = TypeVar("_Answer")


class Job(msgspec.Struct):
    """A job for the process. task: `read`, `list` or `edit`, see `DocumentProcess`. edits: by index of a passage."""

    task: str
    name: str
    content: bytes
    limits: Limits
    encoding: str = "utf-8"
    edits: Mapping[int, Sequence[Edit]] = {}


class Answer(msgspec.Struct):
    """The answer to a job: its result, as msgpack, or an error. too_large: whether it is a `DocumentTooLarge`. ends:
    whether the process ends."""

    result: bytes = b""
    error: str = ""
    too_large: bool = False
    ends: bool = False


class DocumentProcess(HelperProcess):
    """A process that reads documents. It starts with the first one, and again after one that it did not survive.
    Threads wait for each other."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(_PROGRAM)
        self.limits = limits
        self._lock = threading.Lock()

    def read(self, content: bytes, name: str, encoding: str = "utf-8") -> Document:
        """The records of a document, see `read.document_of`. Blocks.

        Raises `DocumentError` for a document that cannot be read within the limits, and `StartupError` if the extra is
        not installed.
        """
        return self._run(Job("read", name, content, self.limits, encoding), Document)

    def passages(self, content: bytes, name: str) -> Listing:
        """The texts of a Word or Excel file that can be replaced, see `edit.listing_of`. Raises as `read`."""
        return self._run(Job("list", name, content, self.limits), Listing)

    def edited(self, content: bytes, name: str, edits: Mapping[int, Sequence[Edit]]) -> bytes:
        """A Word or Excel file with replaced texts, see `edit.edited`. Raises as `read`."""
        return self._run(Job("edit", name, content, self.limits, edits=edits), bytes)

    def _run(self, job: Job, result: type[_Answer]) -> _Answer:
        if hint := install_documents():
            raise StartupError(hint)
        if len(job.content) > self.limits.max_bytes:  # before it is sent
            raise DocumentTooLarge(f"has more than {self.limits.max_bytes // 2**20} MiB")
        message = msgspec.msgpack.encode(job)
        with self._lock:
            try:
                self.close_if_ended()
                answer = self._answer(message)
                if answer.ends:
                    self.close()
            except BaseException:
                self.close()
                raise
        if answer.error:
            raise (DocumentTooLarge if answer.too_large else DocumentError)(answer.error)
        return msgspec.msgpack.decode(answer.result, type=result)

    def _answer(self, message: bytes) -> Answer:
        """The process's answer. Raises `DocumentError` if it ends without one."""
        process = self.started()
        assert process.stdin
        with suppress(BrokenPipeError):
            process.stdin.write(len(message).to_bytes(_HEAD_BYTES, "big") + message)
            process.stdin.flush()
            deadline_s = time.monotonic() + self.limits.max_cpu_s * _WALL_FACTOR
            if head := self._received(process, _HEAD_BYTES, deadline_s):
                content = self._received(process, int.from_bytes(head, "big"), deadline_s)
                if content is not None:
                    return msgspec.msgpack.decode(content, type=Answer)
        raise self._late() if process.wait() == -signal.SIGPROF else DocumentError("the parser has crashed")

    def _late(self) -> DocumentError:
        return DocumentTooLarge(f"takes longer than {self.limits.max_cpu_s:g} s to read")

    def _received(self, process: subprocess.Popen[bytes], size: int, deadline_s: float) -> bytes | None:
        """The next `size` bytes of the process; None if it ends. Raises `DocumentError` if it is late."""
        assert process.stdout
        poll = select.poll()  # `select.select` takes no file descriptor above 1,023
        poll.register(process.stdout, select.POLLIN)
        pieces, left = [], size
        while left:
            if not poll.poll(max(0.0, deadline_s - time.monotonic()) * 1000):
                raise self._late()
            piece = os.read(process.stdout.fileno(), min(left, _PIECE_BYTES))
            if not piece:
                return None
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)
