"""The formats of the log."""

from __future__ import annotations

import json
import logging
import sys
import warnings

import pytest
from bentoml._internal.context import server_context
from bentoml._internal.log import TraceRecordFilter, _component_name

from gliner_bento.settings import Settings
from gliner_bento.telemetry import log


@pytest.fixture
def written(monkeypatch, capsys):
    """Configure a process's log as BentoML leaves it, write a record, and return the line."""
    root = logging.getLogger()
    ours, bentomls = logging.getLogger("gliner_bento"), logging.getLogger("bentoml")
    levels, handlers = (ours.level, bentomls.level), root.handlers
    bentomls.setLevel(logging.NOTSET)

    def write(log_format: str, log_level: str = "auto", **record: object) -> str:
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(logging.Formatter("BentoML says %(message)s"))
        root.handlers = [handler]
        log.configure(Settings(log_format=log_format, log_level=log_level))
        log.configure(Settings(log_format=log_format, log_level=log_level))  # no second form of the same line
        ours.info("a\nline", **record)
        return capsys.readouterr().out

    yield write
    root.handlers = handlers
    ours.setLevel(levels[0])
    bentomls.setLevel(levels[1])


def test_json_is_one_object_per_record_with_its_fields(written):
    line = written("json", extra={"fields": {"status": 200, "tenant": "a"}})
    assert line.count("\n") == 1
    content = json.loads(line)
    assert content.pop("time").endswith("+00:00")
    assert content == {"level": "info", "logger": "gliner_bento", "message": "a\nline", "status": 200, "tenant": "a"}


def test_json_has_the_traceback_of_an_exception(written):
    try:
        raise ValueError("broken")
    except ValueError:
        content = json.loads(written("json", exc_info=True))
    assert content["exception"].endswith("ValueError: broken")


def test_lines_name_the_service_whatever_was_logged_before(written, monkeypatch):
    monkeypatch.setattr(server_context, "service_name", None)
    _component_name.cache_clear()
    assert "GLiNERService" not in _component_name()
    monkeypatch.setattr(server_context, "service_name", "GLiNERService")
    written("text")
    record = logging.makeLogRecord({"name": "gliner_bento"})
    TraceRecordFilter().filter(record)
    assert "GLiNERService" in record.component
    _component_name.cache_clear()


def test_text_keeps_bentomls_format_and_adds_the_fields(written):
    assert written("text", extra={"fields": {"status": 200, "route": "/"}}) == (
        "BentoML says a\nline status=200 route=/\n"
    )


@pytest.mark.parametrize(("level", "shown"), [("auto", True), ("debug", True), ("info", True), ("warning", False)])
def test_the_level_is_the_lowest_that_is_logged(written, level, shown):
    assert bool(written("json", level)) is shown


@pytest.mark.parametrize(
    ("level", "logger", "record", "shown"),
    [
        ("auto", "bentoml.serve", logging.INFO, False),
        ("auto", "httpx", logging.WARNING, True),
        ("auto", "bentoml.serve", logging.ERROR, True),
        ("info", "bentoml.serve", logging.INFO, False),
        ("debug", "bentoml.serve", logging.INFO, True),
    ],
)
def test_what_other_packages_log_is_there_from_a_warning_on(written, capsys, level, logger, record, shown):
    written("text", level)
    logging.getLogger("bentoml").setLevel(logging.DEBUG)
    logging.getLogger(logger).log(record, "from elsewhere")
    assert ("from elsewhere" in capsys.readouterr().out) is shown


@pytest.mark.parametrize(("level", "shown"), [("auto", 0), ("debug", 1)])
def test_warnings_for_developers_are_there_at_level_debug(written, monkeypatch, level, shown):
    monkeypatch.setattr(sys, "warnoptions", [])  # of -W
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        written("text", level)
        warnings.warn("deprecated", FutureWarning, stacklevel=1)
    assert len(caught) == shown
