"""Engines without a forward pass, to measure what is around a model. Loads no torch.

`NoModel`: every capitalised word is an entity of the item's first label; it does as little as it can.
`Remembered`: a real engine whose forward pass is a sleep.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

from gliner_bento.engine.base import Engine, Prepared, SlotState, Steps, run_all
from gliner_bento.status_types import ModelInfo
from gliner_bento.tasks.base import Item, Usage
from gliner_bento.tasks.extraction import Entity, Extraction

_WORD = re.compile(r"\S+")
_NAME = re.compile(r"\b[A-Z]\w*")

INFO = ModelInfo(
    model="none",
    family="none",
    supports_relations=False,
    tasks=("entities",),
    supports_adapters=False,
    device="cpu",
    dtype="float32",
    max_words=512,
    max_span_width=1,
    forward="none",
)


class NoModel:
    """An `Engine` whose batches are its items, and that needs no device."""

    info = INFO
    packs = True
    batch_tokens: int | None = None

    def slot_state(self) -> SlotState:
        """No adapters."""
        return SlotState()

    def prepare(self, item: Item) -> Prepared:
        """See `Engine`."""
        return run_all(self.prepare_in_steps(item))

    def prepare_in_steps(self, item: Item) -> Steps[Prepared]:
        """Count the item's words, in one step."""
        yield
        words = len(_WORD.findall(item.text))
        return Prepared(item, words, words)

    def collate(self, batch: Sequence[Prepared]) -> list[Any]:
        """The batch's items."""
        return [prepared.item for prepared in batch]

    def forward(self, collated: list[Any], threads: int) -> list[Any]:
        """The items."""
        return collated

    def decode(self, scores: Sequence[Any]) -> list[Extraction]:
        """One result per item."""
        return [_result(item) for item in scores]

    def start_lane(self) -> None:
        """Nothing to start."""

    def start_express_lane(self) -> None:
        """Nothing to start."""


class Remembered:
    """An `Engine` over another one, whose forward pass it runs once for each of `items`, of different texts. Then a
    batch takes `sleep_s`, without the interpreter's lock, and has the predictions that its texts had before."""

    batch_tokens: int | None = None

    def __init__(self, engine: Engine, items: Sequence[Item], sleep_s: float) -> None:
        self.info, self.packs = engine.info, engine.packs
        self.slot_state = engine.slot_state
        self.prepare, self.prepare_in_steps = engine.prepare, engine.prepare_in_steps
        self.collate, self.decode = engine.collate, engine.decode
        self._sleep_s = sleep_s
        self._predictions: dict[str, Any] = {}
        for item in items:
            _, (predictions,) = engine.forward(engine.collate([engine.prepare(item)]), 1)
            self._predictions[item.text] = predictions

    def forward(self, collated: Any, threads: int) -> Any:
        """The predictions of the texts."""
        time.sleep(self._sleep_s)
        return collated, [self._predictions[text.item.text] for text in collated.texts]

    def start_lane(self) -> None:
        """Nothing to start."""

    def start_express_lane(self) -> None:
        """Nothing to start."""


def _result(item: Any) -> Extraction:
    label = next(iter(item.labels), "name")
    entities = [Entity(m.start(), m.end(), m.group(), label, 1.0) for m in _NAME.finditer(item.text)]
    words = len(_WORD.findall(item.text))
    return Extraction(entities, usage=Usage(words, words, 1))
