"""The forward pass in torch: a family's encoder, then its head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.encoders.inputs import Inputs, PaddedInputs
from gliner_bento.engine.encoders.output import Encoder, EncoderOutput
from gliner_bento.engine.graphs import Graphs
from gliner_bento.engine.heads.decode import lowest_threshold
from gliner_bento.engine.heads.predictions import Predictions
from gliner_bento.engine.layers.projection import Projection
from gliner_bento.engine.text.collate import CPU, CollatedBatch, SlotOf, ordered

Scores = tuple[EncoderOutput, Any]
"""The output of the encoder, and the head's scores."""

# Maximum relative difference between the embeddings of two correct passes over the same batch.
_ROUNDING = {torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}


class Head(Protocol):
    """Turns an encoder's output into predictions. name: how it computes, for `/v1/model`."""

    name: str

    def scores(self, encoded: EncoderOutput) -> Any:
        """The input of `predictions`, on the device. For padded batches, does not wait for the device."""

    def predictions(self, scores: Any, encoded: EncoderOutput, texts: Sequence[Prepared]) -> list[Predictions]:
        """The predictions of each text. Raises `ScoresNotFinite`."""


class Forward:
    """An encoder and a head. packs: texts are packed without padding. name: how it computes, for `/v1/model`.

    padded: see `GLiNEREngine`. project_labels: applied to the embeddings of labels before they are scored.
    """

    def __init__(
        self,
        encoder: Encoder,
        head: Head,
        device: torch.device,
        project_labels: Projection | None,
        *,
        padded: bool,
        compiled: bool,
        graphs: Graphs[Scores] | None,
    ) -> None:
        self._encode = encoder
        self._head = head
        self._project_labels = project_labels
        self._device = device
        self._padded = padded
        self._graphs = graphs
        self.packs = encoder.packs
        self.name = f"{encoder.name}, {head.name}{', compiled' if compiled else ''}{', CUDA graphs' if graphs else ''}"

    @property
    def encoded_labels(self) -> int:
        """See `Encoder`."""
        return self._encode.encoded_labels

    def collate(
        self, items: Sequence[Prepared], slot_of: SlotOf | None = None, slots: int = 0, device: torch.device = CPU
    ) -> CollatedBatch:
        """See `ordered`; the inputs are `Inputs` or `PaddedInputs`, on the CPU."""
        batch = ordered(items, slot_of, slots, device)
        if not batch.texts:
            return batch
        inputs = Inputs.packed(batch.texts, adapters=batch.inputs)
        if not self._padded:
            return replace(batch, inputs=inputs)
        thresholds = [lowest_threshold(text.item) for text in batch.texts]
        return replace(batch, inputs=PaddedInputs.of(inputs, thresholds, pin=self._device.type == "cuda"))

    def scores(self, inputs: Inputs | PaddedInputs) -> Scores:
        """The scores of a batch. For padded batches, runs a CUDA graph if possible, and does not wait for it."""
        if isinstance(inputs, Inputs):
            return self._run(inputs)
        if self._graphs is not None and inputs.depends_on_bucket_alone:
            graph = self._graphs.find(
                inputs.bucket,
                run=lambda data: self._run(inputs.without_counts().inputs(data)),
                data=inputs.data,
                run_eager=lambda: self._run(inputs.to(self._device)),
            )
            if graph is not None:
                encoded, scores = graph(inputs.data)
                return replace(encoded, rows=encoded.rows.with_counts(inputs.rows)), scores
        return self._run(inputs.to(self._device))

    def _run(self, inputs: Inputs) -> Scores:
        encoded = self._encode(inputs)
        if self._project_labels is not None:
            labels = self._project_labels(encoded.labels, encoded.rows.labels.slot_rows)
            encoded = replace(encoded, labels=labels)
        if encoded.thresholds is None:  # not padded; for padded batches, the head checks `EncoderOutput.sum` later
            encoded.check_finite()
        return encoded, self._head.scores(encoded)

    def __call__(self, inputs: Inputs | PaddedInputs, texts: Sequence[Prepared]) -> list[Predictions]:
        """The predictions of each text. Raises `ScoresNotFinite`."""
        encoded, scores = self.scores(inputs)
        return self._head.predictions(scores, encoded, texts)


def agree(first: Scores, second: Scores) -> bool:
    """Whether two passes over a batch give the same embeddings, apart from rounding."""
    (first_encoded, _), (second_encoded, _) = first, second
    names = ("words", "labels", "relations")
    pairs = [(getattr(first_encoded, name), getattr(second_encoded, name)) for name in names]
    return all(bool((x - y).norm() <= _ROUNDING[x.dtype] * y.norm()) for x, y in pairs)
