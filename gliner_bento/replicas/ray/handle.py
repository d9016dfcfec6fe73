"""The gateway's side: all replicas of a Ray Serve deployment as one `Replica`.

Ray knows the replicas, and `TokenRouter` chooses among them. This module adds what Ray does not have: deadlines, one
repetition of a call whose replica was lost, aborts, and errors of the tree in place of Ray's.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar, cast

from ray.exceptions import ObjectLostError, RayActorError, RayTaskError, TaskCancelledError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle

from gliner_bento.errors import (
    Aborted,
    DeadlineExceeded,
    GLiNERBentoError,
    InternalError,
    NotReady,
    QueueFull,
)
from gliner_bento.replicas.base import Call, Outcome, Part, ReplicaStatus
from gliner_bento.replicas.merge import merged_statuses
from gliner_bento.replicas.messages import (
    ItemsMessage,
    OutcomesMessage,
    Reply,
    StreamMessage,
    decoder,
)
from gliner_bento.replicas.ray.adapters import RayAdapters
from gliner_bento.replicas.ray.routing import Placement
from gliner_bento.status_types import HealthState, ReplicaHealth
from gliner_bento.tasks.base import Item, Result
from gliner_bento.token_estimate import ITEM_TOKENS, TokenEstimate

logger = logging.getLogger(__name__)
T = TypeVar("T")

_GRACE_S = 0.5
"""How long a call may run past its deadline, so that the replica can report which items were late; also after an abort,
which a replica reports itself."""
_CONTROL_S = 5.0
_LOST = "the replica that ran this request was lost; send the request again"
_BROKEN_STREAM = "the replica that ran this stream was lost after the stream had begun; send the request again"


@dataclass(slots=True)
class _Known:
    """A replica that has answered. tokens_run: as of its last answer. requests: calls that it has answered."""

    tokens_run: int = 0
    requests: int = 0
    status: ReplicaStatus | None = None


class RayReplica:
    """Implements `Replica` over the deployment of `handle`. For one event loop.

    on_repeat: called with the number of items that are repeated.
    """

    def __init__(self, handle: DeploymentHandle, on_repeat: Callable[[int], None] = lambda items: None) -> None:
        # Over gRPC, without Ray's object store. Ray's default serializer is for code; all that is sent is plain.
        self._handle = handle = handle.options(_by_reference=False, request_serialization="pickle")
        self._streams = handle.options(stream=True)
        self._on_repeat = on_repeat
        self._gateway = uuid.uuid4().hex
        self._estimate = TokenEstimate()
        self._known: dict[str, _Known] = {}
        self._aborts: dict[str, set[asyncio.Future[None]]] = {}
        self.adapters = RayAdapters(self.call_all, self._install)
        self.tokens_run = 0

    async def extract(self, items: Sequence[Item], call: Call) -> Sequence[Outcome]:
        """See `Replica`. What a lost replica has not answered is repeated once, on another one."""
        with self._abortable(call.request_id) as aborted:
            outcomes = await self._attempt(items, call, aborted)
            lost = [place for place, outcome in enumerate(outcomes) if isinstance(outcome, NotReady)]
            if not lost:
                return outcomes
            self._on_repeat(len(lost))
            again = await self._attempt([items[place] for place in lost], call, aborted)
            replaced = dict(zip(lost, again, strict=True))
            return [replaced.get(place, outcome) for place, outcome in enumerate(outcomes)]

    async def stream(self, item: Item, call: Call) -> AsyncGenerator[Part, None]:
        """See `Replica`. A stream that has not begun is repeated like an extraction. Ray reads ahead of the client."""
        with self._abortable(call.request_id) as aborted:
            for repeated in (False, True):
                begun, requests = False, 1
                message = ItemsMessage.of([item], call)
                parts = self._streams.stream.remote(message, placement=self._placement([item]))
                try:
                    while True:
                        with ray_errors():
                            name, raw = await self._within(anext(parts), parts.cancel, call, aborted)
                        part, tokens_run = StreamMessage.read(raw)
                        self._count(name, tokens_run, requests)
                        if isinstance(part, GLiNERBentoError):
                            raise part
                        begun, requests = begun or bool(part), 0
                        yield part
                        if isinstance(part, Result):
                            return
                except NotReady as error:
                    if begun:
                        raise NotReady(_BROKEN_STREAM) from error
                    if repeated:
                        raise
                    self._on_repeat(1)
                finally:
                    parts.cancel()

    async def abort(self, request_id: str) -> bool:
        """See `Replica`. Reaches all replicas, and what waits here for one."""
        replies: dict[str, Any] = {}
        with suppress(NotReady):
            replies = await self.call_all(bool, "abort", {"request_id": request_id})
        waiting = self._aborts.get(request_id, set())
        for aborted in waiting:
            if not aborted.done():
                aborted.set_result(None)
        return bool(waiting) or any(reply is True for reply in replies.values())

    def fail(self) -> None:
        """Fail the calls that have not ended with `NotReady`."""
        for aborted in [one for calls in self._aborts.values() for one in calls if not one.done()]:
            aborted.set_exception(NotReady("the server ends; send the request again"))
            aborted.exception()  # a call that has just ended does not read it

    async def status(self) -> ReplicaStatus:
        """See `Replica`: ready if one is, their loads added up. Raises `NotReady` if none answers."""
        replies = await self.call_all(ReplicaStatus, "status", {})
        statuses = {name: status for name, status in replies.items() if isinstance(status, ReplicaStatus)}
        if not statuses:
            raise NotReady("no replica answers; try again")
        for name, status in statuses.items():
            self._known.setdefault(name, _Known()).status = status
        silent = len(replies) - len(statuses)
        for name in [name for name in self._known if name not in statuses and not silent]:
            del self._known[name]
        return self._merged(statuses)

    async def metrics(self) -> dict[str, bytes]:
        """The metrics of all replicas that answer, by name, in Prometheus' text format."""
        try:
            answers = await self.broadcast(_CONTROL_S, "metrics")
        except NotReady:
            return {}
        return {name: answer for name, answer in answers.items() if isinstance(answer, bytes)}

    async def call_all(self, kind: Any, method: str, arguments: dict[str, Any], timeout_s: float = _CONTROL_S) -> Any:
        """Call a method of `calls_of` on all replicas; their results or errors, by name."""
        decode = _reply_decoder(kind).decode
        answers = await self.broadcast(timeout_s, "call", method, arguments)
        return {
            name: answer if isinstance(answer, GLiNERBentoError) else decode(answer).outcome()
            for name, answer in answers.items()
        }

    async def broadcast(self, timeout_s: float, method: str, *arguments: Any) -> dict[str, bytes | GLiNERBentoError]:
        """Call a method of `HostedReplica` on all replicas; their answers or errors, by name."""
        try:
            response = self._handle.broadcast(method, *arguments)
            # Ray's results_async fails as a whole if one replica does not answer in time.
            results = await asyncio.wait_for(response._fetch_replica_results_async(), timeout_s)
        except (asyncio.TimeoutError, DeploymentUnavailableError) as unavailable:
            raise NotReady("no replica is ready; try again") from unavailable
        calls = [asyncio.wait_for(result.get_async(), timeout_s) for result in results]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        named: dict[str, bytes | GLiNERBentoError] = {}
        for number, answer in enumerate(answers):
            if isinstance(answer, BaseException):
                named[f"unknown-{number}"] = NotReady("the replica did not answer")
            else:
                named[answer[0]] = answer[1]
        return named

    async def _attempt(self, items: Sequence[Item], call: Call, aborted: asyncio.Future[None]) -> Sequence[Outcome]:
        """The outcomes on one replica; an error of the call is that of all items."""
        message = ItemsMessage.of(items, call)
        try:
            with ray_errors():
                response = self._handle.extract.remote(message, placement=self._placement(items))
                name, raw = await self._within(_result(response), response.cancel, call, aborted)
        except GLiNERBentoError as error:
            return [error] * len(items)
        outcomes, tokens_run = OutcomesMessage.read(raw)
        self._count(name, tokens_run, requests=1)
        for item, outcome in zip(items, outcomes, strict=True):
            if isinstance(outcome, Result):
                self._estimate.learn(item, outcome.usage.tokens)
        return outcomes

    async def _install(self, arguments: dict[str, Any], archive: bytes | None) -> bytes:
        with ray_errors():
            placement = Placement(self._gateway, 0)
            _, raw = await self._handle.install_adapter.remote(arguments, archive, placement=placement)
        return cast(bytes, raw)

    async def _within(
        self, answer: Awaitable[T], cancel: Callable[[], None], call: Call, aborted: asyncio.Future[None]
    ) -> T:
        """The answer, by the call's deadline and unless it is aborted; otherwise it is cancelled."""
        waiting: asyncio.Future[Any] = asyncio.ensure_future(answer)
        try:
            timeout_s = call.wait_s(time.monotonic()) + _GRACE_S
            await asyncio.wait([waiting, aborted], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if aborted.done():
                aborted.result()
                await asyncio.wait([waiting], timeout=_GRACE_S)
            if waiting.done():
                return cast(T, waiting.result())
            raise (
                Aborted("the request was aborted") if aborted.done() else DeadlineExceeded.before("a replica answered")
            )
        finally:
            if not waiting.done():
                cancel()
                waiting.cancel()

    @contextmanager
    def _abortable(self, request_id: str) -> Iterator[asyncio.Future[None]]:
        """A future that is done when the request is aborted."""
        aborted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._aborts.setdefault(request_id, set()).add(aborted)
        try:
            yield aborted
        finally:
            self._aborts[request_id].discard(aborted)
            if not self._aborts[request_id]:
                del self._aborts[request_id]

    def _placement(self, items: Sequence[Item]) -> Placement:
        tokens = math.ceil(sum(ITEM_TOKENS + self._estimate.estimate(item) for item in items))
        adapter_id = next((item.adapter_id for item in items if item.adapter_id is not None), None)
        return Placement(self._gateway, max(1, tokens), adapter_id)

    def _count(self, name: str, tokens_run: int, requests: int) -> None:
        """Add what a replica has run since its last answer; answers may overtake each other."""
        known = self._known.setdefault(name, _Known())
        self.tokens_run += max(0, tokens_run - known.tokens_run)
        known.tokens_run = max(known.tokens_run, tokens_run)
        known.requests += requests

    def _merged(self, statuses: dict[str, ReplicaStatus]) -> ReplicaStatus:
        models = [replace(status.model, device="") for status in statuses.values()]
        usual = max(models, key=models.count)

        def health(name: str, known: _Known) -> ReplicaHealth:
            status = statuses.get(name)
            state: HealthState = "ready"
            reason = None
            if status is None:
                state, reason = "suspect", "it does not answer"
            elif replace(status.model, device="") != usual:
                state, reason = "refused", "it serves another model than the others"
            elif not status.ready:
                state, reason = "not_ready", "it admits no requests"
            return ReplicaHealth(
                name=name,
                state=state,
                reason=reason,
                requests=known.requests,
                outstanding_tokens=status.waiting_tokens + status.running_tokens if status else 0,
                waiting_items=status.waiting_items if status else 0,
                running_items=status.running_items if status else 0,
                resident_adapters=status.resident_adapters if status else (),
            )

        serving = [status for status in statuses.values() if replace(status.model, device="") == usual]
        merged = merged_statuses(serving[0].model, serving)
        replicas = [health(name, known) for name, known in sorted(self._known.items()) if known.status]
        return replace(merged, replicas=replicas)


async def _result(response: Awaitable[T]) -> T:
    return await response


@contextmanager
def ray_errors() -> Iterator[None]:
    """Raise `NotReady` for a lost replica, `QueueFull` for a full queue, and `InternalError` for any other error."""
    try:
        yield
    except (GLiNERBentoError, asyncio.CancelledError):
        raise
    except (RayActorError, ObjectLostError, DeploymentUnavailableError) as lost:
        raise NotReady(_LOST) from lost
    except BackPressureError as full:
        raise QueueFull("too many requests wait for a replica; try again later") from full
    except TaskCancelledError as cancelled:
        raise NotReady(_LOST) from cancelled
    except Exception as fault:
        if isinstance(fault, RayTaskError) and isinstance(fault.cause, RayActorError):
            raise NotReady(_LOST) from fault
        logger.exception("a call to a replica failed")
        raise InternalError() from fault


@cache
def _reply_decoder(kind: Any) -> Any:
    return decoder(Reply[kind])
