"""The README's code, executed: what it shows is what happens."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from gliner_bento.settings import PROJECT_ROOT

BLOCKS = re.findall(r"```(\w+)\n(.*?)```", (PROJECT_ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
PYTHON = [code for language, code in BLOCKS if language == "python"]
CURL = next(code for language, code in BLOCKS if language == "bash" and code.startswith("curl"))
SHOWN = next(json.loads(code) for language, code in BLOCKS if language == "json")


@pytest.mark.parametrize("code", PYTHON)
def test_the_python_examples_run_and_print(server, code):
    ran = subprocess.run(
        [sys.executable, "-c", code.replace("http://localhost:3000", server)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=PROJECT_ROOT,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip()


def test_the_request_has_the_output_that_is_shown(server):
    command = CURL.replace("localhost:3000", server)
    answer = json.loads(subprocess.run(["bash", "-c", command], capture_output=True, check=True, timeout=60).stdout)
    assert summary(answer) == summary(SHOWN)
    assert set(answer) == set(SHOWN)
    shown_scores = [found["score"] for found in SHOWN["entities"]]
    assert [found["score"] for found in answer["entities"]] == pytest.approx(shown_scores, abs=0.05)


def summary(answer: dict) -> dict:
    """What must be equal whatever the precision."""
    return {
        "entities": [(e["start"], e["end"], e["text"], e["label"]) for e in answer["entities"]],
        "relations": [(r["head"]["text"], r["relation"], r["tail"]["text"]) for r in answer["relations"]],
        "usage": answer["usage"],
        "model": answer["model"],
    }


def test_every_link_of_the_readme_leads_somewhere():
    text = (PROJECT_ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!http)([^)#]+)\)", text)
    assert links
    assert [link for link in links if not (PROJECT_ROOT / link).exists()] == []
