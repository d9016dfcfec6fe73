"""Several replicas of one model as one `Replica`: distributes work, repeats work of lost replicas, merges statuses."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from gliner_bento.commands import AdapterCommand
from gliner_bento.errors import (
    Aborted,
    DeadlineExceeded,
    EndsProcess,
    GLiNERBentoError,
    ModelNotLoaded,
    NotReady,
    QueueFull,
)
from gliner_bento.fairness.capacity import SharedCapacity
from gliner_bento.fairness.constants import ITEM_TOKENS
from gliner_bento.fairness.token_estimate import TokenEstimate
from gliner_bento.replicas.base import Archive, Call, Outcome, Replica, ReplicaStatus, StreamStep
from gliner_bento.replicas.fleet.adapters import FleetAdapters
from gliner_bento.replicas.fleet.dispatch import Dispatcher, Ticket
from gliner_bento.replicas.fleet.health import NONE_READY, HealthChecker, Member, Unanswering
from gliner_bento.replicas.fleet.merge import merged_statuses
from gliner_bento.tasks.base import Item, Result

T = TypeVar("T")
logger = logging.getLogger(__name__)

PIECE_TOKENS = 2048
"""Minimum size of the pieces into which a request is divided among the ready replicas."""

_ABORT_INTERVAL_S = 0.05
_ABORT_TIMEOUT_S = 5.0
_OTHERS_INTERVAL_S = 0.05
_OTHERS_TIMEOUT_S = 5.0
_OTHERS_JITTER_S = 0.1

_ABORTED = "the request was aborted"
_BROKEN_STREAM = "the replica that ran this stream was lost after the stream had begun; send the request again"


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """Settings, see docs/settings.md. queue_capacity: here the limit on items that wait for a replica.
    several_gateways: whether others may send to the replicas, too."""

    max_outstanding_tokens: int
    queue_capacity: int
    several_gateways: bool = False


@dataclass(slots=True, eq=False)
class _Request:
    """A client's request while it runs. unanswered: the tickets of its calls of which no replica has answered a
    part yet. waiting: its tickets that have no replica yet."""

    call: Call
    aborted: bool = False
    unanswered: set[Ticket] = field(default_factory=set)
    waiting: set[Ticket] = field(default_factory=set)


class _ProcessLost(NotReady):
    """The replica's process ended while it ran a call. beside_others: it may have run other calls meanwhile."""

    def __init__(self, message: str, *, beside_others: bool) -> None:
        super().__init__(message)
        self.beside_others = beside_others


