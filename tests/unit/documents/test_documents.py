"""Documents: what is read of each format, where it is, and what cannot be read."""

from __future__ import annotations

import datetime
import io
import os
import re
import signal
import zipfile
import zlib
from email import message_from_bytes, policy

import pytest

from gliner_bento.documents.base import DocumentError, DocumentTooLarge, Limits
from gliner_bento.documents.process import DocumentProcess
from gliner_bento.documents.read import document_of
from gliner_bento.errors import StartupError, install_hint
from reliability.document_files import (
    HTML,
    encrypted_pdf,
    excel,
    mail,
    part_of,
    pdf,
    rezipped,
    word,
)


def texts(content: bytes, name: str, **options) -> list[tuple[dict, str]]:
    return [(record.place, record.text) for record in document_of(content, name, **options).records]


def test_a_page_of_a_pdf_is_a_record_with_joined_words():
    pages = [["The engi-", "neer Ada met Mary-", "Ann (1842)."], [], ["Bob"]]
    assert texts(pdf(pages, comment="by Eve", field="Oslo"), "a.PDF") == [
        ({"part": "page", "page": 1}, "The engineer Ada met Mary-\nAnn (1842)."),
        ({"part": "comment", "page": 1}, "by Eve"),
        ({"part": "field", "page": 1}, "Oslo"),
        ({"part": "page", "page": 2}, ""),
        ({"part": "page", "page": 3}, "Bob"),
    ]


def test_lines_that_pages_repeat_at_their_edges_are_headers_and_footers():
    pages = [["Annual report", f"text {'abcd'[page]} of page {page}", f"Page {page} of 4"] for page in range(4)]
    found = texts(pdf(pages), "a.pdf")
    assert found[:3] == [
        ({"part": "header", "page": 1}, "Annual report"),
        ({"part": "page", "page": 1}, "text a of page 0"),
        ({"part": "footer", "page": 1}, "Page 0 of 4"),
    ]
    assert len(found) == 12
    two_pages = texts(pdf(pages[:2]), "a.pdf")
    assert [place["part"] for place, _ in two_pages] == ["page", "page"]


def test_a_page_that_is_an_image_is_named():
    document = document_of(pdf([["Ada"], []], image=True), "a.pdf")
    assert document.not_read == {"page 2": "has no text: a scan"}


def test_comments_beyond_a_limit_are_named(monkeypatch):
    monkeypatch.setattr("gliner_bento.documents.pdf._MAX_ANNOTATIONS", 1)
    document = document_of(pdf([["Ada"]], comment="by Eve", field="Oslo"), "a.pdf")
    assert [record.text for record in document.records] == ["Ada", "by Eve"]
    assert document.not_read == {"page 1: comments and fields": "are more than 1"}


def test_a_form_of_a_mail_that_is_no_body_is_named():
    calendar = message_from_bytes(b"Content-Type: text/calendar\n\nSUMMARY:Ada\n", policy=policy.default)
    message = message_from_bytes(mail(), policy=policy.default)
    message.attach(calendar)
    document = document_of(message.as_bytes(), "a.eml")
    assert [record.text for record in document.records][1:] == ["Dear Ada,\nsee below.\n"]
    assert document.not_read == {"attachment": "is none of .pdf, .docx, .xlsx, .html, .htm, .eml"}


def test_a_pdf_that_opens_without_a_password_is_read():
    assert texts(encrypted_pdf(""), "a.pdf") == [({"part": "page", "page": 1}, "Ada Lovelace")]


def test_parts_of_a_word_file_are_records():
    assert texts(word("Second."), "a.docx") == [
        ({"part": "body"}, "Dear Ada Lovelace, hello.\n\nSecond.\n\nName\tCity\nBob\tLondon"),
        ({"part": "header"}, "Of Ada Lovelace"),
        ({"part": "footer"}, "Call Bob"),
        ({"part": "comment"}, "Ask Bob"),
    ]


