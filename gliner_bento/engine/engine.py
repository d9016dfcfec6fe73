"""GLiNEREngine: the engine contract over a gliner model, for every family that gliner loads from a checkpoint.

Holds the weights and what is fixed with them; a batch's state lives in its arguments, so lanes may share an engine.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from gliner import model as families

from gliner_bento.adapters.device import DeviceSlots
from gliner_bento.engine.adaptable import Layers
from gliner_bento.engine.base import AdapterLease, Prepared, SlotState
from gliner_bento.engine.collate import Batch, packed
from gliner_bento.engine.forward import ner
from gliner_bento.engine.forward.findings import Findings
from gliner_bento.engine.forward.onnx import OnnxForward
from gliner_bento.engine.graph import Graph, load_graph
from gliner_bento.engine.loading import DType, ModelError, folder_of, limits_of, load, pick_device, pick_dtype
from gliner_bento.engine.long_texts import LongTextRequest
from gliner_bento.engine.memory import Allocator, CudaAllocator, MemoryModel, calibrate, give_back_freed_memory
from gliner_bento.engine.options import EngineOptions
from gliner_bento.engine.passes import PassLimits, PassPlanner, one_pass
from gliner_bento.engine.results import PassResult, result_of
from gliner_bento.engine.tokenize import ItemTokenizer
from gliner_bento.engine.windows import Word
from gliner_bento.errors import AdapterNotFound, DoesNotFit, InvalidField, TooLarge
from gliner_bento.types import BASE_ADAPTER_ID, Extraction, Item, ModelInfo

logger = logging.getLogger(__name__)

_FAMILIES = (
    families.UniEncoderSpanGLiNER,
    families.UniEncoderTokenGLiNER,
    families.BiEncoderSpanGLiNER,
    families.BiEncoderTokenGLiNER,
    families.UniEncoderSpanDecoderGLiNER,
    families.UniEncoderTokenDecoderGLiNER,
    families.UniEncoderSpanRelexGLiNER,
    families.UniEncoderTokenRelexGLiNER,
)

_PROBE = Item(
    "Nobody was asked, and nothing was found.",
    {"a": "answer", "b": "question"},
    {"c": "answers"},
    threshold=0.0,
    long_text="truncate",
)


class GLiNEREngine:
    """An `Engine` over one gliner model. Made by `load`; the constructor takes a model that is loaded already."""

    def __init__(self, model: Any, name: str, options: EngineOptions) -> None:
        if type(model) not in _FAMILIES:
            raise ModelError(f"{name!r} is a {type(model).__name__}, which is not served")
        config = model.config
        token_level = config.span_mode == "token_level"
        limits = limits_of(model)
        self._device = model.device
        self._limits = limits
        self._tokenizer = ItemTokenizer(model.data_processor, config, limits)
        window = options.window_words or limits.words
        most_labels = options.max_labels_per_pass or config.max_types or None
        if window > limits.words:
            raise ModelError(f"window_words is {window}; {name!r} reads {limits.words} words at once")
        self._planner = PassPlanner(
            self._tokenizer, PassLimits(limits.words, window, options.window_overlap_words, most_labels)
        )
        self._memory: MemoryModel | None = None
        self._forward: ner.EngineForward | OnnxForward
        self.adapter_slots: DeviceSlots | None = None
        self.adaptable_layers: Mapping[str, tuple[int, int] | str] = {}
        self._acquire: Callable[[str], AdapterLease] | None = None
        if isinstance(model.model, Graph):
            self._forward = OnnxForward(model)
            self._collate, dtype = self._forward.collate, model.model.facts.dtype
        else:
            dtype = str(next(model.model.parameters()).dtype).removeprefix("torch.")
            slots = options.max_device_adapters if options.enable_lora else 0
            layers = Layers(model.model.eval(), slots=slots, int8=options.quantization == "int8")
            self._forward, self._collate = ner.forward_of(model.model, options, layers), packed
            if slots:
                self.adaptable_layers = layers.described()
                self.adapter_slots = DeviceSlots(layers.sinks, slots, self._synchronize)
        self.packs = self._forward.packs
        self.info = ModelInfo(
            model=name,
            family=type(model).__name__,
            supports_relations=isinstance(model, families.UniEncoderSpanRelexGLiNER),
            supports_adapters=self.adapter_slots is not None,
            device=str(self._device),
            dtype="int8" if options.quantization == "int8" else dtype,
            max_words=limits.words,
            max_span_width=None if token_level else config.max_width,
            forward=self._forward.name,
            max_labels_per_pass=most_labels if self._tokenizer.reads_labels else None,
        )

    @classmethod
    def load(cls, model: str, *, device: str, dtype: DType, options: EngineOptions) -> GLiNEREngine:
        """An engine over the checkpoint in a folder or, by its id, on the Hugging Face hub.

        dtype `auto` is bfloat16 where the hardware computes it natively and the model runs in it, else float32.
        Raises ModelError, with a message for the operator.

        Loads in a thread of its own, because a thread that has computed with others keeps these for its life, and where
        OpenMP counts more threads than cores, it lets all of them sleep between any two operations.
        """
        with ThreadPoolExecutor(1, thread_name_prefix="load") as thread:
            return thread.submit(cls._load, model, device, dtype, options).result()

    @classmethod
    def _load(cls, model: str, device: str, dtype: DType, options: EngineOptions) -> GLiNEREngine:
        folder = folder_of(model, options.onnx_model_file if options.runtime == "onnxruntime" else None)
        name = folder.resolve().name if str(folder) == str(model) else model
        where = pick_device(device)
        check_options(options, where)
        if options.runtime == "onnxruntime":
            return cls(load_graph(folder, options.onnx_model_file, where, dtype, options.torch_threads), name, options)
        picked = pick_dtype(dtype, where)
        engine = cls(load(folder, where, picked, flashdeberta=options.enable_flashdeberta), name, options)
        if dtype == "auto" and picked != torch.float32 and not engine._runs():
            logger.warning("%s does not run in %s here; it runs in float32", name, picked)
            loaded = load(folder, where, torch.float32, flashdeberta=options.enable_flashdeberta)
            engine = cls(loaded, name, options)
        if options.enable_compilation and not engine._runs():
            raise ModelError(
                "enable_compilation: torch.compile fails here, see the log (on a CPU it needs a C++ compiler)"
            )
        if where.type == "cuda":
            engine.measure_memory(CudaAllocator(where), options)
        give_back_freed_memory()
        logger.info("%s (%s) in %s on %s", name, engine.info.family, engine.info.dtype, engine.info.device)
        return engine

    @property
    def batch_tokens(self) -> int | None:
        """What a batch may cost now; None on a CPU."""
        return self._memory.batch_tokens if self._memory else None

    @property
    def encoded_labels(self) -> int:
        """Labels that a bi-encoder has encoded so far; those that it kept were encoded once. 0 for other models."""
        return self._forward.encoded_labels

    def measure_memory(self, allocator: Allocator, options: EngineOptions) -> None:
        """Run batches of all lengths; from then on `batch_tokens` says what the device's memory holds."""
        limits = self._limits
        try:
            self._memory = calibrate(
                allocator,
                self._run_probe,
                longest_tokens=min(limits.tokens, limits.words),
                target_memory_fraction=options.target_memory_fraction,
                memory_overhead_factor=options.memory_overhead_factor,
                lanes=options.inference_lanes,
            )
        except DoesNotFit as error:
            raise ModelError(error.message) from error

    def _run_probe(self, rows: int, tokens: int) -> int:
        """A batch of about that shape; what it cost."""
        prepared = self.prepare(replace(_PROBE, text="word " * tokens, relations={}, threshold=1.0))
        self.forward(self.collate([prepared] * rows), torch.get_num_threads())
        return rows * prepared.cost

    def serve_adapters(self, acquire: Callable[[str], AdapterLease]) -> None:
        """From now on items may name adapters. acquire: raises what is wrong with an id."""
        self._acquire = acquire

    def slot_state(self) -> SlotState:
        """What of the adapters is on the device."""
        return self.adapter_slots.room() if self.adapter_slots else SlotState()

    def prepare(self, item: Item) -> Prepared:
        """Check and measure `item`; its payload is what the model will read."""
        self._check(item)
        lease = self._lease(item.adapter_id)
        try:
            prepared = self._measure(item, lease)
        except BaseException:
            if lease:
                lease.release()
            raise
        if lease and prepared.adapter is None:
            lease.release()
        return prepared

    def _lease(self, adapter_id: str | None) -> AdapterLease | None:
        if adapter_id is None or adapter_id == BASE_ADAPTER_ID:
            return None
        if self._acquire is None:
            raise AdapterNotFound(
                "adapter_id: no adapters are served here (the setting enable_lora is off)", param="adapter_id"
            )
        return self._acquire(adapter_id)

    def _measure(self, item: Item, lease: AdapterLease | None) -> Prepared:
        """The item in one pass, as far as it fits, or in several; one that needs no pass gives its lease back."""
        window, overlap = self._planner.windows(item)
        if not item.text.strip():
            return Prepared(item, tokens=0, words=0, result=Extraction())
        prompt = self._planner.fits(item)
        if prompt:
            words, goes_on = self._tokenizer.read(item.text, prompt.room, self._words_of(item, window))
            if not goes_on or item.long_text != "window":
                truncated_at = self._end_of(item, words, goes_on=goes_on)
                if not words:
                    result = Extraction(truncated=truncated_at is not None, truncated_at=truncated_at)
                    return Prepared(item, tokens=0, words=0, result=result)
                tokenized = self._tokenizer.tokenized(words, prompt)
                return one_pass(item, tokenized, lease, truncated_at=truncated_at)
        groups = self._planner.groups(item)
        several = LongTextRequest(item, self._tokenizer, groups, lease)
        if item.long_text == "window":
            several.read_windows(window, overlap)
        else:
            words, goes_on = self._tokenizer.read(item.text, groups.room, self._limits.words)
            several.read_words(words, self._end_of(item, words, goes_on=goes_on))
        return Prepared(item, tokens=0, words=0, chunked=several, adapter=lease)

    def _words_of(self, item: Item, window: int) -> int:
        """How many words one pass reads: a window that was asked for, or what the model reads."""
        return window if item.long_text == "window" else self._limits.words

    def _end_of(self, item: Item, words: Sequence[Word], *, goes_on: bool) -> int | None:
        """Where the reading of a text that goes on ends; raises TooLarge if that is to be rejected."""
        if goes_on and item.long_text == "reject":
            limits = self._limits
            raise TooLarge(
                f"text: the model reads {limits.words} words, and {limits.tokens} tokens with the labels", param="text"
            )
        return None if not goes_on else words[-1].end if words else 0

    def collate(self, batch: Sequence[Prepared]) -> Batch:
        """Tensors on the CPU; not those of a batch with adapters, whose order comes with their slots."""
        if any(prepared.chunked for prepared in batch):
            raise ValueError("an item that takes several passes is no part of a batch; its passes are")
        if any(prepared.adapter for prepared in batch):
            return Batch(tuple(batch), (), None)
        self._compute_with(1)  # small ones; see `load` for why the calling thread must not gather others around it
        return self._collate(batch)

    @torch.inference_mode()
    def forward(self, collated: Batch, threads: int) -> tuple[Batch, list[Findings]]:
        """Run the model. Raises ArithmeticError for scores that are not numbers."""
        self._compute_with(threads)
        adapters = {row.adapter.ready.result() for row in collated.items if row.adapter}
        if not adapters:
            return collated, self._found(collated)
        assert self.adapter_slots is not None
        with self.adapter_slots.hold(adapters) as slot_of:
            collated = packed(
                collated.items,
                lambda row: slot_of[row.adapter.ready.result()] if row.adapter else None,
                self.adapter_slots.count,
                self._device,
            )
            return collated, self._found(collated)

    def _found(self, collated: Batch) -> list[Findings]:
        if not collated.rows:
            return []
        with self._memory.guard(self._cost(collated.rows)) if self._memory else nullcontext():
            return self._forward(collated.inputs.to(self._device), collated.rows)

    def decode(self, scores: tuple[Batch, list[Findings]]) -> list[Extraction | PassResult]:
        """Numbers of words and labels become characters and names."""
        collated, found = scores
        of_row = {id(row): findings for row, findings in zip(collated.rows, found, strict=True)}
        return [result_of(item, of_row.get(id(item), Findings(()))) for item in collated.items]

    def _cost(self, rows: Sequence[Prepared]) -> int:
        costs = [row.cost for row in rows]
        return sum(costs) if self.packs else len(costs) * max(costs)

    def _compute_with(self, threads: int) -> None:
        """How many threads the calling one computes with. (Asked for first, because torch sets that lazily.)"""
        if self._device.type == "cpu" and torch.get_num_threads() != threads:
            torch.set_num_threads(threads)

    def _synchronize(self) -> None:
        """On a GPU, wait for all streams."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def start_lane(self) -> None:
        """On a GPU, give the calling thread a stream of its own."""
        if self._device.type == "cuda":
            self._synchronize()
            torch.cuda.set_stream(torch.cuda.Stream(self._device))  # type: ignore[no-untyped-call]

    def _check(self, item: Item) -> None:
        if not item.labels:
            raise InvalidField("labels: at least one is needed", param="labels")
        if item.relations and not self.info.supports_relations:
            raise InvalidField("relations: this model finds entities only", param="relations")
        for param, described in (("labels", item.labels), ("relations", item.relations)):
            if len(set(described.values())) < len(described):
                raise InvalidField(f"{param}: two names have the same description", param=param)

    def _runs(self) -> bool:
        probe = _PROBE if self.info.supports_relations else replace(_PROBE, relations={})
        try:
            self.forward(self.collate([self.prepare(probe)]), torch.get_num_threads())
        except Exception:
            logger.info("the probe failed", exc_info=True)
            return False
        return True


def check_options(options: EngineOptions, device: torch.device) -> None:
    """Raises ModelError for options that do not go together, or not with the device."""
    if options.runtime == "onnxruntime" and options.enable_flashdeberta:
        raise ModelError("enable_flashdeberta is for runtime torch")
    if options.runtime == "onnxruntime" and options.enable_lora:
        raise ModelError("enable_lora is for runtime torch; a graph has its weights in it")
    if options.runtime == "onnxruntime" and options.quantization != "none":
        raise ModelError("quantization is for runtime torch; a graph has its precision in it")
    if options.quantization == "int8" and device.type != "cpu":
        raise ModelError("quantization int8 is for the CPU")
