"""Loading a checkpoint that is an ONNX graph, through gliner's own ONNX Runtime model.

A graph is data, but it may name other files to read: only those beside it are accepted. Needs the extra `onnx`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from gliner.runtime.onnx import ONNXRuntimeModel

from gliner_bento.engine.loading import DType, ModelError, from_pretrained, is_beside


@dataclass(frozen=True, slots=True)
class GraphFacts:
    """dtype: what its large multiplications are in. quantizes_batches: their scales are taken from all values of a
    batch at once (dynamic quantization), so that a row's scores depend on the rows beside it."""

    dtype: str
    quantizes_batches: bool


class Graph(ONNXRuntimeModel):  # type: ignore[misc]  # gliner has no types
    """A graph in a session, and what is known of it. Safe to run from several threads."""

    def __init__(self, session: Any, facts: GraphFacts) -> None:
        super().__init__(session=session)
        self.facts = facts

    def logits(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Scores before the sigmoid, on the CPU, of exactly the inputs in `input_names`."""
        return torch.from_numpy(self(inputs).logits)


def load_graph(folder: Path, onnx_file: str, device: torch.device, dtype: DType, threads: int) -> Any:
    """gliner's model over the graph in the folder; its `model` is a `Graph`.

    threads: that one run computes with on a CPU; a session has them for its life.
    """
    if find_spec("onnxruntime") is None or find_spec("onnx") is None:
        raise ModelError("runtime onnxruntime: a package is not installed: pip install 'gliner-bento[onnx]'")
    import onnxruntime  # noqa: PLC0415  # an extra

    if dtype not in {"auto", "float32"}:
        raise ModelError(f"runtime onnxruntime: a graph has its precision in it, so dtype {dtype!r} cannot be had")
    if device.type == "cuda" and "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        raise ModelError(f"runtime onnxruntime: {device} needs the package onnxruntime-gpu in place of onnxruntime")
    facts = facts_of(folder / onnx_file)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.enable_mem_pattern = False  # a plan for each shape is kept for ever, and every batch has its own shape
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # other lanes need the cores
    providers: list[Any] = ["CPUExecutionProvider"]
    if device.type == "cuda":
        providers.insert(0, ("CUDAExecutionProvider", {"device_id": device.index or 0}))
    try:
        session = onnxruntime.InferenceSession(str(folder / onnx_file), sess_options=options, providers=providers)
    except Exception as error:
        raise ModelError(f"onnxruntime cannot load {onnx_file!r}: {error}") from error
    model = from_pretrained(folder, runtime="onnxruntime", runtime_options={"session": session})
    model.model = Graph(session, facts)
    return model


def facts_of(path: Path) -> GraphFacts:
    """Raises ModelError for a file that is no graph, or that names files elsewhere."""
    import onnx  # noqa: PLC0415  # an extra

    try:
        graph = onnx.load(path, load_external_data=False)
    except Exception as error:
        raise ModelError(f"{path.name!r} is no ONNX file: {error}") from error
    types: set[int] = set()
    operators: set[str] = set()
    for message in _messages(graph):
        if isinstance(message, onnx.TensorProto):
            types.add(message.data_type)
            if any(entry.key == "location" and not is_beside(entry.value) for entry in message.external_data):
                raise ModelError(f"{path.name!r} names a file that is not in its folder; it is not loaded")
        elif isinstance(message, onnx.NodeProto):
            operators.add(message.op_type)
    if any(operator.startswith("DynamicQuantize") for operator in operators):
        return GraphFacts("int8", quantizes_batches=True)
    return GraphFacts("float16" if onnx.TensorProto.FLOAT16 in types else "float32", quantizes_batches=False)


def _messages(message: Any) -> Iterator[Any]:
    """A protobuf message and all that it holds, at any depth: tensors hide in attributes, functions and subgraphs."""
    waiting = [message]
    while waiting:
        message = waiting.pop()
        yield message
        for field, value in message.ListFields():
            if field.message_type is not None:
                waiting += [value] if hasattr(value, "DESCRIPTOR") else list(value)
