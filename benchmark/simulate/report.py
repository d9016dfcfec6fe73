"""simulate.md: the tables of a study, with its plots. Uses only the study's data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmark.simulate import plots
from benchmark.table import table

Data = dict[str, Any]

_LATENCIES = ("p50_ms", "p99_ms")


def render(data: Data, folder: Path) -> str:
    """Write simulate.md and the plots into `folder`; the page."""
    shown = [f"![{name.removesuffix('.svg').replace('-', ' ')}]({name})" for name in plots.draw(data, folder)]
    parts = [_head(data), *(f"## {title}\n\n{part(data)}" for title, part in _PARTS.items())]
    page = "\n\n".join([*parts, *(["## Plots", *shown] if shown else [])]) + "\n"
    (folder / "simulate.md").write_text(page, encoding="utf-8")
    return page


def _head(data: Data) -> str:
    curves, machine = data["curves"], data["machine"]
    return (
        "# Fleets, simulated\n\n"
        f"`python -m benchmark --simulate`. {data['date']}, commit {str(data['commit'])[:12]}. The fleet is the real "
        f"one on simulated time; its replicas are simulated: {curves['lanes']} lanes, the scheduler's batches, "
        f"service times from `{curves['from']}` (bfloat16, two cores, {curves['texts_per_s']:.1f} texts/s). No GPU is "
        "simulated. Latencies are those of the fleet: HTTP, the gateway's queue limits and "
        "the network are not in them. CPU times were measured on a machine shared with other work "
        f"({machine['cpu']}, load {machine['load_before'][0]:.1f})."
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


def _overhead(data: Data) -> str:
    names = ("replicas", "dispatcher_us", "fleet_us", "probe_us")
    lines = [[one[name] for name in names] for one in data["overhead"]]
    return table(["replicas", "dispatcher, µs", "whole fleet, µs", "a probe, µs"], lines)


def _costs(data: Data) -> str:
    head = ["replicas", "highest load", "texts/s per replica", "per million texts"]
    lines = []
    for size, load in highest_loads(data).items():
        texts_per_s = data["curves"]["texts_per_s"] * load if load else None
        cost = data["price_per_hour"] * 1e6 / 3600 / texts_per_s if texts_per_s else None
        lines.append([size, load, texts_per_s, cost])
    return (
        f"Assumed: {data['price_per_hour']:g} per hour and replica (`--price-per-hour`), and a p99 of at most "
        f"{data['target_p99_ms']:g} ms. Highest of the loads above at which it holds.\n\n" + table(head, lines)
    )


def highest_loads(data: Data) -> dict[int, float | None]:
    """By number of replicas, the highest load at which p99 stays within the target; None if none does."""
    ours = [one for one in data["sizes"] if one["policy"] == "ours"]
    return {
        size: max(
            (one["load"] for one in ours if one["replicas"] == size and one["p99_ms"] <= data["target_p99_ms"]),
            default=None,
        )
        for size in dict.fromkeys(one["replicas"] for one in ours)
    }


def _rows(rows: Sequence[Data], *names: str) -> str:
    """Scenes with these fields and their latencies."""
    lines = [[one[name] for name in (*names, *_LATENCIES)] for one in rows]
    return table([name.replace("_per_s", "/s").replace("_", " ") for name in (*names, *_LATENCIES)], lines)


_PARTS = {
    "A simulated replica beside the measured server": _replica,
    "Replicas, load and policy: Poisson arrivals": _sizes,
    "Bursts: 1.8 and 0.2 times the load, a second each on average": lambda data: _rows(
        data["bursts"], "replicas", "load", "policy"
    ),
    "Adapters of tenants, drawn by Zipf's law; a replica holds 128": _adapters,
    "One of ten replicas takes four times as long": lambda data: _rows(data["slow"], "replicas", "load", "policy"),
    "One of ten replicas dies and comes back, load 0.7": _deaths,
    "The load of two replicas doubles, to 1.4; two more start": _growth,
    "Several gateways, each of which counts only its own requests": lambda data: _rows(
        data["gateways"], "replicas", "fleets", "load", "policy"
    ),
    "CPU time of the fleet per request": _overhead,
    "Costs": _costs,
}
