"""The report: results as JSON with their provenance, rendered as Markdown. Measures nothing."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmark import results_file
from benchmark.bench import Bench
from benchmark.rows import Row
from benchmark.table import loads_table, table
from gliner_bento.loadtest.machine import provenance

RESULTS, REPORT = "results.json", "report.md"


def results(bench: Bench) -> dict[str, Any]:
    """Everything that was measured, with its provenance."""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        **provenance(),
        "plan": asdict(bench.plan),
        "rows": [row.as_data() for row in bench.rows],
        "points": bench.points,
        "extra": bench.extra,
    }


def write(folder: Path, data: dict[str, Any]) -> None:
    """Write results.json into a folder; `render` makes the other files from it."""
    results_file.write(folder / RESULTS, data)


def render(folder: Path) -> str:
    """Write the report of the results in `folder`; returns the report. Uses only results.json."""
    data = json.loads((folder / RESULTS).read_text("utf-8"))
    page = "\n\n".join(part for part in (_head(data), _rows(data), _loads(data), _extra(data)) if part) + "\n"
    (folder / REPORT).write_text(page, encoding="utf-8")
    return page


def _head(data: dict[str, Any]) -> str:
    machine, packages = data["machine"], data["packages"]
    versions = ", ".join(f"{name} {version}" for name, version in packages.items() if version)
    changed = " with uncommitted changes" if data["uncommitted"] else ""
    load = machine["load_before"][0]
    return "\n".join(
        [
            "# Benchmark",
            "",
            f"{data['date']}, commit {str(data['commit'])[:12]}{changed}. {machine['cpu']}, {machine['cores']} cores "
            f"({', '.join(machine['flags'])}), {machine['memory_bytes'] / 2**30:.0f} GiB, Python {machine['python']}. "
            f"Load before the run: {load:.2f}.",
            "",
            f"{versions}.",
            "",
            "Both sides of a row were measured in this run, one after the other on this machine, with the same "
            "precision, checkpoint and requests; clients and servers share the cores. "
            + ("A smoke test with the bundled model and short loads: its numbers are no measurement."
               if data["plan"]["bundled"] else
               "The checkpoints have the shape of deberta-v3-small and random weights (see `jobs/checkpoints.py`); "
               "relex, int8 and a part of long_texts use the bundled model. LoRA adapters have rank 16 and random "
               "weights."),
        ]
    )  # fmt: skip


def _rows(data: dict[str, Any]) -> str:
    lines = []
    for row in map(Row.from_data, data["rows"]):
        target = "" if row.target is None else f"{'>=' if row.better == 'more' else '<='} {row.target:g}x"
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}x"
        lines.append([row.section, row.name, row.unit, row.ours, row.peer, row.theirs, ratio, target, row.verdict,
                      row.note])  # fmt: skip
    head = ["section", "measurement", "unit", "ours", "baseline", "its value", "ratio", "target", "verdict", "note"]
    return "## Rows\n\n" + table(head, lines)


def _loads(data: dict[str, Any]) -> str:
    if not data["points"]:
        return ""
    return (
        "## Loads\n\nResponses are compared with the predictions of gliner's own forward in float32, one text per "
        "batch, adapters merged into the weights by PEFT. `wrong`: a different set of predictions, or a score that "
        "differs by more than 1e-4. In bfloat16 that is rounding; the share of texts with the same spans and the F1 "
        "against float32 show how much.\n\n" + loads_table(data["points"])
    )


def _extra(data: dict[str, Any]) -> str:
    extra = data["extra"]
    parts = []
    if sides := extra.get("in_process"):
        lines = [
            [name, one["agreement"]["wrong"], one["agreement"]["same_spans"], one["agreement"]["f1"],
             one["agreement"]["worst_score_difference"]] for name, one in sides.items()
        ]  # fmt: skip
        head = ["in process, fp32", "wrong", "same spans", "F1", "largest score difference"]
        parts.append(table(head, lines))
    for kind, sides in extra.get("adapters_in_process", {}).items():
        lines = [[name, one["agreement"]["f1"], *(one.get("exact", {}).get(value) for value in ("wrong", "f1"))]
                 for name, one in sides.items()]  # fmt: skip
        head = [f"in process, adapters: {kind}", "F1, bf16", "wrong, fp32", "F1, fp32"]
        parts.append(table(head, lines))
    if memory := extra.get("memory"):
        lines = [[dtype, side, one["model_process"] / 2**20, one["all_processes"] / 2**20]
                 for dtype, sides in memory.items() for side, one in sides.items()]  # fmt: skip
        parts.append(table(["resident memory", "server", "process with the model, MB", "all processes, MB"], lines))
    return "## Details\n\n" + "\n\n".join(parts) if parts else ""
