"""The contract between the scheduler and an engine. Imports no torch, so that it can be used without a model.

    item ── prepare ──▶ Prepared ──┐
    item ── prepare ──▶ Prepared ──┴─ collate ──▶ batch ── forward ──▶ scores ── decode ──▶ one Extraction per item

`prepare`, `collate` and `decode` are called from any thread, `forward` from a lane's inference thread alone; several
lanes run `forward` at once on the same weights, so an engine keeps no per-batch state on itself.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

LongText = Literal["truncate", "reject"]


@dataclass(frozen=True, slots=True)
class Item:
    """One text with its options: all that the result depends on.

    `labels` and `relations` map a name to its description; a name without one is its own description. Names are
    unique, non-empty, and answered as they are; descriptions are what the model reads.
    """

    text: str
    labels: Mapping[str, str]
    relations: Mapping[str, str] = field(default_factory=dict)
    threshold: float = 0.5
    relation_threshold: float = 0.5
    flat_ner: bool = True
    multi_label: bool = False
    adapter_id: str | None = None
    long_text: LongText = "truncate"


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
    """

    item: Item
    tokens: int
    words: int
    truncated: bool = False
    payload: Any = None
    cost_tokens: int = 0
    adapter: AdapterLease | None = None

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
    """The result for one item. Entities are in order of position, relations in gliner's order."""

    entities: Sequence[Entity] = ()
    relations: Sequence[Relation] = ()
    truncated: bool = False
    words: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What is served: told at `/v1/model`, and what the gateway needs in order to refuse early."""

    name: str
    family: str
    supports_relations: bool
    supports_adapters: bool
    device: str
    dtype: str
    max_words: int
    max_span_width: int | None
    forward: str


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
