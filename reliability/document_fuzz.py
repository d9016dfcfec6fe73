"""Fuzzing of documents: mutated PDF, Word and Excel files, HTML pages and mails. Each is read, or refused in one line;
the process that reads them neither hangs nor grows."""

from __future__ import annotations

import io
import random
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gliner_bento.documents.base import DocumentError, Limits
from gliner_bento.documents.process import DocumentProcess
from reliability.document_files import HTML, excel, mail, pdf, rezipped, word
from reliability.measurement import Target

LIMITS = Limits(max_cpu_s=10, max_memory_bytes=2**29)
SEEDS = {
    "a.pdf": pdf([["Ada met Bob (1)."], ["more"]], comment="by Eve", field="Oslo"),
    "a.docx": word("more"),
    "a.xlsx": excel(),
    "a.html": HTML.encode(),
    "a.eml": mail({"a.pdf": pdf([["Ada"]]), "b.docx": word(), "c.eml": mail(), "d.html": HTML.encode()}),
}
"""A document of each format."""

_ENDED = ("takes longer than", "the parser has crashed", "needs too much memory")
_KEPT = 20
_TOKENS = (
    *(b"<", b">", b"</", b"&", b"&#0;", b'"', b"\x00", b"\xff\xfe", b"<!DOCTYPE a>", b"<![CDATA[", b"]]>", b"<!--"),
    *(b"obj", b"endobj", b"stream", b"/Kids", b"/Parent 2 0 R", b"0 R", b"9" * 40, b"-1", b"<<", b">>", b"[", b"]"),
    *(b"\r\n\r\n", b"boundary=", b"Content-Type: message/rfc822\r\n\r\n", b"Content-Transfer-Encoding: base64\r\n"),
    *(b'charset="utf-7"', b"=?utf-8?b?", b"--", b"w:p", b"<w:t>", b' r:id="', b'<c t="s"><v>99</v></c>'),
    b"<div>" * 300,
)


@dataclass(slots=True)
class DocumentFindings:
    """Counts of outcomes by name of the seed, and of faults; the first faulty documents. peak_bytes: of the process."""

    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    examples: list[dict[str, Any]] = field(default_factory=list)
    peak_bytes: int = 0

    def add(self, name: str, number: int, outcome: str, fault: str | None = None) -> None:
        """Count what has become of a mutation."""
        self.outcomes.setdefault(name, Counter())[outcome] += 1
        if fault:
            self.faults[fault] += 1
            if len(self.examples) < _KEPT:
                self.examples.append({"document": name, "number": number, "fault": fault, "outcome": outcome})

    @property
    def targets(self) -> Sequence[Target]:
        """No fault, and bounded memory."""
        mb = self.peak_bytes / 1e6
        return [
            Target("documents that hung, crashed or took all memory", "documents", self.faults["ended"], 0),
            Target("documents refused otherwise than in one line", "documents", self.faults["message"], 0),
            Target("memory of the process that reads documents", "MB", mb, LIMITS.max_memory_bytes / 1e6),
        ]

    @property
    def facts(self) -> dict[str, Any]:
        """What became of the documents."""
        shown = {name: dict(count.most_common(_KEPT)) for name, count in self.outcomes.items()}
        return {"documents": shown, "document_examples": self.examples}


def fuzz_documents(mutations: int, seed: int) -> DocumentFindings:
    """Read `mutations` of each seed, and replace the first character of each text of Word and Excel files."""
    findings = DocumentFindings()
    with closing(DocumentProcess(LIMITS)) as process:
        for name in SEEDS:
            for number in range(mutations):
                content = mutation(name, number, seed)
                try:
                    for outcome in _outcomes(process, content, name):
                        findings.add(name, number, outcome)
                except DocumentError as error:
                    message = str(error)
                    findings.add(name, number, message.partition(":")[0], fault_of(message))
                except Exception as error:
                    findings.add(name, number, repr(error), "message")
                findings.peak_bytes = max(findings.peak_bytes, _peak_bytes(process.pid))
    return findings


def fault_of(message: str) -> str | None:
    """What is wrong with the reason why a document was not read; None if nothing is."""
    if message.startswith(_ENDED):
        return "ended"
    return "message" if not message or "\n" in message or "Traceback" in message else None


def mutation(name: str, number: int, seed: int) -> bytes:
    """A mutated document. Of most Word and Excel files, a part is mutated: archives are refused for their checksums."""
    chance = random.Random(f"{seed} {name} {number}")
    content = SEEDS[name]
    if name.endswith("x") and chance.random() < 0.8:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            part = chance.choice(archive.namelist())
            return rezipped(content, {part: _mutated(archive.read(part), chance)})
    return _mutated(content, chance)


def _outcomes(process: DocumentProcess, content: bytes, name: str) -> Iterator[str]:
    process.read(content, name, "latin-1")
    yield "read"
    if name.endswith("x"):
        listing = process.passages(content, name)
        edits = {index: [(0, 1, "[X_1]")] for index, one in enumerate(listing.passages) if one.part != "attribute"}
        process.edited(content, name, edits)
        yield "edited"


def _mutated(content: bytes, chance: random.Random) -> bytes:
    data = bytearray(content)
    for _ in range(chance.randint(1, 8)):
        position = chance.randrange(len(data) + 1)
        length = chance.choice((1, 1, 4, 40, 400))
        match chance.randrange(5):
            case 0:
                data[position : position + length] = b""
            case 1:
                data[position:position] = chance.choice(_TOKENS)
            case 2:
                data[position : position + length] = chance.randbytes(length)
            case 3:
                start = chance.randrange(len(data) + 1)
                data[position:position] = data[start : start + length]
            case _:
                data[position : position + 1] = bytes([chance.randrange(256)])
    return bytes(data)


def _peak_bytes(pid: int | None) -> int:
    """The peak of a process's memory; 0 if it has ended, or the system does not show it."""
    status = Path(f"/proc/{pid}/status")
    peak = status.read_text().partition("VmHWM:")[2].split() if status.exists() else []
    return int(peak[0]) * 1024 if peak else 0
