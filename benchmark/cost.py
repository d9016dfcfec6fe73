"""The section cost: documents per hour on this machine by model size and length, from which docs/cost.md counts."""

from __future__ import annotations

from benchmark.bench import DEMO, Bench
from benchmark.generated import document
from benchmark.over_http import EXTRACT
from benchmark.rows import Row
from gliner_bento.loadtest import workload
from gliner_bento.loadtest.load import closed_loop

LOADS = ((50, 16, 1), (300, 16, 1), (2000, 4, 8))
"""Words of a document, concurrent requests, and for how many times the plan's seconds: a long document takes a model of
400 million parameters seconds."""
_TEXTS = 64
_FAMILIES = {"small": "ner", "base": "base", "large": "large"}


def cost(bench: Bench, section: str) -> list[Row]:
    """Requests/s and words/s of a server with default settings, a document a request, four labels."""
    models = {"bundled model": DEMO}
    if not bench.plan.bundled:
        models |= {name: bench.checkpoint(family) for name, family in _FAMILIES.items()}
    rows = []
    for name, model in models.items():
        with bench.ours(model) as server:
            for words, clients, times in LOADS:
                bodies = workload.encoded([document(words, seed) for seed in range(_TEXTS)])
                for seconds in (bench.plan.warm_up_s, bench.plan.seconds * times):
                    run = closed_loop(f"{server.url}{EXTRACT}", bodies, concurrency=clients, seconds=seconds)
                speed = run.summary()["requests_per_s"]
                note = f"{speed * words:,.0f} words/s, {speed * 3600:,.0f} documents per hour"
                rows.append(Row(section, f"{name}, {words} words", "requests/s", speed, note=note))
    return rows