def test_a_text_box_is_read_once_and_a_deleted_text_is_not():
    box = (
        b'<w:p><w:r><w:t>before</w:t></w:r><w:r><mc:AlternateContent xmlns:mc="http://schemas.openxmlformats.org/'
        b'markup-compatibility/2006"><mc:Choice Requires="wps"><w:txbxContent><w:p><w:r><w:t>in a box</w:t></w:r></w:p>'
        b"</w:txbxContent></mc:Choice><mc:Fallback><w:txbxContent><w:p><w:r><w:t>in a box</w:t></w:r></w:p>"
        b"</w:txbxContent></mc:Fallback></mc:AlternateContent></w:r><w:r><w:tab/><w:t>after</w:t></w:r>"
        b'<w:del w:id="1" w:author="x"><w:r><w:delText>gone</w:delText></w:r></w:del></w:p>'
    )
    content = word()
    body = part_of(content, "word/document.xml").replace(b"<w:body>", b"<w:body>" + box)
    text = texts(rezipped(content, {"word/document.xml": body}), "a.docx")[0][1]
    assert text.startswith("before\tafter\n\nin a box\n\nDear Ada")


def test_cells_with_text_or_a_date_are_records():
    cells = {
        **{"A1": "Name", "B1": 5, "C1": datetime.date(2001, 2, 3), "D1": datetime.datetime(2001, 2, 3, 4, 5)},
        **{"A2": "Ada\nLovelace", "B2": '="Bob"', "C2": True, "AA3": "far"},
    }
    content = excel(cells)
    sheet = part_of(content, "xl/worksheets/sheet1.xml").replace(b'<c r="B2">', b'<c r="B2" t="str">')
    sheet = sheet.replace(b'<f>"Bob"</f><v></v>', b'<f>"Bob"</f><v>Bob</v>')
    assert texts(rezipped(content, {"xl/worksheets/sheet1.xml": sheet}), "a.xlsx") == [
        ({"part": "cell", "sheet": "People", "cell": "A1"}, "Name"),
        ({"part": "cell", "sheet": "People", "cell": "C1"}, "2001-02-03"),
        ({"part": "cell", "sheet": "People", "cell": "D1"}, "2001-02-03 04:05:00"),
        ({"part": "cell", "sheet": "People", "cell": "A2"}, "Ada\nLovelace"),
        ({"part": "cell", "sheet": "People", "cell": "B2"}, "Bob"),
        ({"part": "cell", "sheet": "People", "cell": "AA3"}, "far"),
        ({"part": "comment", "sheet": "People", "cell": "A1"}, "ask Bob"),
        ({"part": "cell", "sheet": "Hidden", "cell": "A1"}, "Bob was here"),
    ]


def test_the_text_of_html_is_what_a_reader_sees():
    assert texts(HTML.encode(), "a.htm") == [
        ({"part": "title"}, "A & B"),
        ({"part": "body"}, "Letter\n\nAda Lovelace lives in London.\n\nBob\tOslo\nEve\n\na\n  b\n\nend\nlast"),
    ]


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        ("<p>Zoë</p>".encode(), "utf-8"),
        ('<meta charset="latin1"><p>Zoë</p>'.encode("latin-1"), "utf-8"),
        ("<p>Zoë</p>".encode("utf-16"), "utf-8"),
        ("<p>Zoë</p>".encode("cp1252"), "cp1252"),
    ],
)
def test_html_is_read_in_its_encoding(content, encoding):
    assert texts(content, "a.html", encoding=encoding)[-1][1] == "Zoë"


def test_html_in_another_encoding_is_refused():
    with pytest.raises(DocumentError, match="not utf-8; name its encoding"):
        document_of("<p>Zoë</p>".encode("cp1252"), "a.html")


