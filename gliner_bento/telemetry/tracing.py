"""Tracing of requests, off unless `enable_tracing` is set. `otel.py` implements it.

Imports no tracing library, so that a server without tracing loads none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gliner_bento.errors import StartupError, install_hint
from gliner_bento.settings import Settings

if TYPE_CHECKING:
    from gliner_bento.telemetry.otel import Tracing


def start_tracing(settings: Settings) -> Tracing | None:
    """The spans of this process, exported as the `OTEL_` environment variables say. Raises `StartupError`."""
    if not settings.enable_tracing:
        return None
    try:
        from gliner_bento.telemetry.otel import Tracing, otlp_processor  # noqa: PLC0415  # needs the extra otel
    except ImportError as missing:
        raise StartupError(f"enable_tracing: {missing}; {install_hint('otel')}") from None
    return Tracing(otlp_processor())
