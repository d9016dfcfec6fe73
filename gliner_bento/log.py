"""Our log records go where BentoML's go, and a wrong request, which is answered, is no error of the server's."""

from __future__ import annotations

import logging

from pydantic import ValidationError


def join_bentoml() -> None:
    """Give our loggers BentoML's handlers and level in this process, and hush its traces of wrong requests."""
    ours, theirs = logging.getLogger("gliner_bento"), logging.getLogger("bentoml")
    ours.handlers = theirs.handlers
    ours.setLevel(theirs.level)
    logging.getLogger("bentoml._internal.server.http_app").addFilter(_is_fault)


def _is_fault(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], ValidationError))
