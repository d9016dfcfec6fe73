"""Our log records go where BentoML's go; a wrong request, or a caller that left, is no error of the server's."""

from __future__ import annotations

import logging

from pydantic import ValidationError
from starlette.requests import ClientDisconnect


def join_bentoml() -> None:
    """Show our records from BentoML's level on in this process, and hush its traces of what is no fault."""
    logging.getLogger("gliner_bento").setLevel(logging.getLogger("bentoml").level)  # the root logger has the handlers
    logging.getLogger("bentoml._internal.server.http_app").addFilter(_is_fault)


def _is_fault(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], ValidationError | ClientDisconnect))
