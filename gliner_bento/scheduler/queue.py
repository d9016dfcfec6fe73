"""The waiting queue: who is admitted, in which order items are served, and which items have not ended yet.

Not thread-safe: the scheduler calls it under its lock. It never touches a future beyond making it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from math import inf

from gliner_bento.engine.base import AdapterLease, Prepared, Result, SlotState
from gliner_bento.errors import DeadlineExceeded, NotReady, QueueFull, TooLarge
from gliner_bento.scheduler.batching import NO_ADAPTERS, BatchLimits, form_batch, is_full
from gliner_bento.types import Item

# A long text takes turns with the other requests: one of its few waiting passes stands behind so many items that come
# later.
ITEMS_BEFORE_A_PASS = 32


@dataclass(slots=True, eq=False)
class Entry:
    """An admitted item on its way: preparing (`prepared` is None), waiting, then taken, until `ended`.

    An item that takes several passes never waits; its passes do, each as an entry of its own that knows the `whole`.

    `sequence` is its identity and, but for passes, its place in the order of admission (`turn`); times are seconds of
    the queue's clock.
    """

    item: Item
    request_id: str
    sequence: int
    priority: int
    admitted_s: float
    deadline_s: float | None = None
    future: Future[Result] = field(default_factory=Future)
    prepared: Prepared | None = None
    lease: AdapterLease | None = None
    whole: Entry | None = None
    turn: int = 0
    overtaken: int = 0
    taken: bool = False
    ended: bool = False

    @property
    def cost(self) -> int:
        """What the item costs in a batch, in tokens; 0 before it is prepared."""
        return self.prepared.cost if self.prepared else 0

    @property
    def adapter(self) -> Hashable:
        """Which adapter the item is read with; None: the base model."""
        return self.prepared.adapter.key if self.prepared and self.prepared.adapter else None

    @property
    def order(self) -> tuple[int, int, int]:
        """Place in the order of service: more urgent (lower priority number, as in vLLM) first, then older first."""
        return self.priority, self.turn, self.sequence

    @property
    def in_passes(self) -> bool:
        """Whether it takes several passes."""
        return self.prepared is not None and self.prepared.chunked is not None


@dataclass(frozen=True, slots=True)
class NextBatch:
    """What would run next: waiting items and their places, and whether an item that comes later could not join."""

    entries: list[Entry]
    indices: list[int]
    full: bool


class WaitingQueue:
    """Admitted items that have not ended, and the order in which those that wait are served.

    `capacity` bounds the items that no batch has taken yet, being prepared or waiting; `packs` is the engine's.
    last_item: when an item of one pass last came to wait, and its priority.
    """

    def __init__(self, capacity: int, clock: Callable[[], float], *, packs: bool) -> None:
        self._capacity = capacity
        self._packs = packs
        self._clock = clock
        self._closed: str | None = "the server is starting"
        self._sequences = 0
        self._turns = 0
        self._entries: dict[int, Entry] = {}
        self._requests: dict[str, dict[int, Entry]] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._waiting: list[Entry] = []
        self._taken_items = 0
        self._items_in_passes = 0
        self._passes = 0
        self._waiting_passes = 0
        self.waiting_cost = 0
        self.last_item: tuple[float, int] | None = None

    @property
    def waiting_items(self) -> int:
        """Prepared, in no batch yet."""
        return len(self._waiting)

    @property
    def running_items(self) -> int:
        """Taken into a batch and not ended."""
        return self._taken_items

    @property
    def preparing_items(self) -> int:
        """Admitted, and waiting soon."""
        return len(self._entries) - self._taken_items - len(self._waiting) - self._items_in_passes

    @property
    def unfinished_items(self) -> int:
        """Admitted and not ended."""
        return len(self._entries) - self._passes

    @property
    def most_urgent(self) -> float:
        """The priority of what is served next."""
        return self._waiting[0].priority if self._waiting else inf

    @property
    def only_passes_wait(self) -> bool:
        """Nothing waits but passes of items that take several."""
        return len(self._waiting) == self._waiting_passes

    @property
    def _unserved_items(self) -> int:
        return self.preparing_items + len(self._waiting) - self._waiting_passes + self._items_in_passes

    @property
    def next_deadline_s(self) -> float | None:
        """The earliest deadline of all that has not ended."""
        return self._deadlines[0][0] if self._deadlines else None

    @property
    def admitting(self) -> bool:
        """Open, though perhaps full."""
        return self._closed is None

    def open(self) -> None:
        """Admit items from now on."""
        self._closed = None

    def close(self, reason: str) -> None:
        """Admit nothing from now on; `reason` is told to callers."""
        self._closed = reason

    def admit(
        self, items: Sequence[Item], request_id: str, deadline_s: float | None = None, priority: int = 0
    ) -> list[Entry]:
        """Take responsibility for all of `items` or for none.

        Raises `NotReady`, `DeadlineExceeded` (too late already), `TooLarge` (never room for so many) or `QueueFull`.
        """
        now = self._clock()
        if self._closed is not None:
            raise NotReady(self._closed)
        if deadline_s is not None and deadline_s <= now:
            raise DeadlineExceeded("the deadline had passed before the request was admitted")
        if len(items) > self._capacity:
            raise TooLarge(f"{len(items)} items at once are more than the waiting queue holds ({self._capacity})")
        if self._unserved_items + len(items) > self._capacity:
            raise QueueFull(f"the waiting queue is full ({self._capacity} items); try again later")
        return [self._admit(item, request_id, now, deadline_s, priority) for item in items]

    def put(self, entry: Entry, prepared: Prepared) -> None:
        """`entry` has been prepared: it waits from now on, unless it has ended meanwhile."""
        if entry.ended:
            return
        entry.prepared = prepared
        if entry.in_passes:
            self._items_in_passes += 1
        else:
            self.last_item = self._clock(), entry.priority
            self._wait(entry)

    def put_pass(self, whole: Entry, prepared: Prepared) -> Entry:
        """A pass of `whole`, which has not ended, waits from now on, behind the next `ITEMS_BEFORE_A_PASS` items."""
        passed = self._enter(whole.item, whole.request_id, self._clock(), whole.deadline_s, whole.priority)
        passed.whole, passed.prepared, passed.turn = whole, prepared, self._turns + ITEMS_BEFORE_A_PASS + 1
        self._passes += 1
        self._waiting_passes += 1
        self._wait(passed)
        return passed

    def next_batch(
        self, limits: BatchLimits, room: SlotState = NO_ADAPTERS, lanes: int = 1, *, passes: bool = True
    ) -> NextBatch:
        """What `take` would take now, in the order of service; something waits. room, lanes: see `form_batch`.

        passes: also of items that take several; else there is another."""
        places: Sequence[int] = range(len(self._waiting))
        waiting = self._waiting
        if self._waiting_passes and not passes:
            places = [place for place in places if waiting[place].whole is None]
            waiting = [waiting[place] for place in places]
        chosen = form_batch(waiting, limits, packs=self._packs, room=room, lanes=lanes)
        entries = [waiting[index] for index in chosen]
        full = is_full(entries, len(waiting), limits, packs=self._packs)
        return NextBatch(entries, [places[index] for index in chosen], full)

    def take(self, batch: NextBatch) -> list[Entry]:
        """Hand out `batch`, which must be the last that `next_batch` told, with no change to the queue since."""
        for passed in self._waiting[: batch.indices[-1]]:
            passed.overtaken += 1  # the batch's own are counted too, but they wait no more
        for index in reversed(batch.indices):
            del self._waiting[index]
        for entry in batch.entries:
            entry.taken = True
            self.waiting_cost -= entry.cost
            self._waiting_passes -= entry.whole is not None
        self._taken_items += len(batch.entries)
        return batch.entries

    def end(self, sequence: int) -> Entry | None:
        """Forget an item, wherever it is; None if it has ended before: whoever is given the entry is the only one."""
        entry = self._entries.pop(sequence, None)
        if entry is None:
            return None
        entry.ended = True
        del self._requests[entry.request_id][sequence]
        if not self._requests[entry.request_id]:
            del self._requests[entry.request_id]
        if entry.deadline_s is not None:
            del self._deadlines[bisect_left(self._deadlines, (entry.deadline_s, sequence))]
        self._passes -= entry.whole is not None
        if entry.taken:
            self._taken_items -= 1
        elif entry.in_passes:
            self._items_in_passes -= 1
        elif entry.prepared is not None:
            del self._waiting[bisect_left(self._waiting, entry.order, key=lambda waiting: waiting.order)]
            self.waiting_cost -= entry.cost
            self._waiting_passes -= entry.whole is not None
        return entry

    def unfinished(self) -> list[Entry]:
        """All that has not ended, oldest first."""
        return list(self._entries.values())

    def of_request(self, request_id: str) -> list[Entry]:
        """The unfinished items of a request."""
        return list(self._requests.get(request_id, {}).values())

    def expired(self) -> list[Entry]:
        """Unfinished items whose deadline has passed, earliest deadline first."""
        count = bisect_right(self._deadlines, (self._clock(), self._sequences))
        return [self._entries[sequence] for _, sequence in self._deadlines[:count]]

    def _admit(self, item: Item, request_id: str, now_s: float, deadline_s: float | None, priority: int) -> Entry:
        entry = self._enter(item, request_id, now_s, deadline_s, priority)
        self._turns += 1
        entry.turn = self._turns
        return entry

    def _enter(self, item: Item, request_id: str, now_s: float, deadline_s: float | None, priority: int) -> Entry:
        self._sequences += 1
        entry = Entry(item, request_id, self._sequences, priority, now_s, deadline_s)
        self._entries[entry.sequence] = entry
        self._requests.setdefault(request_id, {})[entry.sequence] = entry
        if deadline_s is not None:
            insort(self._deadlines, (deadline_s, entry.sequence))
        return entry

    def _wait(self, entry: Entry) -> None:
        insort(self._waiting, entry, key=lambda waiting: waiting.order)
        self.waiting_cost += entry.cost
