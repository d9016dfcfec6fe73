"""`gliner-bento bench URL`: measures a running server."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from typing import Any

from gliner_bento.configuration import SettingsError


def run(options: argparse.Namespace, _flags: Mapping[str, Any]) -> int:
    """Measure the server and print the table."""
    # A server does not need it.
    from gliner_bento.loadtest.measure import measure_server  # noqa: PLC0415

    try:
        table = measure_server(
            options.url.rstrip("/"),
            options.out,
            name=options.workload,
            concurrencies=[int(number) for number in options.concurrency.split(",")],
            rate=options.rate,
            seconds=options.seconds,
            api_key=options.api_key or os.environ.get("GLINER_CLIENT_API_KEY"),
        )
    except ValueError as error:
        raise SettingsError(f"bench: {error}") from None
    sys.stdout.write(table)
    return 0
