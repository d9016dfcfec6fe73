"""CPU time per item around the model: its parts, all of them together, and that of redaction. See
jobs/overhead.py and jobs/redaction.py."""

from __future__ import annotations

from benchmark import generated, job
from benchmark.bench import DEMO, Bench, environment
from benchmark.labelled import paragraphs
from benchmark.rows import Row
from gliner_bento.loadtest import workload

_WORDS = 51
_TEXTS = 32
_KEY = environment({"redaction_key": "a-key-of-the-benchmark-with-40-characters"})


def overhead(bench: Bench, section: str) -> list[Row]:
    """Texts of `_WORDS` words with the labels of one set; the tokenizer is the bundled model's."""
    texts, _, _ = paragraphs(_TEXTS)
    bodies = generated.pieces({"text": " ".join(texts), "labels": workload.LABEL_SETS[1]}, _WORDS)[:_TEXTS]
    repetitions = 20 if bench.plan.bundled else 300
    settings = environment({"model": DEMO})
    measured = [
        *job.run("overhead", settings, bodies=bodies, repetitions=repetitions)["rows"],
        *job.run("redaction", settings | _KEY, repetitions=repetitions)["rows"],
    ]
    return [Row.from_data({**row, "section": section}) for row in measured]
