"""What commands show in a terminal: tables and progress."""

from __future__ import annotations

import io

from rich.console import Console

from gliner_bento.cli.bench import _table
from gliner_bento.cli.progress import progress_bar
from gliner_bento.cli.texts import aligned, counted

POINT = {
    "server": "demo", "section": "mixed", "concurrency": 8, "rate": 0.0, "requests_per_s": 61.23, "p50_ms": 120.0,
    "p95_ms": 1300.5, "p99_ms": None, "statuses": {"200": 900, "429": 12}, "unanswered": 2, "agreement": {"wrong": 0},
}  # fmt: skip


def test_the_table_of_bench_is_aligned_without_empty_columns_and_fits_a_terminal():
    lines = _table([POINT, {**POINT, "concurrency": 128, "unanswered": 0}]).splitlines()
    assert lines == [
        "demo, mixed texts, latencies in ms",
        "clients  requests/s  p50  p95   p99  responses",
        "8        61.2        120  1300  -    900 x 200, 12 x 429, 2 unanswered",
        "128      61.2        120  1300  -    900 x 200, 12 x 429",
    ]
    assert max(map(len, lines)) <= 80
    assert "wrong" in _table([{**POINT, "agreement": {"wrong": 3}}])


def test_a_table_without_rows_has_its_columns_and_one_is_not_a_plural():
    assert aligned([("id", "uses")]) == "id  uses\n"
    assert (counted(1, "file"), counted(0, "file"), counted(2, "entity", "entities")) == (
        "1 file",
        "0 files",
        "2 entities",
    )


def test_progress_shows_nothing_before_the_work_and_no_rate_of_a_first_burst():
    out, now = io.StringIO(), [0.0]
    console = Console(file=out, force_terminal=True, width=80)
    with progress_bar(False, console, lambda: now[0]) as progress:
        assert out.getvalue() == ""
        progress(100, 0, 1000)
        now[0] = 0.001
        progress(164, 0, 1000)
    assert "records/s" not in out.getvalue()
    assert "100/1000" in out.getvalue()
    out.truncate(0)
    with progress_bar(False, console, lambda: now[0]) as progress:
        progress(100, 0, 1000)
        now[0] += 10
        progress(300, 2, 1000)
    assert "20.0 records/s" in out.getvalue()
    assert "2 failed" in out.getvalue()
