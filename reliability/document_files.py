"""Builds small documents: PDF by hand, Word and Excel with python-docx and openpyxl, mails with email."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from email.message import EmailMessage
from typing import Any

import docx
import openpyxl
from pypdf import PdfReader, PdfWriter

HTML = """<!DOCTYPE html><html><head><title>A &amp; B</title><style>p { color: red }</style>
<script>var secret = "Grace"</script></head><body><h1>Letter</h1><p>Ada  Love<b>lace</b>
lives in London.</p><!-- Grace --><p hidden>Grace</p><div style="display: none">Grace</div><template>Grace</template>
<input type="hidden" value="Grace"><table><tr><td>Bob</td><td>Oslo</td></tr><tr><td>Eve</td></tr></table>
<pre>a
  b</pre>end<br>last</body></html>"""


def pdf(pages: Sequence[Sequence[str]], *, comment: str = "", field: str = "", image: bool = False) -> bytes:
    """A PDF with a line of text per string."""
    streams = [_shown(lines, 50, 750) if lines else "" for lines in pages]
    return _of_streams(streams, comment=comment, field=field, image=image)


def report(pages: Sequence[Sequence[Sequence[str]]]) -> bytes:
    """A PDF whose pages have four blocks of lines: header, left column, right column, footer."""
    places = ((50, 770), (50, 730), (320, 730), (280, 30))
    shown = ["\n".join(_shown(block, *place) for block, place in zip(page, places, strict=True)) for page in pages]
    return _of_streams(shown)


def _shown(lines: Sequence[str], x: int, y: int) -> str:
    shown = "".join(f"({line.translate(_ESCAPES)}) Tj 0 -14 Td " for line in lines)
    return f"BT /F1 12 Tf {x} {y} Td {shown}ET"


def _of_streams(streams: Sequence[str], *, comment: str = "", field: str = "", image: bool = False) -> bytes:
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", "", "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    kids: list[str] = []
    for stream in streams:
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
        content = len(objects)
        annotations = ""
        if comment and not kids:
            annotations += f"<< /Type /Annot /Subtype /Text /Rect [0 0 9 9] /Contents ({comment}) >> "
        if field and not kids:
            annotations += f"<< /Type /Annot /Subtype /Widget /FT /Tx /Rect [0 0 9 9] /T (f) /V ({field}) >>"
        resources = "/Font << /F1 3 0 R >>" + (" /XObject << >>" if image else "")
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents {content} 0 R"
            f" /Annots [{annotations}] /Resources << {resources} >> >>"
        )
        kids.append(f"{len(objects)} 0 R")
    objects[1] = f"<< /Type /Pages /Count {len(kids)} /Kids [{' '.join(kids)}] >>"
    return _with_table(objects)


_ESCAPES = {ord(char): f"\\{char}" for char in "()\\"}


def _with_table(objects: Sequence[str]) -> bytes:
    out, offsets = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        offsets.append(len(out))
        out += f"{number} 0 obj\n{content}\nendobj\n".encode("latin-1")
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    end = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
    end += f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(out)}\n%%EOF\n"
    return out + end.encode()


def encrypted_pdf(password: str) -> bytes:
    """A PDF that needs a password; with an empty one it opens."""
    writer = PdfWriter(PdfReader(io.BytesIO(pdf([["Ada Lovelace"]]))))
    writer.encrypt(password, "owner", algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def word(text: str = "", **more: Any) -> bytes:
    """A Word file. `Ada Lovelace` is split over three runs; header, footer, table, comment, properties have names."""
    document = docx.Document()
    paragraph = document.add_paragraph("Dear ")
    runs = [paragraph.add_run(part) for part in ("Ada ", "Love", "lace")]
    runs[1].bold = True
    paragraph.add_run(", hello.")
    if text:
        document.add_paragraph(text)
    table = document.add_table(2, 2)
    for row, cells in enumerate((("Name", "City"), ("Bob", "London"))):
        for column, cell in enumerate(cells):
            table.cell(row, column).text = cell
    document.sections[0].header.paragraphs[0].text = "Of Ada Lovelace"
    document.sections[0].footer.paragraphs[0].text = "Call Bob"
    document.add_comment(runs, text="Ask Bob", author="Grace Hopper", initials="GH")
    document.core_properties.author = "Grace Hopper"
    document.core_properties.title = "Letter to Ada"
    for name, value in more.items():
        setattr(document.core_properties, name, value)
    return saved(document)


def excel(cells: Mapping[str, Any] | None = None, *, sheet: str = "People") -> bytes:
    """An Excel file with a comment and a hidden sheet."""
    book = openpyxl.Workbook()
    first = book.active
    first.title = sheet
    for reference, value in (cells or {"A1": "Name", "A2": "Ada", "B2": "lives in London"}).items():
        first[reference] = value
    first["A1"].comment = openpyxl.comments.Comment("ask Bob", "Grace Hopper")
    hidden = book.create_sheet("Hidden")
    hidden.sheet_state = "hidden"
    hidden["A1"] = "Bob was here"
    book.properties.creator = "Grace Hopper"
    return saved(book)


def saved(document: Any) -> bytes:
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def mail(attachments: Mapping[str, bytes] | None = None, *, html_only: bool = False, inner: Any = None) -> bytes:
    """A mail with a plain and an HTML body, and attachments. inner: a message that is attached."""
    message = EmailMessage()
    message["Subject"], message["From"], message["To"] = "Ada", "Bob <bob@example.org>", "ada@example.org"
    if html_only:
        message.set_content("<p>Dear Ada</p>", subtype="html")
    else:
        message.set_content("Dear Ada,\nsee below.\n")
        message.add_alternative("<p>Other form</p>", subtype="html")
    for name, content in (attachments or {}).items():
        message.add_attachment(content, maintype="application", subtype="octet-stream", filename=name)
    if inner is not None:
        message.add_attachment(inner)
    return message.as_bytes()


def rezipped(content: bytes, changes: Mapping[str, bytes]) -> bytes:
    """An archive with some parts changed or added."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        parts = {name: old.read(name) for name in old.namelist()} | dict(changes)
        for name, part in parts.items():
            new.writestr(name, part)
    return out.getvalue()


def part_of(content: bytes, name: str) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return archive.read(name)
