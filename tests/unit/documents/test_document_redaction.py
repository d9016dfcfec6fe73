"""Redacted documents: Word and Excel files keep their form, and no part of a copy has an original."""

from __future__ import annotations

import html
import io
import json
import re
import zipfile

import docx
import openpyxl
import pytest

from gliner_bento import cli
from gliner_bento.documents.base import Limits
from gliner_bento.documents.edit import edited, listing_of
from gliner_bento.documents.leftovers import Originals
from gliner_bento.privacy import redact as privacy
from reliability.document_files import HTML, encrypted_pdf, excel, mail, part_of, pdf, rezipped, word
from tests.unit.documents.test_document_commands import LEFT_OUT, READABLE, UNREADABLE

NAMES = ("Ada Lovelace", "Bob", "Grace", "Eve", "ada@example.org", "bob@example.org")


def redact(*arguments: object) -> int:
    """Without a model: what a deny list has and recognizers find."""
    names = ",".join(name for name in NAMES if "@" not in name)
    return cli.main(["redact", *map(str, arguments), "--patterns-only", "--deny-list", names])


def redacted(folder, name: str, content: bytes) -> bytes:
    """The copy of a document, which must be of its format."""
    (folder / name).write_bytes(content)
    redact(folder / name, "-o", folder / f"copy-{name}")
    return (folder / f"copy-{name}").read_bytes()


