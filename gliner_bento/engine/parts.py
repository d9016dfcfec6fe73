"""What a row of `families` makes of a model, for `GLiNEREngine`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from gliner_bento.engine.base import AdapterLease, Prepared, Steps
from gliner_bento.engine.heads.predictions import Predictions
from gliner_bento.engine.text.collate import CPU, CollatedBatch, SlotOf
from gliner_bento.engine.text.subwords import ModelLimits
from gliner_bento.tasks.base import Item
from gliner_bento.tasks.extraction import ExtractionItem


class Preparer(Protocol):
    """Prepares the items of one model. Thread-safe."""

    def checked(self, item: Item) -> ExtractionItem:
        """The item. Raises InvalidField for options that the model does not support."""

    def prepare(self, item: ExtractionItem, lease: AdapterLease | None) -> Steps[Prepared]:
        """The item as one pass or as a chunked request; without the lease if it needs no pass."""


class ForwardPass(Protocol):
    """packs: texts are packed, or run one by one, without padding. name: how it computes, for `/v1/model`."""

    packs: bool
    name: str

    @property
    def encoded_labels(self) -> int:
        """See `Encoder`."""

    def collate(
        self, items: Sequence[Prepared], slot_of: SlotOf | None = None, slots: int = 0, device: torch.device = CPU, /
    ) -> CollatedBatch:
        """See `ordered`; the batch has the inputs of a call, on the CPU."""

    def __call__(self, inputs: Any, texts: Sequence[Prepared], /) -> list[Predictions]:
        """The predictions of each text. Raises `ScoresNotFinite`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of an engine that depend on the model's family. limits: of one pass. The other fields: see
    `ModelInfo`."""

    preparer: Preparer
    forward: ForwardPass
    limits: ModelLimits
    family: str
    tasks: Sequence[str]
    max_labels_per_pass: int | None
    max_span_width: int | None = None
    relation_window_sentences: int | None = None
    cached_subwords: bool = False