def test_a_mail_has_headers_a_body_and_attachments():
    inner = message_from_bytes(mail({"deep.html": b"<p>Eve</p>"}, html_only=True), policy=policy.default)
    attachments = {
        "../../b.docx": word(),
        "c.txt": b"Eve wrote",
        "photo.png": b"\x89PNG",
        "scan.pdf": pdf([[]]),
        "d.eml": mail(),
    }
    document = document_of(mail(attachments, inner=inner), "a.eml")
    found = [(record.place, record.text) for record in document.records]
    headers = "Subject: Ada\nFrom: Bob <bob@example.org>\nTo: ada@example.org"
    assert found[:3] == [
        ({"part": "headers"}, headers),
        ({"part": "body"}, "Dear Ada,\nsee below.\n"),
        ({"part": "body", "attachment": "b.docx"}, "Dear Ada Lovelace, hello.\n\nName\tCity\nBob\tLondon"),
    ]
    assert found[6:] == [
        ({"part": "body", "attachment": "c.txt"}, "Eve wrote"),
        ({"part": "headers", "attachment": "d.eml"}, headers),
        ({"part": "body", "attachment": "d.eml"}, "Dear Ada,\nsee below.\n"),
        ({"part": "headers", "attachment": "attachment.eml"}, headers),
        ({"part": "body", "attachment": "attachment.eml"}, "Dear Ada"),
        ({"part": "body", "attachment": "attachment.eml/deep.html"}, "Eve"),
    ]
    assert document.not_read == {
        "photo.png": "is none of .pdf, .docx, .xlsx, .html, .htm, .eml",
        "scan.pdf": "has no text: a scan, or empty",
    }


def test_messages_inside_messages_end():
    content = mail()
    for _ in range(9):
        content = mail({"more.eml": content})
    document = document_of(content, "a.eml")
    ((name, reason),) = document.not_read.items()
    assert (name.count("more.eml"), reason) == (6, "is inside more than 5 other messages")
    assert len(document.records) == 2 * 6


ENTITIES = b'<!DOCTYPE w [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>'


def with_entities(content: bytes, name: str) -> bytes:
    part = part_of(content, name)
    end = part.index(b"?>") + 2
    return rezipped(content, {name: part[:end] + ENTITIES + part[end:]})


