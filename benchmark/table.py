"""Markdown tables of measurements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_DETAILS = ("section", "dtype", "route", "settings", "adapters", "texts")
_QUANTITIES = ("requests_per_s", "p50_ms", "p95_ms", "p99_ms")


def table(head: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
    """A Markdown table; numbers are rounded, None is a dash."""
    cells = [[_cell(value) for value in line] for line in lines]
    rule = ["---"] * len(head)
    return "\n".join("| " + " | ".join(line) + " |" for line in [list(head), rule, *cells])


def loads_table(points: Sequence[dict[str, Any]]) -> str:
    """One line per load: throughput, latencies, statuses, and how far the responses are right."""
    head = ["server", "workload", "load", "requests/s", "p50 ms", "p95 ms", "p99 ms", "responses"]
    return table([*head, "wrong", "same spans", "F1"], [_load_line(point) for point in points])


def _load_line(point: dict[str, Any]) -> list[object]:
    load = f"concurrency {point['concurrency']}" if point["concurrency"] else f"{point['rate']:.1f} requests/s"
    details = " ".join(str(point[name]) for name in _DETAILS if point.get(name))
    responses = ", ".join(f"{count} x {status}" for status, count in point["statuses"].items())
    if point["unanswered"]:
        responses += f", {point['unanswered']} unanswered"
    agreement = point.get("agreement") or {}
    return [
        *(point["server"], details, load),
        *(point[name] for name in _QUANTITIES),
        responses,
        *(agreement.get(name) for name in ("wrong", "same_spans", "f1")),
    ]


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.1e}" if 0 < abs(value) < 1e-3 else f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
    return str(value).replace("|", r"\|").replace("\n", " ")
