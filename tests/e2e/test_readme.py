"""The code of the README and of other pages, executed: what it shows is what happens."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys

import patient
import pytest

from gliner_bento import cli
from gliner_bento.settings import PROJECT_ROOT


def blocks(page: str) -> list[tuple[str, str]]:
    """Language and code of each block of a page that can run in this environment."""
    text = (PROJECT_ROOT / page).read_text(encoding="utf-8")
    before_others = re.split("\n## (?:Install|Tools for language models)\n", text)[0]  # not installed here
    return re.findall(r"```(\w+)\n(.*?)```", before_others, re.DOTALL)


BLOCKS = blocks("README.md")
PAGES = ["docs/api.md", "docs/quickstart.md", "docs/errors.md", "docs/concepts.md"]
PYTHON = [code for page in PAGES for language, code in blocks(page) if language == "python"]
CURL = next(code for language, code in BLOCKS if language == "bash" and code.startswith("curl"))
SHOWN = next(json.loads(code) for language, code in BLOCKS if language == "json")


@pytest.mark.parametrize("code", PYTHON)
def test_the_python_examples_run_and_print(run_example, code):
    assert run_example(code).strip()


def test_the_request_has_the_output_that_is_shown(server):
    command = CURL.replace("localhost:3000", server)
    answer = json.loads(subprocess.run(["bash", "-c", command], capture_output=True, check=True, timeout=60).stdout)
    assert summary(answer) == summary(SHOWN)
    assert set(answer) == set(SHOWN)
    shown_scores = [found["score"] for found in SHOWN["entities"]]
    assert [found["score"] for found in answer["entities"]] == pytest.approx(shown_scores, abs=0.05)


def test_the_quickstart_leads_to_a_redacted_folder(server, tmp_path):
    """Its commands, with the server's model; and what they write, each after the block before it."""
    command = f'{shlex.quote(sys.executable)} -m gliner_bento.cli "$@" --url {server}'
    (tmp_path / "gliner-bento").write_text(f"#!/bin/sh\nPYTHONPATH={shlex.quote(str(PROJECT_ROOT))} exec {command}\n")
    (tmp_path / "gliner-bento").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    written = ""
    for language, code in blocks("docs/quickstart.md"):
        if language == "text" and not code.startswith("gliner-bento: ready"):
            assert written.endswith(code)
        elif language == "bash" and code != "make serve\n":
            commands = code.replace("source .venv/bin/activate\n", "").replace("http://127.0.0.1:3000", server)
            ran = subprocess.run(
                ["bash", "-euc", commands],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=240,
            )
            assert ran.returncode == 0, ran.stderr
            written = ran.stdout
    assert sorted(file.name for file in (tmp_path / "redacted").iterdir()) == ["first.txt", "second.txt"]


def test_the_commands_for_one_text_give_it_back(server, tmp_path, monkeypatch, capsys):
    (code,) = (code for _, code in blocks("docs/redaction.md") if "--sealed a.sealed" in code)
    made, *commands = code.replace("http://localhost:3000", server).splitlines()
    monkeypatch.chdir(tmp_path)
    subprocess.run(["bash", "-c", made], check=True)
    for command in commands:
        assert cli.main(shlex.split(command)[1:]) == 0
    assert "[PERSON_1], [EMAIL_ADDRESS_1]" in (tmp_path / "redacted.txt").read_text()
    assert capsys.readouterr().out.endswith((tmp_path / "prompt.txt").read_text())


def test_a_server_writes_where_it_is_and_a_request_that_works_and_nothing_of_other_packages(server, server_log):
    before, said, after = server_log.read_text(encoding="utf-8").partition(f"gliner-bento: ready on {server}\n")
    assert said
    rows = dict(line.split(maxsplit=1) for line in after.splitlines() if line.startswith("  "))
    assert patient.get(rows["playground"]).status_code == patient.get(rows["API"]).status_code == 200
    answer = json.loads(subprocess.run(["bash", "-c", rows["try"]], capture_output=True, check=True, timeout=60).stdout)
    assert [entity["text"] for entity in answer["entities"]] == ["Ada Lovelace", "London"]
    starting = [re.sub(r"^\S+ \[\w+\] \[[\w:]+\] ", "", line) for line in before.splitlines() if "/readyz" not in line]
    states = r"replica \w+ is (ready|suspect)"  # suspect: on a slow machine
    ours = rf"(starting; the server will answer on|model\.safetensors has weights in|demo |{states})"
    assert [line for line in starting if not re.match(ours, line)] == []


def summary(answer: dict) -> dict:
    """What must be equal whatever the precision."""
    return {
        "entities": [(e["start"], e["end"], e["text"], e["label"]) for e in answer["entities"]],
        "relations": [(r["head"]["text"], r["relation"], r["tail"]["text"]) for r in answer["relations"]],
        "usage": answer["usage"],
        "model": answer["model"],
    }


def test_the_first_way_to_start_needs_no_release():
    assert next(code for language, code in BLOCKS if language == "bash") == "make serve\n"


def test_every_link_of_the_readme_leads_somewhere():
    text = (PROJECT_ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!http)([^)#]+)\)", text)
    assert links
    assert [link for link in links if not (PROJECT_ROOT / link).exists()] == []


def test_the_readmes_figures_beside_gliner_serve_are_those_of_the_committed_report():
    text = " ".join((PROJECT_ROOT / "README.md").read_text(encoding="utf-8").split())
    report = re.search(r"answers ([\d.]+) \(\[measured\]\(([\w/.-]+)\)", text)
    ours = re.search(r"forward pass: (\d+) requests/s", text)
    assert report
    assert ours
    rows = (PROJECT_ROOT / report[2]).read_text(encoding="utf-8")
    row = re.search(
        r"\| bf16 \| throughput, concurrency 32 \| requests/s \| ([\d.]+) \| gliner.serve \| ([\d.]+) ", rows
    )
    assert row
    assert (round(float(row[1])), round(float(row[2]), 1)) == (int(ours[1]), float(report[1]))


def test_security_knows_the_forms_of_weights_that_are_loaded():
    models, security = (
        (PROJECT_ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("models.md", "security.md")
    )
    assert re.search(r"^\| `pytorch_model.bin`.* \| `torch.load\(weights_only=True\)`", models, re.MULTILINE)
    [row] = [line for line in security.splitlines() if line.startswith("| code in a checkpoint |")]
    assert "`pytorch_model.bin` read with `weights_only=True`" in row
