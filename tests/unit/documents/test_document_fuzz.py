"""Mutated documents of each format: each is read, or refused in one line; the process neither hangs nor grows."""

from __future__ import annotations

import io
import random
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from gliner_bento.documents.base import DocumentError, Limits
from gliner_bento.documents.process import DocumentProcess
from reliability.document_files import HTML, excel, mail, pdf, rezipped, word

MUTATIONS = 2000
LIMITS = Limits(max_cpu_s=10, max_memory_bytes=2**29)
SEEDS = {
    "a.pdf": pdf([["Ada met Bob (1)."], ["more"]], comment="by Eve", field="Oslo"),
    "a.docx": word("more"),
    "a.xlsx": excel(),
    "a.html": HTML.encode(),
    "a.eml": mail({"a.pdf": pdf([["Ada"]]), "b.docx": word(), "c.eml": mail(), "d.html": HTML.encode()}),
}
TOKENS = (
    *(b"<", b">", b"</", b"&", b"&#0;", b'"', b"\x00", b"\xff\xfe", b"<!DOCTYPE a>", b"<![CDATA[", b"]]>", b"<!--"),
    *(b"obj", b"endobj", b"stream", b"/Kids", b"/Parent 2 0 R", b"0 R", b"9" * 40, b"-1", b"<<", b">>", b"[", b"]"),
    *(b"\r\n\r\n", b"boundary=", b"Content-Type: message/rfc822\r\n\r\n", b"Content-Transfer-Encoding: base64\r\n"),
    *(
        b'charset="utf-7"',
        b"=?utf-8?b?",
        b"--",
        b"w:p",
        b"<w:t>",
        b' r:id="',
        b'<c t="s"><v>99</v></c>',
        b"<div>" * 300,
    ),
)


def mutated(content: bytes, chance: random.Random) -> bytes:
    data = bytearray(content)
    for _ in range(chance.randint(1, 8)):
        position = chance.randrange(len(data) + 1)
        length = chance.choice((1, 1, 4, 40, 400))
        match chance.randrange(5):
            case 0:
                data[position : position + length] = b""
            case 1:
                data[position:position] = chance.choice(TOKENS)
            case 2:
                data[position : position + length] = chance.randbytes(length)
            case 3:
                start = chance.randrange(len(data) + 1)
                data[position:position] = data[start : start + length]
            case _:
                data[position : position + 1] = bytes([chance.randrange(256)])
    return bytes(data)


def mutation(name: str, seed: int) -> bytes:
    """A mutated document. Of most Word and Excel files, a part is mutated: archives are refused for their checksums."""
    chance = random.Random(f"{name} {seed}")
    content = SEEDS[name]
    if name.endswith(("x",)) and chance.random() < 0.8:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            part = chance.choice(archive.namelist())
            return rezipped(content, {part: mutated(archive.read(part), chance)})
    return mutated(content, chance)


@pytest.mark.slow
@pytest.mark.parametrize("name", SEEDS)
def test_mutated_documents_are_read_or_refused(name):
    process = DocumentProcess(LIMITS)
    outcomes: Counter[str] = Counter()
    peak_kib = 0
    for seed in range(MUTATIONS):
        content = mutation(name, seed)
        try:
            process.read(content, name, "latin-1")
            outcomes["read"] += 1
            if name.endswith("x"):
                listing = process.passages(content, name)
                texts = enumerate(listing.passages)
                edits = {index: [(0, 1, "[X_1]")] for index, one in texts if one.part != "attribute"}
                process.edited(content, name, edits)
                outcomes["edited"] += 1
        except DocumentError as error:
            outcomes["several lines"] += "\n" in str(error)
            outcomes[str(error).partition(":")[0]] += 1
        status = Path(f"/proc/{process._process.pid}/status") if process._process else None
        if status and status.exists():
            peak_kib = max(peak_kib, int(status.read_text().partition("VmHWM:")[2].split()[0]))
    process.close()
    print(name, f"{peak_kib // 1024} MiB", outcomes.most_common())  # noqa: T201  # shown with -s
    assert outcomes["read"] > MUTATIONS // 20
    ended = ("takes longer than 10 s to read", "the parser has crashed", "needs too much memory", "several lines")
    assert {reason: outcomes[reason] for reason in ended if outcomes[reason]} == {}
    assert peak_kib < LIMITS.max_memory_bytes // 1024
