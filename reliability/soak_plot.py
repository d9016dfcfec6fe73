"""The plot of a soak: memory with its fitted line, and p95, over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path


def draw(
    samples: Sequence[tuple[float, Mapping[str, float]]],
    line: tuple[float | None, float | None],
    p95_ms: Sequence[tuple[float, float | None]],
    file: Path,
) -> None:
    """Write a PNG. samples: seconds, MB by service. line: MB/min and MB at the start. p95_ms: seconds, ms."""
    from matplotlib.figure import Figure  # noqa: PLC0415  of the extra `dev`

    file.parent.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(7.2, 5.0), dpi=110, layout="constrained")
    memory, latency = figure.subplots(2, sharex=True)
    minutes = [at_s / 60 for at_s, _ in samples]
    for name in ("runner", "gateway"):
        memory.plot(minutes, [sizes.get(name) for _, sizes in samples], label=name)
    memory.plot(minutes, [sum(sizes.values()) for _, sizes in samples], label="both", color="#555555")
    slope, start = line
    if slope is not None and start is not None:
        fitted = [start + slope * minute for minute in minutes]
        memory.plot(minutes, fitted, "--", color="#c8553d", label=f"{slope:+.2f} MB/min")
    memory.set(ylabel="resident memory, MB", ylim=(0, None))
    memory.legend(frameon=False, ncols=4)
    latency.plot([at_s / 60 for at_s, _ in p95_ms], [value for _, value in p95_ms], marker=".")
    latency.set(xlabel="minutes", ylabel="p95, ms", ylim=(0, None))
    figure.savefig(file, pil_kwargs={"lossless": True})
