"""Throughput of one replica on Ray Serve and of one under BentoML: `python -m benchmark.ray_throughput`, 4 minutes.

Needs the extra `ray`, and a machine that does nothing else. Both have the same settings and cores. Writes
docs/measurements/ray-throughput.json.
"""

from __future__ import annotations

import sys
from typing import Any

from benchmark import results_file
from benchmark.side_by_side import MOST, SECONDS, Side, measure, medians, provenance_line
from benchmark.table import table
from gliner_bento.loadtest.machine import provenance
from gliner_bento.settings import PROJECT_ROOT

COMMAND = "python -m benchmark.ray_throughput"
FILE = PROJECT_ROOT / "docs" / "measurements" / "ray-throughput.json"
BENTOML = Side("BentoML", ["--backend", "bentoml"])
RAY = Side("Ray", ["--backend", "ray"])
TARGET = 0.85


def main() -> None:
    """Measure, write and print."""
    at_start = provenance()
    points = measure([BENTOML, RAY])
    rows = [row(points, concurrency) for concurrency in SECONDS]
    data = {**at_start, "command": COMMAND, "target": TARGET, "rows": rows, "points": points}
    results_file.write(FILE, data)
    sys.stdout.write(page(at_start, rows))


def row(points: list[dict[str, Any]], concurrency: int) -> dict[str, Any]:
    """Medians of both, and the ratio of their throughputs."""
    bentoml, ray = (medians(points, side, concurrency) for side in (BENTOML, RAY))
    ratio = ray["requests_per_s"] / bentoml["requests_per_s"]
    return {"concurrency": concurrency, "ratio": ratio, "bentoml": bentoml, "ray": ray}


def page(at_start: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """The results as Markdown."""
    lines = [
        [
            str(one["concurrency"]),
            *of_both(one, "requests_per_s", 1),
            f"{one['ratio']:.3f}x",
            *of_both(one, "p50_ms", 0),
        ]
        for one in rows
    ]
    cpu = [[str(one["concurrency"]), *of_both(one, "model_cpu_ms", 1), *of_both(one, "cpu_ms", 1)] for one in rows]
    met = rows[-1]["ratio"] >= TARGET
    return "\n".join(
        [
            "# One replica on Ray Serve and under BentoML\n",
            provenance_line(COMMAND, at_start),
            f"Default settings; bentoml {at_start['packages']['bentoml']}, ray {at_start['packages']['ray']}.\n",
            table(
                ["concurrent requests", *titles("requests/s"), "ratio", *titles("p50 ms")],
                lines,
            ),
            "\nCPU time per request, in ms: of the process with the model, and of all processes of the server.\n",
            table(["concurrent requests", *titles("model"), *titles("all")], cpu),
            f"\nTarget: {TARGET}x at {MOST} concurrent requests: {'met' if met else 'missed'}.\n",
        ]
    )


def of_both(one: dict[str, Any], name: str, decimals: int) -> list[str]:
    """A value of a row, of both sides."""
    return [f"{one[side][name]:.{decimals}f}" for side in ("bentoml", "ray")]


def titles(name: str) -> list[str]:
    """Of the columns of both sides."""
    return [f"{side.name}, {name}" for side in (BENTOML, RAY)]


if __name__ == "__main__":
    main()
