"""Plots of results, as PNG files, made only from results.json."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

Data = dict[str, Any]

_COLOURS = {"ours": "#1b6ca8", "gliner.serve": "#c8553d", "naive batchable=True": "#8d8741"}
_STAGES = {"prepare": "#c9d6df", "collate": "#8fb9aa", "forward": "#1b6ca8", "decode": "#e0a458"}
_SIZE = (7.2, 4.2)


def draw(data: Data, folder: Path) -> str:
    """Draw the plots that there are results for; Markdown that shows them, or says why there are none."""
    try:
        import matplotlib as mpl  # noqa: PLC0415  of the extra `bench`
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError:
        return "No plots: matplotlib is not installed."
    shown = []
    with mpl.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        for name, (plot, has) in _PLOTS.items():
            if not has(data):
                continue
            figure = Figure(figsize=_SIZE, dpi=130, layout="constrained")
            plot(figure, data)
            figure.savefig(folder / f"{name}.webp", pil_kwargs={"lossless": True})
            shown.append(f"![{name.replace('-', ' ')}]({name}.webp)")
    return "## Plots\n\n" + "\n\n".join(shown) if shown else ""


def _closed(data: Data, dtype: str | None = None) -> list[Data]:
    """Closed-loop points of the comparison over HTTP, on the main route of each server."""
    return [
        point
        for point in data["points"]
        if point["section"] in ("bf16", "fp32", "naive")
        and point["concurrency"]
        and (point["server"] != "ours" or point["route"] == "/v1/extract")
        and dtype in (None, point["dtype"])
    ]


def _throughput(figure: Any, data: Data) -> None:
    """Requests/s over concurrency, one line per server and precision."""
    axes = figure.subplots()
    lines: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for point in _closed(data):
        lines.setdefault((point["server"], point["dtype"]), []).append((point["concurrency"], point["requests_per_s"]))
    for (server, dtype), values in lines.items():
        style = "-" if dtype == "bfloat16" else "--"
        axes.plot(*zip(*sorted(values), strict=True), style, marker="o", color=_COLOURS[server],
                  label=f"{server}, {dtype}")  # fmt: skip
    axes.set_xscale("log", base=2)
    ticks = sorted({point["concurrency"] for point in _closed(data)})
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_ylim(bottom=0)
    axes.set(xlabel="concurrent requests", ylabel="requests/s", title="Throughput over HTTP")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.13))


def _latency(figure: Any, data: Data) -> None:
    """Latency over percentiles in bfloat16, at the lowest and at the highest concurrency."""
    points = _closed(data, "bfloat16")
    ends = sorted({point["concurrency"] for point in points})
    ends = [ends[0], ends[-1]] if len(ends) > 1 else ends
    for axes, number in zip(figure.subplots(1, len(ends), squeeze=False)[0], ends, strict=True):
        for point in points:
            if point["concurrency"] == number and point["latencies_ms"][0] is not None:
                axes.plot(range(1, 100), point["latencies_ms"], color=_COLOURS[point["server"]], label=point["server"])
        axes.set_ylim(bottom=0)
        axes.set(xlabel="percentile", ylabel="latency, ms", title=f"concurrency {number}, bf16")
        axes.grid(axis="y", alpha=0.3)
        axes.legend(frameon=False)


def _stages(figure: Any, data: Data) -> None:
    """Milliseconds per text in each stage, one thread, stacked."""
    axes = figure.subplots()
    spent = data["extra"]["stages"]
    left = [0.0] * len(spent)
    for name, colour in _STAGES.items():
        widths = [stages[name] * 1000 for stages in spent.values()]
        axes.barh(list(spent), widths, left=left, color=colour, label=name)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.set(xlabel="ms per text, one thread", title="Time per stage of the engine")
    axes.legend(frameon=False, ncols=len(_STAGES), loc="upper center", bbox_to_anchor=(0.5, -0.16))


def _roofline(figure: Any, data: Data) -> None:
    """Requests/s and their upper bound by the encoder's arithmetic."""
    axes = figure.subplots()
    of_dtypes = data["extra"]["roofline"]
    for place, one in enumerate(of_dtypes.values()):
        axes.bar(place, one["texts_per_s"], width=0.75, color="#e8e8e8", edgecolor="#999999", zorder=0,
                 label="upper bound: the encoder's arithmetic" if place == 0 else None)  # fmt: skip
        for side, server in ((-0.18, "ours"), (0.18, "gliner.serve")):
            if one[server]:
                bar = axes.bar(place + side, one[server], width=0.32, color=_COLOURS[server],
                               label=server if place == 0 else None)  # fmt: skip
                axes.bar_label(bar, [f"{one[server] / one['texts_per_s']:.0%}"], padding=2)
        axes.text(place, one["texts_per_s"], f"{one['flop_per_s'] / 1e9:.0f} GFLOP/s", ha="center", va="bottom")
    axes.set_xticks(range(len(of_dtypes)), list(of_dtypes))
    axes.set(ylabel="texts/s", title="Share of the roofline, highest concurrency")
    axes.margins(y=0.12)
    axes.legend(frameon=False)


