"""Callers' regular expressions, one job at a time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from gliner_bento.gateway.fair_jobs import FairJobs
from gliner_bento.gateway.policy.tenants import Tenant
from gliner_bento.privacy.recognizers.expressions import Expression, ExpressionProcess, Spans, check

_CHARGED_S = 0.005


class ExpressionRunner:
    """Runs expressions in the process of `ExpressionProcess`. timeout_s: for a job, with the time that it waits."""

    def __init__(self, timeout_s: float) -> None:
        self._process = ExpressionProcess()
        self._jobs = FairJobs("regular expressions", self._process, timeout_s=timeout_s, charged_s=_CHARGED_S)

    def close(self) -> None:
        """End the process and the thread. Jobs that wait are dropped."""
        self._jobs.close()

    async def spans(
        self, tenant: Tenant, expressions: Sequence[Expression], texts: Sequence[str], *, first_only: bool = False
    ) -> list[list[Spans]]:
        """See `ExpressionProcess.spans`. Raises `ExpressionError` and `DeadlineExceeded`."""
        if not expressions:
            return [[] for _ in texts]
        check(expressions)
        job = partial(self._process.spans, expressions, texts, first_only=first_only)
        return await self._jobs.run(tenant, job, "the request's patterns were searched for")
