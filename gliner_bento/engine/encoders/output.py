"""The output of an encoder, which the heads take, and the contract of both kinds of encoders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from gliner_bento.engine.layers.finite import check_finite
from gliner_bento.engine.layers.rows import TextRows
from gliner_bento.engine.text.collate import PackedInputs


@dataclass(frozen=True, slots=True)
class EncoderOutput:
    """Embeddings (N, D) of the words, labels and relations of all texts, and how many rows belong to each text."""

    words: torch.Tensor
    word_rows: TextRows
    labels: torch.Tensor
    label_rows: TextRows
    relations: torch.Tensor
    relation_rows: TextRows

    def check_finite(self) -> None:
        """Raises `ScoresNotFinite`. The heads' scores would not show it: oneDNN's ReLU makes zeros of NaN."""
        for embeddings in (self.words, self.labels, self.relations):
            check_finite(embeddings)


class Encoder(Protocol):
    """Encodes a batch.

    packs: texts are packed without padding, inside the encoder too.
    name: how it computes, for `/v1/model`.
    """

    packs: bool
    name: str

    @property
    def encoded_labels(self) -> int:
        """How many labels were encoded separately from texts since the start."""

    def __call__(self, inputs: PackedInputs) -> EncoderOutput:
        """`inputs` are on the encoder's device."""
