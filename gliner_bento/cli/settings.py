"""`gliner-bento settings`: prints the effective settings and the origin of each value."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from gliner_bento.cli.parsers import add_json
from gliner_bento.settings import Settings
from gliner_bento.settings.configuration import CONFIGURATION_FILE
from gliner_bento.settings.names import origin

EXAMPLES = """examples:
  gliner-bento settings
  gliner-bento settings --config server.yaml --json
  GLINER_DTYPE=float32 gliner-bento settings --model models/demo

exit codes: 0 done; 1 a flag or a setting is wrong, and one line says which"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add this command's flags, beside the settings."""
    add_json(parser)


def run(options: argparse.Namespace, flags: Mapping[str, Any]) -> int:
    """Print the effective settings."""
    effective = list(effective_settings(Settings.load(flags), flags))
    if options.json:
        content = {name: {"value": value, "origin": source} for name, value, source in effective}
        sys.stdout.write(json.dumps(content, indent=1) + "\n")
    else:
        width = max(len(name) for name, *_ in effective)
        sys.stdout.writelines(
            f"{name:<{width}}  {'unset' if value is None else value}  ({source})\n" for name, value, source in effective
        )
    return 0


def effective_settings(settings: Settings, flags: Mapping[str, Any]) -> Iterator[tuple[str, str | None, str]]:
    """Name, value (None: unset) and origin of each setting."""
    file = str(settings.config or CONFIGURATION_FILE)
    in_file = settings.configuration().gliner
    for name in Settings.model_fields:
        source = origin(name, flags) or (file if name in in_file else "default")
        yield name, settings.shown(name), source
