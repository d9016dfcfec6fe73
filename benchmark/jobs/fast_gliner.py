"""fast-gliner (Rust, ONNX Runtime) in process. Imports nothing of this project: it runs in its own environment."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from fast_gliner import FastGLiNER, __version__


def main(model: str, bodies: list[dict[str, Any]], batch_sizes: list[int], seconds: float) -> dict[str, Any]:
    """Texts/s at each batch size, and the answers at the last one; texts are sorted by length within a label set."""
    loaded = FastGLiNER.from_pretrained(model, onnx_path="model.onnx", execution_provider="cpu")
    order = sorted(range(len(bodies)), key=lambda i: (bodies[i]["labels"], len(bodies[i]["text"].split())))
    speeds: dict[str, float] = {}
    answers: list[dict[str, Any]] = []
    for size in batch_sizes:
        batches = _batches(order, bodies, size)
        loaded.predict_entities([bodies[i]["text"] for i in batches[-1]], bodies[batches[-1][0]]["labels"])
        start, done = time.perf_counter(), 0
        while done == 0 or time.perf_counter() - start < seconds:
            answers = [{} for _ in bodies]
            for batch in batches:
                predicted = loaded.predict_entities([bodies[i]["text"] for i in batch], bodies[batch[0]]["labels"])
                for i, entities in zip(batch, predicted):  # noqa: B905  its environment may be older than ours
                    answers[i] = {"entities": entities}
            done += 1
        speeds[str(size)] = done * len(bodies) / (time.perf_counter() - start)
    return {"texts_per_s": speeds, "best": max(speeds.values()), "answers": answers, "version": __version__}


def _batches(order: list[int], bodies: list[dict[str, Any]], size: int) -> list[list[int]]:
    """All texts of a batch have the same labels: its API takes one list of labels."""
    batches: list[list[int]] = []
    for i in order:
        if batches and len(batches[-1]) < size and bodies[batches[-1][0]]["labels"] == bodies[i]["labels"]:
            batches[-1].append(i)
        else:
            batches.append([i])
    return batches


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(main(**json.loads(sys.stdin.read()))) + "\n")
