"""Callers' regular expressions, one job at a time: fairly among tenants, who are charged for the time of their jobs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Future

from gliner_bento.errors import DeadlineExceeded, NotReady
from gliner_bento.fairness.pool import FairPool
from gliner_bento.fairness.queue import TenantShare
from gliner_bento.gateway.policy.tenants import Tenant
from gliner_bento.privacy.recognizers.expressions import Expression, ExpressionProcess, Spans, check

_CHARGED_S = 0.005
"""Time of a job that costs its tenant as much as one more job."""


class ExpressionRunner:
    """Runs expressions in the process of `ExpressionProcess`. timeout_s: for a job, with the time that it waits."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._process = ExpressionProcess()
        self._pool = FairPool(1, "expressions")

    async def spans(
        self, tenant: Tenant, expressions: Sequence[Expression], texts: Sequence[str], *, first_only: bool = False
    ) -> list[list[Spans]]:
        """See `ExpressionProcess.spans`. Raises `ExpressionError` and `DeadlineExceeded`."""
        if not expressions:
            return [[] for _ in texts]
        check(expressions)
        job = Future[list[list[Spans]]]()

        def run() -> None:
            if not job.set_running_or_notify_cancel():
                return
            started_s = time.monotonic()
            try:
                job.set_result(self._process.spans(expressions, texts, first_only=first_only))
            except Exception as error:
                job.set_exception(error)
            self._pool.charge(tenant.name, (time.monotonic() - started_s) / _CHARGED_S)

        self._pool.submit(TenantShare(tenant.name, tenant.weight), run)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(job), self._timeout_s)
        except asyncio.TimeoutError:
            raise DeadlineExceeded.before("the request's patterns were searched for") from None
        except OSError:
            raise NotReady("the process for regular expressions cannot be started") from None
