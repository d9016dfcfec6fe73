"""The waiting queue: who is admitted, in which order items are served, and which have not finished yet.

Locking, for the whole scheduler: `WaitingQueue.lock` guards the queue, its entries, and the state of the dispatcher and
of chunked requests. A method that needs it held says so. No code of other packages runs while it is held (an engine's
steps, a sink's `put`, an observer, a future's callbacks, the release of an adapter), except getters: `batch_tokens`,
`slot_state`, `exhausted`, `full`. It may be taken while a chunked item's own lock is held, never the other way round.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from gliner_bento.engine.base import Prepared, SlotState
from gliner_bento.errors import DeadlineExceeded, NotReady, QueueFull, TooLarge
from gliner_bento.scheduler.batching import NO_ADAPTERS, BatchLimits, form_batch, is_full
from gliner_bento.scheduler.entry import (
    CHUNKED,
    FINISHED,
    LOADING_ADAPTER,
    PREPARING,
    RUNNING,
    WAITING,
    Entry,
    State,
    Stream,
)
from gliner_bento.scheduler.reservation import BatchShare, ItemArrival, Reservation, admitted
from gliner_bento.scheduler.tenant_queues import (
    ITEMS_PER_TURN,
    NO_TENANT,
    PLACES_OF_PASS,
    TenantQueues,
    TenantShare,
    places_of,
)
from gliner_bento.tasks.base import Item

_NEXT_STATES = {
    PREPARING: (WAITING, LOADING_ADAPTER, CHUNKED, FINISHED),
    LOADING_ADAPTER: (WAITING, CHUNKED, FINISHED),
    WAITING: (RUNNING, FINISHED),
    RUNNING: (FINISHED,),
    CHUNKED: (FINISHED,),
    FINISHED: (),
}


@dataclass(slots=True)
class Tally:
    """Entries in one state. small: those of small requests. cost: of all of them, in tokens."""

    items: int = 0
    passes: int = 0
    small: int = 0
    cost: int = 0

    @property
    def entries(self) -> int:
        """Items and passes."""
        return self.items + self.passes

    def add(self, entry: Entry, sign: int = 1) -> None:
        """Count `entry`; sign -1: no longer."""
        if entry.parent is None:
            self.items += sign
        else:
            self.passes += sign
        self.small += sign * (not entry.is_bulk)
        self.cost += sign * entry.cost


@dataclass(frozen=True, slots=True)
class NextBatch:
    """The batch that would run next: waiting entries. ahead: the entries before the last of them, in the order of
    service. full: no later entry could join."""

    entries: list[Entry]
    ahead: list[Entry]
    full: bool


class WaitingQueue:
    """Admitted items that have not finished, and the order in which those that wait are served.

    Every method and property needs `lock` held; none takes it. `capacity` limits the items that are in no batch yet:
    in preparation, waiting or chunked. When it is reached, a tenant that holds less than an equal share of it is still
    admitted, up to twice the capacity. `packs`: see `Engine`.

    last_small: the latest item of a small request that started to wait.
    tokens_run: of all entries that have finished after they were in a batch.
    """

    def __init__(self, capacity: int, clock: Callable[[], float], *, packs: bool) -> None:
        self.lock = threading.Lock()
        self.last_small: ItemArrival | None = None
        self._last_item: ItemArrival | None = None  # of one pass
        self._last_of_others: ItemArrival | None = None  # than the tenant of `_last_item`
        self._capacity = capacity
        self._packs = packs
        self._clock = clock
        self._closed: str | None = "the server is starting"
        self._sequences = 0
        self._entries: dict[int, Entry] = {}
        self._requests: dict[str, dict[int, Entry]] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._tenants = TenantQueues()
        self.tokens_run = 0
        self._tallies = [Tally() for _ in State]

    # Counters, all derived from the tallies

    def tally(self, state: State) -> Tally:
        """Entries in `state` now; of FINISHED, all so far."""
        return self._tallies[state]

    @property
    def unfinished_items(self) -> int:
        """Admitted and not finished; a chunked item counts once, and its passes do not."""
        return sum(self._tallies[state].items for state in State if state is not FINISHED)

    @property
    def preparing_items(self) -> int:
        """Items that are tokenized, or wait for their adapter."""
        return self._tallies[PREPARING].items + self._tallies[LOADING_ADAPTER].items

    @property
    def waiting_entries(self) -> int:
        """Items and passes that are in no batch yet."""
        return self._tallies[WAITING].entries

    @property
    def waiting_cost(self) -> int:
        """Their cost, in tokens."""
        return self._tallies[WAITING].cost

    def waits(self, reservation: Reservation) -> bool:
        """Whether an entry waits that `reservation` admits."""
        if reservation.small and not self._tallies[WAITING].small:
            return False
        if reservation.beside is not None and self._tenants.only_waits(reservation.beside):
            return False
        return any(map(reservation.admits, self._tenants.in_order()))

    def last_item_beside(self, tenant: str) -> ItemArrival | None:
        """The latest item of one pass of another tenant that started to wait."""
        return self._last_item if self._last_item and self._last_item.tenant != tenant else self._last_of_others

    def batch_share(self, tokens: int, since_s: float) -> BatchShare | None:
        """What each tenant may have of a batch, if that is limited by what others have sent since then."""
        senders = {last.tenant for last in (self._last_item, self._last_of_others) if last and last.at_s > since_s}
        small = self.last_small is not None and self.last_small.at_s > since_s
        alone = len(senders) == 1 and self._tenants.only_waits(*senders)
        return BatchShare(tokens, senders, small) if small or (senders and not alone) else None

    @property
    def _queued_items(self) -> int:
        """Items that count towards `capacity`."""
        return self.preparing_items + self._tallies[WAITING].items + self._tallies[CHUNKED].items

    # Admission

    @property
    def admitting(self) -> bool:
        """Whether the queue is open; it may be full."""
        return self._closed is None

    def open(self) -> None:
        """Admit items from now on."""
        self._closed = None

    def close(self, reason: str) -> None:
        """Refuse all items from now on, with `reason` as the message."""
        self._closed = reason

    def admit(
        self,
        items: Sequence[Item],
        request_id: str,
        deadline_s: float | None = None,
        priority: int = 0,
        stream: Stream | None = None,
        share: TenantShare = NO_TENANT,
    ) -> list[Entry]:
        """Admit all of `items` or none.

        share: of the tenant whose request it is.
        Raises `NotReady`, `DeadlineExceeded` (it has passed), `TooLarge` (more than the capacity) or `QueueFull`.
        """
        now = self._clock()
        if self._closed is not None:
            raise NotReady(self._closed)
        if deadline_s is not None and deadline_s <= now:
            raise DeadlineExceeded.before("the request was admitted")
        if len(items) > self._capacity:
            raise TooLarge(f"{len(items)} items are more than the waiting queue holds ({self._capacity})")
        if not self._has_room(share.tenant, len(items)):
            raise QueueFull(f"the waiting queue is full ({self._capacity} items); try again later")
        entries: list[Entry] = []
        if not items:
            return entries
        tenant = self._tenants.of(share)
        places = places_of(items)
        is_bulk = sum(places) > ITEMS_PER_TURN or priority > 0
        for item, turn, counted in zip(items, tenant.next_turns(places), places, strict=True):
            self._sequences += 1
            order = priority, turn, self._sequences
            entry = Entry(item, request_id, tenant, self._sequences, order, now, deadline_s, stream, is_bulk=is_bulk)
            entry.places = counted
            self._register(entry)
            entries.append(entry)
        return entries

    def _has_room(self, tenant: str, items: int) -> bool:
        queued = self._queued_items + items
        if queued <= self._capacity:
            return True
        held = self._tenants.items_of(tenant)
        holders = self._tenants.holders + (not held)
        return queued <= 2 * self._capacity and (held + items) * holders <= self._capacity

    # States

    def load_adapter(self, entry: Entry, prepared: Prepared) -> None:
        """`entry` has been prepared and its adapter is not in memory yet. No effect on a finished one."""
        if not entry.finished:
            self._move(entry, LOADING_ADAPTER, prepared)

    def put(self, entry: Entry, prepared: Prepared) -> None:
        """`entry` starts to wait or, if it is chunked, its passes will. No effect on a finished one."""
        if entry.finished:
            return
        if prepared.chunked is not None:
            self._move(entry, CHUNKED, prepared)
        else:
            if self._last_item and self._last_item.tenant != entry.tenant.name:
                self._last_of_others = self._last_item
            self._last_item = ItemArrival(self._clock(), entry.tenant.name, entry.priority)
            if not entry.is_bulk:
                self.last_small = self._last_item
            self._wait(entry, prepared)

    def put_pass(self, parent: Entry, prepared: Prepared) -> Entry:
        """Add a waiting pass of `parent`, which is chunked, behind those that wait."""
        self._sequences += 1
        tenant = parent.tenant
        before = tenant.requests[parent.request_id]
        (turn,) = tenant.next_turns([PLACES_OF_PASS * (before + 1)])
        order = parent.priority, turn, self._sequences
        entry = Entry(parent.item, parent.request_id, tenant, self._sequences, order, self._clock(), parent=parent)
        entry.is_bulk, entry.places, entry.trace = True, PLACES_OF_PASS, parent.trace
        self._register(entry)
        self._wait(entry, prepared)
        return entry

    def take(self, batch: NextBatch) -> list[Entry]:
        """Remove `batch` from the queue to run it. It is the result of `next_batch` on the queue as it is now."""
        for bypassed in batch.ahead:
            bypassed.bypassed += 1  # also the batch's own entries, for which it no longer matters
        for entry in batch.entries:
            self._move(entry, RUNNING)
        self._tenants.take(batch.entries)
        return batch.entries

    def progressed(self, entry: Entry) -> None:
        """A pass of `entry` has finished: if it is streamed, its idle timeout begins again."""
        if entry.stream is not None and not entry.finished:
            self._set_deadline(entry, min(entry.stream.ends_s, self._clock() + entry.stream.idle_timeout_s))

    def finish(self, entry: Entry) -> State | None:
        """Forget `entry`, wherever it is; returns the state it was in, None if it had finished before."""
        before = entry.state
        if before is FINISHED:
            return None
        if before is WAITING:
            self._tenants.remove(entry)
        elif before is RUNNING and entry.prepared:
            self.tokens_run += entry.prepared.tokens
        self._move(entry, FINISHED)
        if entry.prepared is not None:
            entry.prepared.cancellation.requested = True
        self._tenants.forget(entry)
        del self._entries[entry.sequence]
        request = self._requests[entry.request_id]
        del request[entry.sequence]
        if not request:
            del self._requests[entry.request_id]
        self._set_deadline(entry, None)
        return before

    def _move(self, entry: Entry, state: State, prepared: Prepared | None = None) -> None:
        """Change the state of `entry`, and the tallies. prepared: set here, because the tallies include its cost."""
        if state not in _NEXT_STATES[entry.state]:
            raise RuntimeError(f"an entry cannot go from {entry.state.name} to {state.name}")
        self._tallies[entry.state].add(entry, -1)
        if entry.parent is None and (state is RUNNING or (state is FINISHED and entry.state is not RUNNING)):
            self._tenants.leave_queue(entry)
        if prepared is not None:
            entry.set_prepared(prepared)
        entry.state = state
        self._tallies[state].add(entry)

    def _wait(self, entry: Entry, prepared: Prepared) -> None:
        self._move(entry, WAITING, prepared)
        self._tenants.add(entry)

    # Order of service

    def more_urgent_waits(self, tenant: str, priority: int) -> bool:
        """See `TenantQueues`."""
        return self._tenants.more_urgent_waits(tenant, priority)

    def next_batch(
        self,
        limits: BatchLimits,
        slots: SlotState = NO_ADAPTERS,
        lanes: int = 1,
        reservation: Reservation | None = None,
        share: BatchShare | None = None,
    ) -> NextBatch:
        """The batch to run next; at least one entry waits that `reservation` admits. slots, lanes: see `form_batch`.
        share: of each tenant in the batch; None: all of it."""
        order = self._tenants.in_order()
        if reservation is None:
            waiting = ahead = list(islice(order, limits.batch_lookahead))
        else:
            ahead, waiting = admitted(order, reservation, limits.batch_lookahead)
        if share is not None:
            waiting = share.of(waiting)
        chosen = form_batch(waiting, limits, packs=self._packs, slots=slots, lanes=lanes)
        entries = [waiting[index] for index in chosen]
        full = is_full(entries, len(waiting), limits, packs=self._packs)
        last = chosen[-1] if ahead is waiting else ahead.index(entries[-1])
        return NextBatch(entries, ahead[:last], full)

    # Look-ups

    def unfinished(self) -> list[Entry]:
        """Items and passes that have not finished, oldest first."""
        return list(self._entries.values())

    def find(self, sequence: int) -> Entry | None:
        """The unfinished entry of this `sequence`."""
        return self._entries.get(sequence)

    def of_request(self, request_id: str) -> list[Entry]:
        """Unfinished items and passes of a request."""
        return list(self._requests.get(request_id, {}).values())

    @property
    def next_deadline_s(self) -> float | None:
        """The earliest deadline of the unfinished entries."""
        return self._deadlines[0][0] if self._deadlines else None

    def expired(self) -> list[Entry]:
        """Unfinished entries whose deadline has passed, earliest deadline first."""
        count = bisect_right(self._deadlines, (self._clock(), self._sequences))
        return [self._entries[sequence] for _, sequence in self._deadlines[:count]]

    def _register(self, entry: Entry) -> None:
        """Add a new entry to the look-ups and the tallies."""
        self._tallies[entry.state].add(entry)
        self._tenants.register(entry)
        self._entries[entry.sequence] = entry
        self._requests.setdefault(entry.request_id, {})[entry.sequence] = entry
        deadline_s, entry.deadline_s = entry.deadline_s, None
        self._set_deadline(entry, deadline_s)

    def _set_deadline(self, entry: Entry, deadline_s: float | None) -> None:
        if entry.deadline_s is not None:
            del self._deadlines[bisect_left(self._deadlines, (entry.deadline_s, entry.sequence))]
        entry.deadline_s = deadline_s
        if deadline_s is not None:
            insort(self._deadlines, (deadline_s, entry.sequence))
