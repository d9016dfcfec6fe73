"""When the scheduler's collator has nothing to do: tests that depend on the order of batches wait for it."""

from __future__ import annotations

from gliner_bento.scheduler.scheduler import Scheduler


def collator_rests(scheduler: Scheduler) -> bool:
    """Whether all that may be collated ahead is, or the scheduler is closed. A lane that is free while the collator has
    a batch in hand takes the next one."""
    with scheduler._lock:
        dispatcher = scheduler._dispatcher
        return dispatcher._closed or bool(dispatcher._collator_work._waiters)  # type: ignore[attr-defined]
