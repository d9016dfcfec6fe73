"""An engine without a model, for tests of what is around it. Loads no torch.

Its results depend only on the item: every capitalised word is an entity of the item's first label, and the first
relation holds from each entity to the next. Functions that a test passes in make it wait or fail.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from gliner_bento.engine.base import AdapterLease, ChunkedRequest, Prepared, SlotState, Steps, run_all
from gliner_bento.privacy.lists import Listed
from gliner_bento.status_types import ModelInfo
from gliner_bento.tasks.base import Item, Usage
from gliner_bento.tasks.classifications import results_of
from gliner_bento.tasks.extraction import Entity, Extraction, Relation, RelationArgument

_WORD = re.compile(r"\S+")
_NAME = re.compile(r"\b[A-Z]\w*")

FAKE_INFO = ModelInfo(
    model="fake",
    family="FakeEngine",
    supports_relations=True,
    tasks=("entities", "relations", "classifications", "structures"),
    supports_adapters=False,
    device="cpu",
    dtype="float32",
    max_words=512,
    max_span_width=1,
    forward="fake",
)


def words_and_labels(item: Any) -> int:
    """Tokens of an item: its words and its labels; 0 for a blank text."""
    words = len(_WORD.findall(item.text))
    return words + len(getattr(item, "labels", ())) if words else 0


def _scores(item: Any) -> dict[str, list[float]] | None:
    """Of each classification's labels: the share of the text's words that are the label's name."""
    words = _WORD.findall(item.text)
    return (
        {name: [words.count(label) / len(words) for label in one.labels] for name, one in item.classifications.items()}
        if words
        else None
    )


def extract(item: Any) -> Extraction:
    """The result of one item, which does not depend on its batch."""
    label = next(iter(item.labels), "name")
    listed = Listed(getattr(item, "allowed", ()))
    found = [match for match in _NAME.finditer(item.text) if not listed.allows(*match.span())]
    entities = [Entity(m.start(), m.end(), m.group(), label, 1.0) for m in found]
    relation = next(iter(item.relations), None)
    pairs = zip(range(len(entities)), range(1, len(entities)), strict=False) if relation is not None else ()
    relations = [
        Relation(str(relation), 1.0, _argument(head, entities), _argument(tail, entities)) for head, tail in pairs
    ]
    classes = results_of(item.classifications, _scores(item))
    usage = Usage(len(_WORD.findall(item.text)), words_and_labels(item), 1)
    return Extraction(entities, relations, classes, {name: [] for name in item.structures}, usage=usage)


def _argument(index: int, entities: Sequence[Entity]) -> RelationArgument:
    entity = entities[index]
    return RelationArgument(index, entity.start, entity.end, entity.text, entity.label)


class FakeChunkedRequest:
    """Texts in passes of `words` words each, without overlap; entities are final when all earlier passes are added.

    made: passes so far. per_call: how many `next_passes` makes in one call.
    """

    def __init__(self, item: Item, words: int, per_call: int = 1) -> None:
        starts = [match.start() for match in _WORD.finditer(item.text)][::words]
        self._texts = [item.text[start:end] for start, end in zip(starts, [*starts[1:], None], strict=False)]
        self._item = item
        self._starts = starts
        self._per_call = per_call
        self._numbers: dict[int, int] = {}
        self._results: dict[int, Extraction] = {}
        self._final = 0
        self._begun = False
        self.made = 0

    def next_passes(self) -> list[Prepared]:
        """The next passes."""
        self._begun = True
        texts = self._texts[self.made : self.made + self._per_call]
        passes = [_measured(replace(self._item, text=text)) for text in texts]
        self._numbers |= {id(prepared): number for number, prepared in enumerate(passes, self.made)}
        self.made += len(passes)
        return passes

    @property
    def exhausted(self) -> bool:
        """All passes are made."""
        return self._begun and self.made == len(self._texts)

    def add(self, made: Prepared, result: Extraction) -> list[Entity]:
        """The entities that became final."""
        self._results[self._numbers.pop(id(made))] = result
        entities: list[Entity] = []
        while self._final in self._results:
            entities += self._entities_of(self._final)
            self._final += 1
        return entities

    @property
    def done(self) -> bool:
        """All passes are added."""
        return self.exhausted and len(self._results) == len(self._texts)

    def result(self) -> Extraction:
        """All entities, no relations."""
        usages = [result.usage for result in self._results.values()]
        return Extraction(
            [entity for number in range(len(self._texts)) for entity in self._entities_of(number)],
            usage=Usage(
                words=sum(usage.words for usage in usages),
                tokens=sum(usage.tokens for usage in usages),
                windows=len(usages),
            ),
        )

    def _entities_of(self, number: int) -> list[Entity]:
        """Entities of one pass, with offsets in the item's text."""
        start = self._starts[number]
        entities = self._results[number].entities
        return [replace(entity, start=entity.start + start, end=entity.end + start) for entity in entities]


def _measured(item: Item) -> Prepared:
    return Prepared(item, words_and_labels(item), len(_WORD.findall(item.text)))


def never(_: Item) -> Exception | None:
    """No item fails."""
    return None


NO_ADAPTERS = SlotState()


