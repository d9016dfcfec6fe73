"""A bi-encoder's labels: encoded once, then cached in one table on the device, with LRU eviction."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from gliner_bento.adapters.adapter import LowRank
from gliner_bento.adapters.device import AdapterSink
from gliner_bento.engine.encoders.packed import packed_encoder
from gliner_bento.engine.encoders.text_encoder import by_adapter, is_paddable
from gliner_bento.engine.layers.factory import LayerFactory
from gliner_bento.engine.layers.packing import PaddedLayout
from gliner_bento.engine.layers.rows import TextRows, TextSlots, copied
from gliner_bento.engine.synchronize import synchronize

LabelIds = tuple[int, ...]


class LabelKey(NamedTuple):
    """A cache key. ids: the label's token ids. adapter: what `prepare` returned for the adapter; None: the base model,
    or an adapter that does not change the label encoder."""

    ids: LabelIds
    adapter: object | None


# Maximum number of tokens, with padding, per call of the encoder.
_MAX_TOKENS = 4096


class LabelEncoder(AdapterSink):
    """Embeddings of labels, as gliner's `BiEncoder.encode_labels` gives them. Thread-safe: lanes share the table.

    On a GPU, each lane has its own stream, so a write to the table waits for the device. Writes are rare.

    layer: gliner's `BiEncoder`. size: maximum number of cached labels; 0: no cache.
    """

    def __init__(self, layer: Any, size: int, layers: LayerFactory, *, pack: bool) -> None:
        self._layer = layer
        projection = getattr(layer, "labels_projection", None)
        encoder = layer.labels_encoder
        self._packed = packed_encoder(encoder, projection, layers) if pack else None
        self._mixes_lengths = self._packed is not None or is_paddable(encoder)
        self._own_shapes = layers.own_shapes
        self._one_by_one = bool(layers.threads) and self._packed is None
        if self._packed is None:
            layers.adapt(encoder)
            if projection is not None:
                layers.adapt_child(layer, "labels_projection")
        self._names = tuple(layers.name_of(module) for module in (encoder, projection) if module is not None)
        self._adapter_of_slot: list[object | None] = [None] * layers.slots
        if layers.slots:
            layers.sinks.append(self)
        self._size = size
        self._padded = layers.padded
        self._device = next(layer.labels_encoder.parameters()).device
        if self._packed is not None:
            self._layer = None  # the packed form holds the weights
        self._table: torch.Tensor | None = None
        self._table_rows: OrderedDict[LabelKey, int] = OrderedDict()
        self._lock = threading.Lock()
        self.encoded_labels = 0
        """How many labels were encoded since the start. Cached labels are not encoded again."""

    def prepare(self, updates: Mapping[str, LowRank]) -> object | None:
        """See `AdapterSink`. An adapter that changes the label encoder gets an object to make its cache keys unique."""
        changes = (name == part or name.startswith(f"{part}.") for name in updates for part in self._names)
        return object() if any(changes) else None

    def write(self, slot: int, prepared: object | None) -> None:
        self._adapter_of_slot[slot] = prepared

    def __call__(self, ids: Sequence[LabelIds], label_rows: TextRows) -> torch.Tensor:
        """Embeddings (len(ids), D). ids: the token ids of each label. A label that is not cached is encoded once."""
        slot_of: dict[object | None, int | None] = {None: None}  # for each adapter, one of its slots
        adapters: list[object | None] = []  # for each label
        for text, count in enumerate(label_rows.counts):
            slot = label_rows.slot(text)
            adapter = None if slot is None else self._adapter_of_slot[slot]
            slot_of.setdefault(adapter, slot)
            adapters += [adapter] * count
        keys = [LabelKey(*key) for key in zip(ids, adapters, strict=True)]
        distinct = list(dict.fromkeys(keys))
        with self._lock:
            cached = {key: self._table_rows[key] for key in distinct if key in self._table_rows}
            for key in cached:
                self._table_rows.move_to_end(key)
            hits = self._rows([cached[key] for key in distinct if key in cached])
            missing = [key for key in distinct if key not in cached]
            self.encoded_labels += len(missing)
        embeddings = hits
        if missing:
            slots = [slot_of[key.adapter] for key in missing]
            encoded = self._encode([key.ids for key in missing], slots, label_rows.slots)
            self._insert(missing, encoded)
            embeddings = torch.cat([hits, encoded]) if cached else encoded
        index_of = {key: index for index, key in enumerate([*cached, *missing])}
        return embeddings[self._indexes(label_rows.with_padding([index_of[key] for key in keys]))]

    def _rows(self, rows: list[int]) -> torch.Tensor:
        if self._table is None:
            return torch.empty(0)
        return self._table[self._indexes(rows)]

    def _indexes(self, indexes: Sequence[int]) -> torch.Tensor:
        return copied(torch.tensor(indexes, dtype=torch.long), self._device)

    def _insert(self, keys: Sequence[LabelKey], embeddings: torch.Tensor) -> None:
        """Cache new labels; only the last `size` of them, if there are more."""
        if not self._size:
            return
        with self._lock:
            synchronize(self._device)  # waits for reads of the table that other streams have queued
            if self._table is None:
                self._table = embeddings.new_zeros(self._size, embeddings.shape[1])
            index_of_row: dict[int, int] = {}  # the index of the embedding to write into each row
            for index, key in list(enumerate(keys))[-self._size :]:
                if key in self._table_rows:  # another lane inserted it meanwhile
                    continue
                full = len(self._table_rows) >= self._size
                row = self._table_rows.popitem(last=False)[1] if full else len(self._table_rows)
                self._table_rows[key] = row
                index_of_row[row] = index
            self._table[self._indexes(list(index_of_row))] = embeddings[self._indexes(list(index_of_row.values()))]
            synchronize(self._device)  # waits for this write, before another stream reads the table

    def _encode(
        self, labels: Sequence[LabelIds], slots: Sequence[int | None], adapters: TextSlots | None
    ) -> torch.Tensor:
        """Embeddings (len(labels), D): the mean over a label's tokens, as in gliner. slots: the slot of each label."""
        order = sorted(range(len(labels)), key=lambda n: (slots[n] is None, slots[n] or 0, len(labels[n])))
        pooled = torch.cat(
            [
                self._pooled([labels[n] for n in batch], [slots[n] for n in batch], adapters)
                for batch in self._batches(order, labels)
            ]
        )
        embeddings = torch.empty_like(pooled)
        embeddings[self._indexes(order)] = pooled
        return embeddings

    def _batches(self, order: Sequence[int], labels: Sequence[LabelIds]) -> Iterator[list[int]]:
        """Indexes of the labels of each call of the encoder. order: indexes of all labels."""
        batch: list[int] = []
        longest = 0
        for index in order:
            length = len(labels[index])
            differs = length != longest and not self._mixes_lengths
            longest = max(longest, length)
            if batch and (self._one_by_one or differs or (len(batch) + 1) * longest > _MAX_TOKENS):
                yield batch
                batch, longest = [], length
            batch.append(index)
        yield batch

    def _pooled(
        self, labels: Sequence[LabelIds], slots: Sequence[int | None], adapters: TextSlots | None
    ) -> torch.Tensor:
        ids = self._indexes([token for label in labels for token in label])
        label_slots = None
        if adapters is not None and any(slot is not None for slot in slots):
            label_slots = TextSlots(tuple(slots), adapters.count, adapters.device)
        rows = TextRows(tuple(len(label) for label in labels), label_slots)
        layout = PaddedLayout.of(rows, self._device) if self._padded or self._packed is None else None
        if self._packed is not None:
            tokens = self._packed(ids, rows, layout)
            if layout is not None:
                mask = layout.mask[..., None]
                means = layout.padded(tokens).float().mul(mask).sum(1) / mask.sum(1)
            else:
                means = torch.stack([label.float().mean(0) for label in rows.split(tokens)])
            return means.to(tokens.dtype)
        assert layout is not None
        assert self._layer is not None
        with self._own_shapes():
            return by_adapter(self._layer.encode_labels, ids, rows, layout)
