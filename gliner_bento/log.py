"""Log records under BentoML: its level and handlers, no tracebacks for invalid requests, nothing about its hooks."""

from __future__ import annotations

import logging

from pydantic import ValidationError
from starlette.requests import ClientDisconnect


def join_bentoml() -> None:
    """Use BentoML's log level in this process; drop its tracebacks of invalid requests, and its lines about hooks."""
    logging.getLogger("gliner_bento").setLevel(logging.getLogger("bentoml").level)  # the root logger has handlers
    logging.getLogger("bentoml._internal.server.http_app").addFilter(_is_fault)
    logging.getLogger("bentoml.serve").addFilter(_is_no_hook)


def _is_fault(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], ValidationError | ClientDisconnect))


def _is_no_hook(record: logging.LogRecord) -> bool:
    return "cleanup" not in str(record.msg)
