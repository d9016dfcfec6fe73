"""What the gateway keeps out of the log: a wrong request is answered, and is no fault of the server's."""

from __future__ import annotations

import logging

from pydantic import ValidationError


def hush_wrong_requests() -> None:
    """Stop BentoML from logging each request that does not validate as an error with a stack trace."""
    logging.getLogger("bentoml._internal.server.http_app").addFilter(_is_fault)


def _is_fault(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], ValidationError))
