"""CPU time per item around the model: prepare, collate, decode, schedule, gateway and hop. See jobs/overhead.py."""

from __future__ import annotations

from benchmark import generated, job
from benchmark.bench import DEMO, Bench, environment
from benchmark.labelled import paragraphs
from benchmark.rows import Row
from gliner_bento.loadtest import workload

_WORDS = 51
_TEXTS = 32


def overhead(bench: Bench, section: str) -> list[Row]:
    """Texts of `_WORDS` words with the labels of one set; the tokenizer is the bundled model's."""
    texts, _, _ = paragraphs(_TEXTS)
    bodies = generated.pieces({"text": " ".join(texts), "labels": workload.LABEL_SETS[1]}, _WORDS)[:_TEXTS]
    repetitions = 20 if bench.plan.bundled else 300
    measured = job.run("overhead", environment({"model": DEMO}), bodies=bodies, repetitions=repetitions)
    return [Row.from_data({**row, "section": section}) for row in measured["rows"]]
