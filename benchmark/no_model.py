"""An engine without a model: every capitalised word is an entity of the item's first label. Loads no torch.

It measures what is around an engine, so it does as little as it can.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from gliner_bento.engine.base import Prepared, SlotState, Steps, run_all
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


def _result(item: Any) -> Extraction:
    label = next(iter(item.labels), "name")
    entities = [Entity(m.start(), m.end(), m.group(), label, 1.0) for m in _NAME.finditer(item.text)]
    words = len(_WORD.findall(item.text))
    return Extraction(entities, usage=Usage(words, words, 1))
