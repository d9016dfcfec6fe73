"""What `batch_invariant` costs: CPU time of batches with and without it, interleaved, in one process and one thread.

    python docs/measurements/invariance.py CHECKPOINT [--dtype float32] [--rounds 15]

Prints CPU milliseconds per text, the best of all rounds, of batches of 20 texts and of single texts.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace

import torch

from gliner_bento.engine.engine import GLiNEREngine
from gliner_bento.engine.options import EngineOptions
from gliner_bento.loadtest.workload import skewed
from gliner_bento.settings import Settings
from gliner_bento.types import Item


def milliseconds(engine: GLiNEREngine, batches: list[list[Item]]) -> float:
    """CPU time per text."""
    began = time.process_time()
    for batch in batches:
        engine.forward(engine.collate([engine.prepare(item) for item in batch]), 1)
    return (time.process_time() - began) * 1000 / sum(map(len, batches))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    options = Settings().decided_for("cpu", cores=1).view(EngineOptions)
    engines = {
        on: GLiNEREngine.load(
            arguments.checkpoint,
            device="cpu",
            dtype=arguments.dtype,
            options=replace(options, batch_invariant=on, self_test=False),
        )
        for on in (False, True)
    }
    items = [
        Item(body["text"], {label: label for label in body["labels"]}, long_text="truncate") for body in skewed(40)
    ]
    work = {"batches of 20": [items[:20], items[20:]], "single texts": [[item] for item in items[:10]]}
    for name, batches in work.items():
        times: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(arguments.rounds + 1):
            for on, engine in engines.items():
                times[on].append(milliseconds(engine, batches))
        off, on = (min(times[which][1:]) for which in (False, True))
        row = {"work": name, "off_ms": round(off, 2), "on_ms": round(on, 2), "cost": round(on / off - 1, 3)}
        sys.stdout.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
