"""Callers' documents, one at a time, in a process with limits (`DocumentProcess`)."""

from __future__ import annotations

from functools import partial

from gliner_bento.documents.base import (
    SUFFIXES,
    Document,
    DocumentError,
    DocumentTooLarge,
    Limits,
    install_documents,
    kind_of,
)
from gliner_bento.documents.process import DocumentProcess
from gliner_bento.errors import InvalidField, NotSupported, QueueFull, TooLarge, UnsupportedMediaType
from gliner_bento.fairness.capacity import SharedCapacity
from gliner_bento.gateway.fair_jobs import FairJobs
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.gateway.policy.tenants import Tenant

_MAX_CPU_S = 20.0
"""Processor time for a document, while others wait."""
_MAX_MEMORY_BYTES = 2**29
_CHARGED_S = 0.1
_PLACES = 16
"""For documents that have arrived and wait or are read. Tenants share them (`SharedCapacity`)."""
_MAX_OF_TENANT = 4


class DocumentReader:
    """Reads documents of up to `max_body_bytes` with up to `max_text_chars` characters."""

    def __init__(self, options: GatewayOptions) -> None:
        cpu_s = min(_MAX_CPU_S, options.request_timeout_s)
        self._process = DocumentProcess(
            Limits(
                max_bytes=options.max_body_bytes,
                max_chars=options.max_text_chars,
                max_cpu_s=cpu_s,
                max_memory_bytes=_MAX_MEMORY_BYTES,
            )
        )
        self._jobs = FairJobs("documents", self._process, timeout_s=options.request_timeout_s, charged_s=_CHARGED_S)
        self._places = SharedCapacity(_PLACES)

    def close(self) -> None:
        """End the process and the thread. Documents that wait are dropped."""
        self._jobs.close()

    def check(self, tenant: Tenant, name: str) -> None:
        """Raise, before the document is received, `NotSupported` without the extra, `UnsupportedMediaType` for a name
        without a known suffix, and `QueueFull` if too many documents wait."""
        if hint := install_documents():
            raise NotSupported(f"this server reads no documents: {hint}")
        if kind_of(name) is None:
            raise UnsupportedMediaType(f"name: ends in none of {', '.join(SUFFIXES)}", param="name")
        if self._places.excess(tenant.name, 1) or self._places.held(tenant.name) >= _MAX_OF_TENANT:
            raise QueueFull("too many documents wait to be read; try again later")

    async def read(self, tenant: Tenant, content: bytes, name: str, encoding: str = "utf-8") -> Document:
        """The texts of a document, see `DocumentProcess.read`. Raises as `check`; `TooLarge` and `InvalidField` for a
        document that cannot be read, and `DeadlineExceeded`."""
        self.check(tenant, name)
        self._places.hold(tenant.name, 1)
        try:
            job = partial(self._process.read, content, name, encoding)
            return await self._jobs.run(tenant, job, "the document was read")
        except DocumentTooLarge as error:
            raise TooLarge(f"body: {error}", param="body") from None
        except DocumentError as error:
            raise InvalidField(f"body: {error}", param="body") from None
        finally:
            self._places.hold(tenant.name, -1)
