"""The tables of a study, as Markdown. Uses only the study's data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmark.table import table

Data = dict[str, Any]

_LATENCIES = ("p50_ms", "p99_ms")


def render(data: Data) -> str:
    """The page."""
    parts = [_head(data), *(f"## {title}\n\n{part(data)}" for title, part in _PARTS.items())]
    return "\n\n".join(parts) + "\n"


def _head(data: Data) -> str:
    curves = data["curves"]
    return (
        "# Fleets, simulated\n\n"
        f"`python -m benchmark --simulate`. {data['date']}, commit {str(data['commit'])[:12]}. The fleet is the real "
        f"one on simulated time; its replicas are simulated: {curves['lanes']} lanes, the scheduler's batches, "
        f"service times from `{curves['from']}` (bfloat16, two cores, {curves['texts_per_s']:.1f} texts/s). No GPU is "
        "simulated. Latencies are those of the fleet: HTTP, the gateway's queue limits and the network are not in them."
    )  # fmt: skip


def _replica(data: Data) -> str:
    lines = [
        [one["name"], f"concurrency {one['concurrency']}" if one["concurrency"] else f"{one['rate']:.1f} requests/s",
         *(value for name in ("requests_per_s", "p50_ms", "p99_ms") for value in (one[name], one["measured"][name]))]
        for one in data["replica"]
    ]  # fmt: skip
    head = ["texts", "load", "requests/s", "measured", "p50 ms", "measured", "p99 ms", "measured"]
    return table(head, lines)


def _sizes(data: Data) -> str:
    return _rows(data["sizes"], "replicas", "load", "policy", "requests_per_s", "seconds")


def _adapters(data: Data) -> str:
    return _rows(data["adapters"], "replicas", "adapters", "load", "policy", "adapter_loads", "requests")


def _deaths(data: Data) -> str:
    lines = [
        [one["policy"], one["outcomes"].get("answered", 0), sum(one["outcomes"].values()), one["repeated"],
         one["p50_ms"], one["p99_ms"]]
        for one in data["deaths"]
    ]  # fmt: skip
    return table(["policy", "answered", "requests", "repeated", "p50 ms", "p99 ms"], lines)


def _growth(data: Data) -> str:
    lines = [
        [one["delay_s"], *(one["outcomes"].get(kind, 0) for kind in ("answered", "QueueFull", "DeadlineExceeded")),
         one["p50_ms"], one["p99_ms"]]
        for one in data["growth"]
    ]  # fmt: skip
    return table(["delay, s", "answered", "refused", "deadline missed", "p50 ms", "p99 ms"], lines)


def _rows(rows: Sequence[Data], *names: str) -> str:
    """Scenes with these fields and their latencies."""
    lines = [[one[name] for name in (*names, *_LATENCIES)] for one in rows]
    return table([name.replace("_per_s", "/s").replace("_", " ") for name in (*names, *_LATENCIES)], lines)


_PARTS = {
    "A simulated replica beside the measured server": _replica,
    "Replicas, load and policy: Poisson arrivals": _sizes,
    "Adapters of tenants, drawn by Zipf's law; a replica holds 128": _adapters,
    "One of ten replicas takes four times as long": lambda data: _rows(data["slow"], "replicas", "load", "policy"),
    "One of ten replicas dies and comes back, load 0.7": _deaths,
    "The load of two replicas doubles, to 1.4; two more start": _growth,
}
