"""The item book: the items that have not ended. Each ends exactly once, with its result or one error, by its deadline.

Knows no engine, and not how items run. What runs them puts entries into `Items.queue`, and ends them with `finish`.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from gliner_bento.engine.base import AdapterLease
from gliner_bento.errors import Aborted, DeadlineExceeded, GLiNERBentoError, InternalError
from gliner_bento.scheduler.entry import RUNNING, Entry, ResultOrError, Submission
from gliner_bento.scheduler.observer import Observer, Outcome
from gliner_bento.scheduler.queue import WaitingQueue

logger = logging.getLogger(__name__)

_MAX_WAIT_S = 60.0  # maximum time of one Condition.wait, which platforms limit


class Passes(Protocol):
    """The chunked requests, as the book sees them."""

    def on_finish(self, entry: Entry) -> None:
        """An item or a pass has left the queue. Called with the lock held."""

    def add(self, entry: Entry, outcome: ResultOrError) -> None:
        """Merge the outcome of a pass, which has left the queue, into its item."""


class Items:
    """The unfinished items of `queue`, whose lock it uses. Methods take the lock, unless they say otherwise.

    passes: set by `ChunkedRequests`.
    """

    passes: Passes

    def __init__(self, queue: WaitingQueue, observer: Observer, clock: Callable[[], float]) -> None:
        self.queue = queue
        self._lock = queue.lock
        self._observer = observer
        self._clock = clock
        self._deadline_moved = threading.Condition(self._lock)
        self._all_answered = threading.Condition(self._lock)
        self._unanswered = 0
        self._awaited_s = math.inf  # the deadline that `watch_deadlines` waits for
        self._closed = False

    def register(self, entries: Sequence[Entry], deadline_s: float | None) -> None:
        """Items that belong to submissions were admitted with this deadline, which is watched from now on. Called with
        the lock held."""
        self._unanswered += len(entries)
        if deadline_s is not None and deadline_s < self._awaited_s:
            self._awaited_s = deadline_s
            self._deadline_moved.notify()

    def wait_until_answered(self, timeout_s: float | None) -> bool:
        """Return when every item is answered; False after `timeout_s`."""
        with self._all_answered:
            return self._all_answered.wait_for(lambda: not self._unanswered, timeout_s)

    # How an item ends

    def finish(self, entry: Entry, outcome: ResultOrError) -> bool:
        """Finish an item and answer it, or merge the outcome of a pass into its item. Returns False if the item had
        finished before, so that `outcome` is ignored."""
        return self.finish_all([(entry, outcome)])

    def finish_all(self, outcomes: Iterable[tuple[Entry, ResultOrError]]) -> bool:
        """Finish several items, as `finish` does. Returns False if all had finished before."""
        items: list[tuple[Entry, ResultOrError]] = []
        passes: list[tuple[Entry, ResultOrError]] = []
        wake = False
        with self._lock:
            for entry, outcome in outcomes:
                state = self.queue.finish(entry)
                if state is None:
                    continue
                self.passes.on_finish(entry)
                wake = wake or state is not RUNNING
                (items if entry.parent is None else passes).append((entry, outcome))
            if wake:
                self.queue.wake()  # a lane, or the collator, may have waited for one of them
        if items:
            self._answer(items)
        for entry, outcome in passes:
            self.passes.add(entry, outcome)
        return bool(items or passes)

    def fail(self, entry: Entry, error: BaseException, doing: str) -> None:
        """Finish an item with an exception: a `GLiNERBentoError` as it is, an `InternalError` for any other, which is
        logged. doing: what raised it."""
        if not isinstance(error, GLiNERBentoError):
            logger.error("request %s failed in %s", entry.request_id, doing, exc_info=error)
            error = InternalError()
        self.finish(entry, error)

    def fail_all(self, entries: Iterable[Entry], error: Callable[[], GLiNERBentoError]) -> None:
        """Finish each item with an error of its own."""
        self.finish_all([(entry, error()) for entry in entries])

    def abort(self, request_id: str) -> bool:
        """Fail every unfinished item of the request with `Aborted`; False if there is none, or if all finish now."""
        with self._lock:
            entries = self.queue.of_request(request_id)
        return self.finish_all([(entry, Aborted("the request was aborted")) for entry in entries])

    def cancel(self, sequences: range) -> None:
        """Nobody waits for the answer of these entries any more: abort those that have not ended."""
        with self._lock:
            entries = [entry for sequence in sequences if (entry := self.queue.find(sequence))]
        self.fail_all(entries, lambda: Aborted("the client has disconnected"))

    def expire(self) -> None:
        """Fail every item whose deadline has passed."""
        with self._lock:
            expired = self.queue.expired()
        self.fail_all(expired, lambda: DeadlineExceeded.before("the request finished"))

    def watch_deadlines(self) -> None:
        """Expire items until `close`; the loop of a thread."""
        while True:
            with self._deadline_moved:
                if self._closed:
                    return
                deadline_s = self.queue.next_deadline_s
                self._awaited_s = math.inf if deadline_s is None else deadline_s
                wait_s = min(self._awaited_s - self._clock(), _MAX_WAIT_S)
                if wait_s > 0:
                    self._deadline_moved.wait(wait_s)
            self.expire()

    def close(self) -> None:
        """End `watch_deadlines`. Called with the lock held."""
        self._closed = True
        self._deadline_moved.notify_all()

    def _answer(self, outcomes: Sequence[tuple[Entry, ResultOrError]]) -> None:
        counts = Counter(_outcome(outcome) for _, outcome in outcomes)
        for name, items in counts.items():
            self._observer.on_finish(name, items)
        for entry, _ in outcomes:
            if entry.lease:
                release(entry.lease)
        ended: list[Submission] = []
        with self._lock:
            for entry, outcome in outcomes:
                submission = entry.submission
                assert submission is not None
                submission.outcomes[entry.sequence - submission.sequences.start] = outcome
                submission.unended -= 1
                if not submission.unended:
                    ended.append(submission)
        for call in {submission.answer(submission.outcomes) for submission in ended}:
            if call:
                call()
        with self._lock:
            self._unanswered -= len(outcomes)
            if not self._unanswered:
                self._all_answered.notify_all()


def release(lease: AdapterLease) -> None:
    """Release the lease of an item that has finished. An exception is logged, because the item must be answered."""
    try:
        lease.release()
    except Exception:
        logger.exception("an adapter could not be released")


def _outcome(outcome: ResultOrError) -> Outcome:
    if not isinstance(outcome, GLiNERBentoError):
        return "completed"
    if isinstance(outcome, Aborted):
        return "aborted"
    return "expired" if isinstance(outcome, DeadlineExceeded) else "failed"