def texts_of(content: bytes) -> str:
    """Everything in all parts of an archive, with and without the tags, which may divide a name."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = "\n".join(archive.read(name).decode("utf-8", "replace") for name in archive.namelist())
    return html.unescape(f"{parts}\n{re.sub('<[^>]*>', '', parts)}").replace("%20", " ")


def left_in(content: bytes) -> set[str]:
    return {name for name in NAMES if name in texts_of(content)}


def test_a_word_file_keeps_its_form_without_the_names(tmp_path):
    copy = redacted(tmp_path, "a.docx", word("Second, says ada@example.org.", last_modified_by="Eve", keywords="Bob"))
    assert left_in(copy) == set()
    document = docx.Document(io.BytesIO(copy))
    runs = [(run.text, run.bold) for run in document.paragraphs[0].runs]
    assert runs == [("Dear ", None), ("[SENSITIVE_1]", None), ("", True), ("", None), ("", None), (", hello.", None)]
    assert document.paragraphs[1].text == "Second, says [EMAIL_ADDRESS_1]."
    assert [[cell.text for cell in row.cells] for row in document.tables[0].rows] == [
        ["Name", "City"],
        ["[SENSITIVE_2]", "London"],
    ]
    section = document.sections[0]
    assert (section.header.paragraphs[0].text, section.footer.paragraphs[0].text) == (
        "Of [SENSITIVE_1]",
        "Call [SENSITIVE_2]",
    )
    (comment,) = document.comments
    assert (comment.text, comment.author, comment.initials) == ("Ask [SENSITIVE_2]", "[SENSITIVE_3]", "[PERSON_1]")
    properties = document.core_properties
    assert (properties.author, properties.last_modified_by) == ("[SENSITIVE_3]", "[SENSITIVE_4]")
    assert (properties.title, properties.keywords) == ("Letter to Ada", "[SENSITIVE_2]")


W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
BODIES = {
    "a deleted text": '<w:p><w:del w:id="1" w:author="Grace"><w:r><w:delText>Ada Love</w:delText></w:r><w:r>'
    "<w:delText>lace</w:delText></w:r></w:del></w:p>",
    "a moved text": '<w:p><w:moveFrom w:id="1" w:author="Eve"><w:r><w:t>Ada Lovelace</w:t></w:r></w:moveFrom></w:p>',
    "a copy for old programs": '<w:p><w:r><mc:AlternateContent xmlns:mc="http://schemas.openxmlformats.org/'
    'markup-compatibility/2006"><mc:Choice Requires="wps"><w:t>x</w:t></mc:Choice><mc:Fallback><w:t>Ada Lovelace</w:t>'
    "</mc:Fallback></mc:AlternateContent></w:r></w:p>",
    "a field": '<w:p><w:r><w:instrText>HYPERLINK "mailto:ada@exam</w:instrText></w:r><w:r><w:instrText>ple.org"'
    '</w:instrText></w:r><w:fldSimple w:instr="AUTHOR Bob"/></w:p>',
    "a name over a line end": "<w:p><w:r><w:t>Ada</w:t></w:r><w:r><w:tab/><w:t>Lovelace</w:t></w:r></w:p>",
    "an image": '<w:p><w:r><p:docPr xmlns:p="urn:p" id="1" name="Bob.jpg" descr="Ada Lovelace"/></w:r></w:p>',
    "a control": '<w:sdt><w:sdtPr><w:alias w:val="Bob"/><w:dropDownList><w:listItem w:displayText="Ada Lovelace"'
    ' w:value="1"/></w:dropDownList></w:sdtPr><w:sdtContent><w:p/></w:sdtContent></w:sdt>',
    "the description of a table": '<w:tbl><w:tblPr><w:tblCaption w:val="Bob"/>'
    '<w:tblDescription w:val="of Ada Lovelace"/></w:tblPr></w:tbl>',
    "a smart tag": '<w:p><w:smartTag><w:smartTagPr><w:attr w:name="x" w:val="Bob"/></w:smartTagPr></w:smartTag></w:p>',
    "a comment in a text": "<w:p><w:r><w:t>Dear <!-- Bob -->A<?x Eve?>da Lovelace</w:t></w:r></w:p>",
    "an element in a text": "<w:p><w:r><w:t>x<w:y/>Ada Lovelace</w:t></w:r></w:p>",
    "values of a form": '<w:p><w:r><w:fldChar w:fldCharType="begin"><w:ffData><w:ddList><w:listEntry '
    'w:val="Ada Lovelace"/></w:ddList></w:ffData></w:fldChar></w:r></w:p><w:sdt><w:sdtPr><w:comboBox>'
    '<w:listItem w:displayText="x" w:value="ada@example.org"/></w:comboBox>'
    '<w:date w:fullDate="1985-03-12T00:00:00Z"/></w:sdtPr><w:sdtContent><w:p/>'
    "</w:sdtContent></w:sdt>",
    "who may edit": '<w:permStart w:id="1" w:ed="bob@example.org"/>',
    "the value of a list": '<w:sdt><w:sdtPr><w:comboBox w:lastValue="Eve"/></w:sdtPr><w:sdtContent><w:p/>'
    "</w:sdtContent></w:sdt>",
    "a line for a signature": '<w:p><w:r><o:signatureline xmlns:o="urn:o" o:suggestedsigner="Grace Hopper" '
    'o:suggestedsigner2="Bob" o:suggestedsigneremail="ada@example.org"/></w:r></w:p>',
    "WordArt": '<w:p><w:r><v:textpath xmlns:v="urn:v" string="Ada Lovelace"/></w:r></w:p>',
}


def test_what_a_word_file_does_not_show_is_redacted_too(tmp_path):
    content = word()
    bodies = "".join(BODIES.values()).encode()
    body = part_of(content, "word/document.xml").replace(b"<w:body>", b"<w:body>" + bodies)
    copy = redacted(tmp_path, "a.docx", rezipped(content, {"word/document.xml": body}))
    assert left_in(copy) == set()
    assert "1985" not in texts_of(copy)
    assert "[SENSITIVE_1]\t" in [paragraph.text for paragraph in docx.Document(io.BytesIO(copy)).paragraphs]


def with_part(content: bytes, owner: str, name: str, kind: str, part: bytes, content_type: str) -> bytes:
    """A file with a further part, to which `owner` has a link."""
    folder, _, base = owner.rpartition("/")
    links = f"{folder}/_rels/{base}.rels" if folder else "_rels/.rels"
    link = f'<Relationship Id="r{kind}" Type="http://x/{kind}" Target="/{name}"/></Relationships>'
    types = f'<Override PartName="/{name}" ContentType="{content_type}"/></Types>'
    ends = {links: ("</Relationships>", link), "[Content_Types].xml": ("</Types>", types)}
    changes = {part: part_of(content, part).decode().replace(*end).encode() for part, end in ends.items()}
    return rezipped(content, {**changes, name: part})


OFFICE = "application/vnd.openxmlformats-officedocument."
FOOTNOTES = (
    f'<w:footnotes {W}><w:footnote w:id="2"><w:p><w:r><w:t>Ada Lovelace</w:t></w:r></w:p></w:footnote></w:footnotes>'
)
VALUES = {"lpwstr": "Ada Lovelace", "i8": "4111111111111111", "lpstr": "4012 8888 8888 1881"}
CUSTOM = (
    '<Properties xmlns:vt="http://schemas.openxmlformats.org/officeDocument/2006/docPropsVTypes">'
    + "".join(f'<property name="Bob"><vt:{kind}>{value}</vt:{kind}></property>' for kind, value in VALUES.items())
    + "</Properties>"
)
SERIES = "<c:ser><c:tx><c:v>{}</c:v></c:tx><c:trendline><c:name>of {}</c:name></c:trendline></c:ser>"
CHART = f'<c:chart xmlns:c="urn:c">{SERIES.format("Ada Lovelace", "Bob")}{SERIES.format("Eve", "Grace")}</c:chart>'


GLOSSARY = (
    f'<w:glossaryDocument {W}><w:docParts><w:docPart><w:docPartPr><w:name w:val="Eve"/><w:category>'
    '<w:name w:val="Bob"/></w:category></w:docPartPr></w:docPart></w:docParts></w:glossaryDocument>'
)
PARTS = {
    "word/footnotes.xml": (OFFICE + "wordprocessingml.footnotes+xml", FOOTNOTES),
    "word/people.xml": (OFFICE + "wordprocessingml.people+xml", '<people><person author="Grace Hopper"/></people>'),
    "word/charts/chart1.xml": (OFFICE + "drawingml.chart+xml", CHART),
    "docProps/custom.xml": (OFFICE + "custom-properties+xml", CUSTOM),
    "customXml/item9.xml": (
        "application/xml",
        "<a b='1' who='Grace' mails='to ada@example.org'>Ada Lovelace<c/>Bob</a>",
    ),
    "word/glossary/document.xml": (OFFICE + "wordprocessingml.document.glossary+xml", GLOSSARY),
    "docProps/thumbnail.jpeg": ("image/jpeg", "Ada Lovelace"),
}


def test_further_parts_of_a_word_file_are_redacted(tmp_path):
    content = word()
    for name, (content_type, part) in PARTS.items():
        kind = name.rpartition("/")[2].partition(".")[0]
        owner = "word/document.xml" if name.startswith("word") else ""
        content = with_part(content, owner, name, kind, part.encode(), content_type)
    copy = redacted(tmp_path, "a.docx", content)
    assert left_in(copy) == set()
    assert b"<c:v>[SENSITIVE_4]</c:v>" in part_of(copy, "word/charts/chart1.xml")
    custom = part_of(copy, "docProps/custom.xml").decode()
    assert re.findall("<vt:([^>]*)>([^<]*)<", custom)[1:] == [
        ("lpwstr", "[CREDIT_CARD_1]"),
        ("lpwstr", "[CREDIT_CARD_2]"),
    ]
    docx.Document(io.BytesIO(copy))
    with zipfile.ZipFile(io.BytesIO(copy)) as archive:
        assert set(PARTS) - set(archive.namelist()) == {"docProps/thumbnail.jpeg"}


VALUES_OF_DATA = (
    *("+44 20 7946 0958", "123-45-6789", "1980-05-03", "3.5.80", "ada", "n", "7", "王", "_ada", "true", "eve ng"),
    *("ada@example.org", "ada was here", "bob", "19"),
)


def test_every_value_of_a_format_of_somebody_s_own_is_read():
    """Also those whose names have a meaning in the format of Office."""
    values = iter(VALUES_OF_DATA)
    names = "phone", "ssn", "birth", "born", "mail", "type", "ascii", "style", "name", "path", "val"
    attributes = " ".join(f'{name}="{next(values)}"' for name in names)
    data = f"<table {attributes}>" + "<f>{}</f><created>{}</created>{}<oddHeader>{}</oddHeader></table>".format(*values)
    content = with_part(word(), "", "customXml/item9.xml", "item9", data.encode(), "application/xml")
    read = [passage.text for passage in listing_of(content, "a.docx", Limits()).passages]
    assert {*read} >= {*VALUES_OF_DATA}
    edits = {read.index(value): [(0, len(value), "REDACTED")] for value in VALUES_OF_DATA}
    part = part_of(edited(content, "a.docx", edits, Limits()), "customXml/item9.xml").decode()
    assert (part.count('"REDACTED"'), part.count(">REDACTED<")) == (len(names), 4)


@pytest.mark.parametrize(
    ("value", "is_read"),
    [
        *((value, True) for value in ("+44 20 7946 0958", "123-45-6789", "(020) 7946 0958", "1980-05-03", "3/5/80")),
        *((value, True) for value in ("born 3.5.1980.", "020 7946 0958")),
        *((value, False) for value in ("5303520", "00177234", "1980-05-03T10:00:00Z", "A1:B2 C3:XFD1048576")),
        *((value, False) for value in ("9.140625", "-1234567", "10800,-20000", "0,0,21600,21600", "16.0.4266.1001")),
        *((value, False) for value in ("{00020906-0000-0000-0000-000000000046}", "1.5E+16", "1:16384", "1 2")),
    ],
)
def test_a_number_in_an_attribute_that_we_do_not_know_is_read_if_it_is_none_of_the_format(value, is_read):
    listing = listing_of(beginning_with(f'<w:p><w:smart w:owner="{value}"/></w:p>'), "a.docx", Limits())
    assert (value in {passage.text for passage in listing.passages}) == is_read


def test_addresses_of_links_are_redacted(tmp_path):
    link = b'<Relationship Id="rL" Type="http://x/hyperlink" Target="mailto:ada@example.org" TargetMode="External"/>'
    path = link.replace(b"rL", b"rP").replace(b"mailto:ada@example.org", rb"C:\Users\Ida\a.dotx")
    rels = "word/_rels/document.xml.rels"
    content = word()
    links = part_of(content, rels).replace(b"</Relationships>", link + path + b"</Relationships>")
    copy = redacted(tmp_path, "a.docx", rezipped(content, {rels: links}))
    assert left_in(copy) == set()
    assert b'Target="mailto:%5BEMAIL_ADDRESS_1%5D"' in part_of(copy, rels)
    assert b'Target="%5BFILE_PATH_1%5D"' in part_of(copy, rels)


MAIN = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'


def shared_strings(content: bytes, strings: str, cells: str) -> bytes:
    """An Excel file whose first sheet has `cells`, with shared strings."""
    table = f"<sst {MAIN}>{strings}</sst>".encode()
    kind = OFFICE + "spreadsheetml.sharedStrings+xml"
    content = with_part(content, "xl/workbook.xml", "xl/sharedStrings.xml", "sharedStrings", table, kind)
    sheet = part_of(content, "xl/worksheets/sheet1.xml").decode()
    sheet = re.sub("<sheetData>.*</sheetData>", f"<sheetData><row r='1'>{cells}</row></sheetData>", sheet)
    return rezipped(content, {"xl/worksheets/sheet1.xml": sheet.encode()})


def test_an_excel_file_keeps_its_form_without_the_names(tmp_path, capsys):
    strings = (
        "<si><r><t>Ada </t></r><r><rPr><b/></rPr><t>Lovelace</t></r><rPh sb='0' eb='1'><t>Grace</t></rPh></si>"
        "<si><t>no name</t></si><si><t>to ada_x0040_example.org_x000D_\n_x005F_x0041_</t></si>"
    )
    cells = (
        "<c r='A1' t='s'><v>0</v></c><c r='B1' t='s'><v>1</v></c><c r='C1'><v>4111111111111111</v></c>"
        "<c r='D1' t='str'><f>UPPER(\"Bob\")&amp;A1</f><v>Eve</v></c><c r='E1' t='s'><v>0</v></c><c r='F1'><v>5</v></c>"
        "<c r='I1' t='s'><v>2</v></c><c r='J1' t='str'><v>Bob_x005F_x0041_</v></c>"
        "<c r='G1' t='str'><f>\"is \"&amp;\"Bob\"</f><v>is there</v></c>"
    )
    content = shared_strings(excel(), strings, cells)
    sheet = part_of(content, "xl/worksheets/sheet1.xml").decode()
    more = (
        '<dataValidations count="1"><dataValidation type="list" sqref="H1" prompt="for Bob"><formula1>"Ada Lovelace,x"'
        "</formula1></dataValidation></dataValidations>"
    )
    rules = (
        '<autoFilter ref="A1:B9"><filterColumn colId="0"><filters><filter val="Bob"/></filters></filterColumn>'
        "</autoFilter>"
        '<conditionalFormatting sqref="A1"><cfRule type="containsText" priority="1" operator="containsText" text="Bob">'
        '<formula>NOT(ISERROR(SEARCH("Bob",A1)))</formula></cfRule></conditionalFormatting>'
    )
    sheet = sheet.replace("<pageMargins", f"{rules}{more}<pageMargins")
    header = '<headerFooter><oddHeader>&amp;L&amp;"Arial"Bob&amp;12&amp;P</oddHeader></headerFooter>'
    sheet = sheet.replace("<legacyDrawing", f"{header}<legacyDrawing")
    content = rezipped(content, {"xl/worksheets/sheet1.xml": sheet.encode()})
    path = (
        '<mc:AlternateContent xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"><mc:Choice '
        r'Requires="x15"><a:absPath xmlns:a="urn:a" url="C:\Users\Ada Lovelace\"/></mc:Choice>'
        "</mc:AlternateContent><sheets>"
    )
    book = part_of(content, "xl/workbook.xml").replace(b"<sheets>", path.encode())
    comments = part_of(content, "xl/comments/comment1.xml").decode()
    more = '</comment><comment ref="B1" authorId="0"><text><t>came</t></text></comment>'
    comments = comments.replace("</comment>", more, 1)
    content = rezipped(content, {"xl/workbook.xml": book, "xl/comments/comment1.xml": comments.encode()})
    content = with_part(content, "xl/workbook.xml", "xl/calcChain.xml", "calcChain", b"<x>Bob</x>", "x/calcChain+xml")
    copy = redacted(tmp_path, "a.xlsx", content)
    assert left_in(copy) == set()
    assert "4111111111111111" not in texts_of(copy)
    book = openpyxl.load_workbook(io.BytesIO(copy))
    assert [cell.value for cell in book["People"][1]][:6] == [
        *("[SENSITIVE_1]", "no name", "[CREDIT_CARD_1]", "[SENSITIVE_4]", "[SENSITIVE_1]", 5),
    ]
    table = part_of(copy, "xl/sharedStrings.xml").decode()
    assert "<t>to [EMAIL_ADDRESS_1]_x000D_\n_x005F_x0041_</t>" in table
    assert book["People"]["J1"].value in ("[SENSITIVE_2]_x0041_", "[SENSITIVE_2]_x005F_x0041_")
    assert b"AlternateContent" not in part_of(copy, "xl/workbook.xml")
    assert book["People"]["G1"].value == '="is "&"[SENSITIVE_2]"'
    assert book["People"]["A1"].comment.text == "ask [SENSITIVE_2]"
    assert book["Hidden"]["A1"].value == "[SENSITIVE_2] was here"
    assert book["Hidden"].sheet_state == "hidden"
    assert "xl/calcChain.xml" not in zipfile.ZipFile(io.BytesIO(copy)).namelist()
    assert "only the text" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("original", "text", "is_in"),
    [
        ("Ada Lovelace", "of Ada Lovelace's", True),
        ("Ada Lovelace", "Ada Lovelaces", False),
        ("Ada Lovelace", "of nAda Lovelace", False),
        ("Ada Lovelace", "Ada", False),
        ("+49 30 1234", "(+49 30 1234)", True),
        (" Ada L.", "Dear Ada L.,", True),
        (" ", "Ada", False),
    ],
)
def test_an_original_is_found_as_whole_words(original, text, is_in):
    assert Originals([original, "Eve Oslo"]).is_in(text) == is_in


def test_a_search_for_originals_does_not_grow_with_their_number():
    text = "; ".join(f"Ada Byron {number}" for number in range(1000, 3000))
    numbers = [len([*Originals(f"Ada King {number}" for number in range(n)).candidates(text)]) for n in (2000, 9000)]
    assert numbers[0] == numbers[1] <= 2000 * 4  # lengths
    assert not Originals(["Ada King 1"]).is_in(text)


def test_restoring_prepares_the_originals_once(tmp_path, monkeypatch):
    cells = {f"A{row}": f"a{row}@example.org" for row in range(1, 41)}
    (tmp_path / "a.xlsx").write_bytes(excel(cells))
    copy, again, mapping = tmp_path / "b.xlsx", tmp_path / "c.xlsx", tmp_path / "m"
    assert redact(tmp_path / "a.xlsx", "-o", copy, "--mapping", mapping) == 0
    prepared = []
    real = privacy.is_placeholder
    monkeypatch.setattr(privacy, "is_placeholder", lambda text: prepared.append(text) or real(text))
    assert cli.main(["redact", "--restore", str(mapping), str(copy), "-o", str(again)]) == 0
    assert len(prepared) < 50
    assert [cell.value for (cell,) in openpyxl.load_workbook(again)["People"]] == [*cells.values()]


def beginning_with(body: str) -> bytes:
    """A Word file whose text begins with an element."""
    content = word()
    document = part_of(content, "word/document.xml").replace(b"<w:body>", f"<w:body>{body}".encode())
    return rezipped(content, {"word/document.xml": document})


SHARED_FORMULA = "<c r='A1' t='str'><f t='shared' ref='A1:A9' si='0'>B1</f><v>Ada Lovelace</v></c>"
AS_TEXT = {
    "an embedded file": ("docx", lambda: rezipped(word(), {"word/embeddings/a.bin": b"Bob"}), "word/embeddings/a.bin"),
    "a macro": ("docx", lambda: rezipped(word(), {"word/vbaProject.bin": b"Bob"}), "word/vbaProject.bin"),
    "a pivot table": (
        "xlsx",
        lambda: with_part(excel(), "xl/workbook.xml", "xl/pivot.xml", "p", b"<p>Bob</p>", "x/pivotCacheDefinition+xml"),
        "xl/pivot.xml",
    ),
    "the name of a sheet": ("xlsx", lambda: excel({"A1": "x"}, sheet="Of Bob"), "a sheet's name cannot be replaced"),
    "a shared formula": (
        "xlsx",
        lambda: shared_strings(excel(), "", SHARED_FORMULA),
        "a formula of several cells cannot be replaced",
    ),
    "a bookmark": (
        "docx",
        lambda: beginning_with('<w:bookmarkStart w:id="1" w:name="Bob"/>'),
        "a bookmark's name cannot be replaced",
    ),
    "the name of a field": (
        "docx",
        lambda: beginning_with('<w:p><w:ffData><w:name w:val="Bob"/></w:ffData></w:p>'),
        "the name of a field cannot be replaced",
    ),
    "an attribute that we do not know": (
        "docx",
        lambda: beginning_with('<w:p><w:smart w:owner="Bob" w:ascii="Eve"/></w:p>'),
        "the attribute owner of smart cannot be replaced",
    ),
    "a name in capitals in an attribute": (
        "xlsx",
        lambda: rezipped(
            excel(),
            {
                "xl/workbook.xml": part_of(excel(), "xl/workbook.xml").replace(
                    b"<workbookPr/>", b'<workbookPr codeName="GRACE"/>'
                )
            },
        ),
        "the attribute codeName of workbookPr cannot be replaced",
    ),
    "a style with a name": (
        "docx",
        lambda: rezipped(
            word(),
            {"word/styles.xml": part_of(word(), "word/styles.xml").replace(b'"Body Text"', b'"Ada Lovelace"')},
        ),
        "word/styles.xml still has a text that was to be replaced",
    ),
}


def test_a_file_whose_text_cannot_be_read_has_no_copy(tmp_path, capsys):
    (tmp_path / "a.docx").write_bytes(rezipped(word(), {"word/document.xml": b"<a>" * 9000 + b"</a>" * 9000}))
    assert redact(tmp_path / "a.docx", "-o", tmp_path / "out" / "a.docx") == 2
    assert "damaged: word/document.xml: Excessive depth" in capsys.readouterr().err
    assert [*(tmp_path / "out").iterdir()] == []


@pytest.mark.parametrize("case", AS_TEXT)
def test_of_a_file_that_cannot_be_edited_safely_the_text_is_written(case, tmp_path, capsys):
    suffix, content, reason = AS_TEXT[case]
    (tmp_path / f"a.{suffix}").write_bytes(content())
    mapping = tmp_path / "mapping.jsonl"
    arguments = (tmp_path / f"a.{suffix}", "-o", tmp_path / "out" / f"a.{suffix}", "--mapping", mapping)
    assert redact(*arguments) == 2
    written = capsys.readouterr()
    assert "only its text is written: " in written.err
    assert reason in written.err
    (copy,) = (tmp_path / "out").iterdir()
    assert copy.name == f"a.{suffix}.txt"
    assert not {name for name in NAMES if name in copy.read_text()}
    assert {json.loads(line)["file"] for line in mapping.read_text().splitlines()} == {f"a.{suffix}.txt"}


def test_every_file_of_a_mixed_folder_is_redacted_or_named(tmp_path, capsys):
    folder, out = tmp_path / "in", tmp_path / "out"
    files = {name: make() for name, make in READABLE.items()} | LEFT_OUT
    files |= {name: make() for name, (make, _) in UNREADABLE.items()}
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    mapping = tmp_path / "mapping.jsonl"
    assert redact(folder, "-o", out, "--mapping", mapping, "--json") == 2
    report = json.loads(capsys.readouterr().out)
    assert report["failed"] == {str(folder / name): reason for name, (_, reason) in UNREADABLE.items()}
    assert sorted(report["skipped"]) == sorted(str(folder / name) for name in LEFT_OUT)
    assert report["unseen"] == {f"{folder}/c/mail.eml": ["photo.png: is none of .pdf, .docx, .xlsx, .html, .htm, .eml"]}
    kept = (".txt", ".md", ".jsonl", ".csv", ".docx", ".xlsx")
    expected = {name if name.endswith(kept) else f"{name}.txt" for name in READABLE}
    assert report["as_text"] == {str(folder / name): "" for name in READABLE if not name.endswith(kept)}
    copies = {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert copies.keys() == expected
    for name, content in copies.items():
        text = texts_of(content) if name.endswith(("docx", "xlsx")) else content.decode()
        assert not {original for original in NAMES if original in text}, name
    assert redact(out, "--check") == 0
    assert cli.main(["redact", "--restore", str(mapping), str(out), "-o", str(tmp_path / "again")]) == 0
    again = docx.Document(tmp_path / "again" / "b" / "letter.docx")
    assert (again.paragraphs[0].text, again.core_properties.author) == ("Dear Ada Lovelace, hello.", "Grace Hopper")
    assert (tmp_path / "again" / "b" / "report.pdf.txt").read_text() == "Ada Lovelace\n\nBob"


@pytest.mark.parametrize(
    ("name", "content", "output", "copy"),
    [
        ("a.pdf", lambda: pdf([["of Bob"]]), "b.pdf", "b.pdf.txt"),
        ("a.pdf", lambda: pdf([["of Bob"]]), "b.txt", "b.txt"),
        ("a.html", HTML.encode, "b.html", "b.html.txt"),
        ("a.eml", mail, "b.eml", "b.eml.txt"),
        ("a.docx", word, "b.md", "b.md"),
    ],
)
def test_the_copy_of_other_documents_is_a_text_and_named_so(name, content, output, copy, tmp_path, capsys):
    (tmp_path / name).write_bytes(content())
    assert redact(tmp_path / name, "-o", tmp_path / output) == 0
    assert "; of 1 document only the text is written\n" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {name, copy}
    assert "Bob" not in (tmp_path / copy).read_text()


def test_a_copy_never_gets_the_name_of_another_file(tmp_path, capsys):
    for name in ("a.pdf", "a.pdf.txt"):
        (tmp_path / name).write_bytes(pdf([["Bob"]]) if name == "a.pdf" else b"Bob")
    assert redact(tmp_path, "-o", tmp_path.parent / "copies") == 1
    assert "a.pdf.txt: two inputs have this name" in capsys.readouterr().err
    (tmp_path / "b.docx").write_bytes(word())
    assert redact(tmp_path / "b.docx", "-o", tmp_path / "b.docx") == 1
    assert "b.docx: is an input; choose another output" in capsys.readouterr().err


def test_an_image_is_named(tmp_path, capsys):
    content = with_part(word(), "word/document.xml", "word/media/image1.png", "image", b"\x89PNG", "image/png")
    (tmp_path / "a.docx").write_bytes(content)
    assert redact(tmp_path / "a.docx", "-o", tmp_path / "b.docx") == 2
    assert "a.docx: not looked at: 'word/media/image1.png'\n" in capsys.readouterr().err


def test_a_document_is_not_sealed_as_text(tmp_path, capsys):
    (tmp_path / "a.html").write_bytes(b"<p>Bob")
    arguments = ["redact", str(tmp_path / "a.html"), "-o", str(tmp_path / "b"), "--sealed", str(tmp_path / "s")]
    assert cli.main([*arguments, "--url", "http://127.0.0.1:9"]) == 1
    assert "--sealed: give a text file, not a document" in capsys.readouterr().err


def test_an_encrypted_document_has_no_copy(tmp_path, capsys):
    (tmp_path / "a.pdf").write_bytes(encrypted_pdf("secret"))
    assert redact(tmp_path / "a.pdf", "-o", tmp_path / "b.txt") == 2
    assert f"{tmp_path}/a.pdf: encrypted\n" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["a.pdf"]
