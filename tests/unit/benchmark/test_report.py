"""Rows, and the report that is made only of results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmark import report
from benchmark.bench import QUICK, Bench
from benchmark.rows import Row
from benchmark.table import loads_table
from gliner_bento.loadtest.load import Run, TimedResponse

AGREEMENT = {"wrong": 3, "f1": 0.75}


def row(ours: float | None, theirs: float | None, target: float | None, better: str = "more") -> Row:
    return Row("bf16", "throughput", "requests/s", ours, theirs, "gliner.serve", target, better)


@pytest.mark.parametrize(
    ("of", "ratio", "verdict"),
    [
        (row(40, 10, 4.0), 4.0, "met"),
        (row(30, 10, 4.0), 3.0, "missed"),
        (row(45, 75, 0.6, "less"), 0.6, "met"),
        (row(90, 75, 0.6, "less"), 1.2, "missed"),
        (row(40, 10, None), 4.0, ""),
        (row(40, None, 4.0), None, "not measured"),
        (row(None, 10, 4.0), None, "not measured"),
        (row(40, 0.0, 4.0), None, "not measured"),
    ],
)
def test_the_verdict_of_a_row_follows_from_its_ratio(of, ratio, verdict):
    assert (of.ratio, of.verdict) == (ratio, verdict)
    assert Row.from_data(json.loads(json.dumps(of.as_data()))) == of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Results of a small benchmark, written."""
    bench = Bench(QUICK, tmp_path, tmp_path)
    run = Run([TimedResponse(0, "200", b"", 0.01), TimedResponse(0, "200", b"", 0.03)], seconds=1.0).summary()
    about = {"section": "bf16", "dtype": "bfloat16", "rate": 0.0, "agreement": None}
    for server, route in (("ours", "/v1/extract"), ("gliner.serve", "/gliner")):
        bench.points += [about | {"server": server, "route": route, "concurrency": n} | run for n in (1, 32)]
    bench.rows = [row(3, 1, 4.0), Row("served", "over HTTP", "requests/s", 3.0)]
    bench.extra = {
        "adapters": [{"name": "8 adapters over 4 slots", "ms": 12.0, "without_ms": 10.0}],
        "adapters_in_process": {
            "values": {"ours": {"agreement": AGREEMENT}, "PEFT": {"agreement": AGREEMENT, "exact": AGREEMENT}}
        },
        "memory": {"float32": {"ours": {"model_process": 1 << 20, "all_processes": 1 << 21}}},
    }
    report.write(tmp_path, report.results(bench))
    return tmp_path


def test_results_have_their_provenance(folder):
    data = json.loads((folder / report.RESULTS).read_text())
    assert data["machine"]["cores"] >= 1
    assert data["packages"]["torch"]
    assert {"commit", "uncommitted", "date", "plan", "environment"} <= data.keys()


def test_a_report_is_made_only_of_the_results(folder):
    page = report.render(folder)
    assert "| 3.00x | >= 4x | missed |" in page
    assert "| ours | bf16 bfloat16 /v1/extract | concurrency 32 | 2.000 | 10.0 | 30.0 |" in page
    assert "| ours | 0.750 | - | - |\n| PEFT | 0.750 | 3 | 0.750 |" in page
    assert (folder / report.REPORT).read_text() == page


def test_the_table_shows_load_statuses_and_agreement():
    about = {
        "server": "demo",
        "section": "short",
        "requests_per_s": 2.0,
        "p50_ms": 10.0,
        "p95_ms": 30.0,
        "p99_ms": None,
    }
    closed = about | {"concurrency": 8, "rate": 0.0, "statuses": {"200": 3}, "unanswered": 0, "agreement": {"wrong": 1}}
    paced = about | {"concurrency": 0, "rate": 5.0, "statuses": {"200": 1, "503": 2}, "unanswered": 4}
    first, second = loads_table([closed, paced]).splitlines()[2:]
    assert first == "| demo | short | concurrency 8 | 2.000 | 10.0 | 30.0 | - | 3 x 200 | 1 | - | - |"
    assert second == (
        "| demo | short | 5.0 requests/s | 2.000 | 10.0 | 30.0 | - | 1 x 200, 2 x 503, 4 unanswered | - | - | - |"
    )
