"""Output of commands in encodings that lack characters of the output."""

from __future__ import annotations

import io
import json
import os
import sys

import pytest

from gliner_bento import cli

TEXT = "Zoë — 😀 Łukasz\u2028in Oslo"
ENCODINGS = ["ascii", "cp1252", "latin-1", "cp932", "utf-8"]


@pytest.fixture(params=ENCODINGS)
def written(request, monkeypatch):
    """A function that runs a command, and returns its exit code, standard output and standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        streams = [io.TextIOWrapper(io.BytesIO(), request.param, "strict") for _ in range(2)]
        monkeypatch.setattr(sys, "stdout", streams[0])
        monkeypatch.setattr(sys, "stderr", streams[1])
        code = cli.main(arguments)
        for stream in streams:
            stream.flush()
        out, err = (stream.buffer.getvalue().decode(request.param) for stream in streams)
        return code, out, err

    return run


@pytest.fixture
def model(commands_call):
    commands_call()


def read_back(shown: str) -> str:
    """A text that may have escapes as in JSON."""
    return json.loads('"' + shown.replace('"', '\\"') + '"', strict=False)


@pytest.mark.parametrize("form", [[], ["--table"]])
def test_a_text_is_shown_with_escapes(form, written, model):
    code, out, _ = written("extract", TEXT, "--labels", "Łódź", *form)
    assert code == 0
    if not form:
        assert read_back(out).replace(" [Łódź]", "") == f"{TEXT}\n"


def test_json_stays_valid(written, tmp_path):
    name = "名前 😀 é " + os.fsdecode(b"caf\xe9")
    (tmp_path / f"{name}.csv").write_text(f"text,{TEXT}\nada@example.org,1\n", encoding="utf-8")
    (tmp_path / f"{name}.odt").touch()
    code, out, err = written("redact", str(tmp_path), "--check", "--patterns-only", "--json")
    report = json.loads(out)
    assert code == 2
    assert report["unseen"] == {f"{tmp_path}/{name}.csv": [TEXT]}
    assert report["skipped"] == [f"{tmp_path}/{name}.odt"]
    assert [found["text"] for found in report["left"]] == ["ada@example.org"]
    assert read_back(err).startswith(f"gliner-bento: redact: {tmp_path}/{name}.csv: not looked at")


def test_summaries_and_messages_name_every_file(written, tmp_path, model, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "Ł 😀 é" + os.fsdecode(b"\xe9")
    (tmp_path / f"{name}.txt").write_text(TEXT, encoding="utf-8")
    for as_json in ([], ["--json"]):
        code, out, _ = written(
            "bulk", f"{name}.txt", "-o", f"{name}.jsonl", "--labels", "city", "--overwrite", *as_json
        )
        assert code == 0
        assert json.loads(out)["output"] == f"{name}.jsonl" if as_json else f"{name}.jsonl: 1 record" in read_back(out)
    code, _, err = written("bulk", f"{name}.gone", "-o", "out.jsonl", "--labels", "city")
    assert (code, read_back(err)) == (1, f"gliner-bento: bulk: {name}.gone: no such file or folder\n")
