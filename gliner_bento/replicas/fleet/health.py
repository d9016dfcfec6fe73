"""The health of replicas: which of them get work, and what happens to the work of a replica that does not answer.

    starting ─▶ ready ◀─▶ not_ready      as the replica's status says
                  │ ▲
                  ▼ │ a probe is answered
                suspect                  a probe was not answered in time

A probe is a call of `status`. Only a ready replica gets work. A call that was lost, as when its connection was reset,
is followed by a probe. A suspect replica gets probes only. When it does not answer one, its calls under way are
cancelled if another replica is ready, and the fleet repeats them there. If no replica is ready, requests wait within
their deadlines until one is. A replica whose status names another model than the fleet's is *refused*. Replicas may be
added and removed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import takewhile
from typing import Any, TypeVar

from gliner_bento.errors import GLiNERBentoError, NotReady
from gliner_bento.replicas.base import Replica, ReplicaStatus
from gliner_bento.replicas.ended import Endable, until_ended
from gliner_bento.replicas.fleet.dispatch import Dispatcher
from gliner_bento.status_types import HealthState, ModelInfo, ReplicaHealth

logger = logging.getLogger(__name__)
T = TypeVar("T")

PROBE_INTERVAL_S = 1.0
SUSPECT_PROBE_INTERVAL_S = 0.2
PROBE_TIMEOUT_S = 2.0
STARTING_PROBE_TIMEOUT_S = 0.1
CONFIRMING_PROBE_TIMEOUT_S = 0.5
"""For a probe after a lost call: short, so that the call is soon repeated elsewhere."""

NONE_READY = "no replica is ready; try again"
_LOST = "the replica that ran this request was lost; send the request again"
_MAY_DIFFER = ("device",)
"""Fields of `ModelInfo` in which replicas may differ."""


class Unanswering(NotReady):
    """The call was given up, because its replica did not answer a probe, or because the server ends."""


@dataclass(eq=False)
class Member:
    """A replica of the fleet. number: its number in the dispatcher. requests: number of calls that were sent to
    it. items: number of items of those that have not ended. tokens_run: as its last answer reported.

    reason: why it is not ready. status: its latest answer to a probe. calls: those under way on it, the oldest first:
    futures that are done when a call has ended, with the functions that end them.
    watcher: the task that probes it. probe_now: pending while the watcher waits; setting its result ends the wait.
    confirming: the probe after a lost call, while it runs.
    """

    name: str
    number: int
    replica: Replica
    state: HealthState = "starting"
    reason: str | None = None
    status: ReplicaStatus | None = None
    requests: int = 0
    items: int = 0
    tokens_run: int = 0
    calls: dict[asyncio.Future[Any], Callable[[], object]] = field(default_factory=dict)
    probe_now: asyncio.Future[None] | None = None
    watcher: asyncio.Task[None] | None = None
    confirming: asyncio.Task[None] | None = None

    async def run(self, call: Awaitable[T]) -> T:
        """The result of a call of this replica, see `Endable`; raises `Unanswering` if the replica is lost
        meanwhile."""
        ended = asyncio.get_running_loop().create_future()
        with Endable(partial(Unanswering, _LOST)) as endable:
            self.calls[ended] = endable.end
            try:
                return await call
            finally:
                self.calls.pop(ended, None)
                ended.set_result(None)

    async def run_step(self, step: Coroutine[Any, Any, T]) -> T:
        """As `run`, for a step of a stream."""
        call = asyncio.ensure_future(step)
        self.calls[call] = call.cancel
        try:
            await until_ended(call)
        finally:
            self.calls.pop(call, None)
        if call.cancelled():
            raise Unanswering(_LOST)
        return call.result()

    def cancel_calls(self) -> None:
        """End the calls under way on it with `Unanswering`."""
        for end in self.calls.values():
            end()

    def snapshot(self, outstanding_tokens: int) -> ReplicaHealth:
        """The replica's row in `/v1/replicas`."""
        status = self.status
        return ReplicaHealth(
            name=self.name,
            state=self.state,
            reason=self.reason,
            requests=self.requests,
            outstanding_tokens=outstanding_tokens,
            waiting_items=status.waiting_items if status else 0,
            running_items=status.running_items if status else 0,
            resident_adapters=status.resident_adapters if status else (),
        )


