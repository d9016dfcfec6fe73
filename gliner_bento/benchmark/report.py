"""The results of a run: kept as JSON with what they belong to, told as Markdown with plots. Measures nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gliner_bento.benchmark import plots
from gliner_bento.benchmark.bench import Bench
from gliner_bento.benchmark.machine import provenance
from gliner_bento.benchmark.rows import Row

RESULTS, REPORT = "results.json", "report.md"
_ABOUT = ("section", "dtype", "route", "settings", "adapters", "texts")


def results(bench: Bench) -> dict[str, Any]:
    """All that was measured, and on what."""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        **provenance(),
        "plan": asdict(bench.plan),
        "rows": [row.as_data() for row in bench.rows],
        "points": bench.points,
        "extra": bench.extra,
    }


def write(folder: Path, data: dict[str, Any]) -> None:
    """Put the results into a folder; `tell` makes the rest of them."""
    (folder / RESULTS).write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def tell(folder: Path) -> str:
    """Write the report and the plots of the results in `folder`, from these alone; the report."""
    data = json.loads((folder / RESULTS).read_text("utf-8"))
    drawn = plots.draw(data, folder)
    page = "\n\n".join(part for part in (_head(data), _rows(data), _points(data), _extra(data), drawn) if part) + "\n"
    (folder / REPORT).write_text(page, encoding="utf-8")
    return page


def table(head: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
    """A Markdown table; numbers are rounded, None is a dash."""
    shown = [[_shown(cell) for cell in line] for line in lines]
    rule = ["---"] * len(head)
    return "\n".join("| " + " | ".join(line) + " |" for line in [list(head), rule, *shown])


def points_table(points: Sequence[dict[str, Any]]) -> str:
    """Loads on servers."""
    names = ["requests_per_s", "p50_ms", "p95_ms", "p99_ms"]
    lines = []
    for point in points:
        load = f"{point['concurrency']} at once" if point["concurrency"] else f"{point['rate']:.1f}/s"
        about = " ".join(str(point[name]) for name in _ABOUT if point.get(name))
        answers = ", ".join(f"{count} x {status}" for status, count in point["statuses"].items())
        if point["unanswered"]:
            answers += f", {point['unanswered']} unanswered"
        told = point.get("agreement") or {}
        agreement = [told.get("wrong"), told.get("same_spans"), told.get("f1")]
        lines.append([point["server"], about, load, *(point[name] for name in names), answers, *agreement])
    head = ["server", "what", "load", "requests/s", "p50 ms", "p95 ms", "p99 ms", "answers"]
    return table([*head, "wrong", "same spans", "F1"], lines)


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
            "Every row's two sides were measured in this run, one after the other on this machine, in equal precision, "
            "with the same checkpoint and the same requests; clients and servers share its cores. "
            + ("The model is the bundled one and all is short: no measurement, a check that the tool works."
               if data["plan"]["bundled"] else
               "The checkpoints have the shape of deberta-v3-small and random weights (see `jobs/checkpoints.py`), "
               "but where rows take the bundled model (relex, int8, some of long_texts); LoRA adapters have rank 16 "
               "and random weights."),
        ]
    )  # fmt: skip


def _rows(data: dict[str, Any]) -> str:
    lines = []
    for row in map(Row.from_data, data["rows"]):
        sign = "" if row.target is None else f"{'>=' if row.better == 'more' else '<='} {row.target:g}x"
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}x"
        lines.append([row.section, row.name, row.unit, row.ours, row.theirs, row.peer, ratio, sign, row.verdict,
                      row.note])  # fmt: skip
    head = ["section", "what", "unit", "ours", "theirs", "they are", "ratio", "target", "", "note"]
    return "## Rows\n\n" + table(head, lines)


def _points(data: dict[str, Any]) -> str:
    if not data["points"]:
        return ""
    return (
        "## Loads\n\nAnswers are compared with those of gliner's own forward in float32, alone, an adapter merged into "
        "the weights by PEFT. `wrong`: another set of findings, or a score that is off by more than 1e-4; in bfloat16 "
        "that is rounding, and the share of texts with the same spans and the F1 against float32 tell how much.\n\n"
        + points_table(data["points"])
    )


def _extra(data: dict[str, Any]) -> str:
    extra = data["extra"]
    parts = []
    if told := extra.get("in_process"):
        lines = [
            [name, one["agreement"]["wrong"], one["agreement"]["same_spans"], one["agreement"]["f1"],
             one["agreement"]["worst_score_difference"]] for name, one in told.items()
        ]  # fmt: skip
        head = ["in process, fp32", "wrong", "same spans", "F1", "worst score difference"]
        parts.append(table(head, lines))
    for kind, sides in extra.get("adapters_in_process", {}).items():
        lines = [[name, one["agreement"]["f1"], *(one.get("exact", {}).get(value) for value in ("wrong", "f1"))]
                 for name, one in sides.items()]  # fmt: skip
        head = [f"in process, adapters: {kind}", "F1, bf16", "wrong, fp32", "F1, fp32"]
        parts.append(table(head, lines))
    if memory := extra.get("memory"):
        lines = [[dtype, side, one["model_process"] / 2**20, one["all_processes"] / 2**20]
                 for dtype, sides in memory.items() for side, one in sides.items()]  # fmt: skip
        parts.append(table(["resident memory", "", "model's process, MB", "all processes, MB"], lines))
    if stages := extra.get("stages"):
        names = list(next(iter(stages.values())))
        lines = [[dtype, *(spent[name] * 1000 for name in names)] for dtype, spent in stages.items()]
        parts.append(table(["ms per text, one thread", *names], lines))
    return "## More\n\n" + "\n\n".join(parts) if parts else ""


def _shown(cell: object) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:.1e}" if 0 < abs(cell) < 1e-3 else f"{cell:.3f}" if abs(cell) < 10 else f"{cell:.1f}"
    return str(cell).replace("|", r"\|").replace("\n", " ")
