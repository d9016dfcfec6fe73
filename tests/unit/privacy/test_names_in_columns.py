"""Names in the columns of tables."""

from __future__ import annotations

import pytest

from gliner_bento.privacy.announced_names import announced_names
from gliner_bento.privacy.names_in_columns import names_in_columns
from gliner_bento.privacy.near import Clues

TABLES = {
    "id,first_name,last_name,email\n1,[Wilhelmina],[Ostrowski],w@x.example\n2,[Bo],[Ek],": "CSV",
    'id;"Last name";sum\r\n1;"[van der Meer; Jr]";5\r\n2;"[Ng]";6\r\n': "in quotation marks",
    "Name\tPhone\n[ada ng]\t12\n[Bo]\t13": "tabs",
    "| Name | Phone |\n|:--|---|\n| [Ada Ng] | 12 |\n| **[Bo Ek]** | 13 |": "Markdown",
    "Nachname;Vorname;Ort\n[Müller];[Anke];Ulm": "German",
    "surname,age\n[Ng],5\nAn end, which has three, commas\nOk,6": "behind the table",
    "customer name,sum\n,1\n-,2\nN/A,3\n[Zoe],4\nTotal,9": "no names",
    "Name | Ada Ng\nEmergency contact | Bo Ek\nPhone | 5": "a form",
    "Surname\tFirst name\n[Ng]\t[Ada]\nClass\tAdult\nFee\t310": "a form with titles above values",
    "name,price\nBlue mug,4\nRed mug,5": "products",
    "Send your name, phone and email\nAda, 5, 6": "a sentence",
    "name,email": "a header alone",
}


@pytest.mark.parametrize("marked", TABLES, ids=TABLES.values())
def test_names_in_columns(marked):
    text = marked.replace("[", "").replace("]", "")
    expected = [part.split("]")[0] for part in marked.split("[")[1:]]
    spans = [*names_in_columns(Clues(text))]
    assert [text[span.start : span.end] for span in spans] == expected
    assert {span.label for span in spans} <= {"person"}


def test_the_title_of_a_column_is_no_name_of_the_one_before_it():
    for text, names in [
        ("Name\tPhone\nx\t1", []),
        ("Name\tBogdan Ionescu", ["Bogdan Ionescu"]),
        ("Surname: Price", ["Price"]),
    ]:
        assert [text[span.start : span.end] for span in announced_names(Clues(text))] == names


def test_a_cell_that_is_not_closed_ends_with_its_line():
    """In linear time: with each cell read to the end of the text, it would not end."""
    for cell in ('"a', '"a"",', '""",', "a,"):
        text = "name,email\n" + cell * 50_000 + "\n" + "name,email\n" * 5_000
        assert not any(span.end - span.start > 60 for span in names_in_columns(Clues(text)))
