"""What a replica's work takes, from the committed results of a server on two cores (docs/benchmarks). Measures nothing.

The seconds of a text are a polynomial of its words: fixed work, linear layers, attention. Its three coefficients follow
from three measured throughputs, of texts of 6 to 30 words, 6 to 250 and 384.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from benchmark import generated
from gliner_bento.loadtest import workload
from gliner_bento.settings import PROJECT_ROOT

RESULTS = PROJECT_ROOT / "docs" / "benchmarks" / "2026-11-21" / "results.json"
LONG_WORDS = 384
TEXTS = 256
_TOKENS_PER_WORD, _TOKENS_PER_LABEL = 1.15, 3.0


@dataclass(frozen=True)
class Curves:
    """Seconds of one replica, with `lanes` batches at a time, in bfloat16.

    coefficients: seconds of a text per word to the powers 0, 1, 2, all lanes busy. adapter_s: added to a text with an
    adapter. load_s: of an adapter from disk, in one lane. texts_per_s: of the mixed texts, 32 concurrent requests.
    """

    coefficients: tuple[float, float, float]
    adapter_s: float
    load_s: float
    texts_per_s: float
    lanes: int = 2

    def text_s(self, words: int) -> float:
        """Seconds of a text, all lanes busy: 1 / throughput."""
        fixed, linear, square = self.coefficients
        return fixed + linear * words + square * words * words


@dataclass(frozen=True)
class Text:
    """A text of the mixed workload. tokens: approximately, labels included; of the cost only, not of the seconds."""

    text: str
    labels: tuple[str, ...]
    words: int
    tokens: int


@cache
def measured() -> Curves:
    """The curves of the committed results."""
    data = json.loads(RESULTS.read_text("utf-8"))
    points = data["points"]
    mixed_per_s = rate_of(points, section="bf16", route="/v1/extract", concurrency=32)
    rates = [
        rate_of(points, section="long_texts", texts="short texts"),
        mixed_per_s,
        rate_of(points, section="long_texts", texts=f"texts of {LONG_WORDS} words"),
    ]
    lengths = [_lengths(workload.short(TEXTS)), _lengths(workload.mixed(TEXTS)), [LONG_WORDS]]
    moments = [[1.0, mean(words), mean(one * one for one in words)] for words in lengths]
    fixed, linear, square = np.linalg.solve(moments, [1 / rate for rate in rates]).tolist()
    by_name = {one["name"]: one for one in data["extra"]["adapters"]}
    resident = by_name["64 adapters of queries and values"]
    first_ms, repeated_ms = data["extra"]["cold_ms"][::2], data["extra"]["cold_ms"][1::2]
    return Curves(
        (fixed, linear, square),
        adapter_s=(resident["ms"] - resident["without_ms"]) / 1000,
        load_s=(median(first_ms) - median(repeated_ms)) / 1000,
        texts_per_s=mixed_per_s,
    )


def rate_of(points: Sequence[dict[str, Any]], **fields: Any) -> float:
    """Requests/s of the point of our server with these fields."""
    return float(point_of(points, **fields)["requests_per_s"])


def point_of(points: Sequence[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """The only point of our server with these fields."""
    (point,) = [
        one
        for one in points
        if one["server"] == "ours" and all(one.get(name) == value for name, value in fields.items())
    ]
    return point


@cache
def texts() -> tuple[Text, ...]:
    """The mixed texts, 6 to 250 words, 46 on average."""
    return tuple(
        Text(body["text"], tuple(body["labels"]), words := generated.word_count(body["text"]),
             round(words * _TOKENS_PER_WORD + len(body["labels"]) * _TOKENS_PER_LABEL))
        for body in workload.mixed(TEXTS)
    )  # fmt: skip


def _lengths(bodies: Sequence[workload.Body]) -> list[int]:
    return [generated.word_count(body["text"]) for body in bodies]


def results_path() -> str:
    """Of the results, from the root of the project."""
    return str(Path(RESULTS).relative_to(PROJECT_ROOT))
