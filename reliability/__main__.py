"""Command line: `python -m reliability overload|fuzz|soak` prints and stores a measurement; 1 if a target is missed."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gliner_bento.settings import Settings
from reliability.measurement import FOLDER, Measurement
from reliability.overload import overload


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, store, print; the exit code."""
    flags = _parser().parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="reliability-") as folder:
        measurement = _measure(flags, Path(folder) / "server.log")
    sys.stdout.write(measurement.store(flags.out))
    return 0 if measurement.met else 1


def _measure(flags: argparse.Namespace, log: Path) -> Measurement:
    return overload(log, factor=flags.factor, seconds=flags.seconds, settings=dict(flags.set))


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or name not in Settings.model_fields:
        raise argparse.ArgumentTypeError(f"{text}: write it as NAME=VALUE, with the name of a setting")
    return name, value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reliability", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(dest="what", required=True)
    command = commands.add_parser("overload", help="many times the capacity")
    command.add_argument("--factor", type=float, default=10.0, help="times the measured capacity (default: 10)")
    command.add_argument("--seconds", type=float, default=60.0, help="duration of the overload (default: 60)")
    for command in commands.choices.values():
        command.add_argument(
            "--out", type=Path, default=FOLDER, help="folder of the results (default: docs/measurements)"
        )
        command.add_argument("--set", type=_setting, action="append", default=[], metavar="NAME=VALUE",
                             help="a setting of the server; may be repeated")  # fmt: skip
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
