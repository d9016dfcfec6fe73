"""The output of an encoder, which heads read, and the contract of uni- and bi-encoders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from gliner_bento.engine.encoders.inputs import Inputs
from gliner_bento.engine.layers.finite import check_finite
from gliner_bento.engine.layers.rows import BatchRows


@dataclass(frozen=True, slots=True)
class EncoderOutput:
    """Embeddings (N, D) of the words, labels and relations of all texts. rows, thresholds: see `Inputs`."""

    words: torch.Tensor
    labels: torch.Tensor
    relations: torch.Tensor
    rows: BatchRows
    thresholds: torch.Tensor | None = None

    def check_finite(self) -> None:
        """Raises `ScoresNotFinite`. The heads' scores would not show NaN, because oneDNN's ReLU turns it into 0."""
        for embeddings in (self.words, self.labels, self.relations):
            check_finite(embeddings)

    def sum(self) -> torch.Tensor:
        """The sum of all embeddings, shape (1,), in float32. It is finite only if all embeddings are."""
        sums = [embeddings.sum(dtype=torch.float32) for embeddings in (self.words, self.labels, self.relations)]
        return (sums[0] + sums[1] + sums[2])[None]


class Encoder(Protocol):
    """Encodes a batch.

    packs: texts are packed without padding, also inside the encoder.
    name: how it computes, for `/v1/model`.
    """

    packs: bool
    name: str

    @property
    def encoded_labels(self) -> int:
        """How many labels were encoded separately from texts since the start."""

    def __call__(self, inputs: Inputs) -> EncoderOutput:
        """Encode a batch. inputs: on the encoder's device."""