def _settings(figure: Any, data: Data) -> None:
    """Requests/s with one setting changed at a time."""
    axes = figure.subplots()
    rows = [row for row in data["rows"] if row["section"] == "settings" and row["ours"] is not None][::-1]
    bars = axes.barh([row["name"] for row in rows], [row["ours"] for row in rows], color=_COLOURS["ours"])
    axes.bar_label(bars, fmt="%.1f", padding=2)
    axes.set(xlabel="requests/s", title="One setting changed at a time, bf16 by default")


def _adapters(figure: Any, data: Data) -> None:
    """Milliseconds per text with adapters and, on the same server, without."""
    axes = figure.subplots()
    loads = data["extra"]["adapters"][::-1]
    for side, which, colour, label in ((0.18, "ms", _COLOURS["ours"], "with adapters"),
                                       (-0.18, "without_ms", "#b5b5b5", "no adapter")):  # fmt: skip
        places = [place + side for place in range(len(loads))]
        bars = axes.barh(places, [one[which] for one in loads], height=0.34, color=colour, label=label)
        axes.bar_label(bars, fmt="%.1f", padding=2)
    names = [one["name"].replace(" of ", "\nof ").replace(" over ", "\nover ") for one in loads]
    axes.set_yticks(range(len(loads)), names)
    axes.set(xlabel="ms per text", title="Cost of adapters, highest concurrency, bf16")
    axes.margins(x=0.1)
    axes.legend(frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.4, -0.14))


def _soak(figure: Any, data: Data) -> None:
    """Resident memory while requests of random lengths are served."""
    axes = figure.subplots()
    soak = data["extra"]["soak"]
    sizes = [size / 2**20 for size in soak["resident_bytes"]]
    axes.plot([soak["requests"] * i / max(1, len(sizes) - 1) for i in range(len(sizes))], sizes, color=_COLOURS["ours"])
    axes.set_ylim(bottom=0)
    axes.set(xlabel="requests", ylabel="resident memory, MB", title="Memory of the process with the model")


_PLOTS: dict[str, tuple[Callable[[Any, Data], None], Callable[[Data], Any]]] = {
    "throughput": (_throughput, _closed),
    "latency": (_latency, lambda data: _closed(data, "bfloat16")),
    "roofline": (_roofline, lambda data: data["extra"].get("roofline")),
    "stages": (_stages, lambda data: data["extra"].get("stages")),
    "adapters": (_adapters, lambda data: data["extra"].get("adapters")),
    "settings": (_settings, lambda data: [r for r in data["rows"] if r["section"] == "settings" and r["ours"]]),
    "soak": (_soak, lambda data: data["extra"].get("soak")),
}
