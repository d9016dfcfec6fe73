"""gliner itself in process, on torch or on ONNX Runtime: its answers, and its speed at several batch sizes.

Takes the steps of gliner.serve (prepare, collate, run, decode), which cost less than `inference` with its DataLoader,
and the options of a careful user: texts sorted by length, the best of several batch sizes.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from gliner import GLiNER

from benchmark.answers import THRESHOLD
from benchmark.jobs import run_job

Body = dict[str, Any]
Predict = Callable[[Sequence[Body]], list[dict[str, Any]]]
"""The answers to a batch."""


def main(
    model: str,
    bodies: list[Body],
    batch_sizes: list[int],
    seconds: float,
    runtime: str = "torch",
    dtype: str = "float32",
    passes: int | None = None,
    device: str = "cpu",
    alone: int = 0,
) -> dict[str, Any]:
    """Texts/s at each batch size, and the answers at the last one: list the sizes from the largest to 1.

    passes: number of passes over the texts at each size; by default as many as start within `seconds`, at least one.
    alone: of so many texts, one by one, are the latencies; 0: of the last batch size.
    """
    warnings.simplefilter("ignore")
    torch.backends.cudnn.allow_tf32 = False  # of LSTMs in float32
    loaded = _load(model, runtime, dtype, device)
    predict: Predict = lambda batch: _answers(loaded, batch)  # noqa: E731
    result = measure(predict, bodies, batch_sizes, seconds, passes=passes)
    if alone:
        result["latencies_s"] = measure(predict, bodies[:alone], [1], 0.0)["latencies_s"]
    return result


def by_length(bodies: Sequence[Body], size: int) -> list[list[int]]:
    """Batches of indices of bodies, sorted by length within a label set."""
    order = sorted(range(len(bodies)), key=lambda i: (bodies[i]["labels"], len(bodies[i]["text"].split())))
    return [order[at : at + size] for at in range(0, len(order), size)]


def measure(
    predict: Predict,
    bodies: Sequence[Body],
    batch_sizes: Sequence[int],
    seconds: float,
    passes: int | None = None,
) -> dict[str, Any]:
    """The result of `main`, for any `predict`."""
    speeds: dict[str, float] = {}
    latencies_s: list[float] = []
    answers: list[dict[str, Any]] = []
    for size in batch_sizes:
        batches = by_length(bodies, size)
        predict([bodies[i] for i in batches[-1]])  # warm-up, with the longest texts
        start, done = time.perf_counter(), 0
        while done == 0 or (done < passes if passes else time.perf_counter() - start < seconds):
            latencies_s = []
            answers = [{} for _ in bodies]
            for batch in batches:
                sent = time.perf_counter()
                for i, answer in zip(batch, predict([bodies[i] for i in batch]), strict=True):
                    answers[i] = answer
                latencies_s.append(time.perf_counter() - sent)
            done += 1
        speeds[str(size)] = done * len(bodies) / (time.perf_counter() - start)
    return {"texts_per_s": speeds, "best": max(speeds.values()), "latencies_s": latencies_s, "answers": answers}


def _load(model: str, runtime: str, dtype: str, device: str) -> Any:
    if runtime == "onnx":
        return GLiNER.from_pretrained(model, load_onnx_model=True, onnx_model_file="model.onnx")
    return GLiNER.from_pretrained(model, dtype=getattr(torch, dtype)).eval().to(device)


def _answers(model: Any, bodies: Sequence[Body]) -> list[dict[str, Any]]:
    return decode(model, run(model, bodies))


@dataclass(frozen=True, slots=True)
class Ran:
    """A batch after its forward."""

    prepared: dict[str, Any]
    batch: Any
    output: Any
    related: bool


@torch.inference_mode()
def run(model: Any, bodies: Sequence[Body], threshold: float = THRESHOLD, **inputs: Any) -> Ran:
    """One batch, up to its scores (relex: of pairs of spans above `threshold`).

    inputs: further arguments of the model's forward. The steps and their arguments are those of
    `GLiNERServer._run_batch_internal`.
    """
    related = any("relations" in body for body in bodies)
    prepared = model.prepare_batch(
        [body["text"] for body in bodies],
        [body["labels"] for body in bodies],
        **({"relations": [body["relations"] for body in bodies]} if related else {}),
    )
    batch = model.collate_batch(
        prepared["input_x"],
        prepared["entity_types"],
        model.create_collator(),
        label_names=prepared["label_names"],
        **({"relation_types": prepared["relation_types"]} if related else {}),
    )
    extra = {"adjacency_threshold": THRESHOLD, **inputs} if related else inputs
    return Ran(prepared, batch, model.run_batch(batch, threshold=threshold, move_to_device=True, **extra), related)


@torch.inference_mode()
def decode(
    model: Any, ran: Ran, threshold: float = THRESHOLD, relation_threshold: float = THRESHOLD
) -> list[dict[str, Any]]:
    """The predictions for each text of the batch."""
    extra = {"relation_threshold": relation_threshold} if ran.related else {}
    decoded = model.decode_batch(ran.output, ran.batch, threshold=threshold, flat_ner=True, **extra)
    maps = ("valid_texts", "valid_to_orig_idx", "start_token_map", "end_token_map", "num_original")
    where = [ran.prepared[name] for name in maps]
    if not ran.related:
        return [{"entities": entities} for entities in model.map_entities_to_text(decoded, *where)]
    entities = model.map_entities_to_text(decoded[0], *where)
    relations = model.map_relations_to_text(decoded[1], decoded[0], *where)
    return [{"entities": e, "relations": r} for e, r in zip(entities, relations, strict=True)]


if __name__ == "__main__":
    run_job(main)