class Fleet:
    """Implements `Replica` over `replicas` of one model, by name; see `add` and `remove`. For one event loop.

    on_other_model: called with one line when a replica is refused because it serves another model. on_repeat: called
    with the number of items that are repeated. clock: of the calls' deadlines. dispatcher: makes a `Dispatcher`.
    """

    def __init__(
        self,
        replicas: Mapping[str, Replica],
        options: FleetOptions,
        *,
        on_other_model: Callable[[str], None] = logger.error,
        on_repeat: Callable[[int], None] = lambda items: None,
        clock: Callable[[], float] = time.monotonic,
        dispatcher: Callable[[int, int], Dispatcher] = Dispatcher,
    ) -> None:
        self.tokens_run = 0
        self._members = {
            number: Member(name, number, replica) for number, (name, replica) in enumerate(replicas.items())
        }
        self._dispatcher = dispatcher(len(replicas), options.max_outstanding_tokens)
        self._health = HealthChecker(self._members, self._dispatcher, on_other_model)
        self._adapters = FleetAdapters(self._members, self._health)
        self._several_gateways = options.several_gateways
        self._on_repeat = on_repeat
        self._clock = clock
        self._estimate = TokenEstimate()
        self._requests: dict[str, set[_Request]] = {}
        self._waiting_items = SharedCapacity(options.queue_capacity)

    @property
    def replicas(self) -> Mapping[str, Replica]:
        """The replicas of the fleet now, by name."""
        return {member.name: member.replica for member in self._members.values()}

    def add(self, name: str, replica: Replica) -> None:
        """Add a replica, in the running event loop; it gets work once it has answered."""
        number = self._dispatcher.add()
        self._members[number] = Member(name, number, replica)
        self._health.start()

    def remove(self, name: str) -> None:
        """Remove a replica: it gets no more work. Running calls continue, or are repeated elsewhere if it is lost."""
        number = next(number for number, member in self._members.items() if member.name == name)
        self._health.remove(self._members.pop(number))

    def start(self) -> None:
        """Start probing the replicas, in the running event loop. Optional: the first call does it, too."""
        self._health.start()

    def expect_no_restart(self) -> None:
        """The server ends: requests no longer wait for a replica that is lost. May be called in a signal handler."""
        asyncio.get_running_loop().call_soon_threadsafe(self._health.expect_no_restart)

    def fail(self) -> None:
        """The server ends now: fail all unfinished calls with `NotReady`."""
        self._health.fail()

    async def close(self) -> None:
        """The model has been deleted, or the server has ended: stop probing, and fail calls that wait for a replica.
        Does not close the replicas."""
        self._dispatcher.refuse_waiting(ModelNotLoaded("the model is not served any more"))
        await self._health.stop()

    async def extract(self, items: Sequence[Item], call: Call) -> Sequence[Outcome]:
        """See `Replica`. Items that a lost replica has not answered are repeated; see `_repeated`."""
        with self._request(call) as request:
            outcomes = await self._extract_pieces(request, self._pieces(items))
            if request.aborted and not any(isinstance(outcome, Aborted) for outcome in outcomes):
                return [Aborted(_ABORTED)] * len(items)  # the results were on their way when `abort` returned True
            return outcomes

    async def stream(self, item: Item, call: Call) -> AsyncGenerator[StreamStep, None]:
        """See `Replica`. If the replica is lost, a stream is repeated as in `extract`, or raises `NotReady` if it has
        begun."""
        result: Result | None = None
        with self._request(call) as request:
            _, cost = self._pieces([item])[0]
            losses: list[NotReady] = []
            while True:
                ticket = await self._assigned(request, [item], cost, losses)
                with self._counted(request, [item], ticket) as member:
                    await self._until_alone(request, ticket, member)
                    begun = False
                    try:
                        async with _NoticingLoss(self._health, member, [item]):
                            async with aclosing(member.replica.stream(item, call)) as steps:
                                while (step := await member.run_step(anext(steps, None))) is not None:
                                    request.unanswered.discard(ticket)
                                    if request.aborted:
                                        raise Aborted(_ABORTED)
                                    if step and not begun:  # an empty step only reports progress
                                        begun = True  # so it is not repeated, and harms others only as any other does
                                        self._dispatcher.share(ticket)
                                    self._count_tokens(member)
                                    if isinstance(step, Result):
                                        self._estimate.learn(item, step.usage.tokens)
                                        result = step
                                        break
                                    yield step
                            break
                    except NotReady as error:
                        if begun:
                            raise NotReady(_BROKEN_STREAM) from error
                        losses.append(error)
                if (final := self._final_error(losses)) is not None:
                    raise final
        if result is not None:  # it is sent whatever `abort` says from now on, so `abort` no longer finds the request
            yield result

    async def abort(self, request_id: str) -> bool:
        """See `Replica`. Aborts on all replicas that are `ready` or `not_ready`, and items that wait for a replica.

        An abort may reach a replica before the request's own call, so it is repeated until each of the request's calls
        has an answer, if only a part of a stream, for at most `_ABORT_TIMEOUT_S`."""
        requests = list(self._requests.get(request_id, ()))
        for request in requests:
            request.aborted = True
            for ticket in request.waiting:
                ticket.notify()
        latest_s = self._clock() + _ABORT_TIMEOUT_S
        aborted = await self._abort_everywhere(request_id)
        while any(request.unanswered for request in requests) and self._clock() < latest_s:
            await asyncio.sleep(_ABORT_INTERVAL_S)
            await self._abort_everywhere(request_id)
        return bool(requests) or aborted

    async def status(self) -> ReplicaStatus:
        """See `Replica`. Ready if a replica is ready; loads are added up. Raises `NotReady` until one has answered."""
        self._health.start()
        await self._health.probe_all()
        if self._health.model is None:
            raise NotReady("no replica has answered yet; try again")
        statuses = [member.status for member in self._members.values() if member.status and member.state == "ready"]
        merged = merged_statuses(self._health.model, statuses)
        return replace(
            merged,
            ready=self._health.ready,
            waiting_items=self._waiting_items.total + merged.waiting_items,
            waiting_tokens=self._dispatcher.waiting_tokens + merged.waiting_tokens,
            unfinished_items=self._waiting_items.total + merged.unfinished_items,
            replicas=[one.snapshot(self._dispatcher.outstanding[one.number]) for one in self._members.values()],
        )

    async def apply(self, command: AdapterCommand[T], archive: Archive | None = None) -> T:
        """See `Replica` and `FleetAdapters`."""
        return await self._adapters.apply(command, archive)

    @contextmanager
    def _request(self, call: Call) -> Iterator[_Request]:
        """A request that `abort` finds until the context ends."""
        self._health.start()
        request = _Request(call)
        self._requests.setdefault(call.request_id, set()).add(request)
        try:
            yield request
        finally:
            requests = self._requests[call.request_id]
            requests.discard(request)
            if not requests:
                del self._requests[call.request_id]

    def _pieces(self, items: Sequence[Item]) -> list[tuple[Sequence[Item], int]]:
        """The items divided into pieces for different replicas, each with its cost in tokens."""
        tokens = [self._estimate.estimate(item) for item in items]
        count = max(1, min(self._dispatcher.open_replicas, len(items), int(sum(tokens) // PIECE_TOKENS)))
        costs = [ITEM_TOKENS + item_tokens for item_tokens in tokens]
        total = sum(costs)
        pieces, begin, cost = [], 0, 0.0
        for end, item_cost in enumerate(costs, 1):
            cost += item_cost
            if cost >= total / count or end == len(items):
                pieces.append((items[begin:end], math.ceil(cost)))
                begin, cost = end, 0.0
        return pieces or [(items, 0)]

    async def _extract_pieces(
        self, request: _Request, pieces: Sequence[tuple[Sequence[Item], int]]
    ) -> Sequence[Outcome]:
        if len(pieces) == 1:
            return await self._extract(request, *pieces[0])
        tasks = [asyncio.ensure_future(self._extract(request, *piece)) for piece in pieces]
        try:
            return [outcome for outcomes in await asyncio.gather(*tasks) for outcome in outcomes]
        finally:
            for task in tasks:
                task.cancel()

    async def _extract(self, request: _Request, items: Sequence[Item], cost: int) -> Sequence[Outcome]:
        outcomes = await self._attempt(request, items, cost)
        lost = [index for index, outcome in enumerate(outcomes) if isinstance(outcome, NotReady)]
        if not lost:
            return outcomes
        self._on_repeat(len(lost))
        lost_items = [items[index] for index in lost]
        first = outcomes[lost[0]]
        assert isinstance(first, NotReady)
        new_outcomes = await self._repeated(request, lost_items, cost * len(lost) // len(items), first)
        new_by_index = dict(zip(lost, new_outcomes, strict=True))
        return [new_by_index.get(index, outcome) for index, outcome in enumerate(outcomes)]

    async def _repeated(
        self, request: _Request, items: Sequence[Item], cost: int, error: NotReady
    ) -> Sequence[Outcome]:
        """The outcomes of items whose first attempt ended with `error`. They are repeated once; and once more, each
        alone on a replica, if their process ended again and another item may be the cause."""
        outcomes = await self._attempt(request, items, cost, [error])
        if not isinstance(outcomes[0], _ProcessLost):
            return outcomes
        losses = [error, outcomes[0]]
        if (final := self._final_error(losses, len(items))) is not None:
            return [final] * len(items)
        return [await self._attempt_alone(request, item, cost // len(items), losses) for item in items]

    async def _attempt_alone(self, request: _Request, item: Item, cost: int, losses: Sequence[NotReady]) -> Outcome:
        (outcome,) = await self._attempt(request, [item], cost, losses)
        if isinstance(outcome, _ProcessLost):
            return self._final_error([*losses, outcome]) or outcome
        return outcome

    def _final_error(self, losses: Sequence[NotReady], items: int = 1) -> GLiNERBentoError | None:
        """The error of items whose attempts ended with `losses`; None: they are repeated."""
        if len(losses) < 2:
            return None
        last = losses[-1]
        if not isinstance(last, _ProcessLost) or not all(isinstance(loss, _ProcessLost) for loss in losses):
            return NotReady(last.message)
        if len(losses) == 2 and (items > 1 or last.beside_others or self._several_gateways):
            return None
        return NotReady(last.message) if last.beside_others else EndsProcess()

    async def _attempt(
        self, request: _Request, items: Sequence[Item], cost: int, losses: Sequence[NotReady] = ()
    ) -> Sequence[Outcome]:
        """The outcomes of the items on one replica: `_ProcessLost` for all if its process ended. If any is
        `NotReady`, the replica is probed. losses: the errors of earlier attempts."""
        try:
            ticket = await self._assigned(request, items, cost, losses)
            with self._counted(request, items, ticket) as member:
                await self._until_alone(request, ticket, member)
                async with _NoticingLoss(self._health, member, items):
                    outcomes = await member.run(member.replica.extract(items, request.call))
                self._count_tokens(member)
                for item, outcome in zip(items, outcomes, strict=True):
                    if not isinstance(outcome, GLiNERBentoError):
                        self._estimate.learn(item, outcome.usage.tokens)
                if any(isinstance(outcome, NotReady) for outcome in outcomes):
                    await self._health.confirm(member)
                return outcomes
        except GLiNERBentoError as error:
            return [error] * len(items)

    async def _assigned(
        self, request: _Request, items: Sequence[Item], cost: int, losses: Sequence[NotReady]
    ) -> Ticket:
        """A ticket with the replica that is to run items of a request, whose earlier attempts ended with `losses`.
        Items that have lost two processes have the replica to themselves.

        Raises `Aborted`, `DeadlineExceeded`, `NotReady` (no replica will be ready) or `QueueFull` (too many items
        wait)."""
        if request.aborted:
            raise Aborted(_ABORTED)
        adapter_id = next((item.adapter_id for item in items if item.adapter_id is not None), None)
        call = request.call
        ticket = Ticket(max(1, cost), adapter_id, call.share, call.priority, alone=len(losses) > 1)
        if not self._dispatcher.submit(ticket, first=bool(losses)):
            await self._wait(request, ticket, len(items))
        return ticket

    @contextmanager
    def _counted(self, request: _Request, items: Sequence[Item], ticket: Ticket) -> Iterator[Member]:
        """The replica of a ticket. The items count as its load until the context ends."""
        assert ticket.replica is not None
        member = self._members[ticket.replica]
        member.requests += 1
        member.items += len(items)
        request.unanswered.add(ticket)
        try:
            yield member
        finally:
            request.unanswered.discard(ticket)
            member.items -= len(items)
            self._dispatcher.end(ticket)

    async def _until_alone(self, request: _Request, ticket: Ticket, member: Member) -> None:
        """If a ticket is to be alone, wait until its member runs nothing else: calls of this gateway, which sends it
        no more, and, for at most `_OTHERS_TIMEOUT_S`, the items of other gateways."""
        if not ticket.alone:
            return
        if member.calls:
            await asyncio.wait([*member.calls], timeout=request.call.wait_s(self._clock()))
        latest_s = min(request.call.deadline_s, self._clock() + _OTHERS_TIMEOUT_S)
        await asyncio.sleep(random.random() * _OTHERS_JITTER_S)  # gateways notice a restart at the same moment
        await self._health.probe(member)
        while member.status and member.status.unfinished_items and self._clock() < latest_s and not request.aborted:
            await asyncio.sleep(_OTHERS_INTERVAL_S)
            await self._health.probe(member)
        if request.aborted:
            raise Aborted(_ABORTED)

    def _count_tokens(self, member: Member) -> None:
        """Add the tokens that the member has run since its last answer. A restarted process counts from 0."""
        tokens_run = member.replica.tokens_run
        self.tokens_run += max(0, tokens_run - member.tokens_run)
        member.tokens_run = tokens_run

    async def _wait(self, request: _Request, ticket: Ticket, items: int) -> None:
        """Wait until the ticket has a replica. Raises an error if it gets none."""
        notified = asyncio.get_running_loop().create_future()
        ticket.notify = lambda: None if notified.done() else notified.set_result(None)
        request.waiting.add(ticket)
        is_full = self._waiting_items.excess(ticket.share.tenant, items) > 0
        self._waiting_items.hold(ticket.share.tenant, items)
        assigned = False
        try:
            if self._health.hopeless:
                await self._health.confirm_all()  # a model may just have been loaded
            if self._health.hopeless:
                raise NotReady(NONE_READY)
            if is_full:
                raise QueueFull(f"{self._waiting_items.capacity} items wait for a replica already; try again later")
            await asyncio.wait([notified], timeout=request.call.wait_s(self._clock()))
            if request.aborted:
                raise Aborted(_ABORTED)
            if ticket.error is not None:
                raise ticket.error
            if ticket.replica is None:
                raise DeadlineExceeded.before("a replica was free")
            assigned = True
        finally:
            request.waiting.discard(ticket)
            self._waiting_items.hold(ticket.share.tenant, -items)
            if not assigned:
                self._dispatcher.end(ticket)

    async def _abort_everywhere(self, request_id: str) -> bool:
        """Abort a request on all replicas that are `ready` or `not_ready`. Returns whether any had an item of it."""
        members = [member for member in self._members.values() if member.state in ("ready", "not_ready")]
        return any(await asyncio.gather(*(self._abort(member, request_id) for member in members)))

    @staticmethod
    async def _abort(member: Member, request_id: str) -> bool:
        try:
            return await member.replica.abort(request_id)
        except GLiNERBentoError:
            return False


class _NoticingLoss:
    """A context around a call of these items, which probes the member if the call raises `NotReady`. Raises
    `_ProcessLost` if its process ended during the call: not if only a connection was closed or the call was given up,
    nor if the server ends."""

    def __init__(self, health: HealthChecker, member: Member, items: Sequence[Item]) -> None:
        self._health, self._member, self._items = health, member, items
        self._alive, self._requests = member.state == "ready", member.requests
        self._beside_others = _has_others(member, items)

    async def __aenter__(self) -> None:
        """Nothing to wait for."""

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        if not isinstance(error, NotReady):
            return
        member, others = self._member, self._beside_others
        others = others or member.requests > self._requests or _has_others(member, self._items)
        await self._health.confirm(member)
        broken = self._alive and not isinstance(error, Unanswering)
        if broken and member.state == "suspect" and not self._health.hopeless:
            raise _ProcessLost(error.message, beside_others=others) from error


def _has_others(member: Member, items: Sequence[Item]) -> bool:
    """Whether a member that runs these items has others, too, also of other gateways as of its last probe."""
    unfinished = member.status.unfinished_items if member.status else 0
    return max(member.items, unfinished) > len(items)