class HealthChecker:
    """Probes the members, and opens and closes them in the dispatcher.

    model: the fleet's model; None until a member has answered. members: by number. on_other_model: called with one line
    when a member is refused because its first answer names another model.
    """

    def __init__(
        self,
        members: dict[int, Member],
        dispatcher: Dispatcher,
        on_other_model: Callable[[str], None],
    ) -> None:
        self.model: ModelInfo | None = None
        self._members = members
        self._dispatcher = dispatcher
        self._on_other_model = on_other_model
        self._ending = False

    def start(self) -> None:
        """Probe from now on, in the running event loop. Idempotent."""
        latest_first = reversed(self._members.values())  # members without a watcher are the latest ones
        unwatched = list(takewhile(lambda member: member.watcher is None or member.watcher.done(), latest_first))
        for member in reversed(unwatched):
            member.watcher = asyncio.ensure_future(self._watch(member))

    async def stop(self) -> None:
        """Stop probing."""
        watchers = [member.watcher for member in self._members.values() if member.watcher]
        for watcher in watchers:
            watcher.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)

    def remove(self, member: Member) -> None:
        """A member has left the fleet. Its calls under way continue, unless it is suspect."""
        self._dispatcher.remove(member.number)
        if member.watcher:
            member.watcher.cancel()
        if member.state == "suspect":
            member.cancel_calls()
        self._refuse_if_hopeless()

    @property
    def ready(self) -> bool:
        """Whether at least one member gets work."""
        return self._dispatcher.open_replicas > 0

    @property
    def hopeless(self) -> bool:
        """Whether no member is ready, and none will be, because the server ends or no member admits requests."""
        if self.ready:
            return False
        if self._ending:
            return True
        states = {member.state for member in self._members.values()}
        return bool(states) and states <= {"not_ready", "refused"}

    def expect_no_restart(self) -> None:
        """The server ends: a lost member will not be started again."""
        self._ending = True
        self._refuse_if_hopeless()

    def fail(self) -> None:
        """The server ends now: end all calls, and all waiting tickets, with `NotReady`."""
        for member in self._members.values():
            self._dispatcher.close(member.number)
            member.cancel_calls()
        self.expect_no_restart()

    async def probe_all(self) -> None:
        """Probe all members that are `ready` or `not_ready` now. Until any member has answered, probe those that are
        `starting` instead, with a short timeout."""
        starting = self.model is None
        states = {"starting"} if starting else {"ready", "not_ready"}
        timeout_s = STARTING_PROBE_TIMEOUT_S if starting else PROBE_TIMEOUT_S
        members = self._members.values()
        await asyncio.gather(*(self.probe(member, timeout_s) for member in members if member.state in states))

    async def probe(self, member: Member, timeout_s: float = PROBE_TIMEOUT_S) -> None:
        """Ask a member for its status, and act on the answer."""
        call = asyncio.ensure_future(member.replica.status())
        try:
            await asyncio.wait([call], timeout=timeout_s)  # wait_for may lose a cancellation before Python 3.12
        finally:
            answered = call.done()
            call.cancel()
        if member.number not in self._members:
            return  # it was removed meanwhile
        if not answered:
            self._lose(member, f"it did not answer a probe within {timeout_s:g} s")
        elif isinstance(error := call.exception(), GLiNERBentoError):
            self._lose(member, error.message)
        else:
            self._answered(member, call.result())

    async def confirm(self, member: Member) -> None:
        """Probe a member now, unless it is suspect already; until it has answered, it gets no work. Concurrent calls
        share the probe. Called if a call has been lost, and if no member seems to be ready."""
        if member.confirming is None or member.confirming.done():
            if self._ending:  # a lost member is not started again, and nothing waits for it
                self._suspect(member, _LOST)
            if member.state not in ("ready", "not_ready"):
                return
            self._dispatcher.close(member.number)
            member.confirming = asyncio.ensure_future(self.probe(member, CONFIRMING_PROBE_TIMEOUT_S))
        await asyncio.wait([member.confirming])
        if not member.confirming.cancelled() and (error := member.confirming.exception()):
            raise error

    async def confirm_all(self) -> None:
        """Probe all members that are `ready` or `not_ready` now; see `confirm`."""
        await asyncio.gather(*map(self.confirm, [*self._members.values()]))

    def _suspect(self, member: Member, reason: str) -> None:
        """Give a member no more work until a probe succeeds."""
        if member.state in ("ready", "not_ready"):
            self._dispatcher.close(member.number)
            self._change(member, "suspect", reason)
            self._refuse_if_hopeless()
            if member.probe_now and not member.probe_now.done():
                member.probe_now.set_result(None)
        elif member.state == "suspect":
            member.reason = reason  # of the latest probe

    def _lose(self, member: Member, reason: str) -> None:
        self._suspect(member, reason)
        if self.ready:
            member.cancel_calls()

    def _answered(self, member: Member, status: ReplicaStatus) -> None:
        is_first = member.status is None
        member.status = status
        if difference := self._difference(member, status.model):
            self._dispatcher.close(member.number)
            if member.state != "refused":
                self._change(member, "refused", difference)
                if is_first:
                    self._on_other_model(f"replica {member.name} serves another model than the others: {difference}")
        elif status.ready:
            self._change(member, "ready", None)
            self._dispatcher.open(member.number)
        else:
            self._dispatcher.close(member.number)
            self._change(member, "not_ready", "it admits no requests")
        self._dispatcher.set_resident(member.number, status.resident_adapters)
        self._refuse_if_hopeless()

    def _refuse_if_hopeless(self) -> None:
        if self.hopeless:
            self._dispatcher.refuse_waiting(NotReady(NONE_READY))

    def _difference(self, member: Member, model: ModelInfo) -> str | None:
        """How a member's model differs from the fleet's; None if it does not. The fleet's model is that of the first
        member that answers, or that of this member if all others that have answered are refused."""
        answered = (other for other in self._members.values() if other is not member and other.status)
        if self.model is None or all(other.state == "refused" for other in answered):
            self.model = model
        if model == self.model:
            return None
        ours, theirs = asdict(self.model), asdict(model)
        differing = [name for name in ours if ours[name] != theirs[name] and name not in _MAY_DIFFER]
        return "; ".join(f"{name} is {theirs[name]!r}, not {ours[name]!r}" for name in differing) or None

    def _change(self, member: Member, state: HealthState, reason: str | None) -> None:
        if member.state != state:
            level = logging.INFO if state in ("ready", "not_ready") else logging.WARNING
            logger.log(level, "replica %s is %s%s", member.name, state, f": {reason}" if reason else "")
        member.state, member.reason = state, reason

    async def _watch(self, member: Member) -> None:
        count = len(self._members)
        fraction = (member.number % count + 1) / count  # shortens the first interval, to spread probes over time
        while True:
            try:
                await self.probe(member)
            except Exception:
                logger.exception("probing replica %s failed", member.name)
            interval_s = PROBE_INTERVAL_S if member.state in ("ready", "refused") else SUSPECT_PROBE_INTERVAL_S
            member.probe_now = asyncio.get_running_loop().create_future()
            await asyncio.wait([member.probe_now], timeout=interval_s * fraction)
            fraction = 1.0
