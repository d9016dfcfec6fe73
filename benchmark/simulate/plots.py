"""Plots of a study, as SVG files, made only from its data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Data = dict[str, Any]

_COLOURS = {"ours": "#1b6ca8", "round robin": "#c8553d", "power of two": "#8d8741", "tokens alone": "#e0a458",
            "without affinity": "#8fb9aa", "random": "#7a6a8a"}  # fmt: skip
_SHADES = ("#a6cee3", "#6baed6", "#2c7fb8", "#0b3c5d")
_STYLE = {"font.size": 9.5, "axes.spines.top": False, "axes.spines.right": False, "svg.fonttype": "none",
          "svg.hashsalt": "gliner-bento"}  # fmt: skip


def draw(data: Data, folder: Path) -> list[str]:
    """Draw the plots into `folder`; their file names. Without matplotlib there are none."""
    try:
        import matplotlib as mpl  # noqa: PLC0415  of the extra `bench`
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError:
        return []
    names = []
    with mpl.rc_context(_STYLE):
        for name, plot in _PLOTS.items():
            figure = Figure(figsize=(7.6, 3.4), layout="constrained")
            plot(figure.subplots(1, 2), data)
            names.append(f"simulate-{name}.svg")
            figure.savefig(folder / names[-1], metadata={"Date": None})
    return names


def _latency(axes: Sequence[Any], data: Data) -> None:
    """p99 over load: by number of replicas, and at ten replicas by policy."""
    left, right = axes
    sizes = list(dict.fromkeys(one["replicas"] for one in data["sizes"]))
    for size, colour in zip(sizes, _SHADES, strict=False):
        _over_load(left, [one for one in data["sizes"] if (one["replicas"], one["policy"]) == (size, "ours")],
                   color=colour, label=f"{size:,} replica{'s' if size > 1 else ''}")  # fmt: skip
    for policy in ("random", "tokens alone", "round robin", "power of two", "ours"):
        _over_load(right, [one for one in data["sizes"] if (one["replicas"], one["policy"]) == (10, policy)],
                   color=_COLOURS[policy], label=policy)  # fmt: skip
    left.set_title("p99, ours")
    right.set_title("p99, 10 replicas")
    right.set_ylim(bottom=0)
    left.set_yscale("log")
    left.set_yticks([100, 200, 500, 1000], ["100", "200", "500", "1000"])
    left.minorticks_off()
    for one in axes:
        one.set(xlabel="load, share of the replicas' throughput", ylabel="ms")


def _adapters(axes: Sequence[Any], data: Data) -> None:
    """Loads per thousand requests and p50, by policy."""
    groups = list(dict.fromkeys((one["replicas"], one["adapters"], one["load"]) for one in data["adapters"]))
    policies = list(dict.fromkeys(one["policy"] for one in data["adapters"]))
    for place, policy in enumerate(policies):
        rows = [one for one in data["adapters"] if one["policy"] == policy]
        places = [number + (place - (len(policies) - 1) / 2) * 0.2 for number in range(len(groups))]
        loads = [1000 * one["adapter_loads"] / one["requests"] for one in rows]
        axes[0].bar(places, loads, width=0.18, color=_COLOURS[policy], label=policy)
        axes[1].bar(places, [one["p50_ms"] for one in rows], width=0.18, color=_COLOURS[policy], label=policy)
    axes[0].set(title="Adapters loaded from disk", ylabel="per 1,000 requests")
    axes[1].set(title="p50", ylabel="ms")
    for one in axes:
        one.margins(y=0.3)  # room for the legend
        names = [f"{replicas} replicas,\n{adapters:,} adapters,\nload {load:g}" for replicas, adapters, load in groups]
        one.set_xticks(range(len(groups)), names, fontsize=8)


def _events(axes: Sequence[Any], data: Data) -> None:
    """p99 around a death; what is not answered while new replicas start."""
    left, right = axes
    for one in data["deaths"]:
        left.plot([span["s"] for span in one["timeline"]], [span["p99_ms"] for span in one["timeline"]],
                  color=_COLOURS[one["policy"]], label=one["policy"])  # fmt: skip
    death = data["deaths"][0]
    left.axvspan(death["at_s"], death["at_s"] + death["down_s"], color="#eeeeee", zorder=0, label="1 of 10 is down")
    left.set_ylim(bottom=0)
    left.set(title="A death: p99", xlabel="s", ylabel="ms")
    for one, colour in zip(data["growth"], _SHADES[1:], strict=False):
        right.plot([span["s"] for span in one["timeline"]], [(span["p50_ms"] or 0) / 1000 for span in one["timeline"]],
                   color=colour, label=f"more replicas after {one['delay_s']:g} s")  # fmt: skip
    right.set(title="Load doubles after 10 s: p50", xlabel="s", ylabel="s")
    right.set_ylim(0, 1.4 * max((span["p50_ms"] or 0) / 1000 for one in data["growth"] for span in one["timeline"]))


def _overhead(axes: Sequence[Any], data: Data) -> None:
    """Microseconds of CPU time over the number of replicas; latency over the number of gateways."""
    left, right = axes
    sizes = [one["replicas"] for one in data["overhead"]]
    for name, colour, label in (("fleet_us", "#6baed6", "whole fleet"), ("dispatcher_us", "#0b3c5d", "dispatcher")):
        left.plot(sizes, [one[name] for one in data["overhead"]], marker="o", color=colour, label=label)
    left.axhline(50, color="#999999", linestyle="--", label="target")
    left.set_xscale("log")
    left.set_xticks(sizes, [f"{size:,}" for size in sizes])
    left.minorticks_off()
    left.set_ylim(0, max(60, *(one["fleet_us"] * 1.1 for one in data["overhead"])))
    left.set(title="CPU time per request", xlabel="replicas", ylabel="µs")
    for policy in ("round robin", "power of two", "ours"):
        rows = [one for one in data["gateways"] if one["policy"] == policy]
        right.plot([one["fleets"] for one in rows], [one["p99_ms"] for one in rows], marker="o",
                   color=_COLOURS[policy], label=policy)  # fmt: skip
    right.set_ylim(bottom=0)
    right.set_xticks([one["fleets"] for one in data["gateways"]])
    right.set(title="p99, 40 replicas, load 0.7", xlabel="gateways", ylabel="ms")


def _over_load(axes: Any, rows: Sequence[Data], **style: Any) -> None:
    axes.plot([one["load"] for one in rows], [one["p99_ms"] for one in rows], marker="o", **style)


def _with_legend(plot: Callable[[Sequence[Any], Data], None]) -> Callable[[Sequence[Any], Data], None]:
    def both(axes: Sequence[Any], data: Data) -> None:
        plot(axes, data)
        for one in axes:
            one.grid(axis="y", alpha=0.3)
            one.legend(frameon=False, fontsize=8.5)

    return both


_PLOTS = {
    name: _with_legend(plot)
    for name, plot in {
        "latency": _latency,
        "adapters": _adapters,
        "events": _events,
        "overhead": _overhead,
    }.items()
}
