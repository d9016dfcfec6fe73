"""A folder of more than 60 files, written here and by the libraries' own tests: each is processed, or named with its
reason. The libraries' files come from their source distributions, and are not stored here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from email.message import EmailMessage
from pathlib import Path

import pytest

from gliner_bento import cli
from reliability.document_files import HTML, encrypted_pdf, excel, mail, part_of, pdf, rezipped, word
from tests.unit.documents.test_document_commands import LEFT_OUT, READABLE, UNREADABLE

pytestmark = pytest.mark.slow

PACKAGES = ("pypdf", "python-docx", "html2text")
SUFFIXES = (".pdf", ".docx", ".xlsx", ".html", ".htm", ".eml")
MAX_OF_A_KIND = 12
"""Files of one suffix in one package, the smallest first."""
OLD = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def nested(depth: int) -> bytes:
    content = mail()
    for _ in range(depth):
        content = mail({"more.eml": content})
    return content


def escaping_mail() -> bytes:
    """A mail whose attachments have paths out of the folder as names."""
    message = EmailMessage()
    message["Subject"] = "Ada"
    message.set_content("Dear Ada")
    for name in ("../../../escaped.html", "/tmp/escaped.html", "..\\escaped.html", "a/../../escaped.html", ".."):
        message.add_attachment(b"<p>Bob", maintype="text", subtype="html", filename=name)
    return message.as_bytes()


WRITTEN = {
    "f/pdf.docx": lambda: pdf([["Ada"]]),
    "f/pdf.html": lambda: pdf([["Ada"]]),
    "f/pdf.txt": lambda: pdf([["Ada"]], comment="by Eve"),
    "f/word.xlsx": word,
    "f/word.pdf": word,
    "f/excel.docx": excel,
    "f/page.pdf": HTML.encode,
    "f/mail.html": mail,
    "f/photo.pdf": lambda: b"\x89PNG\r\n\x1a\n" + bytes(100),
    "f/old.docx": lambda: OLD + bytes(600),
    "f/old.xlsx": lambda: OLD + bytes(600),
    "f/half.pdf": lambda: pdf([["Ada"]] * 9)[:900],
    "f/half.xlsx": lambda: excel()[:3000],
    "f/xml.docx": lambda: rezipped(word(), {"word/document.xml": b"<w:document>"}),
    "f/entities.docx": lambda: rezipped(
        word(), {"word/document.xml": b'<!DOCTYPE a [<!ENTITY b "c">]>' + part_of(word(), "word/document.xml")}
    ),
    "f/bomb.docx": lambda: rezipped(word(), {"word/media/image1.png": bytes(300 * 2**20)}),
    "f/paths.docx": lambda: rezipped(word(), {"../../../escaped.xml": b"<a/>", "/tmp/escaped.xml": b"<a/>"}),
    "f/paths.eml": escaping_mail,
    "f/nested.eml": lambda: nested(3),
    "f/deep.eml": lambda: nested(9),
    "f/locked.eml": lambda: mail({"locked.pdf": encrypted_pdf("secret")}),
    "f/empty.pdf": lambda: b"",
    "f/empty.docx": lambda: b"",
    "f/empty.xlsx": lambda: b" \n",
    "f/empty.eml": lambda: b"",
    "f/empty.txt": lambda: b"",
    "f/scan.pdf": lambda: pdf([[], []], image=True),
    "f/partly a scan.pdf": lambda: pdf([["Ada"], []], image=True),
    "f/UTF-16.html": lambda: "<p>Ada".encode("utf-16"),
    "f/binary.html": lambda: bytes(range(256)),
    "f/größe 😀.html": lambda: b"<p>Ada",
    "f/line\nbreak.html": lambda: b"<p>Ada",
}


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Documents of the libraries' source distributions, by name."""
    folder = tmp_path_factory.mktemp("sdists")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-binary", ":all:", "--no-deps", "-d", folder]
    found: dict[str, bytes] = {}
    for package in PACKAGES:
        ended = subprocess.run([*map(str, command), package], capture_output=True, text=True, timeout=300, check=False)
        if ended.returncode:
            pytest.skip(f"{package} cannot be downloaded: {ended.stderr[-300:]}")
    for sdist in sorted(folder.glob("*.tar.gz")):
        with tarfile.open(sdist) as archive:
            files = [one for one in archive.getmembers() if one.isfile() and one.name.lower().endswith(SUFFIXES)]
            for suffix in SUFFIXES:
                of_kind = [one for one in files if one.name.lower().endswith(suffix)]
                for one in sorted(of_kind, key=lambda one: one.size)[:MAX_OF_A_KIND]:
                    file = archive.extractfile(one)
                    assert file
                    found[f"{sdist.name[:6]}/{one.name.replace('/', '_')}"] = file.read()
    return found


