"""What `gliner-bento bench` does: measure a running server, compare with the peers, or tell an earlier run again."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx

from gliner_bento.benchmark import report, workload
from gliner_bento.benchmark.answers import misfits
from gliner_bento.benchmark.bench import BUILD, QUICK, Bench, Plan, tell
from gliner_bento.benchmark.load import closed_loop, open_loop
from gliner_bento.benchmark.machine import provenance
from gliner_bento.benchmark.sections import DEFAULT, SECTIONS, measure

_WARM_UP_S = 5.0
SECONDS = Plan.seconds


def compare(out: Path | None, rows: list[str] | None, *, quick: bool, seconds: float = SECONDS) -> str:
    """Measure sections of the comparison (all but the soak if none are named); the report. Raises ValueError."""
    if unknown := [name for name in rows or () if name not in SECTIONS]:
        raise ValueError(f"no row {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    folder = out or BUILD / time.strftime("%Y%m%d-%H%M%S")
    models = BUILD / "models"
    for needed in (folder, models):
        needed.mkdir(parents=True, exist_ok=True)
    bench = Bench(QUICK if quick else Plan.of(seconds), folder, models)
    began = provenance()

    def keep() -> None:
        report.write(folder, report.results(bench) | began)

    measure(bench, rows or DEFAULT, keep)
    page = report.tell(folder)
    tell(f"written to {folder}")
    return page


def one_server(
    url: str, out: Path | None, *, name: str, concurrencies: list[int], rate: float | None, seconds: float
) -> str:
    """Measure the server of ours at `url`: closed loops, or with `rate` an open loop; what was seen, as a table."""
    folder = out or BUILD / time.strftime("%Y%m%d-%H%M%S")
    folder.mkdir(parents=True, exist_ok=True)
    server = httpx.get(f"{url}/v1/model", timeout=30).raise_for_status().json()
    bodies = workload.WORKLOADS[name](256, 0)
    asked, route = workload.encoded(bodies), f"{url}/v1/extract"
    closed_loop(route, asked, concurrency=max(concurrencies), seconds=min(_WARM_UP_S, seconds))
    points: list[dict[str, Any]] = []
    loads: list[tuple[int, float]] = [(0, rate)] if rate else [(number, 0.0) for number in concurrencies]
    for number, paced in loads:
        run = (
            open_loop(route, asked, rate=paced, seconds=seconds)
            if paced
            else closed_loop(route, asked, concurrency=number, seconds=seconds)
        )
        offsets = misfits(run.replies, [body["text"] for body in bodies])
        about = {"server": server["model"], "section": name, "concurrency": number, "rate": paced}
        points.append({**about, **run.summary(), "agreement": {"wrong": offsets}})
    data = provenance() | {"server": server, "workload": name, "points": points}
    (folder / "server.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return f"{report.points_table(points)}\n\nwritten to {folder / 'server.json'}\n"


def again(folder: Path) -> str:
    """The report of an earlier comparison, made anew from its results alone."""
    return report.tell(folder)
