"""The forward pass of ONNX checkpoints, run by gliner's own ONNX Runtime model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.checkpoint.onnx_session import OnnxSession
from gliner_bento.engine.heads.decode import DecodePadded
from gliner_bento.engine.heads.overlap import predictions_of
from gliner_bento.engine.heads.predictions import Predictions
from gliner_bento.engine.heads.span_scores import DEPENDS_ON_PADDING
from gliner_bento.engine.text.collate import CollatedBatch, PaddedCollator

RunInputs = dict[str, torch.Tensor]
"""The inputs of one run of the session: of one text, or of all texts of a batch."""
OnnxRuns = tuple[RunInputs, ...]
"""The runs of a batch, in the order of its texts."""


class OnnxForward:
    """Runs gliner's `model`, whose own `model` is an `OnnxSession`.

    pad, decode: see `GlinerForward`.
    packs: whether texts run one by one, without padding. They do if one padded run would change results: a bi-encoder's
        file takes one set of labels, dynamic quantization has scales per run, and the scores of a few configurations
        depend on padding. Otherwise all texts of a batch are in one padded run.
    name: how it computes, for `/v1/model`.
    """

    encoded_labels = 0

    def __init__(self, model: Any, pad: PaddedCollator, decode: DecodePadded) -> None:
        self._session: OnnxSession = model.model
        self._decode = decode
        self._pad = pad
        self.packs = (
            pad.labels_pad_id is not None or self._session.facts.quantizes_batches or depends_on_padding(model.config)
        )
        self.name = "onnxruntime, text by text" if self.packs else "onnxruntime"

    def collate(self, items: Sequence[Prepared], *_: Any) -> CollatedBatch:
        """The batch; its inputs are `OnnxRuns`."""
        texts = tuple(item for item in items if item.tokens)
        one_by_one: list[Sequence[Prepared]] = [[text] for text in texts]
        runs = one_by_one if self.packs or not texts else [texts]
        return CollatedBatch(tuple(items), texts, tuple(map(self._run_inputs, runs)))

    def __call__(self, inputs: OnnxRuns, texts: Sequence[Prepared]) -> list[Predictions]:
        """The predictions of each text."""
        predictions: list[Predictions] = []
        for run_inputs in inputs:
            logits = self._session.logits(run_inputs)
            first = len(predictions)
            run_texts = texts[first : first + len(logits)]
            for text, spans in zip(run_texts, self._decode(logits, run_texts), strict=True):
                predictions.append(Predictions.or_error(predictions_of, text, spans))
        return predictions

    def _run_inputs(self, texts: Sequence[Prepared]) -> RunInputs:
        inputs = self._pad(texts).inputs
        if "labels_gather_indices" in inputs:  # the file has no such input, and takes the labels of one text in order
            order = inputs["labels_gather_indices"][0]
            inputs |= {name: inputs[name][order] for name in ("labels_input_ids", "labels_attention_mask")}
        return {name: inputs[name] for name in self._session.input_names}


def depends_on_padding(config: Any) -> bool:
    """Whether a text's scores depend on its padding in gliner's own forward pass."""
    return bool(config.fuse_layers or config.span_encoder_config or config.span_mode in DEPENDS_ON_PADDING)
