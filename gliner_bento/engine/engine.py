"""`GLiNEREngine` implements the engine contract for the models of every family in `families`.

Holds the weights and what depends only on them. The state of a batch is in arguments, so lanes share an engine.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import torch

from gliner_bento.adapters.device import DeviceSlots
from gliner_bento.engine.base import AdapterLease, Prepared, SlotState, Steps, run_all
from gliner_bento.engine.calibration import calibration_items
from gliner_bento.engine.checkpoint.card import languages_of
from gliner_bento.engine.checkpoint.device import DType, pick_device, pick_dtype
from gliner_bento.engine.checkpoint.find import ModelError
from gliner_bento.engine.checkpoint.fingerprint import fingerprint_of
from gliner_bento.engine.checkpoint.load import load
from gliner_bento.engine.checkpoint.onnx_session import OnnxSession, load_onnx
from gliner_bento.engine.checkpoint.resolve import find_checkpoint
from gliner_bento.engine.families import family_of
from gliner_bento.engine.heads.predictions import Predictions
from gliner_bento.engine.invariance import is_batch_invariant, thread_counts
from gliner_bento.engine.layers.factory import LayerFactory
from gliner_bento.engine.layers.int8 import multiplies_int8
from gliner_bento.engine.layers.kernels import EAGER, compiled
from gliner_bento.engine.memory import CudaAllocator, MemoryModel, calibrate, release_freed_memory
from gliner_bento.engine.options import EngineOptions
from gliner_bento.engine.results import PassResult, result_of
from gliner_bento.engine.self_test import (
    cannot_reproduce_message,
    missed_entities,
    self_test,
    unfiltered_item,
    versions,
)
from gliner_bento.engine.synchronize import synchronize
from gliner_bento.engine.text.collate import CollatedBatch
from gliner_bento.errors import AdapterNotFound, DoesNotFit, LimitExceeded
from gliner_bento.fairness.constants import LANE_NICE, QUOTAS_PER_BATCH
from gliner_bento.status_types import ModelInfo
from gliner_bento.tasks.base import BASE_ADAPTER_ID, Item
from gliner_bento.tasks.extraction import Extraction, ExtractionItem

logger = logging.getLogger(__name__)

_NOTHING = Predictions()


class GLiNEREngine:
    """An `Engine` over one model. Usually made by `load`; the constructor takes a loaded model.

    gliner_forward: see `Family.parts`.
    padded: pad batches to bucketed shapes; None: only on a GPU.
    adaptable_layers: see `LayerFactory.describe`; empty if adapters are off.
    """

    _memory: MemoryModel | None = None
    _acquire: Callable[[str], AdapterLease] | None = None
    _invariant_threads: Sequence[int] = ()
    _quantizable: LayerFactory | None = None  # until `calibrate`
    adapter_slots: DeviceSlots | None = None
    adaptable_layers: Mapping[str, tuple[int, int] | str] = MappingProxyType({})

    def __init__(
        self,
        model: Any,
        name: str,
        options: EngineOptions,
        languages: Sequence[str] = (),
        *,
        gliner_forward: bool = False,
        padded: bool | None = None,
    ) -> None:
        family = family_of(model, name)
        layers: LayerFactory | None = None
        fingerprint: str | None = None
        if isinstance(model.model, OnnxSession):
            dtype = model.model.facts.dtype
        else:
            fingerprint = fingerprint_of(model.model)
            dtype = str(next(model.model.parameters()).dtype).removeprefix("torch.")
            layers = self._layer_factory(model, options, padded=padded)
        parts = family.parts(model, name, options, layers, gliner_forward=gliner_forward)
        self._device = model.device
        self._limits = parts.limits
        self._preparer = parts.preparer
        self._forward = parts.forward
        self.packs = parts.forward.packs
        if layers is not None:
            self._set_up(layers)
        self.info = ModelInfo(
            model=name,
            family=parts.family,
            supports_relations="relations" in parts.tasks,
            tasks=parts.tasks,
            supports_adapters=self.adapter_slots is not None,
            device=str(self._device),
            dtype="int8" if options.quantization == "int8" and not gliner_forward else dtype,
            max_words=parts.limits.words,
            max_span_width=parts.max_span_width,
            forward=parts.forward.name,
            max_labels_per_pass=parts.max_labels_per_pass,
            fingerprint=fingerprint,
            languages=languages,
            cached_subwords=parts.cached_subwords,
            relation_window_sentences=parts.relation_window_sentences,
        )

    def _layer_factory(self, model: Any, options: EngineOptions, *, padded: bool | None) -> LayerFactory:
        """Makes the layers of a forward pass from the model's."""
        return LayerFactory(
            model.model.eval(),
            slots=options.max_device_adapters if options.enable_lora else 0,
            int8=options.quantization == "int8",
            threads=thread_counts(options.inference_lanes, options.torch_threads) if options.batch_invariant else (),
            padded=padded,
            kernels=compiled() if options.enable_compilation else EAGER,
        )

    def _set_up(self, layers: LayerFactory) -> None:
        """Set up quantization, batch invariance and adapter slots for the layers that the forward pass has."""
        self._quantizable = layers if layers.int8 else None
        self._invariant_threads = layers.threads if layers.batch_invariant and self.packs else ()
        if layers.slots:
            self.adaptable_layers = layers.describe()
            self.adapter_slots = DeviceSlots(layers.sinks, layers.slots, partial(synchronize, self._device))

    @classmethod
    def load(
        cls,
        model: str,
        *,
        device: str,
        dtype: DType,
        options: EngineOptions,
        padded: bool | None = None,
        name: str | None = None,
    ) -> GLiNEREngine:
        """An engine over a checkpoint.

        model: the checkpoint's folder, archive, or id on the Hugging Face hub.
        name: the model's name in messages and `info`; None: the checkpoint's name.
        dtype `auto` is bfloat16 if the hardware computes it natively and the model runs in it, else float32.
        Raises ModelError, with a message for the operator.

        Loads in a separate thread: when it ends, so do the OpenMP threads that loading used (see
        docs/decisions/0006-threads-of-lanes.md).
        """
        with ThreadPoolExecutor(1, thread_name_prefix="load") as thread:
            return thread.submit(cls._load, model, device, dtype, options, padded, name).result()

    @classmethod
    def _load(
        cls, model: str, device: str, dtype: DType, options: EngineOptions, padded: bool | None, name: str | None
    ) -> GLiNEREngine:
        torch_device = pick_device(device)
        # cuDNN's attention builds a plan for every new shape, which takes tens of milliseconds. It is disabled for the
        # whole process: torch's context manager would change the same global flag while other lanes compute.
        torch.backends.cuda.enable_cudnn_sdp(False)
        check_options(options, torch_device)
        onnx_file = options.onnx_model_file if options.runtime == "onnxruntime" else None
        checkpoint = find_checkpoint(model, options, onnx_file)
        name, languages = name or checkpoint.name, languages_of(checkpoint.folder)
        if onnx_file:
            session = load_onnx(checkpoint, torch_device, dtype, options.torch_threads)
            engine = cls(session, name, options, languages)
            if failure := engine.run_self_test(session, options):
                raise ModelError(cannot_reproduce_message(failure))
            return engine
        load_with_dtype = partial(
            load,
            checkpoint,
            torch_device,
            flashdeberta=options.enable_flashdeberta,
            max_words=options.max_model_len,
            max_span_width=options.max_span_width,
        )
        torch_dtype = pick_dtype(dtype, torch_device)
        loaded = load_with_dtype(torch_dtype)
        engine = cls(loaded, name, options, languages, padded=padded)
        engine.calibrate(options)
        if dtype == "auto" and torch_dtype != torch.float32 and not engine._is_runnable():
            logger.warning("%s does not run in %s on this machine; using float32", name, torch_dtype)
            torch_dtype = torch.float32
            loaded = load_with_dtype(torch_dtype)
            engine = cls(loaded, name, options, languages, padded=padded)
            engine.calibrate(options)
        if options.enable_compilation and not engine._is_runnable():
            raise ModelError("enable_compilation: torch.compile failed, see the log (on a CPU it needs a C++ compiler)")
        failure = engine.run_self_test(loaded, options)
        del loaded  # frees the weights that the engine does not use, before memory is measured
        if failure:
            del engine  # frees memory before the model is loaded once more
            engine = cls._with_gliner_forward(load_with_dtype(torch_dtype), name, options, languages, failure)
        engine.check_batch_invariance(options)
        if torch_device.type == "cuda":
            engine.measure_memory(CudaAllocator(torch_device), options)
        release_freed_memory()
        logger.info("%s (%s) in %s on %s", name, engine.info.family, engine.info.dtype, engine.info.device)
        return engine

    @classmethod
    def _with_gliner_forward(
        cls, model: Any, name: str, options: EngineOptions, languages: Sequence[str], failure: str
    ) -> GLiNEREngine:
        """An engine to replace one after the `failure` of its self-test. Raises ModelError if the test fails again."""
        engine = cls(model, name, options, languages, gliner_forward=True)
        if second_failure := engine.run_self_test(model, options):
            raise ModelError(cannot_reproduce_message(f"{failure}; with gliner's forward pass: {second_failure}"))
        engine.info = replace(engine.info, self_test="failed")
        logger.error(
            "self-test failed: %s, in %s with %s; serving %s with gliner's own forward pass, which is slower",
            failure,
            engine.info.dtype,
            versions(),
            name,
        )
        return engine

    def run_self_test(self, model: Any, options: EngineOptions) -> str | None:
        """Compare with gliner's `model`, unless disabled. Sets `info.self_test`; returns the failure or None."""
        if not options.self_test:
            return None
        failure = self_test(self, model)
        self.info = replace(self.info, self_test="failed" if failure else "passed")
        if failure is None and (warning := missed_entities(self)):
            logger.warning("%s: %s", self.info.model, warning)
            self.info = replace(self.info, warnings=(warning,))
        return failure

    def calibrate(self, options: EngineOptions) -> None:
        """Let the encoder's layers multiply in 8 bits, with scales from the texts of the calibration. Does nothing
        without quantization. Sets `info.unquantized_layers`. Raises ModelError for a file that cannot be read."""
        if self._quantizable is None:
            return
        for item in calibration_items(self.info, options.calibration_file):
            prepared = self.prepare(item)
            if prepared.chunked is not None:  # relations of several sentences take several passes
                prepared = self.prepare(replace(item, relations={}))
            self.forward(self.collate([prepared]), torch.get_num_threads())
        layers, self._quantizable = self._quantizable, None
        errors = layers.quantize()
        self._invariant_threads = layers.threads if layers.batch_invariant and self._forward.packs else ()
        unquantized = tuple(sorted(name for name, error in errors.items() if error is None))
        self.info = replace(self.info, unquantized_layers=unquantized)
        if unquantized:
            logger.warning("%s: too inexact in int8, not quantized: %s", self.info.model, ", ".join(unquantized))

    def check_batch_invariance(self, options: EngineOptions) -> None:
        """Test batch invariance, if the layers are made for it. Sets `info.batch_invariant`."""
        invariant = bool(self._invariant_threads) and is_batch_invariant(self, self._invariant_threads)
        self.info = replace(self.info, batch_invariant=invariant)
        if options.batch_invariant and not invariant:
            logger.warning("%s: scores may differ by rounding, depending on other texts in the batch", self.info.model)

    @property
    def batch_tokens(self) -> int | None:
        """Highest cost of a batch, in tokens, that fits the device's memory now; None on a CPU."""
        return self._memory.batch_tokens if self._memory else None

    @property
    def encoded_labels(self) -> int:
        """Number of labels that a bi-encoder has encoded since the start, without cache hits; 0 for other models."""
        return self._forward.encoded_labels

    def measure_memory(self, allocator: CudaAllocator, options: EngineOptions) -> None:
        """Run batches of short to long texts to set `batch_tokens` (see `calibrate`)."""
        limits = self._limits
        try:
            self._memory = calibrate(
                allocator,
                self._run_probe,
                longest_tokens=min(limits.tokens, limits.words),
                target_memory_fraction=options.target_memory_fraction,
                memory_overhead_factor=options.memory_overhead_factor,
                lanes=options.inference_lanes + 1 / QUOTAS_PER_BATCH,  # the express lane
            )
        except DoesNotFit as error:
            raise ModelError(error.message) from error

    def _run_probe(self, texts: int, tokens: int) -> int:
        """Run a batch of `texts` texts of about `tokens` tokens each; returns its cost."""
        prepared = self.prepare(replace(self._probe("word " * tokens, ()), threshold=1.0))
        self.forward(self.collate([prepared] * texts), torch.get_num_threads())
        return texts * prepared.cost

    def serve_adapters(self, acquire: Callable[[str], AdapterLease]) -> None:
        """Let items use adapters. acquire: returns a lease on the adapter with a given id, or raises an error."""
        self._acquire = acquire

    def slot_state(self) -> SlotState:
        return self.adapter_slots.state() if self.adapter_slots else SlotState()

    def prepare(self, item: Item) -> Prepared:
        return run_all(self.prepare_in_steps(item))

    def prepare_in_steps(self, item: Item) -> Steps[Prepared]:
        """Check and measure `item`; the payload is the `Tokenized` input of its pass."""
        checked = self._preparer.checked(item)
        lease = self._lease(item.adapter_id)
        try:
            prepared = yield from self._preparer.prepare(checked, lease)
        except BaseException:
            if lease:
                lease.release()
            raise
        if lease and prepared.adapter is None:  # the item needs no pass
            lease.release()
        return prepared

    def _lease(self, adapter_id: str | None) -> AdapterLease | None:
        if adapter_id is None or adapter_id == BASE_ADAPTER_ID:
            return None
        if self._acquire is None:
            raise AdapterNotFound.disabled("adapter_id")
        return self._acquire(adapter_id)

    def collate(self, batch: Sequence[Prepared]) -> CollatedBatch:
        """Tensors on the CPU. A batch with adapters is collated in `forward`, as its order depends on the slots."""
        if any(prepared.chunked for prepared in batch):
            raise ValueError("a chunked request cannot be in a batch; its passes can")
        if any(prepared.adapter for prepared in batch):
            return CollatedBatch(tuple(batch), (), None)
        self._set_threads(1)  # enough for small tensors, and starts no OpenMP threads (see `load`)
        return self._forward.collate(batch)

    @torch.inference_mode()
    def forward(self, collated: CollatedBatch, threads: int) -> tuple[CollatedBatch, list[Predictions]]:
        """Run the model. Returns the input of `decode`. Raises `ScoresNotFinite`."""
        self._set_threads(threads)
        adapters = {item.adapter.ready.result() for item in collated.items if item.adapter}
        if not adapters:
            return collated, self._predict(collated)
        assert self.adapter_slots is not None
        with self.adapter_slots.hold(adapters) as slot_of:
            collated = self._forward.collate(
                collated.items,
                lambda item: slot_of[item.adapter.ready.result()] if item.adapter else None,
                self.adapter_slots.count,
                self._device,
            )
            return collated, self._predict(collated)

    def _predict(self, collated: CollatedBatch) -> list[Predictions]:
        if not collated.texts:
            return []
        with self._memory.guard(self._cost(collated.texts)) if self._memory else nullcontext():
            return self._forward(collated.inputs, collated.texts)

    def decode(self, scores: tuple[CollatedBatch, list[Predictions]]) -> list[Extraction | PassResult | LimitExceeded]:
        """One result per item, with character offsets and names in place of word and label numbers."""
        collated, predictions = scores
        predictions_of = {id(text): predicted for text, predicted in zip(collated.texts, predictions, strict=True)}
        return [result_of(item, predictions_of.get(id(item), _NOTHING)) for item in collated.items]

    def _cost(self, texts: Sequence[Prepared]) -> int:
        costs = [text.cost for text in texts]
        return sum(costs) if self.packs else len(costs) * max(costs)

    def _set_threads(self, threads: int) -> None:
        """Set the calling thread's torch threads."""
        # Read before it is set: reading runs torch's lazy initialization, which would later override the value.
        if self._device.type == "cpu" and torch.get_num_threads() != threads:
            torch.set_num_threads(threads)

    def start_lane(self) -> None:
        """On a GPU, give the calling thread its own stream; on a CPU, a lower priority than the express lane's and the
        gateway's."""
        if self._device.type == "cuda":
            self._use_stream(priority=0)
        elif sys.platform == "linux":  # Linux has priorities per thread; new threads inherit their creator's
            thread = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + LANE_NICE)

    def start_express_lane(self) -> None:
        """On a GPU, give the calling thread a stream of high priority; on a CPU, it keeps its priority."""
        if self._device.type == "cuda":
            self._use_stream(priority=-1)

    def _use_stream(self, priority: int) -> None:
        """Give the calling thread its own stream. priority: CUDA's, lower is more urgent."""
        synchronize(self._device)
        torch.cuda.set_stream(torch.cuda.Stream(self._device, priority))  # type: ignore[no-untyped-call]

    def _probe(self, text: str, relations: Sequence[str]) -> ExtractionItem:
        """An item of one pass: classes only for a model that finds no entities."""
        item = unfiltered_item(self.info, text, ("answer", "question")[: self.info.max_labels_per_pass], relations)
        return replace(item, classifications={}) if item.labels else item

    def _is_runnable(self) -> bool:
        relations = ("answers",) if self.info.supports_relations else ()
        try:
            prepared = self.prepare(self._probe("Nobody was asked.", relations))
            self.forward(self.collate([prepared]), torch.get_num_threads())
        except Exception:
            logger.info("the probe failed", exc_info=True)
            return False
        return True


def check_options(options: EngineOptions, device: torch.device) -> None:
    """Raises ModelError for options that exclude each other, or that the device does not support."""
    if options.runtime == "onnxruntime":
        if options.enable_flashdeberta:
            raise ModelError("enable_flashdeberta is for runtime torch")
        if options.enable_lora:
            raise ModelError("enable_lora is for runtime torch; an ONNX file has fixed weights")
        if options.quantization != "none":
            raise ModelError("quantization is for runtime torch; an ONNX file has a fixed precision")
        if options.max_model_len or options.max_span_width:
            raise ModelError("max_model_len and max_span_width are for runtime torch; an ONNX file has fixed shapes")
    if options.quantization == "int8" and device.type != "cpu":
        raise ModelError("quantization int8 is for the CPU")
    if options.quantization == "int8" and not multiplies_int8():
        raise ModelError(
            "quantization int8 needs a CPU with VNNI or AMX instructions; here it would be slower than none"
        )
    if options.calibration_file and options.quantization != "int8":
        raise ModelError("calibration_file is for quantization int8")
