"""Loads an ONNX checkpoint through gliner's own ONNX Runtime model. Needs the extra `onnx`.

An ONNX file contains no code, but it may name other files to read. Only files in its folder are accepted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from gliner.runtime.onnx import ONNXRuntimeModel
from transformers import AutoConfig

from gliner_bento.engine.checkpoint.device import DType
from gliner_bento.engine.checkpoint.find import BACKBONES, ModelError, stays_inside
from gliner_bento.engine.checkpoint.load import from_pretrained
from gliner_bento.engine.checkpoint.resolve import Checkpoint
from gliner_bento.errors import install_hint, one_line


@dataclass(frozen=True, slots=True)
class OnnxFacts:
    """dtype: the type that large multiplications run in. quantizes_batches: whether quantization scales are computed
    from all values of a batch (dynamic quantization); a text's scores then depend on the other texts."""

    dtype: str
    quantizes_batches: bool


class OnnxSession(ONNXRuntimeModel):  # type: ignore[misc]  # gliner has no types
    """An ONNX Runtime session and the facts of its file. Safe to run from several threads."""

    def __init__(self, session: Any, facts: OnnxFacts) -> None:
        super().__init__(session=session)
        self.facts = facts

    def logits(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Scores before the sigmoid, on the CPU. inputs: exactly those named in `input_names`."""
        return torch.from_numpy(self(inputs).logits)


def load_onnx(checkpoint: Checkpoint, device: torch.device, dtype: DType, threads: int) -> Any:
    """gliner's model over the checkpoint's ONNX file; its `model` is an `OnnxSession`.

    threads: number of threads of a run on a CPU; fixed for the session.
    """
    if find_spec("onnxruntime") is None or find_spec("onnx") is None:
        raise ModelError(f"runtime onnxruntime: a package is missing; {install_hint('onnx')}")
    import onnxruntime  # noqa: PLC0415  # an extra

    if dtype not in {"auto", "float32"}:
        raise ModelError(f"runtime onnxruntime: the ONNX file fixes the precision, dtype {dtype!r} is not available")
    if device.type == "cuda" and "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        raise ModelError(f"runtime onnxruntime: {device} needs the package onnxruntime-gpu in place of onnxruntime")
    file = checkpoint.folder / str(checkpoint.onnx_file)
    facts = inspect_onnx(file)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.enable_mem_pattern = False  # it caches a plan per shape for ever, and almost every batch has a new shape
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # it would take cores from other lanes
    providers: list[Any] = ["CPUExecutionProvider"]
    if device.type == "cuda":
        providers.insert(0, ("CUDAExecutionProvider", {"device_id": device.index or 0}))
    try:
        session = onnxruntime.InferenceSession(str(file), sess_options=options, providers=providers)
    except Exception as error:
        raise ModelError(f"onnxruntime cannot load {file.name!r}: {one_line(error)}") from error
    model = from_pretrained(checkpoint, checkpoint.folder, runtime="onnxruntime", runtime_options={"session": session})
    model.model = OnnxSession(session, facts)
    _add_backbones(model.config, checkpoint)
    return model


def _add_backbones(config: Any, checkpoint: Checkpoint) -> None:
    """Add the backbones' configurations, as gliner does when it builds a torch model. Raises ModelError."""
    for key, backbone in BACKBONES.items():
        source = getattr(config, key, None)
        if source and getattr(config, backbone.config_key, None) is None:
            try:
                backbone_config = AutoConfig.from_pretrained(
                    source, cache_dir=checkpoint.hub.cache_dir, local_files_only=True
                )
            except Exception as error:
                raise ModelError(f"the configuration of {source!r} cannot be loaded: {one_line(error)}") from error
            setattr(config, backbone.config_key, backbone_config)


def inspect_onnx(path: Path) -> OnnxFacts:
    """The facts of a file. Raises ModelError if it is not ONNX, or names files outside its folder."""
    import onnx  # noqa: PLC0415  # an extra

    try:
        file = onnx.load(path, load_external_data=False)
    except Exception as error:
        raise ModelError(f"{path.name!r} is not an ONNX file: {one_line(error)}") from error
    types: set[int] = set()
    operators: set[str] = set()
    for message in _messages(file):
        if isinstance(message, onnx.TensorProto):
            types.add(message.data_type)
            if any(entry.key == "location" and not stays_inside(entry.value) for entry in message.external_data):
                raise ModelError(f"{path.name!r} names a file that is not in its folder; it is not loaded")
        elif isinstance(message, onnx.NodeProto):
            operators.add(message.op_type)
    if any(operator.startswith("DynamicQuantize") for operator in operators):
        return OnnxFacts("int8", quantizes_batches=True)
    return OnnxFacts("float16" if onnx.TensorProto.FLOAT16 in types else "float32", quantizes_batches=False)


def _messages(root: Any) -> Iterator[Any]:
    """A protobuf message and all messages in it, at any depth: attributes, functions and subgraphs hold tensors too."""
    stack = [root]
    while stack:
        message = stack.pop()
        yield message
        for field, value in message.ListFields():
            if field.message_type is not None:
                stack += [value] if hasattr(value, "DESCRIPTOR") else list(value)
