"""`gliner-bento redact` with the bundled model in this process."""

from __future__ import annotations

import json
import re
import shlex
import subprocess

from gliner_bento import cli
from gliner_bento.settings import PROJECT_ROOT

TEXT = b"\xef\xbb\xbfBill Gates founded Microsoft.\r\nWrite to bill.gates@example.org.\r\n"


def test_what_the_model_and_the_rules_find_is_replaced_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setenv("GLINER_CLIENT_REDACT_KEY", "0123456789abcdef")
    (tmp_path / "in.txt").write_bytes(TEXT)
    arguments = ["redact", str(tmp_path / "in.txt"), "-o", str(tmp_path / "out.txt"), "--labels", "person"]
    assert cli.main([*arguments, "--style", "hash", "--mapping", str(tmp_path / "mapping.jsonl")]) == 0
    redacted = (tmp_path / "out.txt").read_bytes()
    expected = rb"\xef\xbb\xbf\[PERSON_\w{16}\] founded Microsoft\.\r\nWrite to \[EMAIL_ADDRESS_\w{16}\]\.\r\n"
    assert re.fullmatch(expected, redacted)
    arguments = ["redact", "--restore", str(tmp_path / "mapping.jsonl"), str(tmp_path / "out.txt")]
    assert cli.main([*arguments, "-o", str(tmp_path / "again.txt")]) == 0
    assert (tmp_path / "again.txt").read_bytes() == TEXT


PAGE = (PROJECT_ROOT / "docs" / "redaction.md").read_text(encoding="utf-8")


def test_the_example_of_the_page_keeps_every_other_byte(tmp_path, monkeypatch, capsys):
    """Its files are made by its shell commands; what is around the replacements is compared with the originals."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    made = [line for block in blocks for line in block.splitlines() if line.startswith(("mkdir", "printf"))]
    subprocess.run(["bash", "-ec", "\n".join(made)], check=True)
    commands = [line for block in blocks for line in block.splitlines() if line.startswith("gliner-bento redact")]
    assert cli.main(shlex.split(commands[0])[1:]) == 0
    shown = capsys.readouterr().out + (tmp_path / "redacted" / "first.txt").read_text()
    assert shown.strip() in PAGE
    (table,) = (line for line in commands if "customers.csv" in line)
    assert cli.main([*shlex.split(table)[1:], "--mapping", "table.jsonl"]) == 0
    assert json.loads(capsys.readouterr().out)["redacted"] == {"person": 2, "phone number": 1}
    for original, copy, mapping in [
        ("letters/first.txt", "redacted/first.txt", "mapping.jsonl"),
        ("customers.csv", "customers-redacted.csv", "table.jsonl"),
    ]:
        before, after = (tmp_path / original).read_bytes(), (tmp_path / copy).read_bytes()
        *replaced, end = [json.loads(line) for line in (tmp_path / mapping).read_text().splitlines()]
        assert len(replaced) == end["replacements"] >= 3
        kept = position = 0
        for one in replaced:
            length = one["start"] - position
            assert after[position : one["start"]] == before[kept : kept + length]
            assert after[one["start"] :].startswith(one["replacement"].encode())
            assert before[kept + length :].startswith(one["text"].encode())
            position, kept = one["start"] + len(one["replacement"]), kept + length + len(one["text"])
        assert after[position:] == before[kept:]
