"""Items that take several passes: a few of a request's passes wait or run at any time; as one ends, the next is made.

    reading.more ──▶ passes in the waiting queue ──▶ lanes ──▶ reading.add ──▶ … ──▶ reading.result

So memory is bounded whatever the text's length, and the other requests get their turns between passes. A pass that
fails ends its item; an item that ends (aborted, expired) takes its passes along.

Shares the scheduler's lock and queue.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gliner_bento.engine.base import ChunkedRequest, Prepared
from gliner_bento.errors import GLiNERBentoError
from gliner_bento.scheduler.queue import Entry, WaitingQueue
from gliner_bento.scheduler.stages import Ending, public_error
from gliner_bento.types import Entity


class Watch(Protocol):
    """Who is told the entities of an item while it is being read."""

    def put(self, entities: Sequence[Entity]) -> None:
        """The next entities of the result, in order. Must not block."""

    @property
    def full(self) -> bool:
        """Whether to go on reading; see `Scheduler.go_on`."""


@dataclass(slots=True)
class _Whole:
    """An item under way. lock: held from a pass's result to the watch, so that entities come in order."""

    entry: Entry
    reading: ChunkedRequest
    watch: Watch | None
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def can_go_on(self) -> bool:
        """Passes can be made now, and are wanted."""
        return not self.entry.ended and not self.reading.exhausted and (self.watch is None or not self.watch.full)


@dataclass(slots=True)
class _Request:
    """Items of one request that take several passes, in the order of their admission; they share its turns.

    passes, cost: of passes that wait or run. feeding: the next are being made.
    """

    wholes: dict[int, _Whole] = field(default_factory=dict)
    passes: int = 0
    cost: int = 0
    feeding: bool = False


class Readings:
    """Feeds passes to `queue`: of each request, `passes` are under way, and more while they cost less than `cost`."""

    def __init__(
        self,
        queue: WaitingQueue,
        lock: threading.Lock,
        *,
        passes: int,
        cost: int,
        run: Callable[[Callable[[], None]], None],
        wake: Callable[[], None],
        finish: Callable[[int, Ending], None],
    ) -> None:
        """run: does a piece of work in another thread, wake: something has come to wait; both called with the lock
        held. finish: told how an item ended; called without it."""
        self._queue = queue
        self._lock = lock
        self._passes = passes
        self._cost = cost
        self._run = run
        self._wake = wake
        self._finish = finish
        self._requests: dict[str, _Request] = {}

    def begin(self, entry: Entry, reading: ChunkedRequest, watch: Watch | None) -> None:
        """Read `entry`, which the queue has. Called with the lock held."""
        request = self._requests.setdefault(entry.request_id, _Request())
        request.wholes[entry.sequence] = _Whole(entry, reading, watch)
        self._feed(request)

    def go_on(self, request_id: str) -> None:
        """A watch of the request may have room again."""
        with self._lock:
            if request := self._requests.get(request_id):
                self._feed(request)

    def ended(self, entry: Entry) -> None:
        """`entry`, an item or a pass, has left the queue. Called with the lock held."""
        request = self._requests.get(entry.request_id)
        if request is None:
            return
        if entry.whole is not None:
            request.passes -= 1
            request.cost -= entry.cost
        elif request.wholes.pop(entry.sequence, None):
            for other in self._queue.of_request(entry.request_id):
                if other.whole is entry:
                    self._queue.end(other.sequence)
                    request.passes -= 1
                    request.cost -= other.cost
        if request.wholes:
            self._feed(request)
        elif not request.passes:
            del self._requests[entry.request_id]

    def add(self, entry: Entry, ending: Ending) -> None:
        """A pass ended like that, and has left the queue."""
        assert entry.whole is not None
        assert entry.prepared is not None
        with self._lock:
            request = self._requests.get(entry.request_id)
            whole = request.wholes.get(entry.whole.sequence) if request else None
        if whole is None:
            return
        if isinstance(ending, GLiNERBentoError):
            self._finish(entry.whole.sequence, ending)
            return
        try:
            with whole.lock:
                entities = whole.reading.add(entry.prepared, ending)
                if whole.watch and entities:
                    whole.watch.put(entities)
        except BaseException as error:  # the decoding pool would swallow it, and the item would never end
            self._finish(entry.whole.sequence, public_error(error, entry.request_id, "putting its windows together"))
            return
        self._end_if_done(whole)
        self.go_on(entry.request_id)

    def _feed(self, request: _Request) -> None:
        """Make the request's next passes, if there is room for them. Called with the lock held."""
        if request.feeding or (request.passes >= self._passes and request.cost >= self._cost):
            return
        whole = next((whole for whole in request.wholes.values() if whole.can_go_on), None)
        if whole is not None:
            request.feeding = True
            self._run(lambda: self._make(request, whole))

    def _make(self, request: _Request, whole: _Whole) -> None:
        """One piece of work: others wait for their turn in the same threads."""
        made: Sequence[Prepared] = ()
        error: BaseException | None = None
        try:
            made = whole.reading.next_passes()
        except BaseException as raised:
            error = raised
        with self._lock:
            if not whole.entry.ended:
                for prepared in made:
                    entry = self._queue.put_pass(whole.entry, prepared)
                    request.passes += 1
                    request.cost += entry.cost
            if made:
                self._wake()
        if error is not None:  # before it is asked for more
            self._finish(whole.entry.sequence, public_error(error, whole.entry.request_id, "reading its text"))
        else:
            self._end_if_done(whole)
        with self._lock:
            request.feeding = False
            self._feed(request)

    def _end_if_done(self, whole: _Whole) -> None:
        if whole.entry.ended or not whole.reading.done:
            return
        try:
            ending: Ending = whole.reading.result()
        except BaseException as error:
            ending = public_error(error, whole.entry.request_id, "putting its windows together")
        self._finish(whole.entry.sequence, ending)
