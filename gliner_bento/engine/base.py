"""The contract between the scheduler and an engine. Imports no torch, so that it can be used without a model.

    item ── prepare ──▶ Prepared ──┐
    item ── prepare ──▶ Prepared ──┴─ collate ──▶ batch ── forward ──▶ scores ── decode ──▶ one Extraction per item

`prepare`, `collate` and `decode` are called from any thread, `forward` from a lane's inference thread alone; several
lanes run `forward` at once on the same weights, so an engine keeps no per-batch state on itself.

An item that the model cannot read in one pass comes from `prepare` as a `Reading`: it makes its passes, which run like
items, and puts what they found together.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

LongText = Literal["window", "truncate", "reject"]


@dataclass(frozen=True, slots=True)
class Item:
    """One text with its options: all that the result depends on.

    `labels` and `relations` map a name to its description; a name without one is its own description. Names are
    unique, non-empty, and answered as they are; descriptions are what the model reads.

    long_text: what is done with a text that the model cannot read at once. window_words, window_overlap_words: how long
    its windows are and how much neighbours share, at most, in words; None: the engine's own.
    """

    text: str
    labels: Mapping[str, str]
    relations: Mapping[str, str] = field(default_factory=dict)
    threshold: float = 0.5
    relation_threshold: float = 0.5
    flat_ner: bool = True
    multi_label: bool = False
    adapter_id: str | None = None
    long_text: LongText = "window"
    window_words: int | None = None
    window_overlap_words: int | None = None


class AdapterLease(Protocol):
    """An item's claim to its adapter, until it is released."""

    @property
    def key(self) -> Hashable:
        """Which adapter; equal for items that are read with the same one."""

    @property
    def ready(self) -> Future[Any]:
        """Done when the adapter is in memory; fails with an error for its items."""

    def release(self) -> None:
        """The item has ended. Called once."""


@dataclass(frozen=True, slots=True)
class AdapterRoom:
    """Adapters on the device now. slots: as many as one batch may have at most. held: those of running batches."""

    slots: int = 0
    resident: frozenset[Hashable] = frozenset()
    held: frozenset[Hashable] = frozenset()


@dataclass(frozen=True, slots=True)
class Prepared:
    """An item that the engine has accepted and measured.

    tokens: sub-word tokens that the item puts into the encoder, prompt included. 0 for a blank text, which never
        reaches the device.
    words: words of the text that the model reads.
    cost_tokens: what the item costs, in tokens of a short text: its tokens and what long attention, spans and labels
        add; 0: as many as `tokens`.
    payload: the engine's own.
    adapter: what the item waits for before it may run, and what is released when it has ended; None: the base model.
    reading: of an item that takes several passes; it has no tokens of its own, and is never put into a batch.
    partial: this is such a pass: its extraction holds what did not stand beside its entities, too.
    """

    item: Item
    tokens: int
    words: int
    truncated_at: int | None = None
    payload: Any = None
    cost_tokens: int = 0
    adapter: AdapterLease | None = None
    reading: Reading | None = None
    partial: bool = False

    @property
    def cost(self) -> int:
        """What the item costs in a batch, in tokens."""
        return self.cost_tokens or self.tokens


@dataclass(frozen=True, slots=True)
class Entity:
    """A mention: `text[start:end]`, in characters."""

    start: int
    end: int
    text: str
    label: str
    score: float


@dataclass(frozen=True, slots=True)
class Relation:
    """`relation` holds from `entities[head]` to `entities[tail]` of the same extraction."""

    relation: str
    score: float
    head: int
    tail: int


@dataclass(frozen=True, slots=True)
class Extraction:
    """The result for one item. Entities are in order of position, relations in gliner's order.

    truncated_at: the character at which the reading ended, if the text goes on there.
    words: words of the text that were read. tokens: sub-word tokens of all passes.
    windows: pieces that the text was read in. label_groups, relation_groups: in how many groups labels were asked for.
    displaced: of a pass of several: entities above the threshold for which others left no place.
    """

    entities: Sequence[Entity] = ()
    relations: Sequence[Relation] = ()
    truncated_at: int | None = None
    words: int = 0
    tokens: int = 0
    windows: int = 0
    label_groups: int = 1
    relation_groups: int = 0
    displaced: Sequence[Entity] = ()


class Reading(Protocol):
    """The several passes of one item. Thread-safe, but for `more`, which one thread calls at a time."""

    def more(self) -> Sequence[Prepared]:
        """A few passes to run next, sometimes none; a bounded piece of work. Raises what is wrong with the text."""

    @property
    def exhausted(self) -> bool:
        """There is nothing to make now: it is all made, or waits for what passes under way will find. Not so before
        `more` was called."""

    def add(self, made: Prepared, found: Extraction) -> Sequence[Entity]:
        """What a pass has found; entities of the text that stand from now on, in order of position: the result's next.

        Raises `TooLarge` for more than an answer may hold."""

    @property
    def done(self) -> bool:
        """All passes are made and added."""

    def result(self) -> Extraction:
        """The whole item's result, when done."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What is served: told at `/v1/model`, and what the gateway needs in order to refuse early.

    max_labels_per_pass: labels, and relations, that are asked for at once; None: all.
    """

    name: str
    family: str
    supports_relations: bool
    supports_adapters: bool
    device: str
    dtype: str
    max_words: int
    max_span_width: int | None
    forward: str
    max_labels_per_pass: int | None = None


class Engine(Protocol):
    """A model, ready to answer. Errors that concern one item are raised as `GLiNERBentoError` from `prepare`."""

    @property
    def info(self) -> ModelInfo:
        """What is served."""

    @property
    def packs(self) -> bool:
        """Whether rows stand side by side without padding: a batch costs the sum of its items' `cost_tokens`. Else it
        costs its items times the most that one of them costs."""

    @property
    def batch_tokens(self) -> int | None:
        """What a batch may cost now, in tokens, for the device's memory to hold it; None where nothing says so.

        Asked before each batch is formed: it shrinks when the device has run out of memory."""

    def adapter_room(self) -> AdapterRoom:
        """Asked before each batch is formed."""

    def prepare(self, item: Item) -> Prepared:
        """Check and measure one item; raises `TooLarge`, `InvalidField` or `AdapterNotFound` for that item alone."""

    def collate(self, batch: Sequence[Prepared]) -> Any:
        """Tensors for one forward; runs while another batch is on the device."""

    def forward(self, collated: Any, threads: int) -> Any:
        """Run the model, computing with `threads` threads on a CPU; what `decode` needs, on the host.

        An exception fails the whole batch; `DoesNotFit` where the device ran out of memory."""

    def decode(self, scores: Any) -> Sequence[Extraction]:
        """One extraction per item, in order; runs while the next batch is on the device."""

    def start_lane(self) -> None:
        """Called once in each inference thread before its first `forward`."""
