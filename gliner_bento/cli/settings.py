"""`gliner-bento settings`: prints the effective settings and the origin of each value."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from gliner_bento.configuration import CONFIGURATION_FILE
from gliner_bento.settings import Settings
from gliner_bento.settings.field_types import text_of
from gliner_bento.settings.names import origin


def run(_options: argparse.Namespace, flags: Mapping[str, Any]) -> int:
    """Print the effective settings."""
    sys.stdout.write(effective_settings(Settings.load(flags), flags))
    return 0


def effective_settings(settings: Settings, flags: Mapping[str, Any]) -> str:
    """One line per setting: name, value, origin."""
    file = str(settings.config or CONFIGURATION_FILE)
    in_file = settings.configuration().gliner
    width = max(map(len, Settings.model_fields))
    lines = []
    for name in Settings.model_fields:
        source = origin(name, flags) or (file if name in in_file else "default")
        lines.append(f"{name:<{width}}  {text_of(getattr(settings, name))}  ({source})\n")
    return "".join(lines)
