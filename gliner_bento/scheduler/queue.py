"""The waiting queue: who is admitted, in which order items are served, and which have not finished yet.

Locking, for the whole scheduler: `WaitingQueue.lock` guards the queue, its entries, and the state of the dispatcher and
of chunked requests. A method that needs it held says so. No code of other packages runs while it is held (an engine's
steps, a sink's `put`, an observer, a future's callbacks, the release of an adapter), except getters: `batch_tokens`,
`slot_state`, `exhausted`, `full`. It may be taken while a chunked item's own lock is held, never the other way round.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from gliner_bento.engine.base import Prepared, SlotState
from gliner_bento.errors import DeadlineExceeded, NotReady, QueueFull, TooLarge
from gliner_bento.fairness.capacity import SharedCapacity
from gliner_bento.fairness.constants import CHARGED_ITEMS_OF_PASS
from gliner_bento.fairness.queue import NO_TENANT, FairQueue, TenantShare
from gliner_bento.frozen import frozen
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
from gliner_bento.scheduler.quota import BatchQuota, Senders
from gliner_bento.scheduler.tenants import LARGE, MEDIUM, SHORT, TenantState, charged_items, size_of
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
    """Number of entries in one state. short: entries of short requests. cost: total cost of all entries, in tokens."""

    items: int = 0
    passes: int = 0
    short: int = 0
    cost: int = 0

    @property
    def entries(self) -> int:
        """Number of items and passes."""
        return self.items + self.passes

    def add(self, entry: Entry, sign: int = 1) -> None:
        """Count `entry`; with sign -1, no longer count it."""
        if entry.parent is None:
            self.items += sign
        else:
            self.passes += sign
        if entry.size is SHORT:
            self.short += sign
        self.cost += sign * entry.cost


@frozen()
class NextBatch:
    """The waiting entries that would run next. ahead: all waiting entries before the last of `entries`, in the
    order of service. full: no later entry could join. express: it is for the express lane."""

    entries: list[Entry]
    ahead: list[Entry]
    full: bool
    express: bool = False


class WaitingQueue:
    """Admitted items that have not finished, and the order in which waiting ones are served.

    Every method and property needs `lock` held; none takes it. `capacity` limits the items that are in no batch yet:
    in preparation, waiting or chunked; tenants share it. `packs`: see `Engine`.

    wake: called, with the lock held, after entries were put, or one in preparation has ended. awaited: whether a lane
    waits for entries; needs no lock. The dispatcher sets both.
    tokens_run: tokens of all entries that were in a batch and have finished.
    """

    def __init__(self, capacity: int, clock: Callable[[], float], *, packs: bool) -> None:
        self.lock = threading.Lock()
        self._queued = SharedCapacity(capacity)  # of items that are in no batch yet
        self._packs = packs
        self._clock = clock
        self.wake: Callable[[], object] = lambda: None
        self.awaited: Callable[[], bool] = lambda: True
        self._closed: str | None = "the server is starting"
        self._sequences = 0
        self._entries: dict[int, Entry] = {}
        self._requests: dict[str, dict[int, Entry]] = {}
        self._deadlines: list[tuple[float, int]] = []  # deadline and sequence, sorted
        self._tenants: dict[str, TenantState] = {}  # those with unfinished entries
        self._waiting: FairQueue[Entry] = FairQueue()
        self._senders = Senders(clock)
        self.tokens_run = 0
        self._tallies = [Tally() for _ in State]

    # Counters, all derived from the tallies

    def tally(self, state: State) -> Tally:
        """Entries in `state` now; for FINISHED, since the start."""
        return self._tallies[state]

    @property
    def unfinished_items(self) -> int:
        """Number of items that have not finished. A chunked item counts once; its passes do not count."""
        return sum(self._tallies[state].items for state in State if state is not FINISHED)

    @property
    def preparing_items(self) -> int:
        """Number of items that are being tokenized, or wait for their adapter."""
        return self._tallies[PREPARING].items + self._tallies[LOADING_ADAPTER].items

    @property
    def waiting_entries(self) -> int:
        """Number of items and passes that are in no batch yet."""
        return self._tallies[WAITING].entries

    @property
    def waiting_cost(self) -> int:
        """Cost of the `waiting_entries`, in tokens."""
        return self._tallies[WAITING].cost

    # Who sends

    def batch_quota(self, tokens: int) -> BatchQuota | None:
        """Each tenant's quota of a batch; None: no limit, because at most one tenant sends, and only large requests.
        An entry must be waiting: the first one will be in the batch."""
        first = next(iter(self._waiting))
        smallest = min(self._senders.smallest(), first.size)
        if not self._packs:
            smallest = max(smallest, MEDIUM)  # see `BatchQuota`
        senders = {first.tenant.name} if first.size is SHORT else set()
        for item in self._senders:
            senders.add(item.tenant)
            if len(senders) > 1:
                break
        several_tenants = len(senders) > 1 or any(map(self._waiting.others_wait, senders))
        return BatchQuota(tokens, senders, smallest) if several_tenants or smallest < LARGE else None

    def excludes_others(self, entries: Sequence[Entry]) -> bool:
        """Whether `entries` are all of one tenant while another one sends, or of large requests while small ones
        arrive."""
        tenants = {entry.tenant.name for entry in entries}
        if len(tenants) == 1 and any(item.tenant not in tenants for item in self._senders):
            return True
        return entries[0].size is LARGE and self._senders.smallest() < LARGE

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
        deadline: float | None = None,
        priority: int = 0,
        stream: Stream | None = None,
        share: TenantShare = NO_TENANT,
        trace: str | None = None,
    ) -> list[Entry]:
        """Admit all of `items` or none. For the arguments, see `Terms`.

        Raises `NotReady`, `DeadlineExceeded` (already passed), `TooLarge` (more than the capacity) or `QueueFull`.
        """
        now = self._clock()
        if self._closed is not None:
            raise NotReady(self._closed)
        if deadline is not None and deadline <= now:
            raise DeadlineExceeded.before("the request was admitted")
        capacity = self._queued.capacity
        if len(items) > capacity:
            raise TooLarge(f"{len(items)} items are more than the waiting queue holds ({capacity})")
        if self._queued.excess(share.tenant, len(items)):
            raise QueueFull(f"the waiting queue is full ({capacity} items); try again later")
        entries: list[Entry] = []
        if not items:
            return entries
        tenant = self._tenants.get(share.tenant)
        if tenant is None:
            tenant = self._tenants[share.tenant] = TenantState(share)
        tenant.share = share
        charged = charged_items(items)
        size = size_of(sum(charged), priority)
        finishes = tenant.virtual_finishes(charged, size)
        for item, virtual_finish, item_charge in zip(items, finishes, charged, strict=True):
            self._sequences += 1
            order = priority, virtual_finish, self._sequences
            entry = Entry(item, request_id, tenant, self._sequences, order, now, deadline, stream, trace=trace)
            entry.size, entry.charged_items = size, item_charge
            self._register(entry)
            entries.append(entry)
        return entries

    # States

    def wait_for_adapter(self, entry: Entry, prepared: Prepared) -> None:
        """`entry` has been prepared, and waits until its adapter is in memory. No effect on a finished entry."""
        if not entry.finished:
            self._move(entry, LOADING_ADAPTER, prepared)

    def put(self, entry: Entry, prepared: Prepared) -> None:
        """`entry` starts to wait, or becomes CHUNKED: then its passes will wait. No effect on a finished entry."""
        if entry.finished:
            return
        if prepared.chunked is not None:
            self._move(entry, CHUNKED, prepared)
        else:
            if entry.size is not SHORT:
                self._senders.add(entry)
            self._wait(entry, prepared)

    def put_pass(self, parent: Entry, prepared: Prepared) -> Entry:
        """Add a waiting pass of `parent`, which is chunked, behind the waiting entries of its request."""
        self._sequences += 1
        tenant = parent.tenant
        waiting = tenant.waiting_by_request[parent.request_id]
        (virtual_finish,) = tenant.virtual_finishes([CHARGED_ITEMS_OF_PASS * (waiting + 1)], LARGE)
        order = parent.priority, virtual_finish, self._sequences
        entry = Entry(parent.item, parent.request_id, tenant, self._sequences, order, self._clock(), parent=parent)
        entry.size, entry.charged_items, entry.trace = LARGE, CHARGED_ITEMS_OF_PASS, parent.trace
        self._register(entry)
        self._wait(entry, prepared)
        return entry

    def take(self, batch: NextBatch) -> list[Entry]:
        """Remove `batch` from the queue to run it. batch: what `next_batch` or `next_express_batch` has just
        returned."""
        for entry in batch.ahead:
            entry.bypassed += 1  # no effect on the batch's own entries, which never wait again
        for entry in batch.entries:
            self._move(entry, RUNNING)
            entry.tenant.serve(entry.charged_items)
        if not batch.express:
            short = {entry.tenant: entry for entry in batch.entries if entry.size is SHORT}
            for entry in short.values():  # one of each tenant
                self._senders.add(entry)
        for entry in batch.entries:  # after all were served: see `TenantState.serve`
            entry.tenant.leave(entry.request_id)
        self._waiting.take(batch.entries)
        return batch.entries

    def progressed(self, entry: Entry) -> None:
        """A pass of `entry` has finished: restarts the idle timeout of a streamed entry."""
        if entry.stream is not None and not entry.finished:
            self._set_deadline(entry, min(entry.stream.ends_s, self._clock() + entry.stream.idle_timeout_s))

    def finish(self, entry: Entry) -> State | None:
        """Move `entry` to FINISHED, and forget it. Returns its previous state; None if it had finished before."""
        before = entry.state
        if before is FINISHED:
            return None
        if before is WAITING:
            self._waiting.remove(entry)
            entry.tenant.leave(entry.request_id)
        elif before is RUNNING and entry.prepared:
            self.tokens_run += entry.prepared.tokens
        self._move(entry, FINISHED)
        if entry.prepared is not None:
            entry.prepared.ended = True
        entry.tenant.unfinished -= 1
        if not entry.tenant.unfinished:
            del self._tenants[entry.tenant.name]
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
            self._queued.hold(entry.tenant.name, -1)  # it begins to run, or finishes without having run
        if prepared is not None:
            entry.set_prepared(prepared)
        entry.state = state
        self._tallies[state].add(entry)

    def _wait(self, entry: Entry, prepared: Prepared) -> None:
        self._move(entry, WAITING, prepared)
        entry.tenant.waiting_by_request[entry.request_id] += 1
        self._waiting.add(entry)

    # Order of service

    def next_batch(
        self,
        limits: BatchLimits,
        slots: SlotState = NO_ADAPTERS,
        lanes: int = 1,
        quota: BatchQuota | None = None,
    ) -> NextBatch:
        """The batch to run next. At least one entry must be waiting.

        slots, lanes: see `form_batch`. quota: limits each tenant's part of the batch; None: no limit."""
        candidates = in_order = list(islice(self._waiting, limits.batch_lookahead))
        if quota is not None:
            candidates = quota.admitted(candidates)
        chosen = form_batch(candidates, limits, packs=self._packs, slots=slots, lanes=lanes)
        entries = [candidates[index] for index in chosen]
        full = is_full(entries, len(candidates), limits, packs=self._packs)
        return NextBatch(entries, in_order[: in_order.index(entries[-1])], full)

    def next_express_batch(
        self, limits: BatchLimits, *, max_lead: float, slots: SlotState, lanes: int, excluded: Collection[str]
    ) -> NextBatch | None:
        """The batch that the express lane runs next; None: nothing waits for it.

        Has only entries of short requests among the next ones of their tenant, as urgent as its first one, with a cost
        of at most `max_batch_tokens`, and the base model or an adapter that is on the device. Their tenants are not in
        `excluded`, and have been served at most `max_lead` tokens more than the tenant that is next: so a flood of
        short requests gets no more than its share. slots, lanes: see `form_batch`."""
        candidates = list(self._express_candidates(limits, max_lead, slots, excluded))
        if not candidates:
            return None
        chosen = form_batch(candidates, limits, packs=self._packs, slots=slots, lanes=lanes)
        return NextBatch([candidates[index] for index in chosen], ahead=[], full=False, express=True)

    def has_express_batch(
        self, limits: BatchLimits, *, max_lead: float, slots: SlotState, excluded: Collection[str]
    ) -> bool:
        """Whether `next_express_batch` has a batch."""
        return next(self._express_candidates(limits, max_lead, slots, excluded), None) is not None

    def _express_candidates(
        self, limits: BatchLimits, max_lead: float, slots: SlotState, excluded: Collection[str]
    ) -> Iterator[Entry]:
        for waiting in islice(self._waiting.near_turn(max_lead), limits.batch_lookahead):
            if waiting[0].tenant.name in excluded:
                continue
            for entry in islice(waiting, limits.max_batch_size):
                if (
                    entry.size is SHORT
                    and entry.priority == waiting[0].priority
                    and entry.cost <= limits.max_batch_tokens
                    and (entry.adapter is None or entry.adapter in slots.resident)
                ):
                    yield entry

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
        entry.tenant.unfinished += 1
        if entry.parent is None:
            self._queued.hold(entry.tenant.name, 1)
        self._entries[entry.sequence] = entry
        self._requests.setdefault(entry.request_id, {})[entry.sequence] = entry
        deadline_s, entry.deadline_s = entry.deadline_s, None  # not in `_deadlines` yet
        self._set_deadline(entry, deadline_s)

    def _set_deadline(self, entry: Entry, deadline_s: float | None) -> None:
        if entry.deadline_s is not None:
            del self._deadlines[bisect_left(self._deadlines, (entry.deadline_s, entry.sequence))]
        entry.deadline_s = deadline_s
        if deadline_s is not None:
            insort(self._deadlines, (deadline_s, entry.sequence))
