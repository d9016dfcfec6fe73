"""Jobs for a helper process, one at a time: fairly among tenants, who are charged for the time of their jobs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import cached_property
from traceback import clear_frames
from typing import Any, TypeVar

from gliner_bento.errors import DeadlineExceeded, NotReady
from gliner_bento.fairness.pool import FairPool
from gliner_bento.fairness.queue import TenantShare
from gliner_bento.gateway.policy.tenants import Tenant
from gliner_bento.helper_process import HelperProcess

T = TypeVar("T")


class FairJobs:
    """Runs jobs in a thread, which waits for the process. The first job starts it. A job whose caller leaves ends: the
    process is killed.

    process: what the jobs use, and nobody else. timeout_s: for a job, with the time that it waits. charged_s: time of a
    job that costs its tenant as much as one more job.
    """

    def __init__(self, name: str, process: HelperProcess, *, timeout_s: float, charged_s: float) -> None:
        self._name = name
        self._process = process
        self._guard = threading.Lock()  # of the fields below, and of killing the process
        self._running: Future[Any] | None = None
        self._closed = False
        self._timeout_s = timeout_s
        self._charged_s = charged_s

    @cached_property
    def _pool(self) -> FairPool:
        return FairPool(1, self._name)

    def close(self) -> None:
        """End the process, the job that runs, and the thread. Jobs that wait are dropped."""
        with self._guard:
            self._closed = True
            if self._running is None:
                self._process.close()
            else:
                self._process.kill()  # the thread, which uses it now, closes it
        if "_pool" in vars(self):
            self._pool.shutdown()

    async def run(self, tenant: Tenant, job: Callable[[], T], event: str) -> T:
        """The result of a job. event: its end, for the message of `DeadlineExceeded`. A job whose caller has gone, or
        that is late, is dropped, or ended if it has begun. Raises what it raises, and `NotReady` if the process cannot
        be started."""
        if self._closed:
            raise NotReady(f"the process for {self._name} has ended")
        result, waiting = Future[T](), [job]
        del job

        def run() -> None:
            if not self._begin(result):
                return
            started_s = time.monotonic()
            try:
                result.set_result(waiting.pop()())
            except Exception as error:
                clear_frames(error.__traceback__)  # they hold the job
                result.set_exception(error)
            finally:
                self._end()
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
            self._leave(result)

    def _begin(self, job: Future[Any]) -> bool:
        """Whether a job is to run."""
        with self._guard:
            if self._closed or not job.set_running_or_notify_cancel():
                return False
            self._running = job
            return True

    def _leave(self, job: Future[Any]) -> None:
        """End a job, if it runs: its caller has left."""
        with self._guard:
            if self._running is job and not job.done():
                self._process.kill()

    def _end(self) -> None:
        with self._guard:
            self._running = None
            if self._process.killed:  # maybe only after its last answer: the next job needs another one
                self._process.reset()
