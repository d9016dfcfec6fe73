"""An admitted item and its state; no logic. Only `WaitingQueue` changes the state."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from enum import IntEnum, auto
from typing import Any, Protocol

from typing_extensions import Required, TypedDict

from gliner_bento.engine.base import AdapterLease, Prepared, Result, Steps
from gliner_bento.errors import GLiNERBentoError
from gliner_bento.fairness.queue import Order, TenantShare
from gliner_bento.scheduler.tenants import SHORT, Size, TenantState
from gliner_bento.tasks.base import Item

ResultOrError = Result | GLiNERBentoError
"""What an item finishes with."""


class State(IntEnum):
    """The state of an entry.

        PREPARING ─┬─▶ LOADING_ADAPTER ─┬─▶ WAITING ─▶ RUNNING ─┐
                   └────────────────────┴─▶ CHUNKED ────────────┴─▶ FINISHED, from each of them

    PREPARING: not tokenized yet. LOADING_ADAPTER: prepared; its adapter is not in memory yet. WAITING: for a batch.
    RUNNING: in a batch, from its collation on; the batch may be split. CHUNKED: its passes wait and run, not the item.
    """

    PREPARING = 0
    LOADING_ADAPTER = auto()
    WAITING = auto()
    RUNNING = auto()
    CHUNKED = auto()
    FINISHED = auto()


# For code that runs for every item: before Python 3.12, reading `State.X` takes five times as long as a global.
PREPARING, LOADING_ADAPTER, WAITING, RUNNING, CHUNKED, FINISHED = State


class Sink(Protocol):
    """Receives the parts of a chunked request's result while it is processed."""

    def put(self, parts: Sequence[Any]) -> None:
        """Receive the next parts of the result, in order. Must not block."""

    @property
    def full(self) -> bool:
        """Processing pauses while this is true (backpressure); see `Scheduler.resume`."""


@dataclass(frozen=True, slots=True)
class Stream:
    """How an item is streamed, and how long that may take.

    ends_s: final deadline, on the scheduler's clock. idle_timeout_s: maximum time between two finished passes.
    """

    sink: Sink
    ends_s: float
    idle_timeout_s: float


class Terms(TypedDict, total=False):
    """How the items of a request are scheduled.

    request_id: `abort` ends every item that was submitted with it.
    deadline: in seconds of the scheduler's clock; unfinished items fail with `DeadlineExceeded` then.
    priority: lower is scheduled earlier (as in vLLM), strictly, among the requests of the tenant; requests of equal
        priority are served fairly (see `tenants`).
    share: the tenant of the request, and its weight in the fair sharing of tokens.
    trace: passed to `Observer.on_traced` with the timing of each item.
    """

    request_id: Required[str]
    deadline: float | None
    priority: int
    share: TenantShare
    trace: str | None


Answer = Callable[[Sequence[ResultOrError]], Callable[[], None] | None]
"""Takes the outcomes of items that were submitted together, in their order, once all have ended. May return what is to
be called after the answers to others that end now; equal ones once. Called by any thread, without the lock. Neither may
block or raise."""


@dataclass(slots=True, eq=False)
class Submission:
    """Items that are answered together.

    outcomes: in the order of the items; None for those that have not ended, of which there are `unended`.
    sequences: those of their entries.
    """

    answer: Answer
    outcomes: list[Any]
    unended: int
    sequences: range

    @classmethod
    def of(cls, entries: Sequence[Entry], answer: Answer) -> Submission:
        """The submission of new entries, at least one, whose sequences follow each other."""
        count, first = len(entries), entries[0].sequence
        submission = cls(answer, [None] * count, count, range(first, first + count))
        for entry in entries:
            entry.submission = submission
        return submission


@dataclass(slots=True, eq=False)
class Entry:
    """An admitted item, or a pass of a chunked one.

    tenant: the tenant of its request. sequence: unique number.
    order: key of the order of service within the tenant: priority (lower first, as in vLLM), virtual finish time (see
        `tenants`), sequence.
    admitted_s, deadline_s: in seconds of the scheduler's clock. A pass ends with its item, and has no deadline.
    parent: the chunked item, if this is a pass. stream: set if the item is streamed.
    size: the size of its request; passes are LARGE.
    charged_items: how many items it is charged as in its tenant's order of service.
    cost: tokens in a batch; 0 until it is prepared. adapter: key of its adapter; None: the base model.
    bypassed: how many batches took a later entry and left this one waiting.
    submission: of an item; set when it has been admitted.
    steps: those of its preparation that are left; None before the first one and after the last one. prepare_s: time
        spent in steps so far.
    trace: passed to `Observer.on_traced` with the item's timing; None: the item is not traced.
    """

    item: Item
    request_id: str
    tenant: TenantState
    sequence: int
    order: Order
    admitted_s: float
    deadline_s: float | None = None
    stream: Stream | None = None
    parent: Entry | None = None
    size: Size = SHORT
    charged_items: int = 1
    submission: Submission | None = None
    state: State = PREPARING
    steps: Steps[Prepared] | None = None
    prepare_s: float = 0.0
    prepared: Prepared | None = None
    lease: AdapterLease | None = None
    cost: int = 0
    adapter: Hashable = None
    bypassed: int = 0
    trace: str | None = None

    @property
    def share(self) -> TenantShare:
        """The tenant's name and weight."""
        return self.tenant.share

    @property
    def priority(self) -> int:
        """Lower is more urgent."""
        return self.order[0]

    def set_prepared(self, prepared: Prepared) -> None:
        """Set the engine's output, and the cost and adapter that it contains."""
        self.prepared = prepared
        self.cost = prepared.cost
        self.adapter = prepared.adapter.key if prepared.adapter else None

    @property
    def is_pass(self) -> bool:
        """Whether this is a pass of a chunked item."""
        return self.parent is not None

    @property
    def finished(self) -> bool:
        """Whether its result or error is set; it must not run any more."""
        return self.state is FINISHED
