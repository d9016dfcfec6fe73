"""A bi-encoder's labels: encoded once, then kept in one table on the device, the least recently used making room."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch

from gliner_bento.engine.encoder import packed_encoder
from gliner_bento.engine.kernels import Kernels
from gliner_bento.engine.packing import Layout, split_rows

LabelIds = tuple[int, ...]

# Tokens of labels that are encoded at once.
_TOKENS_AT_ONCE = 4096


class LabelEncoder:
    """Embeddings of labels, as gliner's `BiEncoder.encode_labels` gives them. Thread-safe: lanes share the table. On a
    GPU, where each lane has a stream, writing waits for the device; it is rare.

    layer: gliner's `BiEncoder`. size: labels that are kept; 0 keeps none.
    """

    def __init__(self, layer: Any, size: int, *, pack: bool, int8: bool, kernels: Kernels) -> None:
        self._layer = layer
        projection = getattr(layer, "labels_projection", None)
        self._packed = packed_encoder(layer.labels_encoder, projection, int8=int8, kernels=kernels) if pack else None
        self._size = size
        self._device = next(layer.labels_encoder.parameters()).device
        if self._packed is not None:
            self._layer = None  # the packed form holds the weights
        self._table: torch.Tensor | None = None
        self._slots: OrderedDict[LabelIds, int] = OrderedDict()
        self._lock = threading.Lock()
        self.encoded_labels = 0
        """Labels encoded since the start: those that were in the table cost nothing."""

    def __call__(self, labels: Sequence[LabelIds]) -> torch.Tensor:
        """Shape (len(labels), D), labels given by their token ids; each distinct one is encoded at most once."""
        distinct = list(dict.fromkeys(labels))
        with self._lock:
            known = {label: self._slots[label] for label in distinct if label in self._slots}
            for label in known:
                self._slots.move_to_end(label)
            kept = self._rows([known[label] for label in distinct if label in known])
            missing = [label for label in distinct if label not in known]
            self.encoded_labels += len(missing)
        made = self._encode(missing) if missing else kept
        self._keep(missing, made)
        order = {label: place for place, label in enumerate([*known, *missing])}
        everything = torch.cat([kept, made]) if known and missing else (made if missing else kept)
        return everything[torch.tensor([order[label] for label in labels], device=everything.device)]

    def _rows(self, slots: list[int]) -> torch.Tensor:
        if self._table is None:
            return torch.empty(0)
        return self._table[torch.tensor(slots, dtype=torch.long, device=self._table.device)]

    def _keep(self, labels: Sequence[LabelIds], embeddings: torch.Tensor) -> None:
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

    def _encode(self, labels: Sequence[LabelIds]) -> torch.Tensor:
        """Shape (len(labels), D): the mean over a label's tokens, as gliner pools them."""
        by_length = sorted(range(len(labels)), key=lambda number: len(labels[number]))
        pooled: list[torch.Tensor] = []
        part: list[int] = []
        for number in by_length:
            if part and (len(part) + 1) * len(labels[number]) > _TOKENS_AT_ONCE:
                pooled.append(self._pooled([labels[n] for n in part]))
                part = []
            part.append(number)
        pooled.append(self._pooled([labels[n] for n in part]))
        embeddings = torch.empty_like(together := torch.cat(pooled))
        embeddings[torch.tensor(by_length, device=embeddings.device)] = together
        return embeddings

    def _pooled(self, labels: Sequence[LabelIds]) -> torch.Tensor:
        ids = torch.tensor([token for label in labels for token in label], device=self._device)
        layout = Layout.of([len(label) for label in labels], self._device)
        if self._packed is not None:
            tokens = self._packed(ids, layout)
            return torch.stack([row.float().mean(0) for row in split_rows(tokens, layout.lengths)]).to(tokens.dtype)
        around = Layout.padded(layout.lengths, self._device)
        assert around.index is not None
        assert around.mask is not None
        assert self._layer is not None
        embeddings: torch.Tensor = self._layer.encode_labels(ids[around.index], around.mask.long())
        return embeddings
