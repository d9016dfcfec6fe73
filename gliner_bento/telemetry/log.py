"""Log records of a server's processes: their format, their level, and which records of other packages are left out.

A record's `fields` (`extra={"fields": {...}}`) become keys of the JSON object, or follow the message of a text line.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

import msgspec
from pydantic import ValidationError
from starlette.requests import ClientDisconnect

from gliner_bento.settings import Settings

_LOGGERS = ("", "bentoml", "circus", "uvicorn", "uvicorn.error")
"""The loggers that have handlers of BentoML or uvicorn."""

_SHOWN_FROM_INFO = ("gliner_bento", "runners", "service", "uvicorn")
"""Prefixes of the names of loggers whose records are shown from level info. uvicorn's records name the address."""

_TEXT = "%(asctime)s [%(levelname)s] %(name)s %(message)s"


def configure(settings: Settings) -> None:
    """Apply `log_format` and `log_level` to this process.

    Drops BentoML's records of invalid requests and uvicorn's access log, because our access log has all requests.
    Unless the level is debug, it also drops what other packages log below a warning, and Python's warnings, which are
    for developers.
    """
    if not logging.getLogger().handlers:  # without BentoML
        logging.basicConfig(format=_TEXT)
    if component_name := getattr(sys.modules.get("bentoml._internal.log"), "_component_name", None):
        component_name.cache_clear()  # cached by a record that was written before BentoML knew the name
    level = logging.getLogger("bentoml").level or logging.INFO
    if settings.log_level != "auto":
        level = logging.getLevelName(settings.log_level.upper())
    for name in ("bentoml", "gliner_bento"):
        logging.getLogger(name).setLevel(level)
    for handler in {handler for name in _LOGGERS for handler in logging.getLogger(name).handlers}:
        if level > logging.DEBUG:
            handler.addFilter(_is_for_operators)
        if type(handler) is logging.StreamHandler:
            handler.setFormatter(_formatter(settings, handler.formatter or logging.Formatter(_TEXT)))
    access = logging.getLogger("uvicorn.access")
    access.handlers, access.propagate = [], False
    logging.getLogger("bentoml._internal.server.http_app").addFilter(_is_fault)
    if level > logging.DEBUG:
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
        if not sys.warnoptions:
            warnings.simplefilter("ignore")


class JsonFormatter(logging.Formatter):
    """One JSON object per record."""

    def format(self, record: logging.LogRecord) -> str:
        """The record in one line."""
        content: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            content["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(content).decode()


class TextFormatter(logging.Formatter):
    """The lines of another formatter, followed by the record's fields."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        """The record's lines."""
        line = self._inner.format(record)
        return " ".join([line, *[f"{name}={value}" for name, value in _fields(record).items()]])


def _formatter(settings: Settings, present: logging.Formatter) -> logging.Formatter:
    if settings.log_format == "json":
        return JsonFormatter()
    return present if isinstance(present, TextFormatter) else TextFormatter(present)


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    return getattr(record, "fields", {})


def _is_fault(record: logging.LogRecord) -> bool:
    """False for the errors of invalid requests and of disconnected clients."""
    return not (record.exc_info and isinstance(record.exc_info[1], ValidationError | ClientDisconnect))


def _is_for_operators(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING or record.name.startswith(_SHOWN_FROM_INFO)
