"""The stages of one batch: collate, forward, decode; and what happens to its items when one of them fails.

Knows no queue and no threads: `forward` is called in a lane's inference thread, `collate` and `decode` anywhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from gliner_bento.engine.base import Engine, Prepared, Result
from gliner_bento.errors import GLiNERBentoError, InternalError
from gliner_bento.scheduler.batching import batch_cost
from gliner_bento.scheduler.observer import Observer, Stage
from gliner_bento.scheduler.queue import Entry

logger = logging.getLogger(__name__)
T = TypeVar("T")

Ending = Result | GLiNERBentoError


@dataclass(slots=True)
class Batch:
    """Items to run together.

    borrowed_lanes: idle lanes whose threads it computes with, beside its own lane's.
    collated, scores: what the engine has made of them so far, until the next stage has used it.
    """

    entries: list[Entry]
    borrowed_lanes: int = 0
    collated: Any = None
    scores: Any = None

    @property
    def prepared(self) -> list[Prepared]:
        """What the engine is given."""
        return [entry.prepared for entry in self.entries if entry.prepared is not None]


def public_error(error: BaseException, request_id: str, doing: str) -> GLiNERBentoError:
    """What the caller is told: an error of the tree as it is; any other is logged whole and answered generically."""
    if isinstance(error, GLiNERBentoError):
        return error
    logger.error("request %s failed in %s", request_id, doing, exc_info=error)
    return InternalError()


class Stages:
    """Takes batches through the engine; `finish(sequence, ending)` is told how each item ended.

    A batch that fails in any stage is halved, and `again` is given the halves to run, until the culprit is alone: at
    most 2n - 1 runs for n items.
    """

    def __init__(
        self,
        engine: Engine,
        finish: Callable[[int, Ending], None],
        again: Callable[[Sequence[Batch]], None],
        observer: Observer,
        clock: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._finish = finish
        self._again = again
        self._observer = observer
        self._clock = clock

    def collate(self, batch: Batch) -> None:
        """Make the engine's tensors; raises what the engine raises."""
        batch.collated = self._timed("collate", lambda: self._engine.collate(batch.prepared))

    def forward(self, batch: Batch, threads: int) -> Batch | None:
        """Run the model; the batch to decode, or None: it failed, or nothing of it is left to run.

        Items that have ended meanwhile (aborted, expired) are left out, so that they never reach the device. Nor does a
        batch that was formed before the device's memory shrank, and does not fit any more.
        """
        live = [entry for entry in batch.entries if not entry.ended]
        if len(live) < len(batch.entries):
            batch.entries, batch.collated = live, None
        if not live:
            return None
        if len(live) == 1 or self._fits(batch):
            try:
                self._run(batch, threads)
                return batch
            except Exception as error:
                self._note(batch, error, "inference")
        # Outside the except block: the failed batch's tensors must be free before its halves need room.
        self._halve(batch)
        return None

    def decode(self, batch: Batch) -> None:
        """End every item of `batch` with its result."""
        try:
            extractions = self._decode(batch)
        except BaseException as error:  # a pool would swallow it, and the items would never end
            self._note(batch, error, "decoding")
        else:
            for entry, extraction in zip(batch.entries, extractions, strict=True):
                self._finish(entry.sequence, extraction)
            return
        self._halve(batch)

    def _fits(self, batch: Batch) -> bool:
        room = self._engine.batch_tokens
        return room is None or batch_cost([entry.cost for entry in batch.entries], packs=self._engine.packs) <= room

    def _run(self, batch: Batch, threads: int) -> None:
        """Collate unless that is done, and run."""
        if batch.collated is None:
            self.collate(batch)
        collated, batch.collated = batch.collated, None
        wait_s = self._clock() - min(entry.admitted_s for entry in batch.entries)
        batch.scores = self._timed("forward", lambda: self._engine.forward(collated, threads))
        tokens = [prepared.tokens for prepared in batch.prepared]
        self._observer.on_batch(len(tokens), batch_cost(tokens, packs=self._engine.packs), sum(tokens), wait_s)

    def _decode(self, batch: Batch) -> Sequence[Result]:
        """The results, one for each item."""
        scores, batch.scores = batch.scores, None
        extractions = self._timed("decode", lambda: self._engine.decode(scores))
        if len(extractions) != len(batch.entries):
            raise RuntimeError(f"the engine gave {len(extractions)} results for {len(batch.entries)} items")
        return extractions

    def _timed(self, stage: Stage, work: Callable[[], T]) -> T:
        started_s = self._clock()
        done = work()
        self._observer.on_stage(stage, self._clock() - started_s)
        return done

    def _note(self, batch: Batch, error: BaseException, doing: str) -> None:
        """A lone item is to blame, and ends; of several it is not known which."""
        if len(batch.entries) == 1:
            entry = batch.entries[0]
            self._finish(entry.sequence, public_error(error, entry.request_id, doing))
        else:
            # As text: a log record that held the exception would hold its frames, and with them the tensors.
            logger.warning("a batch of %d items failed in %s and is split: %s", len(batch.entries), doing, repr(error))

    def _halve(self, batch: Batch) -> None:
        """Give back a batch of several items in halves, oldest first."""
        batch.collated = None
        half = len(batch.entries) // 2
        if half:
            self._observer.on_split(len(batch.entries))
            self._again([Batch(batch.entries[:half]), Batch(batch.entries[half:])])
