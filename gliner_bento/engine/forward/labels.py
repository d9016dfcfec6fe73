"""A bi-encoder's labels: encoded once, then kept in one table on the device, the least recently used making room."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from gliner_bento.adapters.adapter import LowRank
from gliner_bento.adapters.linear import RowSlots, on_slot
from gliner_bento.engine.adaptable import Layers
from gliner_bento.engine.encoder import packed_encoder
from gliner_bento.engine.kernels import Kernels
from gliner_bento.engine.packing import Layout, Rows

LabelIds = tuple[int, ...]


class Label(NamedTuple):
    """A label as one adapter reads it: its token ids, and what stands for the adapter (None: none, or one that leaves
    labels alone)."""

    ids: LabelIds
    reading: object | None


# Tokens of labels that are encoded at once.
_TOKENS_AT_ONCE = 4096


class LabelEncoder:
    """Embeddings of labels, as gliner's `BiEncoder.encode_labels` gives them. Thread-safe: lanes share the table. On a
    GPU, where each lane has a stream, writing waits for the device; it is rare.

    layer: gliner's `BiEncoder`. size: labels that are kept; 0 keeps none.
    """

    def __init__(self, layer: Any, size: int, layers: Layers, kernels: Kernels, *, pack: bool) -> None:
        self._layer = layer
        projection = getattr(layer, "labels_projection", None)
        encoder = layer.labels_encoder
        self._packed = packed_encoder(encoder, projection, layers, kernels) if pack else None
        if self._packed is None:
            layers.adapt(encoder)
            if projection is not None:
                layers.adapt_child(layer, "labels_projection")
        self._names = tuple(layers.name_of(part) for part in (encoder, projection) if part is not None)
        self._readings: list[object | None] = [None] * layers.slots
        if layers.slots:
            layers.sinks.append(self)
        self._size = size
        self._device = next(layer.labels_encoder.parameters()).device
        if self._packed is not None:
            self._layer = None  # the packed form holds the weights
        self._table: torch.Tensor | None = None
        self._slots: OrderedDict[Label, int] = OrderedDict()
        self._lock = threading.Lock()
        self.encoded_labels = 0
        """Labels encoded since the start: those that were in the table cost nothing."""

    def prepare(self, updates: Mapping[str, LowRank]) -> object | None:
        """See `Sink`: labels are read anew with an adapter that changes how."""
        inside = (name == part or name.startswith(f"{part}.") for name in updates for part in self._names)
        return object() if any(inside) else None

    def put(self, slot: int, prepared: object | None) -> None:
        """See `Sink`."""
        self._readings[slot] = prepared

    def __call__(self, ids: Sequence[LabelIds], of_labels: Rows) -> torch.Tensor:
        """Shape (len(ids), D), labels given by their token ids; each distinct one is encoded at most once."""
        slot_of: dict[object | None, int | None] = {None: None}
        readings: list[object | None] = []
        for row, count in enumerate(of_labels.counts):
            slot = of_labels.slot(row)
            reading = None if slot is None else self._readings[slot]
            slot_of.setdefault(reading, slot)
            readings += [reading] * count
        labels = [Label(*label) for label in zip(ids, readings, strict=True)]
        distinct = list(dict.fromkeys(labels))
        with self._lock:
            known = {label: self._slots[label] for label in distinct if label in self._slots}
            for label in known:
                self._slots.move_to_end(label)
            kept = self._rows([known[label] for label in distinct if label in known])
            missing = [label for label in distinct if label not in known]
            self.encoded_labels += len(missing)
        slots = [slot_of[label.reading] for label in missing]
        made = self._encode([label.ids for label in missing], slots, of_labels.slots) if missing else kept
        self._keep(missing, made)
        order = {label: place for place, label in enumerate([*known, *missing])}
        everything = torch.cat([kept, made]) if known and missing else (made if missing else kept)
        return everything[torch.tensor([order[label] for label in labels], device=everything.device)]

    def _rows(self, slots: list[int]) -> torch.Tensor:
        if self._table is None:
            return torch.empty(0)
        return self._table[torch.tensor(slots, dtype=torch.long, device=self._table.device)]

    def _keep(self, labels: Sequence[Label], embeddings: torch.Tensor) -> None:
        """Put new labels into the table: the last `size` of them, if they are more."""
        if not labels or not self._size:
            return
        with self._lock:
            self._synchronize()  # reads that were queued before are done
            if self._table is None:
                self._table = embeddings.new_zeros(self._size, embeddings.shape[1])
            for label, embedding in list(zip(labels, embeddings, strict=True))[-self._size :]:
                if label in self._slots:  # another lane was faster
                    continue
                slot = len(self._slots) if len(self._slots) < self._size else self._slots.popitem(last=False)[1]
                self._slots[label] = slot
                self._table[slot] = embedding
            self._synchronize()  # and this is, before anyone reads it

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _encode(
        self, labels: Sequence[LabelIds], slots: Sequence[int | None], adapters: RowSlots | None
    ) -> torch.Tensor:
        """Shape (len(labels), D): the mean over a label's tokens, as gliner pools them."""

        def place(number: int) -> tuple[bool, int, int]:
            slot = slots[number]
            return slot is None, slot or 0, len(labels[number])

        ordered = sorted(range(len(labels)), key=place)
        pooled: list[torch.Tensor] = []
        part: list[int] = []
        longest = 0
        for number in ordered:
            longest = max(longest, len(labels[number]))
            if part and (len(part) + 1) * longest > _TOKENS_AT_ONCE:
                pooled.append(self._pooled([labels[n] for n in part], [slots[n] for n in part], adapters))
                part, longest = [], len(labels[number])
            part.append(number)
        pooled.append(self._pooled([labels[n] for n in part], [slots[n] for n in part], adapters))
        embeddings = torch.empty_like(together := torch.cat(pooled))
        embeddings[torch.tensor(ordered, device=embeddings.device)] = together
        return embeddings

    def _pooled(
        self, labels: Sequence[LabelIds], slots: Sequence[int | None], adapters: RowSlots | None
    ) -> torch.Tensor:
        ids = torch.tensor([token for label in labels for token in label], device=self._device)
        of_rows = RowSlots(tuple(slots), adapters.count, adapters.device) if adapters and any_of(slots) else None
        rows = Rows(tuple(len(label) for label in labels), of_rows)
        if self._packed is not None:
            tokens = self._packed(ids, Layout.of(rows, self._device))
            return torch.stack([row.float().mean(0) for row in rows.split(tokens)]).to(tokens.dtype)
        around = Layout.padded(rows, self._device)
        assert around.index is not None
        assert around.mask is not None
        assert self._layer is not None
        parts, first = [], 0
        for slot, count in around.by_adapter():
            index, mask = around.index[first : first + count], around.mask[first : first + count]
            with on_slot(slot):
                parts.append(self._layer.encode_labels(ids[index], mask.long()))
            first += count
        return torch.cat(parts)


def any_of(slots: Sequence[int | None]) -> bool:
    """Whether any is the slot of an adapter."""
    return any(slot is not None for slot in slots)