def archive(**parts: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as one:
        for name, content in parts.items():
            one.writestr(name, content)
    return out.getvalue()


def damaged(content: bytes) -> bytes:
    return content[: len(content) // 2]


def encrypted_zip() -> bytes:
    content = bytearray(word())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        position = content.find(mark)
        content[position + offset] |= 1
    return bytes(content)


SMALL = Limits(max_bytes=2**20, max_unpacked_bytes=2**20, max_pages=3, max_chars=1000, max_records=10, max_parts=30)
REFUSED = {
    "a scan": ("a.pdf", lambda: pdf([[], []], image=True), "has no text: a scan, or empty"),
    "an encrypted PDF": ("a.pdf", lambda: encrypted_pdf("secret"), "encrypted"),
    "too many pages": ("a.pdf", lambda: pdf([["x"]] * 4), "has more than 3 pages"),
    "too many characters": ("a.pdf", lambda: pdf([["x" * 400]] * 3), "has more than 1,000 characters"),
    "half a PDF": ("a.pdf", lambda: damaged(pdf([["Ada"]])), "damaged: "),
    "no PDF": ("a.pdf", lambda: b"Ada", "damaged, or no PDF"),
    "empty": ("a.docx", lambda: b" \n", "is empty"),
    "too large": ("a.html", lambda: b"a" * 2**21, "has more than 1 MiB"),
    "half a Word file": ("a.docx", lambda: damaged(word()), "damaged: File is not a zip file"),
    "no Word file": ("a.docx", lambda: b"PK\x03\x04", "damaged: File is not a zip file"),
    "an archive": ("a.docx", lambda: archive(a=b"Ada"), "an archive, and no Word or Excel file"),
    "an old Word file": ("a.docx", lambda: b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500), "encrypted, or of an old"),
    "an encrypted archive": ("a.docx", encrypted_zip, "encrypted"),
    "an Excel file named Word": ("a.docx", excel, "is a .xlsx, and not what its suffix says"),
    "a Word file named Excel": ("a.xlsx", word, "is a .docx, and not what its suffix says"),
    "a PDF named Word": ("a.docx", lambda: pdf([["Ada"]]), "is a PDF, and not what its suffix says"),
    "a PDF named HTML": ("a.html", lambda: pdf([["Ada"]]), "is a PDF, and not what its suffix says"),
    "a Word file named mail": ("a.eml", word, "is an Office file or an archive, and not what its suffix says"),
    "an archive bomb": (
        "a.docx",
        lambda: rezipped(word(), {"word/bomb.xml": bytes(2**22)}),
        "has more than 1 MiB when",
    ),
    "many parts": ("a.docx", lambda: archive(**{f"p{one}": b"" for one in range(31)}), "has more than 30 parts"),
    "entities": ("a.docx", lambda: with_entities(word(), "word/document.xml"), "word/document.xml has a DOCTYPE"),
    "invalid XML": ("a.docx", lambda: rezipped(word(), {"word/document.xml": b"<a>"}), "damaged: word/document.xml: "),
    "deep XML": (
        "a.docx",
        lambda: rezipped(word(), {"word/document.xml": b"<a>" * 9000 + b"</a>" * 9000}),
        "damaged: word/document.xml: Excessive depth",
    ),
    "many cells": ("a.xlsx", lambda: excel({f"A{row}": "x" for row in range(1, 20)}), "has more than 10 texts"),
    "deep HTML": ("a.html", lambda: b"<div>" * 9000 + b"Ada", "is nested too deeply"),
    "binary HTML": ("a.html", lambda: b"<p>\x00</p>", "is no HTML"),
    "HTML without text": ("a.html", lambda: b"<script>var a</script>", "has no text"),
    "no mail": ("a.eml", lambda: b"Ada wrote to Bob.\n", "is no mail"),
    "another format": ("a.odt", lambda: b"Ada", "is none of .pdf"),
}


@pytest.fixture(scope="module")
def process():
    one = DocumentProcess(SMALL)
    yield one
    one.close()


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_one_line_and_the_next_document_is_read(case, process):
    name, content, reason = REFUSED[case]
    with pytest.raises(DocumentError) as caught:
        process.read(content(), name)
    assert str(caught.value).startswith(reason)
    assert "\n" not in str(caught.value)
    assert process.read(b"<p>Ada", "b.html").records[0].text == "Ada"


@pytest.mark.parametrize(
    ("limits", "content", "reason"),
    [
        (Limits(max_cpu_s=0.02), lambda: pdf([["x"]] * 500), "takes longer than 0.02 s to read"),
        (Limits(max_memory_bytes=144 * 2**20), lambda: rezipped(word(), {"b": bytes(2**27)}), "needs too much memory"),
    ],
)
def test_time_and_memory_of_a_document_are_bounded(limits, content, reason):
    one = DocumentProcess(limits)
    with pytest.raises(DocumentError, match=reason):
        one.read(content(), "a.pdf" if "longer" in reason else "a.docx")
    one.limits = Limits()
    assert one.read(b"<p>Ada", "b.html").records[0].text == "Ada"
    one.close()


_NAMESPACE = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_MEMORY = Limits(max_memory_bytes=140 * 2**20)
_PARAGRAPH = b"<p>Ada Lovelace lives in the city of London, and so on and on."
TOO_LARGE = {
    "XML": ("a.docx", _MEMORY, lambda: rezipped(word(), {"word/document.xml": b"<a>%s</a>" % (b"<b/>" * 1_000_000)})),
    "HTML": ("a.html", _MEMORY, lambda: _PARAGRAPH * 250_000),
    "a stream of a PDF": ("a.pdf", Limits(), lambda: with_stream(pdf([["x"]]), bytes(80_000_000))),
}


def with_stream(content: bytes, stream: bytes) -> bytes:
    packed = zlib.compress(stream)
    head = b"<< /Filter /FlateDecode /Length %d >>\nstream\n" % len(packed)
    first, last = content.index(b"<< /Length"), content.index(b"\nendstream")
    return content[:first] + head + packed + content[last:]


@pytest.mark.parametrize("case", TOO_LARGE)
def test_what_a_parser_has_no_memory_for_is_too_large_and_not_damaged(case):
    name, limits, content = TOO_LARGE[case]
    one = DocumentProcess(limits)
    with pytest.raises(DocumentTooLarge):
        one.read(content(), name)
    one.close()


def test_an_answer_may_take_more_memory_than_reading():
    book = excel()
    shared = f'<sst xmlns="{_NAMESPACE}"><si><t>{"漢" * 30_000}</t></si></sst>'
    rows = '<row><c t="s"><v>0</v></c></row>' * 500
    sheet = f'<worksheet xmlns="{_NAMESPACE}"><sheetData>{rows}</sheetData></worksheet>'
    link = b'<Relationship Id="s" Type="x/sharedStrings" Target="strings.xml"/></Relationships>'
    links = part_of(book, "xl/_rels/workbook.xml.rels").replace(b"</Relationships>", link)
    parts = {"worksheets/sheet1.xml": sheet.encode(), "strings.xml": shared.encode(), "_rels/workbook.xml.rels": links}
    book = rezipped(book, {f"xl/{name}": part for name, part in parts.items()})
    one = DocumentProcess(_MEMORY)
    assert len(one.read(book, "a.xlsx").records) > 500
    one.close()


def sheet_of(cells: int, name: str) -> bytes:
    book = excel()
    rows = '<row><c t="str"><v>x</v></c></row>' * cells
    sheet = f'<worksheet xmlns="{_NAMESPACE}"><sheetData>{rows}</sheetData></worksheet>'
    main = part_of(book, "xl/workbook.xml").replace(b'"People"', f'"{name}"'.encode())
    return rezipped(book, {"xl/worksheets/sheet1.xml": sheet.encode(), "xl/workbook.xml": main})


def test_names_are_cut_and_long_places_count_as_characters():
    content = mail({"../" + "a" * 5_000 + ".xlsx": sheet_of(20, "s" * 5_000)})
    document = document_of(content, "a.eml", Limits(max_chars=20_000))
    cells = [record for record in document.records if record.part == "cell" and record.text == "x"]
    assert len(cells) == 20
    for record in cells:
        assert (record.attachment, record.sheet) == ("a" * 250 + ".xlsx", "s" * 255)
    short = Limits(max_chars=20 * (255 + 255 - 100))
    reasons = document_of(content, "a.eml", short).not_read
    assert list(reasons.values()) == [f"has more than {short.max_chars:,} characters"]


def test_a_process_that_does_not_answer_is_killed():
    """The processor time is not used up: it waits, as a parser that has lost an event does."""
    one = DocumentProcess(Limits(max_cpu_s=0.1))
    one._command = ["sleep", "600"]
    sleeping = one.started()
    with pytest.raises(DocumentError, match=r"takes longer than 0\.1 s"):
        one.read(b"<p>Ada", "b.html")
    assert sleeping.returncode == -signal.SIGKILL


def test_a_process_that_somebody_has_killed_is_started_again(process):
    process.read(b"<p>Ada", "b.html")
    os.kill(process._process.pid, signal.SIGKILL)
    process._process.wait()
    assert process.read(b"<p>Ada", "b.html").records[0].text == "Ada"


def test_without_the_extra_one_line_says_what_to_install(monkeypatch, process):
    monkeypatch.setattr("gliner_bento.documents.base.PACKAGES", ("lxml", "no_such_package"))
    with pytest.raises(StartupError, match=re.escape(f"need no_such_package; {install_hint('documents')}")):
        process.read(b"<p>Ada", "b.html")
