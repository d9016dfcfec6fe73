"""Command line: `python -m reliability overload|chaos|...` prints and stores a measurement; 1 if a target is missed."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from gliner_bento.process.exits import exit_on_sigterm
from gliner_bento.settings import Settings
from reliability.chaos import chaos
from reliability.faults import FAULTS
from reliability.floods import floods
from reliability.fuzz import fuzz
from reliability.invariance import PRECISIONS, invariance
from reliability.measurement import FOLDER, Measurement
from reliability.overload import overload
from reliability.regression import TEXTS, regression
from reliability.restart import restart
from reliability.round_trip import round_trip
from reliability.soak import soak
from reliability.worst import worst

_HARNESSES: dict[str, Callable[..., Measurement]] = {
    "chaos": chaos,
    "floods": floods,
    "fuzz": fuzz,
    "invariance": invariance,
    "overload": overload,
    "worst": worst,
    "regression": regression,
    "restart": restart,
    "round_trip": round_trip,
    "soak": soak,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, store, print; the exit code."""
    flags = _parser().parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="reliability-") as folder:
        measurement = _measure(flags, Path(folder) / "server.log")
    sys.stdout.write(measurement.store(flags.out))
    return 0 if measurement.met else 1


def _measure(flags: argparse.Namespace, log: Path) -> Measurement:
    """The measurement `flags.what`, whose arguments are its flags."""
    common = {"set", "what"} if flags.what == "chaos" else {"out", "set", "what"}  # chaos stores what it has so far
    arguments = {name: value for name, value in vars(flags).items() if name not in common}
    settings = dict(flags.set)
    return _HARNESSES[flags.what](log, **arguments, settings=settings)


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or name not in Settings.model_fields:
        raise argparse.ArgumentTypeError(f"{text}: write it as NAME=VALUE, with the name of a setting")
    return name, value


def _names_of(known: Collection[str]) -> Callable[[str], list[str]]:
    def names(text: str) -> list[str]:
        given = text.split(",")
        if unknown := set(given) - set(known):
            raise argparse.ArgumentTypeError(f"not of {', '.join(known)}: {', '.join(sorted(unknown))}")
        return given

    return names


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reliability", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(dest="what", required=True)
    command = commands.add_parser("overload", help="a burst, and many times the capacity")
    command.add_argument("--clients", type=int, default=512, help="of the burst (default: 512)")
    command.add_argument("--requests", type=int, default=2000, help="of the burst (default: 2,000)")
    command.add_argument("--factor", type=float, default=10.0, help="times the measured capacity (default: 10)")
    command.add_argument("--seconds", type=float, default=60.0, help="duration of the overload (default: 60)")
    command = commands.add_parser("chaos", help="faults under a load with known answers")
    command.add_argument("--seconds", type=float, default=5.0, help="load before and after a fault (default: 5)")
    command.add_argument("--clients", type=int, default=12, help="concurrent requests (default: 12)")
    command.add_argument(
        "--faults", type=_names_of(FAULTS), default=list(FAULTS), help=f"of {', '.join(FAULTS)} (default: all)"
    )
    command = commands.add_parser("fuzz", help="requests and documents that nobody should send")
    command.add_argument("--requests", type=int, default=50_000, help="number of requests (default: 50,000)")
    command.add_argument(
        "--documents", type=int, default=2000, help="mutated documents of each format (default: 2,000)"
    )
    command.add_argument("--seed", type=int, default=0, help="seed of both (default: 0)")
    command = commands.add_parser("soak", help="mixed requests with known answers, and faults, over a long time")
    command.add_argument("--minutes", type=float, default=30.0, help="duration (default: 30)")
    command.add_argument("--rate", type=float, help="requests/s (default: 80 %% of the capacity, measured first)")
    command.add_argument("--different", type=int, default=200, help="number of different requests (default: 200)")
    command.add_argument("--no-kill", dest="kill", action="store_false", help="do not kill the runner near the end")
    command = commands.add_parser("floods", help="short texts beside floods of the same tenant")
    command.add_argument("--minutes", type=float, default=30.0, help="duration (default: 30)")
    command = commands.add_parser("invariance", help="the same bytes alone and under load")
    command.add_argument("--requests", type=int, default=2000, help="in each precision (default: 2,000)")
    command.add_argument("--precisions", type=_names_of(PRECISIONS), default=list(PRECISIONS),
                         help=f"of {', '.join(PRECISIONS)} (default: all)")  # fmt: skip
    command.add_argument("--cost-rounds", type=int, default=12, help="of the comparison of CPU time (default: 12)")
    command = commands.add_parser("regression", help="throughput and latency against an earlier commit")
    command.add_argument("--against", required=True, help="the commit")
    command.add_argument("--texts", type=_names_of(TEXTS), default=list(TEXTS),
                         help=f"of {', '.join(TEXTS)} (default: all)")  # fmt: skip
    command.add_argument("--seconds", type=float, default=5.0, help="duration of a round (default: 5)")
    command.add_argument("--rounds", type=int, default=12, help="rounds at each concurrency (default: 12)")
    command = commands.add_parser("restart", help="until ready again, after the model process was killed")
    command.add_argument("--rounds", type=int, default=5, help="kills (default: 5)")
    command = commands.add_parser("round_trip", help="conversations that are redacted, answered and restored")
    command.add_argument("--conversations", type=int, default=1000, help="of six turns each (default: 1,000)")
    command.add_argument("--concurrency", type=int, default=8, help="concurrent conversations (default: 8)")
    command = commands.add_parser("worst", help="short texts beside the most expensive requests")
    command.add_argument("--seconds", type=float, default=30.0, help="duration beside each request (default: 30)")
    for command in commands.choices.values():
        add_common_flags(command)
    return parser


def add_common_flags(command: argparse.ArgumentParser) -> None:
    """Those of every measurement: where its results go, and settings of its server."""
    command.add_argument("--out", type=Path, default=FOLDER, help="folder of the results (default: docs/measurements)")
    command.add_argument("--set", type=_setting, action="append", default=[], metavar="NAME=VALUE",
                         help="a setting of the server; may be repeated")  # fmt: skip


if __name__ == "__main__":
    exit_on_sigterm()  # so that the servers under test end, too
    raise SystemExit(main())