class FakeEngine:
    """An `Engine` whose steps a test can observe, block or fail.

    tokens: sub-word tokens of an item (default: words + labels, 0 for a blank text).
    cost: cost of an item in a batch (default: its tokens).
    lease: lease of an item's adapter (default: None, the base model).
    chunked: the passes of an item that takes several (default: None).
    prepare_error, collate_error, forward_error, decode_error: called with each item in that step; an exception that it
        returns is raised there (in all but `prepare` the whole batch fails, as with a real engine).
    steps: further steps of an item's preparation (default: none).
    on_prepare, on_collate, on_forward, on_decode: called before the step does its work, in the thread that runs it; may
        block or sleep, e.g. `on_forward=lambda batch: gate.wait()`.
    packs, batch_tokens, slot_state: as in `Engine`. The attributes `batch_tokens` and `slots` may be set at any time.

    prepared: items that `prepare` was called with, in order. batches: batches that `forward` was called with, in order
    of arrival, failed ones included. lanes: thread name -> threads of its last `forward`, 0 before the first.
    """

    def __init__(
        self,
        *,
        info: ModelInfo = FAKE_INFO,
        tokens: Callable[[Item], int] = words_and_labels,
        cost: Callable[[Item], int] = lambda item: 0,
        lease: Callable[[Item], AdapterLease | None] = lambda item: None,
        chunked: Callable[[Item], ChunkedRequest | None] = lambda item: None,
        prepare_error: Callable[[Item], Exception | None] = never,
        collate_error: Callable[[Item], Exception | None] = never,
        forward_error: Callable[[Item], Exception | None] = never,
        decode_error: Callable[[Item], Exception | None] = never,
        steps: Callable[[Item], Iterable[None]] = lambda item: (),
        on_prepare: Callable[[Item], object] = lambda item: None,
        on_collate: Callable[[Sequence[Prepared]], object] = lambda batch: None,
        on_forward: Callable[[Sequence[Prepared]], object] = lambda batch: None,
        on_decode: Callable[[Sequence[Item]], object] = lambda items: None,
        packs: bool = False,
        batch_tokens: int | None = None,
        slot_state: SlotState = NO_ADAPTERS,
    ) -> None:
        self.info = info
        self.prepared: list[Item] = []
        self.batches: list[list[Item]] = []
        self.lanes: dict[str, int] = {}
        self._tokens = tokens
        self._cost = cost
        self._lease = lease
        self._chunked = chunked
        self._prepare_error = prepare_error
        self._collate_error = collate_error
        self._forward_error = forward_error
        self._decode_error = decode_error
        self._steps = steps
        self._on_prepare = on_prepare
        self._on_collate = on_collate
        self._on_forward = on_forward
        self._on_decode = on_decode
        self.packs = packs
        self.batch_tokens = batch_tokens
        self.slots = slot_state

    def slot_state(self) -> SlotState:
        """`slots`."""
        return self.slots

    def prepare(self, item: Item) -> Prepared:
        """See `Engine`."""
        return run_all(self.prepare_in_steps(item))

    def prepare_in_steps(self, item: Item) -> Steps[Prepared]:
        """Measure `item` with `tokens` and `cost`."""
        self.prepared.append(item)
        self._on_prepare(item)
        _raise_first(self._prepare_error, [item])
        yield from self._steps(item)
        if chunked := self._chunked(item):
            return Prepared(item, 0, 0, adapter=self._lease(item), chunked=chunked)
        words = len(_WORD.findall(item.text))
        tokens, cost = self._tokens(item), self._cost(item)
        if not tokens:
            return Prepared(item, 0, words, result=Extraction(()), adapter=self._lease(item))
        return Prepared(item, tokens, words, cost_tokens=cost, adapter=self._lease(item))

    def collate(self, batch: Sequence[Prepared]) -> list[Prepared]:
        """The batch itself. Checks what the scheduler must ensure: its adapters are in memory and fit the slots."""
        self._on_collate(batch)
        _raise_first(self._collate_error, [prepared.item for prepared in batch])
        leases = [prepared.adapter for prepared in batch if prepared.adapter]
        if not all(lease.ready.done() and lease.ready.exception() is None for lease in leases):
            raise AssertionError("an adapter is not in memory")
        if (adapters := len({lease.key for lease in leases})) > self.slots.slots:
            raise AssertionError(f"one batch, {adapters} adapters for {self.slots.slots} slots")
        return list(batch)

    def forward(self, collated: Sequence[Prepared], threads: int) -> list[Item]:
        """The items; records the threads of this lane."""
        self.lanes[threading.current_thread().name] = threads
        items = [prepared.item for prepared in collated]
        self.batches.append(items)
        self._on_forward(collated)
        _raise_first(self._forward_error, items)
        return items

    def decode(self, scores: Sequence[Item]) -> list[Extraction]:
        """One result per item."""
        self._on_decode(scores)
        _raise_first(self._decode_error, scores)
        return [extract(item) for item in scores]

    def start_lane(self) -> None:
        """Record the lane."""
        self.lanes[threading.current_thread().name] = 0

    def start_express_lane(self) -> None:
        """Record nothing: it appears in `lanes` with its first batch."""


def _raise_first(error: Callable[[Item], Exception | None], items: Sequence[Item]) -> None:
    for item in items:
        problem = error(item)
        if problem is not None:
            raise problem
