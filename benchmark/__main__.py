"""Command line: `python -m benchmark` measures the sections of the comparison, or renders the report of old results."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmark import report, results_file
from benchmark.bench import MODELS, QUICK, Bench, Plan, log_progress
from benchmark.sections import DEFAULT, ON_DEMAND, SECTIONS, measure
from benchmark.simulate import report as simulate_report
from benchmark.simulate.study import study
from gliner_bento.loadtest.machine import provenance
from gliner_bento.loadtest.measure import new_folder
from gliner_bento.process.exits import exit_on_sigterm

SIMULATION = "simulate.json"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the report; the exit code. An unknown section is one line and 2."""
    flags = _parser().parse_args(argv)
    try:
        rows = flags.rows.split(",") if flags.rows else None
        if flags.simulate:
            page = simulation(flags)
        elif flags.report:
            page = report.render(flags.report)
        else:
            page = compare(flags.out, rows, QUICK if flags.quick else Plan.of(flags.seconds))
    except ValueError as error:
        sys.stderr.write(f"benchmark: {error}\n")
        return 2
    sys.stdout.write(page)
    return 0


def compare(out: Path | None, rows: Sequence[str] | None, plan: Plan) -> str:
    """Measure sections of the comparison; the report. Raises ValueError."""
    if unknown := [name for name in rows or () if name not in SECTIONS]:
        raise ValueError(f"no row {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    folder = new_folder(out)
    MODELS.mkdir(parents=True, exist_ok=True)
    bench = Bench(plan, folder, MODELS)
    at_start = provenance()

    def keep() -> None:
        report.write(folder, report.results(bench) | at_start)

    measure(bench, rows or DEFAULT, keep)
    page = report.render(folder)
    log_progress(f"written to {folder}")
    return page


def simulation(flags: argparse.Namespace) -> str:
    """Simulate fleets, or render the report of old results."""
    if flags.report:
        folder = flags.report
        data = json.loads((folder / SIMULATION).read_text("utf-8"))
    else:
        folder, at_start = new_folder(flags.out), provenance()
        data = study(share=0.05 if flags.quick else 1.0) | at_start
        data["date"] = time.strftime("%Y-%m-%d %H:%M")
    results_file.write(folder / SIMULATION, data)
    return simulate_report.render(data)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmark",
        description="Compare gliner-bento with other ways to serve GLiNER models.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--rows",
        help=f"sections, separated by commas (default: all but {', '.join(ON_DEMAND)})",
    )
    parser.add_argument("--quick", action="store_true", help="smoke test: the bundled model, about a second per load")
    for name in ("bulk", "fairness"):
        parser.add_argument(f"--{name}", dest="rows", action="store_const", const=name, help=f"as --rows {name}")
    parser.add_argument("--simulate", action="store_true", help="instead: fleets of 1 to 1,000 simulated replicas")
    parser.add_argument("--seconds", type=float, default=Plan.seconds, help="duration of each load (default: 15)")
    parser.add_argument("--out", type=Path, help="folder for the results (default: build/bench/<time>)")
    parser.add_argument("--report", type=Path, metavar="DIR", help="only render the report of the results in DIR")
    return parser


if __name__ == "__main__":
    exit_on_sigterm()  # so that the servers under test end, too
    raise SystemExit(main())