@pytest.fixture(scope="module")
def folder(collected: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sixty") / "in"
    made = {name: make() for name, make in (READABLE | WRITTEN).items()}
    made |= {name: make() for name, (make, _) in UNREADABLE.items()}
    for name, content in (made | LEFT_OUT | collected).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "linked").symlink_to(folder / "f")
    return folder


@pytest.fixture(autouse=True)
def without_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bundled model loads faster."""
    for setting, value in (("SELF_TEST", "false"), ("BATCH_INVARIANT", "false"), ("WARMUP_ITERATIONS", "0")):
        monkeypatch.setenv(f"GLINER_{setting}", value)


def files_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def read_in(folder: Path) -> set[str]:
    """What commands read: without other formats, and without the linked folder."""
    return {name for name in files_in(folder) - LEFT_OUT.keys() if not name.startswith("linked/")}


def check_lines(written: str) -> None:
    assert all(line.startswith("gliner-bento: ") for line in written.splitlines()), written


def test_bulk_accounts_for_every_file(folder, tmp_path, capsys):
    before = files_in(folder.parent)
    assert len(read_in(folder)) > 60
    out = tmp_path / "out.jsonl"
    assert cli.main(["bulk", str(folder), "-o", str(out), "--labels", "person", "--json"]) == 2
    written = capsys.readouterr()
    check_lines(written.err)
    report = json.loads(written.out)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    done = {row["file"] for row in rows if row.get("file")} | {"a/rows.jsonl", "a/table.csv"}
    named = {name for name in read_in(folder) if f"{folder}/{name}: ".replace("\n", "\\n") in written.err}
    assert done | named == read_in(folder)
    assert report["records"] == len(rows)
    assert files_in(folder.parent) == before


def test_graph_accounts_for_every_file(folder, tmp_path, capsys):
    out = tmp_path / "out.graphml"
    assert cli.main(["graph", str(folder), "-o", str(out), "--labels", "person", "--json"]) == 2
    written = capsys.readouterr()
    check_lines(written.err)
    report = json.loads(written.out)
    failed = read_in(folder) & {os.path.relpath(path, folder) for path in report["failed"]}
    assert len(failed) > 30
    assert report["documents"] + len(failed) >= len(read_in(folder))


def test_redact_accounts_for_every_file(folder, tmp_path, capsys):
    before = files_in(folder.parent)
    out = tmp_path / "deep" / "out"
    arguments = ["--patterns-only", "--deny-list", "Ada", "--json"]
    assert cli.main(["redact", str(folder), "-o", str(out), *arguments]) == 2
    written = capsys.readouterr()
    check_lines(written.err)
    report = json.loads(written.out)
    copies = files_in(out)
    failed = {os.path.relpath(path, folder) for path in report["failed"]}
    done = {name for name in read_in(folder) if {name, f"{name}.txt"} & copies}
    assert done | failed == read_in(folder)
    assert not done & failed
    assert len(copies) == len(done)
    assert files_in(tmp_path) == {f"deep/out/{name}" for name in copies}
    assert files_in(folder.parent) == before
    assert not Path("/tmp/escaped.html").exists()
