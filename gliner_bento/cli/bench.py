"""`gliner-bento bench URL`: measures a running server."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gliner_bento.cli.backend import failing_in_one_line
from gliner_bento.cli.parsers import CommandError, add_json, server_url
from gliner_bento.cli.texts import aligned

EXAMPLES = """examples:
  gliner-bento bench http://localhost:3000
  gliner-bento bench http://localhost:3000 --concurrency 32,128 --seconds 30 --out results
  gliner-bento bench http://localhost:3000 --rate 50 --json

exit codes: 0 done; 1 an argument or the server is wrong, and one line says which"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add this command's flags."""
    parser.add_argument("url", type=server_url, metavar="URL", help="a running gliner-bento server")
    parser.add_argument("--workload", default="mixed", metavar="NAME", help="texts and labels to send (default: mixed)")
    parser.add_argument(
        "--concurrency",
        type=_counts,
        default="1,8,32",
        metavar="NUMBERS",
        help="numbers of concurrent requests (default: 1,8,32)",
    )
    parser.add_argument(
        "--rate", type=_positive, metavar="X", help="open loop: send this many requests/s, answered or not"
    )
    parser.add_argument(
        "--seconds", type=_positive, default=15.0, metavar="X", help="duration of each load (default: 15)"
    )
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="results folder (default: build/bench/<time>)")
    parser.add_argument("--api-key", metavar="KEY", help="key for the server (default: GLINER_CLIENT_API_KEY)")
    add_json(parser, "print the results file, server.json")


def run(options: argparse.Namespace, _flags: Mapping[str, Any]) -> int:
    """Measure the server and print the table."""
    from gliner_bento.loadtest.measure import measure_server  # noqa: PLC0415  # no other command needs it

    with failing_in_one_line("bench", options.url):
        file, points = measure_server(
            options.url,
            options.out,
            name=options.workload,
            concurrencies=options.concurrency,
            rate=options.rate,
            seconds=options.seconds,
            api_key=options.api_key or os.environ.get("GLINER_CLIENT_API_KEY"),
        )
    sys.stdout.write(file.read_text(encoding="utf-8") if options.json else f"{_table(points)}\nwritten to {file}\n")
    if not any("200" in point["statuses"] for point in points):
        raise CommandError(f"bench: {options.url}: no response has status 200")
    return 0


def _positive(given: str) -> float:
    try:
        number = float(given)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"must be a positive number, not {given!r}")
    return number


def _counts(given: str) -> list[int]:
    try:
        counts = [int(count) for count in given.split(",")]
    except ValueError:
        counts = [0]
    if min(counts) < 1:
        raise argparse.ArgumentTypeError(f"must be positive integers, separated by commas, not {given!r}")
    return counts


def _table(points: Sequence[Mapping[str, Any]]) -> str:
    """A line for each load."""
    rows = [["clients", "rate", "requests/s", "p50", "p95", "p99", "responses", "wrong"]]
    for point in points:
        responses = ", ".join(f"{count} x {status}" for status, count in point["statuses"].items())
        unanswered = f", {point['unanswered']} unanswered" if point["unanswered"] else ""
        rate = f"{point['rate']:.1f}/s" if point["rate"] else ""
        numbers = [_rounded(point[name]) for name in ("requests_per_s", "p50_ms", "p95_ms", "p99_ms")]
        wrong = point["agreement"]["wrong"] or ""
        rows.append([str(point["concurrency"] or ""), rate, *numbers, responses + unanswered, str(wrong)])
    return f"{points[0]['server']}, {points[0]['section']} texts, latencies in ms\n{aligned(rows)}"


def _rounded(number: float | None) -> str:
    if number is None:
        return "-"
    return f"{number:.0f}" if number >= 100 else f"{number:.1f}"
