"""The forward passes of GLiClass: the packed encoder with gliclass's head, or all of gliclass's model text by text."""

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
from gliner_bento.engine.heads.predictions import Predictions, class_scores
from gliner_bento.engine.layers.factory import LayerFactory
from gliner_bento.engine.layers.finite import check_finite
from gliner_bento.engine.layers.lora import on_slot
from gliner_bento.engine.layers.rows import TextRows
from gliner_bento.engine.options import EngineOptions
from gliner_bento.engine.text.collate import CPU, CollatedBatch, SlotOf, ordered


class ClassForward:
    """A forward pass. encoder: a packed encoder; None: run gliclass's own. packs: texts are packed without padding.
    name: how it computes, for `/v1/model`.

    The head is small and pools all tokens of a text. It runs text by text, so that no other text changes its result.
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
        """See `ordered`; the inputs are the tokens (T,) of all texts, on the CPU, and the rows of each text."""
        batch = ordered(items, slot_of, slots, device)
        if not batch.texts:
            return batch
        class_inputs: list[ClassInput] = [text.payload for text in batch.texts]
        token_ids = torch.from_numpy(np.concatenate([text.token_ids for text in class_inputs], dtype=np.int64))
        rows = TextRows(tuple(text.tokens for text in batch.texts), slots=batch.inputs)
        return replace(batch, inputs=(token_ids, rows))

    def __call__(self, inputs: tuple[torch.Tensor, TextRows], texts: Sequence[Prepared]) -> list[Predictions]:
        """The predictions of each text. Raises `ScoresNotFinite`."""
        token_ids, rows = inputs[0].to(self._device), inputs[1]
        states = None if self._encoder is None else self._encoder(token_ids, rows, None)
        text_states = [None] * len(texts) if states is None else rows.split(states[: rows.size])
        text_logits = []
        for index, (ids, hidden) in enumerate(zip(rows.split(token_ids), text_states, strict=True)):
            with on_slot(rows.slot(index)), self._own_shapes():
                text_logits.append(self._logits(ids[None], hidden, texts[index].payload))
        all_logits = torch.cat(text_logits)
        check_finite(all_logits)
        ends = np.cumsum([text.payload.labels for text in texts])[:-1]
        logits_on_host = np.split(all_logits.cpu().numpy().astype(np.float64), ends)
        return [_predicted(text, logits) for text, logits in zip(texts, logits_on_host, strict=True)]

    def _logits(self, token_ids: torch.Tensor, hidden: torch.Tensor | None, class_input: ClassInput) -> torch.Tensor:
        """Logits (labels,) of one text, in float32. token_ids: (1, n). hidden: (n, D); None: run gliclass's encoder."""
        model, max_num_classes = self._model.model, self._model.label_slots(class_input.labels)
        if hidden is None:
            prompt, text = token_ids[:, : class_input.prompt_tokens], token_ids[:, class_input.prompt_tokens :]
            inputs = {"input_ids": text, "attention_mask": torch.ones_like(text)}
            if self._model.reads_labels_apart:
                inputs |= {"class_input_ids": prompt, "class_attention_mask": torch.ones_like(prompt)}
            logits = model(**inputs, max_num_classes=max_num_classes).logits
        else:
            mask = torch.ones_like(token_ids)
            output = model.model.process_encoder_output(token_ids, mask, hidden[None], None, max_num_classes)
            logits, _, text_embedding, class_embeddings, class_mask = output
            if model.calibrator is not None:
                factor, shift = model.calibrator(text_embedding, class_embeddings, logits, class_mask)
                logits = (factor * logits.float() + shift).to(logits.dtype)
        label_logits: torch.Tensor = logits[0, : class_input.labels].float()
        return label_logits


def _predicted(text: Prepared, logits: NDArray[np.float64]) -> Predictions:
    (classification,) = text.item.classifications.values()
    return Predictions(classes=[class_scores(logits, multi_label=classification.multi_label)])


def make_class_forward(
    model: GLiClass, options: EngineOptions, layers: LayerFactory, *, pack: bool = True
) -> ClassForward:
    """pack: use a packed encoder, if there is one for the checkpoint. Raises ModelError for unsupported options."""
    inner: Any = model.model.model
    config = model.config
    reads_last_layer = config.encoder_layer_id == -1 and not config.squeeze_layers
    packable = config.architecture_type == UNI_ENCODER and reads_last_layer and not config.use_segment_embeddings
    encoder = packed_model(model.backbone, layers) if pack and packable and options.enable_sequence_packing else None
    if encoder is None and options.quantization == "int8":
        raise ModelError("quantization int8 needs a packed encoder; this checkpoint runs in gliclass's encoder")
    for name, child in inner.named_children():
        if encoder is None or name != "encoder_model":  # the layers of a packed encoder are adaptable already
            layers.adapt(child)
    return ClassForward(model, layers, encoder)
