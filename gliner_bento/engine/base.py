"""The contract between the scheduler and an engine. Imports no torch, so that it can be used without a model.

    item ── prepare_in_steps ──▶ Prepared ──┐
    item ── prepare_in_steps ──▶ Prepared ──┴─ collate ──▶ batch ── forward ──▶ scores ── decode ──▶ one result per item

`prepare_in_steps`, `collate` and `decode` are called from any thread, `forward` only from the threads of lanes and of
the express lane. Several threads run `forward` concurrently on the same weights, so an engine has no per-batch state of
its own.

An item that does not fit one pass is prepared as a `ChunkedRequest`, which makes the item's passes and merges their
results. Passes are scheduled like items. Only the engine knows what a result is.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from gliner_bento.adapters.base import SlotState
from gliner_bento.status_types import ModelInfo
from gliner_bento.tasks.base import Item

__all__ = [
    "AdapterLease",
    "ChunkedRequest",
    "Engine",
    "Prepared",
    "Result",
    "SlotState",
    "Steps",
    "run_all",
]

Result = Any
"""Opaque to the scheduler."""


T = TypeVar("T")
Steps = Generator[None, None, T]
"""Does work in steps and returns a T. Pauses after each step, so that other work can run. `close` ends the work."""


def run_all(steps: Steps[T]) -> T:
    """Run all steps. Returns the generator's result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


class AdapterLease(Protocol):
    """Keeps an item's adapter in memory until the lease is released."""

    @property
    def key(self) -> Hashable:
        """Identifies the adapter; equal for items that use the same one."""

    @property
    def ready(self) -> Future[Any]:
        """Done when the adapter is in memory. If loading fails, has the error with which the adapter's items end."""

    def release(self) -> None:
        """Called once, when the item has ended."""


@dataclass(slots=True, eq=False)
class Prepared:
    """An item that the engine has accepted and measured. Not changed any more, except for `ended`.

    item: the item that was prepared; the engine supports its task.
    tokens: sub-word tokens that the item puts into the encoder, prompt included; 0 if the item needs no pass.
    words: number of words of the text that the model reads.
    truncated_at: index of the character at which the text was cut; None: the model reads the whole text.
    cost_tokens: cost in a batch, which includes surcharges for long texts, spans and labels; 0: the cost is `tokens`.
    payload: opaque to the scheduler.
    adapter: a lease on the item's adapter, which must be ready before the item runs; None: the base model.
    result: the result, if the item needs no pass (a blank text).
    chunked: set if the item takes several passes; the item then has 0 tokens and is never put into a batch.
    is_pass: this is a pass of a chunked request.
    ended: set by the scheduler when the item has ended, also before it is done (deadline, abort): long steps check it.
    """

    item: Any
    tokens: int
    words: int
    truncated_at: int | None = None
    payload: Any = None
    cost_tokens: int = 0
    adapter: AdapterLease | None = None
    result: Result | None = None
    chunked: ChunkedRequest | None = None
    is_pass: bool = False
    ended: bool = False

    @property
    def cost(self) -> int:
        """Cost in a batch, in tokens."""
        return self.cost_tokens or self.tokens


class ChunkedRequest(Protocol):
    """The passes of one item. Thread-safe, except that only one thread at a time may call `next_passes`."""

    def next_passes(self) -> Sequence[Prepared]:
        """The next few passes to run, sometimes none. Returns in bounded time. Raises an error for an invalid text."""

    @property
    def exhausted(self) -> bool:
        """Whether no pass can be made now: all are made, or the next ones depend on passes that have not ended. False
        until the first call of `next_passes`."""

    def add(self, prepared: Prepared, result: Result) -> Sequence[Any]:
        """Merge the result of a pass. Returns, in order, the parts of the item's result that this pass makes final.

        Raises `TooLarge` if the result exceeds a limit."""

    @property
    def done(self) -> bool:
        """Whether all passes are made and their results are added."""

    def result(self) -> Result:
        """The item's result, once done."""


class Engine(Protocol):
    """A loaded model. `prepare` raises errors that concern one item as `GLiNERBentoError`, for instance `InvalidField`
    for a task that the model does not support."""

    @property
    def info(self) -> ModelInfo:
        """The model that is served."""

    @property
    def packs(self) -> bool:
        """Whether texts are packed without padding. If so, a batch costs the sum of its items' costs, otherwise the
        number of its items times their highest cost."""

    @property
    def batch_tokens(self) -> int | None:
        """Highest cost of a batch, in tokens, that fits the device's memory now; None: no limit.

        Read before each batch is formed, because it shrinks when the device has run out of memory."""

    def slot_state(self) -> SlotState:
        """The adapters on the device. Called before each batch is formed."""

    def prepare_in_steps(self, item: Item) -> Steps[Prepared]:
        """Check and measure one item, in steps of a few ms; raises `TooLarge`, `InvalidField` or `AdapterNotFound`."""

    def prepare(self, item: Item) -> Prepared:
        """Run all steps of `prepare_in_steps`."""

    def collate(self, batch: Sequence[Prepared]) -> Any:
        """Tensors for one call of `forward`. Called while another batch is on the device."""

    def forward(self, collated: Any, threads: int) -> Any:
        """Run the model with `threads` threads on a CPU; returns what `decode` needs, on the host.

        Raises `DoesNotFit` if the device runs out of memory. Any exception fails the whole batch."""

    def decode(self, scores: Any) -> Sequence[Result]:
        """One result or `GLiNERBentoError` per item, in order. Called while the next batch is on the device."""

    def start_lane(self) -> None:
        """Called once in each lane's thread before its first `forward`."""

    def start_express_lane(self) -> None:
        """As `start_lane`, in the thread of the express lane, whose batches are computed before those of lanes."""
