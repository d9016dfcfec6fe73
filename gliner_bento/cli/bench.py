"""`gliner-bento bench`: measures a running server, or runs the comparison."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from gliner_bento.configuration import SettingsError


def run(options: argparse.Namespace, _flags: Mapping[str, Any]) -> int:
    """Run the benchmark and print its report."""
    # The benchmark needs packages that a server does not have.
    from gliner_bento.benchmark import command  # noqa: PLC0415

    if options.report:
        seen = command.again(options.report)
    elif options.url:
        numbers = [int(number) for number in options.concurrency.split(",")]
        seen = command.one_server(
            options.url.rstrip("/"),
            options.out,
            name=options.workload,
            concurrencies=numbers,
            rate=options.rate,
            seconds=options.seconds,
        )
    else:
        try:
            rows = options.rows.split(",") if options.rows else None
            seen = command.compare(options.out, rows, quick=options.quick, seconds=options.seconds)
        except ValueError as error:
            raise SettingsError(f"bench: {error}") from None
    sys.stdout.write(seen)
    return 0
