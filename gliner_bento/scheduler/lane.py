"""A lane's work on one batch: run it, hand each item its result or error, split a batch that fails.

Knows no queue and no threads: it is called in a lane's inference thread, one batch at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gliner_bento.engine.base import Engine, Extraction, Prepared
from gliner_bento.errors import GLiNERBentoError, InternalError
from gliner_bento.scheduler.observer import Observer
from gliner_bento.scheduler.queue import Entry

logger = logging.getLogger(__name__)

Ending = Extraction | GLiNERBentoError


@dataclass(slots=True)
class Batch:
    """Items to run together; `collated` holds the engine's tensors, once it has made them and until they are used."""

    entries: list[Entry]
    collated: Any = None

    @property
    def prepared(self) -> list[Prepared]:
        """What the engine is given."""
        return [entry.prepared for entry in self.entries if entry.prepared is not None]


def public_error(error: BaseException, request_id: str, stage: str) -> GLiNERBentoError:
    """What the caller is told: an error of the tree as it is; any other is logged whole and answered generically."""
    if isinstance(error, GLiNERBentoError):
        return error
    logger.error("request %s failed in %s", request_id, stage, exc_info=error)
    return InternalError()


class Lane:
    """Runs batches; `finish(sequence, ending)` is told how each item ended."""

    def __init__(
        self,
        engine: Engine,
        finish: Callable[[int, Ending], None],
        observer: Observer,
        clock: Callable[[], float],
        threads: int = 1,
    ) -> None:
        self._engine = engine
        self._finish = finish
        self._observer = observer
        self._clock = clock
        self._threads = threads

    def run(self, batch: Batch) -> None:
        """Run `batch` to its end. A failing one is halved until the culprit is alone: at most 2n - 1 runs for n items.

        Items that have ended meanwhile (aborted, expired) are left out, so that they never reach the device.
        """
        live = [entry for entry in batch.entries if not entry.ended]
        if len(live) < len(batch.entries):
            batch = Batch(live)
        if live and not self._attempt(batch):
            # Outside the except block: the failed batch's tensors must be free before its halves need room.
            half = len(live) // 2
            self.run(Batch(live[:half]))
            self.run(Batch(live[half:]))

    def _attempt(self, batch: Batch) -> bool:
        """One forward; False if it failed and more than one item could be to blame."""
        try:
            extractions = self._forward(batch)
        except Exception as error:
            if len(batch.entries) == 1:
                entry = batch.entries[0]
                self._finish(entry.sequence, public_error(error, entry.request_id, "inference"))
                return True
            # As text: a log record that held the exception would hold its frames, and with them the tensors.
            logger.warning("a batch of %d items failed and is split: %s", len(batch.entries), repr(error))
            self._observer.on_split(len(batch.entries))
            return False
        for entry, extraction in zip(batch.entries, extractions, strict=True):
            self._finish(entry.sequence, extraction)
        return True

    def _forward(self, batch: Batch) -> Sequence[Extraction]:
        """Collate unless that is done, run, and check that each item has a result."""
        tokens = [prepared.tokens for prepared in batch.prepared]
        oldest_s = min(entry.admitted_s for entry in batch.entries)
        collated, batch.collated = batch.collated, None
        if collated is None:
            collated = self._engine.collate(batch.prepared)
        started_s = self._clock()
        extractions = self._engine.decode(self._engine.forward(collated, self._threads))
        ended_s = self._clock()
        if len(extractions) != len(tokens):
            raise RuntimeError(f"the engine gave {len(extractions)} results for {len(tokens)} items")
        padded_tokens = len(tokens) * max(tokens)
        self._observer.on_batch(len(tokens), padded_tokens, sum(tokens), started_s - oldest_s, ended_s - started_s)
        return extractions
