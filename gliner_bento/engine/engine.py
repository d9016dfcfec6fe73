"""GLiNEREngine: the engine contract over a gliner model, for every family that gliner loads from a checkpoint.

Holds the weights and what is fixed with them; a batch's state lives in its arguments, so lanes may share an engine.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import torch
from gliner import model as families

from gliner_bento.engine.base import Entity, Extraction, Item, ModelInfo, Prepared, Relation
from gliner_bento.engine.collate import Batch, Collator
from gliner_bento.engine.forward import ner, relex
from gliner_bento.engine.forward.findings import Findings, Forward
from gliner_bento.engine.loading import DType, ModelError, folder_of, limits_of, load, pick_device, pick_dtype
from gliner_bento.engine.tokenize import ItemTokenizer, Tokenized
from gliner_bento.errors import AdapterNotFound, InvalidField, TooLarge

logger = logging.getLogger(__name__)

BASE_MODEL = "__base__"

_FORWARDS: dict[type, Forward] = {
    families.UniEncoderSpanGLiNER: ner.find_spans,
    families.UniEncoderTokenGLiNER: ner.find_tags,
    families.BiEncoderSpanGLiNER: ner.find_spans,
    families.BiEncoderTokenGLiNER: ner.find_tags,
    families.UniEncoderSpanDecoderGLiNER: ner.find_spans_without_decoder,
    families.UniEncoderTokenDecoderGLiNER: ner.find_tagged_spans,
    families.UniEncoderSpanRelexGLiNER: relex.find_spans_and_relations,
    families.UniEncoderTokenRelexGLiNER: relex.find_tags_and_relations,
}
_PADDED_SPAN_MODES = {"markerV1", "markerV2"}
_TOKEN_NER = (families.UniEncoderTokenGLiNER, families.BiEncoderTokenGLiNER)

_PROBE = Item(
    "Nobody was asked, and nothing was found.", {"a": "answer", "b": "question"}, {"c": "answers"}, threshold=0.0
)


class GLiNEREngine:
    """An `Engine` over one gliner model. Made by `load`; the constructor takes a model that is loaded already."""

    def __init__(self, model: Any, name: str) -> None:
        if type(model) not in _FORWARDS:
            raise ModelError(f"{name!r} is a {type(model).__name__}, which is not served")
        config, processor = model.config, model.data_processor
        limits = limits_of(model)
        labels_tokenizer = getattr(processor, "labels_tokenizer", None)
        token_level = config.span_mode == "token_level"
        self.packs = False
        self.batch_tokens: int | None = None
        self._model = model.model.eval()
        self._device = model.device
        self._forward = _FORWARDS[type(model)]
        if isinstance(model, _TOKEN_NER) and config.represent_spans:
            self._forward = ner.find_tagged_spans
        self._tokenize = ItemTokenizer(processor, config, limits)
        self._collate = Collator(
            pad_id=processor.transformer_tokenizer.pad_token_id,
            labels_pad_id=labels_tokenizer.pad_token_id if labels_tokenizer is not None else None,
            max_width=None if token_level else config.max_width,
        )
        self.info = ModelInfo(
            name=name,
            family=type(model).__name__,
            supports_relations=isinstance(model, families.UniEncoderSpanRelexGLiNER),
            supports_adapters=False,
            device=str(self._device),
            dtype=str(next(self._model.parameters()).dtype).removeprefix("torch."),
            max_words=limits.words,
            max_span_width=None if token_level else config.max_width,
            forward="gliner",
        )

    @classmethod
    def load(cls, model: str, *, device: str = "auto", dtype: DType = "auto") -> GLiNEREngine:
        """An engine over the checkpoint in a folder or, by its id, on the Hugging Face hub.

        dtype `auto` is bfloat16 where the hardware computes it natively and the model runs in it, else float32.
        Raises ModelError, with a message for the operator.
        """
        folder = folder_of(model)
        name = folder.resolve().name if str(folder) == str(model) else model
        where = pick_device(device)
        picked = pick_dtype(dtype, where)
        engine = cls(load(folder, where, picked), name)
        if dtype == "auto" and picked != torch.float32 and not engine._runs():
            logger.warning("%s does not run in %s here; it runs in float32", name, picked)
            engine = cls(load(folder, where, torch.float32), name)
        logger.info("%s (%s) in %s on %s", name, engine.info.family, engine.info.dtype, engine.info.device)
        return engine

    def prepare(self, item: Item) -> Prepared:
        """Check and measure `item`; its payload is what the model will read."""
        self._check(item)
        if not item.text.strip():
            return Prepared(item, tokens=0, words=0)
        tokenized = self._tokenize(item)
        if tokenized.truncated and item.long_text == "reject":
            limits = self._tokenize.limits
            raise TooLarge(
                f"text: the model reads {limits.words} words, and {limits.tokens} tokens with the labels", param="text"
            )
        return Prepared(
            item,
            tokens=len(tokenized.token_ids) if tokenized.words else 0,
            words=len(tokenized.words),
            truncated=tokenized.truncated,
            group=self._group(tokenized),
            payload=tokenized,
        )

    def collate(self, batch: Sequence[Prepared]) -> Batch:
        """Tensors on the CPU."""
        return self._collate(batch)

    @torch.inference_mode()
    def forward(self, collated: Batch, threads: int) -> tuple[Batch, list[Findings]]:
        """Run the model. Raises ArithmeticError for scores that are not numbers."""
        if self._device.type == "cpu" and torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        found: list[Findings] = []
        if collated.rows:
            inputs = {
                name: value.to(self._device, non_blocking=True) if isinstance(value, torch.Tensor) else value
                for name, value in collated.inputs.items()
            }
            found = self._forward(self._model, inputs, collated.rows)
        return collated, found

    def decode(self, scores: tuple[Batch, list[Findings]]) -> list[Extraction]:
        """Numbers of words and labels become characters and names."""
        collated, found = scores
        findings = iter(found)
        return [_extraction(item, next(findings) if item.tokens else Findings(())) for item in collated.items]

    def start_lane(self) -> None:
        """On a GPU, give the calling thread a stream of its own."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
            torch.cuda.set_stream(torch.cuda.Stream(self._device))  # type: ignore[no-untyped-call]

    def _check(self, item: Item) -> None:
        if item.adapter_id not in {None, BASE_MODEL}:
            raise AdapterNotFound(f"adapter_id: no adapter {item.adapter_id!r}", param="adapter_id")
        if not item.labels:
            raise InvalidField("labels: at least one is needed", param="labels")
        if item.relations and not self.info.supports_relations:
            raise InvalidField("relations: this model finds entities only", param="relations")
        for param, described in (("labels", item.labels), ("relations", item.relations)):
            if len(set(described.values())) < len(described):
                raise InvalidField(f"{param}: two names have the same description", param=param)

    def _group(self, tokenized: Tokenized) -> Hashable:
        """None: all items may share batches. In models of a few configurations gliner lets padding into the scores (a
        mean or a last word taken over padding too); their items share a batch only where there is no padding."""
        config = self._model.config
        if config.fuse_layers:
            return len(tokenized.token_ids), len(tokenized.words), tokenized.labels
        if config.span_encoder_config is not None or config.span_mode in _PADDED_SPAN_MODES:
            return len(tokenized.words)
        return None

    def _runs(self) -> bool:
        probe = _PROBE if self.info.supports_relations else replace(_PROBE, relations={})
        try:
            self.forward(self.collate([self.prepare(probe)]), torch.get_num_threads())
        except Exception:
            logger.info("the probe failed", exc_info=True)
            return False
        return True


def _extraction(prepared: Prepared, found: Findings) -> Extraction:
    """The answer for one item: words become characters, numbers become names."""
    item = prepared.item
    words: list[tuple[int, int]] = prepared.payload.words if prepared.tokens else []
    labels, relations = list(item.labels), list(item.relations)
    entities = []
    for span in found.spans:
        start, end = words[span.first][0], words[span.last][1]
        entities.append(Entity(start, end, item.text[start:end], labels[span.label], span.score))
    return Extraction(
        entities=entities,
        relations=[Relation(relations[r.relation], r.score, r.head, r.tail) for r in found.relations],
        truncated=prepared.truncated,
        words=prepared.words,
        tokens=prepared.tokens,
    )
