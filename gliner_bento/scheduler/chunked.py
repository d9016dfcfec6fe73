"""Chunked requests: items of several passes. At any time, a few passes of a request wait or run; when one finishes, the
next is made.

    next_passes ──▶ passes in the waiting queue ──▶ lanes ──▶ add ──▶ next_passes … ──▶ result

This bounds the memory for a text of any length, and other requests are served between the passes. If a pass fails, its
item fails with the same error; if an item finishes early (aborted, expired), its passes are dropped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from gliner_bento.engine.base import ChunkedRequest, Prepared
from gliner_bento.errors import GLiNERBentoError
from gliner_bento.fairness.constants import PAUSE_S
from gliner_bento.fairness.pool import FairPool
from gliner_bento.scheduler.entry import Entry, ResultOrError
from gliner_bento.scheduler.items import Items
from gliner_bento.scheduler.watchdog import Watchdog


@dataclass(slots=True)
class _ChunkedItem:
    """An item of several passes. lock: held while a result is merged and its parts are sent, to keep these in order."""

    entry: Entry
    chunked: ChunkedRequest
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def wants_passes(self) -> bool:
        """Whether passes can be made now, and the sink takes results."""
        stream = self.entry.stream
        return not self.entry.finished and not self.chunked.exhausted and not (stream and stream.sink.full)


@dataclass(slots=True)
class _RequestState:
    """The chunked items of one request. Its passes are counted together, whichever item they belong to.

    items: by sequence number, in the order of admission. pass_count, cost: number of the request's passes that wait or
    run, and their cost in tokens. making: whether its next passes are being made in the pool.
    """

    items: dict[int, _ChunkedItem] = field(default_factory=dict)
    pass_count: int = 0
    cost: int = 0
    making: bool = False


class ChunkedRequests:
    """Keeps at least `min_passes` passes of each request, with a cost of at least `min_cost` tokens, waiting or
    running. Passes are made in `pool`, which must not shut down before the last item has finished."""

    def __init__(
        self,
        items: Items,
        pool: FairPool,
        watchdog: Watchdog,
        *,
        min_passes: int,
        min_cost: int,
    ) -> None:
        self._items = items
        self._queue = items.queue
        self._pool = pool
        self._watchdog = watchdog
        self._min_passes = min_passes
        self._min_cost = min_cost
        self._requests: dict[str, _RequestState] = {}
        items.passes = self

    def begin(self, entry: Entry, chunked: ChunkedRequest) -> None:
        """Start to make the passes of `entry`, which is in the queue. Called with the lock held."""
        request = self._requests.setdefault(entry.request_id, _RequestState())
        request.items[entry.sequence] = _ChunkedItem(entry, chunked)
        self._make_more(request)

    def resume(self, request_id: str) -> None:
        """Make more passes, if the request's sink is no longer full."""
        with self._queue.lock:
            if request := self._requests.get(request_id):
                self._make_more(request)

    def on_finish(self, entry: Entry) -> None:
        """`entry`, an item or a pass, has left the queue. Called with the lock held."""
        request = self._requests.get(entry.request_id)
        if request is None:
            return
        if entry.is_pass:
            request.pass_count -= 1
            request.cost -= entry.cost
        elif request.items.pop(entry.sequence, None):
            self._drop_passes(request, entry)
        if request.items:
            self._make_more(request)
        elif not request.pass_count:
            del self._requests[entry.request_id]

    def add(self, entry: Entry, outcome: ResultOrError) -> None:
        """Merge the result of a pass, which has left the queue, into its item; an error fails the item."""
        assert entry.parent is not None
        assert entry.prepared is not None
        with self._queue.lock:
            request = self._requests.get(entry.request_id)
            item = request.items.get(entry.parent.sequence) if request else None
            self._queue.progressed(entry.parent)
        if item is None:
            return
        if isinstance(outcome, GLiNERBentoError):
            self._items.finish(entry.parent, outcome)
            return
        try:
            with item.lock, self._watchdog.watch("merging passes", [item.entry]):
                parts = item.chunked.add(entry.prepared, outcome)
                if item.entry.stream:
                    item.entry.stream.sink.put(parts)
        except BaseException as error:  # the decoding pool would swallow it, and the item would never finish
            self._items.fail(entry.parent, error, "merging its passes")
            return
        self._finish_if_done(item)
        self.resume(entry.request_id)

    def _drop_passes(self, request: _RequestState, parent: Entry) -> None:
        """Forget the passes of an item that has finished. Called with the lock held."""
        for entry in self._queue.of_request(parent.request_id):
            if entry.parent is parent:
                self._queue.finish(entry)
                request.pass_count -= 1
                request.cost -= entry.cost

    def _make_more(self, request: _RequestState) -> None:
        """Let the pool make the request's next passes, if too few wait or run. Called with the lock held."""
        if request.making or (request.pass_count >= self._min_passes and request.cost >= self._min_cost):
            return
        item = next((item for item in request.items.values() if item.wants_passes), None)
        if item is not None:
            request.making = True
            self._pool.submit(item.entry.share, self._make, request, item)

    def _make(self, request: _RequestState, item: _ChunkedItem) -> None:
        """Make the item's next few passes. If more are needed, the pool makes them later, behind other work."""
        passes: Sequence[Prepared] = ()
        error: BaseException | None = None
        try:
            with self._watchdog.watch("making passes", [item.entry]):
                passes = item.chunked.next_passes()
        except BaseException as raised:
            error = raised
        self._put(request, item.entry, passes)
        if error is not None:  # finish the item before `_make_more`, which then makes no more of its passes
            self._items.fail(item.entry, error, "making its passes")
        else:
            self._finish_if_done(item)
            if not passes:
                time.sleep(PAUSE_S)  # lets other threads run: long stretches of a text may have no pass
        with self._queue.lock:
            request.making = False
            self._make_more(request)

    def _put(self, request: _RequestState, parent: Entry, passes: Sequence[Prepared]) -> None:
        with self._queue.lock:
            if not passes or parent.finished:
                return
            for prepared in passes:
                entry = self._queue.put_pass(parent, prepared)
                request.pass_count += 1
                request.cost += entry.cost
            self._queue.wake()

    def _finish_if_done(self, item: _ChunkedItem) -> None:
        if item.entry.finished or not item.chunked.done:
            return
        try:
            result = item.chunked.result()
        except BaseException as error:
            self._items.fail(item.entry, error, "merging its passes")
        else:
            self._items.finish(item.entry, result)
