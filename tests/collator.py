"""When the scheduler's collator, or its express lane, has nothing to do: tests that depend on the order of batches wait
for it."""

from __future__ import annotations

from gliner_bento.scheduler.scheduler import Scheduler


def collator_rests(scheduler: Scheduler) -> bool:
    """Whether all that may be collated ahead is, or the scheduler is closed. A lane that is free while the collator has
    a batch in hand takes the next one."""
    with scheduler._lock:
        dispatcher = scheduler._dispatcher
        return dispatcher._closed or bool(dispatcher._collator_work._waiters)  # type: ignore[attr-defined]


def express_rests(scheduler: Scheduler) -> bool:
    """Whether the express lane runs nothing, and may not take what waits."""
    with scheduler._lock:
        dispatcher = scheduler._dispatcher
        resting = bool(dispatcher._express_work._waiters)  # type: ignore[attr-defined]
        return resting and not dispatcher._has_express_work()
