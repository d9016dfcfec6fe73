"""`gliner-bento redact` with the bundled model in this process."""

from __future__ import annotations

import re

from gliner_bento import cli

TEXT = b"\xef\xbb\xbfBill Gates founded Microsoft.\r\nWrite to bill.gates@example.org.\r\n"


def test_what_the_model_and_the_rules_find_is_replaced_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setenv("GLINER_CLIENT_REDACT_KEY", "0123456789abcdef")
    (tmp_path / "in.txt").write_bytes(TEXT)
    arguments = ["redact", str(tmp_path / "in.txt"), "-o", str(tmp_path / "out.txt"), "--labels", "person"]
    assert cli.main([*arguments, "--style", "hash", "--mapping", str(tmp_path / "mapping.jsonl")]) == 0
    redacted = (tmp_path / "out.txt").read_bytes()
    expected = rb"\xef\xbb\xbf\[PERSON_\w{16}\] founded Microsoft\.\r\nWrite to \[EMAIL_\w{16}\]\.\r\n"
    assert re.fullmatch(expected, redacted)
    arguments = ["redact", "--restore", str(tmp_path / "mapping.jsonl"), str(tmp_path / "out.txt")]
    assert cli.main([*arguments, "-o", str(tmp_path / "again.txt")]) == 0
    assert (tmp_path / "again.txt").read_bytes() == TEXT
