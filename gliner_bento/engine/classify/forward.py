"""The forward passes of GLiClass: our packed encoder with gliclass's head, text by text; or gliclass's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.checkpoint.find import ModelError
from gliner_bento.engine.checkpoint.gliclass import UNI_ENCODER, GLiClass
from gliner_bento.engine.classify.texts import ClassInput
from gliner_bento.engine.encoders.packed import TextEncoder, packed_model
from gliner_bento.engine.heads.predictions import Predictions
from gliner_bento.engine.layers.factory import LayerFactory
from gliner_bento.engine.layers.finite import check_finite
from gliner_bento.engine.layers.lora import on_slot
from gliner_bento.engine.layers.rows import TextRows
from gliner_bento.engine.options import EngineOptions
from gliner_bento.engine.text.collate import CPU, CollatedBatch, SlotOf, ordered


class ClassForward:
    """encoder: None: gliclass's own. packs: texts are not padded. name: how it computes, for `/v1/model`.

    The head is small, and pools all tokens of a text: it runs text by text, so that no other text changes its result.
    """

    packs = True
    encoded_labels = 0

    def __init__(self, model: GLiClass, layers: LayerFactory, encoder: TextEncoder | None) -> None:
        self._model = model
        self._encoder = encoder
        self._device = model.device
        self._own_shapes = layers.own_shapes
        kind = type(model.model.model).__name__
        backbone = type(model.backbone).__name__
        self.name = f"gliclass's {kind}, text by text" if encoder is None else f"packed {backbone}, gliclass's head"

    def collate(
        self, items: Sequence[Prepared], slot_of: SlotOf | None = None, slots: int = 0, device: torch.device = CPU
    ) -> CollatedBatch:
        """See `ordered`; the inputs are the tokens (T,), on the CPU, and their rows."""
        batch = ordered(items, slot_of, slots, device)
        if not batch.texts:
            return batch
        given: list[ClassInput] = [text.payload for text in batch.texts]
        token_ids = torch.from_numpy(np.concatenate([one.token_ids for one in given], dtype=np.int64))
        return replace(batch, inputs=(token_ids, TextRows(tuple(text.tokens for text in batch.texts), batch.inputs)))

    def __call__(self, inputs: tuple[torch.Tensor, TextRows], texts: Sequence[Prepared]) -> list[Predictions]:
        """The predictions of each text. Raises `ScoresNotFinite`."""
        token_ids, rows = inputs[0].to(self._device), inputs[1]
        states = None if self._encoder is None else self._encoder(token_ids, rows, None)
        of_texts = [None] * len(texts) if states is None else rows.split(states[: rows.size])
        logits = []
        for number, (ids, hidden) in enumerate(zip(rows.split(token_ids), of_texts, strict=True)):
            with on_slot(rows.slot(number)), self._own_shapes():
                logits.append(self._logits(ids[None], hidden, texts[number].payload))
        joined = torch.cat(logits)
        check_finite(joined)
        of_text = joined.cpu().numpy().astype(np.float64)
        ends = np.cumsum([text.payload.labels for text in texts])[:-1]
        return [_predicted(one, scores) for one, scores in zip(texts, np.split(of_text, ends), strict=True)]

    def _logits(self, token_ids: torch.Tensor, hidden: torch.Tensor | None, given: ClassInput) -> torch.Tensor:
        """(labels,), of one text, in float32. token_ids: (1, n). hidden: (n, D)."""
        model, slots = self._model.model, self._model.label_slots(given.labels)
        if hidden is None:
            prompt, text = token_ids[:, : given.prompt_tokens], token_ids[:, given.prompt_tokens :]
            apart = {"class_input_ids": prompt, "class_attention_mask": torch.ones_like(prompt)}
            inputs = apart if self._model.reads_labels_apart else {}
            mask = torch.ones_like(text)
            logits = model(input_ids=text, attention_mask=mask, max_num_classes=slots, **inputs).logits
        else:
            mask = torch.ones_like(token_ids)
            output = model.model.process_encoder_output(token_ids, mask, hidden[None], None, slots)
            logits, _, text, classes, there = output
            if model.calibrator is not None:
                factor, shift = model.calibrator(text, classes, logits, there)
                logits = (factor * logits.float() + shift).to(logits.dtype)
        scores: torch.Tensor = logits[0, : given.labels].float()
        return scores


def _predicted(text: Prepared, logits: NDArray[np.float64]) -> Predictions:
    (classification,) = text.item.classifications.values()
    return Predictions(classes=[class_scores(logits, multi_label=classification.multi_label)])


def class_scores(logits: NDArray[np.float64], *, multi_label: bool) -> NDArray[np.float64]:
    """(labels,), 0 to 1: of each label on its own, or of all together 1."""
    if multi_label:
        scores: NDArray[np.float64] = 1 / (1 + np.exp(-logits))
        return scores
    powers: NDArray[np.float64] = np.exp(logits - logits.max())
    return powers / float(powers.sum())


def make_class_forward(
    model: GLiClass, options: EngineOptions, layers: LayerFactory, *, own: bool = True
) -> ClassForward:
    """own: our encoder, if there is one for the checkpoint. Raises ModelError for options that it does not support."""
    inner: Any = model.model.model
    config = model.config
    reads_last_layer = config.encoder_layer_id == -1 and not config.squeeze_layers
    packable = config.architecture_type == UNI_ENCODER and reads_last_layer and not config.use_segment_embeddings
    encoder = packed_model(model.backbone, layers) if own and packable and options.enable_sequence_packing else None
    if encoder is None and options.quantization == "int8":
        raise ModelError("quantization int8 needs a packed encoder; this checkpoint runs in gliclass's own")
    for name, child in inner.named_children():
        if encoder is None or name != "encoder_model":
            layers.adapt(child)
    return ClassForward(model, layers, encoder)
