"""Jobs for a helper process, one at a time: fairly among tenants, who are charged for the time of their jobs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import cached_property
from typing import TypeVar

from gliner_bento.errors import DeadlineExceeded, NotReady
from gliner_bento.fairness.pool import FairPool
from gliner_bento.fairness.queue import TenantShare
from gliner_bento.gateway.policy.tenants import Tenant

T = TypeVar("T")


class FairJobs:
    """Runs jobs in a thread, which waits for the process. The first job starts it.

    timeout_s: for a job, with the time that it waits. charged_s: time of a job that costs its tenant as much as one
    more job.
    """

    def __init__(self, name: str, *, timeout_s: float, charged_s: float) -> None:
        self._name = name
        self._timeout_s = timeout_s
        self._charged_s = charged_s

    @cached_property
    def _pool(self) -> FairPool:
        return FairPool(1, self._name)

    def close(self) -> None:
        """End the thread, after the last job."""
        if "_pool" in vars(self):
            self._pool.shutdown()

    async def run(self, tenant: Tenant, job: Callable[[], T], event: str) -> T:
        """The result of a job. event: its end, for the message of `DeadlineExceeded`. A job whose caller has gone, or
        that is late, is dropped if it has not begun. Raises what it raises, and `NotReady` if the process cannot be
        started."""
        result, waiting = Future[T](), [job]
        del job

        def run() -> None:
            if not result.set_running_or_notify_cancel():
                return
            started_s = time.monotonic()
            try:
                result.set_result(waiting.pop()())
            except Exception as error:
                result.set_exception(error)
            self._pool.charge(tenant.name, (time.monotonic() - started_s) / self._charged_s)

        self._pool.submit(TenantShare(tenant.name, tenant.weight), run)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(result), self._timeout_s)
        except asyncio.TimeoutError:
            raise DeadlineExceeded.before(event) from None
        except OSError:
            raise NotReady(f"the process for {self._name} cannot be started") from None
        finally:
            waiting.clear()  # what a dropped job holds does not wait for its turn in the pool
