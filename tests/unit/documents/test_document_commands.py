"""Documents as inputs of commands: every file is accounted for, and one that cannot be read stops no other."""

from __future__ import annotations

import json

import pytest

from gliner_bento import cli
from gliner_bento.errors import install_hint
from reliability.document_files import HTML, encrypted_pdf, excel, mail, pdf, word

READABLE = {
    "a/plain.txt": lambda: b"Ada",
    "a/notes.md": lambda: b"Bob",
    "a/rows.jsonl": lambda: b'{"text": "Ada"}\n{"text": "Bob"}\n',
    "a/table.csv": lambda: b"text\nAda\n",
    "b/report.pdf": lambda: pdf([["Ada Lovelace"], ["Bob"]]),
    "b/UPPER.PDF": lambda: pdf([["Eve"]]),
    "b/open.pdf": lambda: encrypted_pdf(""),
    "b/letter.docx": word,
    "c/people.xlsx": excel,
    "c/page.html": HTML.encode,
    "c/old.htm": lambda: b"<p>Ada",
    "c/mail.eml": lambda: mail({"inside.pdf": pdf([["Ada"]]), "photo.png": b"\x89PNG"}),
}
UNREADABLE = {
    "d/scan.pdf": (lambda: pdf([[]], image=True), "has no text: a scan, or empty"),
    "d/locked.pdf": (lambda: encrypted_pdf("secret"), "encrypted"),
    "d/half.docx": (lambda: word()[:900], "damaged: File is not a zip file"),
    "d/wrong.docx": (lambda: pdf([["Ada"]]), "is a PDF, and not what its suffix says"),
    "d/pdf.txt": (lambda: pdf([["Ada"]]), "is a PDF, and not what its suffix says"),
    "d/word.csv": (word, "is an Office file or an archive, and not what its suffix says"),
    "d/deep.html": (lambda: b"<div>" * 9000 + b"Ada", "is nested too deeply, or has too long a text"),
    "d/empty.html": (lambda: b"", "is empty"),
    "d/none.eml": (lambda: b"Ada\n", "is no mail: it has no header such as From or Subject"),
}
LEFT_OUT = {"e/slides.pptx": b"PK", "e/photo.png": b"\x89PNG", "e/.hidden.pdf": b"%PDF-"}


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """A folder with 24 files: some can be read, some not, some are of other formats."""
    folder = tmp_path_factory.mktemp("mixed")
    files = {name: make() for name, make in READABLE.items()} | LEFT_OUT
    files |= {name: make() for name, (make, _) in UNREADABLE.items()}
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    assert len(files) == 24
    return folder


@pytest.fixture(autouse=True)
def memory_client(commands_call):
    commands_call()


def problems(folder) -> dict[str, str]:
    """The lines about what cannot be read, by location."""
    found = {str(folder / name): reason for name, (_, reason) in UNREADABLE.items()}
    return found | {f"{folder}/c/mail.eml: photo.png": "is none of .pdf, .docx, .xlsx, .html, .htm, .eml"}


@pytest.mark.parametrize("command", ["bulk", "graph"])
def test_every_file_of_a_mixed_folder_is_accounted_for(command, mixed, tmp_path, capsys):
    output = tmp_path / ("out.jsonl" if command == "bulk" else "out.graphml")
    assert cli.main([command, str(mixed), "-o", str(output), "--labels", "person", "--json"]) == 2
    written = capsys.readouterr()
    lines = [f"gliner-bento: {command}: {location}: {reason}" for location, reason in problems(mixed).items()]
    assert sorted(line for line in written.err.splitlines() if "left out" not in line) == sorted(lines)
    report = json.loads(written.out)
    assert report["left_out"] == {"hidden": 1, ".png": 1, ".pptx": 1}
    if command == "graph":
        assert report["failed"] == problems(mixed)
        return
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert report["records"] == len(rows)
    in_files = {row.get("file") for row in rows} - {None}
    assert in_files == set(READABLE) - {"a/rows.jsonl", "a/table.csv"}  # whose records have no column `file`
    (attached,) = (row for row in rows if row.get("attachment"))
    assert [attached[name] for name in ("file", "attachment", "page", "text")] == ["c/mail.eml", "inside.pdf", 1, "Ada"]
    cells = {(row["sheet"], row["cell"]): row["text"] for row in rows if row.get("part") == "cell"}
    assert cells["Hidden", "A1"] == "Bob was here"


def test_places_are_columns_of_parquet(tmp_path, capsys):
    pq = pytest.importorskip("pyarrow.parquet")
    for name, content in {"a.pdf": pdf([["Ada"]]), "b.xlsx": excel({"A1": "Bob"})}.items():
        (tmp_path / name).write_bytes(content)
    assert cli.main(["bulk", str(tmp_path), "-o", str(tmp_path / "o.parquet"), "--labels", "x", "--quiet"]) == 0
    rows = pq.read_table(tmp_path / "o.parquet").to_pylist()
    assert [(row["file"], row["part"], row["page"], row["sheet"], row["cell"]) for row in rows] == [
        ("a.pdf", "page", 1, None, None),
        ("b.xlsx", "cell", None, "People", "A1"),
        ("b.xlsx", "comment", None, "People", "A1"),
        ("b.xlsx", "cell", None, "Hidden", "A1"),
    ]


@pytest.mark.parametrize(
    ("name", "content", "code", "shown"),
    [
        ("a.pdf", lambda: pdf([["Ada"], ["Bob"]]), 0, "Ada [person]\n\nBob [person]"),
        ("a.eml", lambda: mail({"photo.png": b"\x89PNG"}), 2, "photo.png: is none of"),
        ("a.pdf", lambda: encrypted_pdf("secret"), 2, "a.pdf: encrypted"),
        ("see a.pdf", None, 0, "see"),
        ("b.pdf", None, 2, "b.pdf: No such file or directory"),
    ],
)
def test_extract_reads_a_document(name, content, code, shown, tmp_path, capsys):
    if content:
        (tmp_path / name).write_bytes(content())
    given = name if " " in name else str(tmp_path / name)  # a text that names a file is no file
    assert cli.main(["extract", given, "--labels", "person"]) == code
    written = capsys.readouterr()
    assert shown in written.out + written.err
    assert written.err.count("\n") == (1 if code else 0)


@pytest.mark.parametrize("command", ["bulk", "graph"])
def test_without_the_extra_documents_are_left_out_with_what_to_install(command, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("gliner_bento.documents.base.PACKAGES", ("no_such_package",))
    (tmp_path / "a.txt").write_text("Ada")
    (tmp_path / "b.pdf").write_bytes(pdf([["Bob"]]))
    output = tmp_path / ("out.jsonl" if command == "bulk" else "out.graphml")
    for inputs, code in ((tmp_path, 2), (tmp_path / "b.pdf", 1)):
        assert cli.main([command, str(inputs), "-o", str(output), "--labels", "person"]) == code
        written = capsys.readouterr().err
        assert f"need no_such_package; {install_hint('documents')}" in written
        assert written.count("\n") == 1
