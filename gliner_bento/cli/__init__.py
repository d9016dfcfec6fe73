"""The command line: `gliner-bento serve`, `extract`, `bulk`, `redact`, `graph`, `settings`, `models`, `keys`,
`bench`, `adapters`, `doctor` and `docs`, one module each.

Importing it loads no server code."""

from __future__ import annotations

from collections.abc import Sequence

from gliner_bento.cli import adapters, bench, bulk, docs, doctor, extract, graph, keys, models, redact, serve, settings
from gliner_bento.cli.flags import parse
from gliner_bento.configuration import SettingsError
from gliner_bento.exits import write_line

_COMMANDS = {
    "serve": serve.run,
    "extract": extract.run,
    "bulk": bulk.run,
    "redact": redact.run,
    "graph": graph.run,
    "settings": settings.run,
    "models": models.run,
    "keys": keys.run,
    "bench": bench.run,
    "adapters": adapters.run,
    "doctor": doctor.run,
    "docs": docs.run,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. A wrong flag, setting or port prints one line and returns 1."""
    try:
        command, options, flags = parse(argv)
        return _COMMANDS[command](options, flags)
    except SettingsError as error:
        write_line(str(error))
        return 1
