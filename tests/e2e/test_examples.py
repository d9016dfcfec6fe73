"""The examples, run as their first lines say."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable

import pytest

from gliner_bento.settings import PROJECT_ROOT


@pytest.fixture
def output_of(printed_by, server, monkeypatch) -> Callable[[str, str], str]:
    """Runs an example of that name with a text as its input."""

    def run(name: str, text: str) -> str:
        monkeypatch.setenv("URL", server)
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        return printed_by((PROJECT_ROOT / "examples" / name).read_text(encoding="utf-8"))

    return run


def test_redact_replaces_personal_data_and_nothing_else(output_of):
    text = "Dear John Smith, please write to jane.doe@example.org or call us.\n"
    redacted = output_of("redact.py", text)
    assert "John Smith" not in redacted
    assert "jane.doe@example.org" not in redacted
    assert redacted.endswith("or call us.\n")


def test_knowledge_graph_prints_triples(output_of):
    text = "Bill Gates founded Microsoft in 1975.\nTim Cook works at Apple.\n"
    assert "Bill Gates\tfounded\tMicrosoft" in output_of("knowledge_graph.py", text)
