"""Log records of gliner_bento under BentoML: its level and handlers, no tracebacks for invalid requests."""

from __future__ import annotations

import logging

from pydantic import ValidationError
from starlette.requests import ClientDisconnect


def join_bentoml() -> None:
    """Use BentoML's log level in this process, and drop its tracebacks of requests that are the caller's fault."""
    logging.getLogger("gliner_bento").setLevel(logging.getLogger("bentoml").level)  # the root logger has handlers
    logging.getLogger("bentoml._internal.server.http_app").addFilter(_is_fault)


def _is_fault(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], ValidationError | ClientDisconnect))
