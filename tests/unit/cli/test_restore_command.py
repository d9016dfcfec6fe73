"""`gliner-bento redact --sealed` and `restore`: a text through a server and back."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import stat
import sys

import pytest
from doubles.memory_replica import MemoryReplica
from on_a_socket import on_a_socket
from pydantic import SecretStr

from gliner_bento import cli
from gliner_bento.gateway.app import GatewayApp
from gliner_bento.gateway.options import GatewayOptions
from gliner_bento.settings import Settings

TEXT = "Ada met Bob.\r\nWrite to ada@example.org\n"


@pytest.fixture(scope="module")
def url():
    """A server whose model finds names that begin with a capital."""
    options = dataclasses.replace(Settings().view(GatewayOptions), redaction_key=SecretStr("k" * 40))
    app = GatewayApp(options)
    app.bind(MemoryReplica())
    with on_a_socket(app) as url:
        yield url


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.txt").write_bytes(TEXT.encode())
    return tmp_path


def run(folder, url, *words):
    return cli.main([*(word.replace("{}", str(folder)) for word in words), "--url", url])


def redact(folder, url, *words):
    given = ("redact", "{}/a.txt", "-o", "{}/b.txt", "--sealed", "{}/sealed", "--labels", "person", *words)
    return run(folder, url, *given)


def test_a_text_is_redacted_and_restored(folder, url, capsysbinary):
    assert redact(folder, url) == 0
    assert capsysbinary.readouterr() == (b"1 file: 3 person, 1 email address\n", b"")
    assert (folder / "b.txt").read_bytes() == b"[PERSON_1] met [PERSON_2].\r\n[PERSON_3] to [EMAIL_ADDRESS_1]\n"
    assert stat.S_IMODE((folder / "sealed").stat().st_mode) == 0o600
    assert b"Ada" not in (folder / "sealed").read_bytes()
    assert run(folder, url, "restore", "{}/b.txt", "--sealed", "{}/sealed") == 0
    assert capsysbinary.readouterr() == (TEXT.encode(), b"")
    assert run(folder, url, "restore", "{}/b.txt", "--sealed", "{}/sealed", "-o", "{}/c.txt", "--json") == 0
    assert json.loads((folder / "c.txt").read_bytes())["restored"] == 4


def test_the_server_gets_the_lists_of_flags(folder, url):
    assert redact(folder, url, "--allow-list", "ada", "--deny-list", "met,to") == 0
    assert (folder / "b.txt").read_bytes() == (
        b"Ada [SENSITIVE_1] [PERSON_1].\r\n[PERSON_2] [SENSITIVE_2] [EMAIL_ADDRESS_1]\n"
    )


def test_the_next_text_continues_the_mapping_through_standard_streams(folder, url, capsysbinary, monkeypatch):
    assert redact(folder, url) == 0
    capsysbinary.readouterr()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"Cy and Bob")))
    assert run(folder, url, "redact", "-", "--sealed", "{}/sealed", "--labels", "person") == 0
    assert capsysbinary.readouterr() == (b"[PERSON_4] and [PERSON_2]", b"1 file: 2 person\n")
    answer = b"[Person 1] wrote to [PERSON_4] and [PERSON_9]."
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(answer)))
    assert run(folder, url, "restore", "--sealed", "{}/sealed", "-o", "-") == 2
    assert capsysbinary.readouterr() == (
        b"Ada wrote to Cy and [PERSON_9].",
        b"gliner-bento: restore: not restored: [PERSON_9]\n",
    )


def test_what_fails_writes_nothing(folder, url, capsysbinary):
    """Neither a text nor a mapping: the earlier mapping stays."""
    (folder / "sealed").write_text("changed\n")
    (folder / "b.txt").write_text("[PERSON_1]")
    for words in [("redact", "{}/a.txt", "-o", "{}/c.txt"), ("restore", "{}/b.txt", "-o", "{}/c.txt")]:
        assert run(folder, url, *words, "--sealed", "{}/sealed") == 1
        line = f"gliner-bento: {words[0]}: mapping: not a mapping of this server for this caller, or expired\n"
        assert capsysbinary.readouterr() == (b"", line.encode())
    (folder / "sealed").unlink()
    assert redact(folder, url, "--threshold", "7") == 1
    assert b"threshold" in capsysbinary.readouterr().err
    assert redact(folder, f"{url}/nowhere") == 1
    (folder / "full").mkdir()
    assert run(folder, url, "redact", "{}/a.txt", "-o", "{}/c.txt", "--sealed", "{}/full") == 1
    assert sorted(file.name for file in folder.iterdir()) == ["a.txt", "b.txt", "full"]
    assert (folder / "b.txt").read_text() == "[PERSON_1]"


def test_a_pipe_is_written_to_and_not_replaced(folder, url):
    os.mkfifo(folder / "pipe")
    reader = os.open(folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert redact(folder, url, "-o", "{}/pipe") == 0
        assert os.read(reader, 1000).startswith(b"[PERSON_1] met")
    finally:
        os.close(reader)
    assert (folder / "pipe").is_fifo()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--style", "mask"], "--sealed: the style mask cannot be restored"),
        (["--columns", "a"], "--columns: not with --sealed"),
        (["--mapping", "m"], "--mapping: not with --sealed"),
        (["--check"], "--check: not with --sealed"),
        (["--keep-columns", "a"], "--keep-columns: not with --sealed"),
        (["--phone-regions", "DE"], "--phone-regions: is for a model in this process; leave out --url"),
    ],
)
def test_flags_that_make_no_sense_are_named(folder, url, capsys, words, message):
    assert redact(folder, url, *words) == 1
    assert capsys.readouterr().err.endswith(f"{message}\n")
    assert [file.name for file in folder.iterdir()] == ["a.txt"]


def test_a_server_and_a_mapping_are_needed(folder, url, capsys):
    assert cli.main(["redact", str(folder / "a.txt"), "-o", str(folder / "b"), "--sealed", str(folder / "s")]) == 1
    assert capsys.readouterr().err.endswith("--sealed: add --url: the server that seals the originals\n")
    assert run(folder, url, "redact", "{}/a.txt", "{}/b.txt", "-o", "{}/c", "--sealed", "{}/s") == 1
    assert capsys.readouterr().err.endswith("--sealed: give one file with -o, or - for standard input\n")
    assert run(folder, url, "restore", "{}/a.txt", "--sealed", "{}/s") == 1
    assert capsys.readouterr().err.endswith(f"{folder}/s: no such file, or empty\n")
