"""The stages of one batch: collate, forward, decode; and splitting a batch that fails in one of them.

Knows no queue and no threads: `forward` is called in a lane's inference thread, `collate` and `decode` anywhere.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gliner_bento.engine.base import Engine, Prepared, Result
from gliner_bento.errors import ScoresNotFinite
from gliner_bento.scheduler.batching import batch_cost
from gliner_bento.scheduler.entry import Entry
from gliner_bento.scheduler.items import Items
from gliner_bento.scheduler.observer import ItemTiming, Observer, Stage
from gliner_bento.scheduler.tenants import SHORT
from gliner_bento.scheduler.watchdog import Watchdog

logger = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(slots=True)
class Batch:
    """Entries to run together.

    shared_lanes: number of idle lanes whose threads the batch's lane may use.
    collated, scores: output of the engine's stages, until the next stage has used it.
    timings: stages that are done, with their start and end in seconds of the scheduler's clock.
    short_tenants: the tenants with several entries, or the only one, in a batch of short requests; of other batches,
        none.
    """

    entries: list[Entry]
    shared_lanes: int = 0
    collated: Any = None
    scores: Any = None
    timings: list[tuple[Stage, float, float]] = field(default_factory=list)
    short_tenants: Collection[str] = field(init=False)  # not a property, because each arrival reads it

    def __post_init__(self) -> None:
        counts = Counter(entry.tenant.name for entry in self.entries if entry.size is SHORT)
        is_short = counts.total() == len(self.entries)
        self.short_tenants = (
            [name for name, count in counts.items() if count > 1 or len(self.entries) == 1] if is_short else ()
        )

    @property
    def prepared(self) -> list[Prepared]:
        """The engine's input."""
        return [entry.prepared for entry in self.entries if entry.prepared is not None]


class Stages:
    """Takes batches through the engine, and finishes their entries.

    A batch that fails in any stage is halved until the failing item is isolated: at most 2n - 1 runs for n items. The
    halves are returned, and are to be run before anything that waits.
    """

    def __init__(
        self,
        engine: Engine,
        items: Items,
        observer: Observer,
        watchdog: Watchdog,
        clock: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._items = items
        self._observer = observer
        self._watchdog = watchdog
        self._clock = clock

    def collate(self, batch: Batch) -> None:
        """Make the engine's tensors; raises what the engine raises."""
        batch.collated = self._timed("collate", batch, lambda: self._engine.collate(batch.prepared))

    def forward(self, batch: Batch, threads: int) -> Sequence[Batch] | None:
        """Run the model. Returns None if the batch is to be decoded next; else its halves, if any.

        Entries that have finished meanwhile (aborted, expired) are left out. A batch that no longer fits, because less
        of the device's memory is free than when it was formed, is split instead.
        """
        live = [entry for entry in batch.entries if not entry.finished]
        if len(live) < len(batch.entries):
            batch.entries, batch.collated = live, None
        if not live:
            return ()
        if len(live) == 1 or self._fits(batch):
            try:
                self._run(batch, threads)
                return None
            except Exception as error:
                self._report(batch, error, "inference")
        # Outside the except block: the failed batch's tensors must be freed before its halves need memory.
        return self._split(batch)

    def decode(self, batch: Batch) -> Sequence[Batch]:
        """Finish every entry of `batch` with its result. Returns the halves of a batch that fails."""
        try:
            results = self._decode(batch)
        except BaseException as error:  # a pool would swallow it, and the items would never finish
            self._report(batch, error, "decoding")
        else:
            self._trace(batch)
            self._items.finish_all(zip(batch.entries, results, strict=True))
            return ()
        return self._split(batch)

    def _fits(self, batch: Batch) -> bool:
        limit = self._engine.batch_tokens
        return limit is None or batch_cost([entry.cost for entry in batch.entries], packs=self._engine.packs) <= limit

    def _run(self, batch: Batch, threads: int) -> None:
        """Collate the batch if that has not been done, and run the model."""
        if batch.collated is None:
            self.collate(batch)
        collated, batch.collated = batch.collated, None
        wait_s = self._clock() - min(entry.admitted_s for entry in batch.entries)
        batch.scores = self._timed("forward", batch, lambda: self._engine.forward(collated, threads))
        tokens = [prepared.tokens for prepared in batch.prepared]
        self._observer.on_batch(len(tokens), batch_cost(tokens, packs=self._engine.packs), sum(tokens), wait_s)

    def _decode(self, batch: Batch) -> Sequence[Result]:
        """The results, one for each entry."""
        scores, batch.scores = batch.scores, None
        results = self._timed("decode", batch, lambda: self._engine.decode(scores))
        if len(results) != len(batch.entries):
            raise RuntimeError(f"the engine returned {len(results)} results for {len(batch.entries)} items")
        return results

    def _timed(self, stage: Stage, batch: Batch, work: Callable[[], T]) -> T:
        started_s = self._clock()
        with self._watchdog.watch(stage, batch.entries):
            output = work()
        ended_s = self._clock()
        self._observer.on_stage(stage, ended_s - started_s)
        batch.timings.append((stage, started_s, ended_s))
        return output

    def _trace(self, batch: Batch) -> None:
        """Report the timing of each entry that has a trace."""
        for entry in batch.entries:
            if entry.trace is not None:
                timing = ItemTiming(
                    trace=entry.trace,
                    request_id=entry.request_id,
                    admitted_s=entry.admitted_s,
                    stages=batch.timings,
                    batch_items=len(batch.entries),
                    batch_tokens=sum(prepared.tokens for prepared in batch.prepared),
                )
                self._observer.on_traced(timing)

    def _report(self, batch: Batch, error: BaseException, doing: str) -> None:
        """Finish the only entry of a batch with its error. In a larger batch, the failing entry is not known yet."""
        if len(batch.entries) == 1:
            entry = batch.entries[0]
            if isinstance(error, ScoresNotFinite):
                logger.error("request %s (adapter %s): %s", entry.request_id, entry.item.adapter_id, error)
                self._observer.on_not_finite()
            self._items.fail(entry, error, doing)
        else:
            # As text: a log record that held the exception would hold its frames, and with them the tensors.
            logger.warning("a batch of %d items failed in %s and is split: %s", len(batch.entries), doing, repr(error))

    def _split(self, batch: Batch) -> Sequence[Batch]:
        """The halves of a batch, oldest entries first; a batch of one entry has none."""
        batch.collated = None
        half = len(batch.entries) // 2
        if not half:
            return ()
        self._observer.on_split(len(batch.entries))
        return Batch(batch.entries[:half]), Batch(batch.entries[half:])
