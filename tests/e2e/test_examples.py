"""The examples, run as their first lines say."""

from __future__ import annotations

import os
import subprocess
import sys

from gliner_bento.settings import PROJECT_ROOT


def run_example(name: str, text: str, url: str) -> str:
    ran = subprocess.run(
        [sys.executable, str(PROJECT_ROOT / "examples" / name)],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env=os.environ | {"URL": url},
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_redact_replaces_personal_data_and_nothing_else(server):
    text = "Dear John Smith, please write to jane.doe@example.org or call us.\n"
    redacted = run_example("redact.py", text, server)
    assert "John Smith" not in redacted
    assert "jane.doe@example.org" not in redacted
    assert redacted.endswith("or call us.\n")


def test_knowledge_graph_prints_triples(server):
    text = "Bill Gates founded Microsoft in 1975.\nTim Cook works at Apple.\n"
    assert "Bill Gates\tfounded\tMicrosoft" in run_example("knowledge_graph.py", text, server)
