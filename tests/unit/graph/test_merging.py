"""Which names of a document are one node, which stay apart, and what that costs."""

from __future__ import annotations

import json
import random
import runpy
import sys

import pytest

from gliner_bento import cli
from gliner_bento.files.graph import build
from gliner_bento.files.graph.build import GraphBuilder, read_documents
from gliner_bento.files.graph.names import canonical, kind_of
from gliner_bento.files.records.readers import ReadOptions
from gliner_bento.files.records.sources import sources
from gliner_bento.settings.configuration import PROJECT_ROOT
from reliability.document_files import pdf

pytest.importorskip("networkx")

MEASURE = PROJECT_ROOT / "docs" / "measurements" / "merge.py"


def entities(texts, label="person"):
    return [{"text": text, "label": label, "score": 0.9} for text in texts]


def nodes(*documents, label="person"):
    """The spellings of each node of documents, each a list of names."""
    builder = GraphBuilder()
    for texts in documents:
        builder.add(entities(texts, label), [])
    graph = builder.graph()
    return sorted(
        sorted([name, *(alias["name"] for alias in aliases)])
        for name, aliases in zip(
            dict(graph.nodes(data="name")).values(), dict(graph.nodes(data="aliases")).values(), strict=True
        )
    )


@pytest.mark.parametrize(
    ("full", "other", "label", "reason"),
    [
        ("Bill Gates", "Gates", "person", "surname"),
        ("Bill Gates", "Bill", "person", "given name"),
        ("Bill Gates", "B. Gates", "person", "initials"),
        ("Bill Gates", "Gates, Bill", "person", "comma"),
        ("Bill Gates", "Dr. Bill Gates", "person", "title"),
        ("Bill Gates", "Mr Gates's", "person", "surname, possessive"),
        ("Bill Gates", "Sir Bill", "person", "given name"),
        ("Bill Gates", "ＢＩＬＬ gates", "person", "spelling"),
        ("Zoë Ødegård", "Zoe Odegard", "person", "accents"),
        ("J. R. R. Tolkien", "J.R.R. Tolkien", "person", "spelling"),
        ("Johann Sebastian Bach", "J. S. Bach", "person", "initials"),
        ("John F. Kennedy", "John Kennedy", "person", "initials"),
        ("Don Draper", "Draper", "person", "surname"),
        ("Ruth Bader Ginsburg", "Justice Ruth Ginsburg", "person", "initials, title"),
        ("Captain Yusuf Noor", "Capt. Noor", "person", "surname, title"),
        ("Mr Kim Lee", "Kim Lee", "person", "title"),
        ("Mrs Hillary Clinton", "Mrs Clinton", "person", "surname, title"),
        ("Martin Luther King", "Luther King", "person", "surname"),
        ("John F. Kennedy", "JFK", "person", "acronym"),
        ("Ludwig van Beethoven", "van Beethoven", "person", "surname"),
        ("Henry VIII", "King Henry VIII", "person", "title"),
        ("Henry VIII", "King Henry", "person", "generation"),
        ("Queen Victoria", "Victoria", "person", "title"),
        ("Sammy Davis Jr.", "Sammy Davis, Jr.", "person", "spelling"),
        ("Siân O’Neill", "Sian O'Neill", "person", "accents"),
        ("Apple", "Apple Inc.", "company", "legal form"),
        ("Apple Ltd", "Apple Limited", "company", "spelling"),
        ("Tata Motors", "The Tata Motors Co., Ltd.", "company", "article, legal form"),
        ("Tiffany", "Tiffany & Co.", "company", "legal form"),
        ("Coca-Cola", "Coca Cola", "company", "spelling"),
        ("World Trade Organization", "WTO", "organization", "acronym"),
        ("Bank of England", "BOE", "bank", "acronym"),
        ("The Guardian", "Guardian", "newspaper", "article"),
        ("Leeds Rovers", "Rovers", "sports team", "part of the name"),
        ("Leeds Rovers", "FC Leeds Rovers", "club", "legal form"),
        ("São Paulo", "Sao Paulo", "city", "accents"),
        ("Oslo", "Oslo's", "city", "possessive"),
    ],
)
def test_a_name_joins_the_only_one_that_it_can_be_and_says_why(full, other, label, reason):
    for order in ([full, full, other], [other, full, full]):
        builder = GraphBuilder()
        assert len(set(builder.add(entities(order, label), []))) == 1
        ((_, data),) = builder.graph().nodes(data=True)
        assert data["name"] == full
        assert data["aliases"] == [{"name": other, "reason": reason, "mentions": 1}]


@pytest.mark.parametrize(
    ("label", "names"),
    [
        ("person", ["Bill Gates", "Melinda Gates", "Gates"]),
        ("person", ["John Smith", "Jane Smith", "J. Smith"]),
        ("person", ["George Bush", "George W. Bush", "George H. W. Bush"][1:]),
        ("person", ["Tariq Williams Jr.", "Tariq Williams Sr.", "Tariq Williams"]),
        ("person", ["Tariq Williams", "Tariq Williams Jr."]),
        ("person", ["Louis XIV", "Louis XV"]),
        ("person", ["Harry Kane", "Prince Harry", "Harry"]),
        ("person", ["Michael Jordan", "Jordan Peterson", "Jordan"]),
        ("person", ["John Smith", "Mr Smith", "Mrs Smith"]),
        ("person", ["Mr Smith", "Dr Smith"]),
        ("person", ["Mr John Smith", "Mrs Jane Smith", "Smith"]),
        ("person", ["J. A. Smith", "J. B. Smith", "John Smith"]),
        ("person", ["J. A. Smith", "Jane Smith", "John Smith"]),
        ("person", ["Anna Smith-Jones", "Jones"]),
        ("person", ["がく", "かく"]),
        ("company", ["Siemens", "Siemens Energy"]),
        ("company", ["Merrow Corp.", "Merrow Ltd", "Merrow"]),
        ("company", ["World Trade Office", "Wide Tool Owners", "WTO"]),
        ("company", ["Blue Lagoon Spa", "Blue Lagoon"]),
        ("club", ["Leeds United", "Dover United", "United"]),
        ("city", ["New York", "York"]),
        ("product", ["Gates", "Bill Gates"]),
        ("patient id", ["A-7 31", "31"]),
        ("person", ["Bill and Melinda Gates", "Gates", "Bill"]),
        ("person", ["Bill & Melinda Gates", "Melinda"]),
        ("person", ["Йод", "Иод"]),
        ("person", ["Don Draper", "Betty Draper"]),
        ("person", ["Justice Smith", "Will Smith"]),
        ("person", ["Judge Reinhold", "Dr Mary Reinhold"]),
        ("person", ["Captain Beef", "Ida Beef"]),
        ("person", ["Sheikh Hasina", "Ali Hasina"]),
        ("person", ["Mr. Kim Lee", "Ms. Kim Lee", "Kim Lee"]),
        ("person", ["Dr. Kim Lee", "Ms. Kim Lee", "Mr. Kim Lee"]),
        ("person", ["Bill Clinton", "Mrs. Clinton"]),
        ("person", ["Helmut Kohl", "Frau Kohl"]),
        ("person", ["Charles de Gaulle", "Mme de Gaulle"]),
        ("person", ["Will de Vries", "Justice de Vries"]),
        ("person", ["Martin Luther", "Martin Luther King"]),
        ("person", ["James Dean", "James Dean Bradfield"]),
        ("city", ["Saint John", "Saint Johns", "Saint Johns's Bay"]),
    ],
)
def test_what_has_two_candidates_or_none_stays_apart(label, names):
    for order in (names, names[::-1]):
        assert nodes(order, label=label) == sorted([name] for name in names)


def test_pages_of_a_file_are_one_document_and_cells_are_not(tmp_path, capsys):
    """In rows of `bulk`, and in files that are read here."""
    place = {"part": "page", "file": "a.pdf"}
    rows = [place | {"page": page, "entities": entities([name])} for page, name in ((1, "Bill Gates"), (2, "Gates"))]
    cell = {"part": "cell", "sheet": "A", "file": "b.xlsx"}
    rows += [cell | {"entities": entities([name])} for name in ("Ada Byron", "Byron")]
    rows += [{"part": "x", "entities": entities([name])} for name in ("Jane Smith", "Smith")]  # a column of the user's
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    arguments = ["graph", str(tmp_path / "a.jsonl"), "-o", str(tmp_path / "g.graphml"), "--json"]
    assert cli.main(arguments) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["documents"], report["entities"], report["merged"]) == (5, 5, {"surname": 1})
    (tmp_path / "a.pdf").write_bytes(pdf([["Bill Gates"], ["Gates"]]))
    (tmp_path / "b.pdf").write_bytes(pdf([["Gates"]]))
    files = sources([str(tmp_path / name) for name in ("a.pdf", "b.pdf")], [], print)
    found = [place.document for place, _ in read_documents(files, "text", ReadOptions())]
    assert found[0] == found[1] != found[2]


def test_titles_say_which_of_two_is_meant():
    assert nodes(["Mr John Smith", "Mrs Jane Smith", "Mrs Smith"]) == [
        ["Mr John Smith"],
        ["Mrs Jane Smith", "Mrs Smith"],
    ]


def test_over_documents_only_equal_canonical_names_are_one_node():
    assert nodes(["Bill Gates", "Gates"], ["Gates"], ["Dr. Bill Gates"]) == [
        ["Bill Gates", "Dr. Bill Gates", "Gates"],
        ["Gates"],
    ]
    assert nodes(["Apple"], ["Apple Inc."], label="company") == [["Apple", "Apple Inc."]]
    assert nodes(["Apple"], ["Apple Inc."], ["Apple GmbH"], label="company") == [
        ["Apple"], ["Apple GmbH"], ["Apple Inc."],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("label", "documents", "expected"),
    [
        ("person", [["Mr. Kim Lee"], ["Ms. Kim Lee"]], [["Mr. Kim Lee"], ["Ms. Kim Lee"]]),
        ("person", [["Mr. Kim Lee"], ["Kim Lee"]], [["Kim Lee", "Mr. Kim Lee"]]),
        ("person", [["Kim Lee"], ["Sir Kim Lee"], ["Lady Kim Lee"]], [["Kim Lee"], ["Lady Kim Lee"], ["Sir Kim Lee"]]),
        ("person", [["Kim Lee", "Mr Lee"], ["Kim Lee", "Ms Lee"]], [["Kim Lee", "Mr Lee"], ["Kim Lee", "Ms Lee"]]),
        ("person", [["Kim Lee", "Mr Lee"], ["Kim Lee"]], [["Kim Lee", "Mr Lee"]]),
        ("person", [["Prince Carl IV"], ["Princess Carl IV"]], [["Prince Carl IV"], ["Princess Carl IV"]]),
        ("person", [["Bill Gates"], ["Bill Gates's"]], [["Bill Gates", "Bill Gates's"]]),
        ("city", [["Saint John"], ["Saint John's"]], [["Saint John"], ["Saint John's"]]),
        ("city", [["Oslo", "Oslo’s"], ["Oslo"]], [["Oslo", "Oslo’s"]]),
        ("company", [["McDonald"], ["McDonald's"]], [["McDonald"], ["McDonald's"]]),
        ("company", [["Lloyd's", "Lloyd's Co."], ["Lloyd"]], [["Lloyd"], ["Lloyd's", "Lloyd's Co."]]),
        ("company", [["Merck"], ["Merck KGaA"]], [["Merck", "Merck KGaA"]]),
        ("company", [["Merck"], ["Merck KGaA"], ["Merck Inc"]], [["Merck"], ["Merck Inc"], ["Merck KGaA"]]),
    ],
)  # fmt: skip
def test_genders_possessives_and_legal_forms_over_documents(label, documents, expected):
    for order in (documents, documents[::-1]):
        assert nodes(*order, label=label) == expected


def test_the_graph_does_not_depend_on_the_order_of_documents_or_mentions():
    documents = [
        [(label, text) for label, _, text in marks] for marks in runpy.run_path(str(MEASURE))["documents"]("names")
    ]
    graphs = set()
    for seed in range(5):
        builder, shuffle = GraphBuilder(), random.Random(seed).shuffle
        shuffle(documents)
        for mentions in documents:
            shuffle(mentions)
            found = [{"text": text, "label": label, "score": 0.5} for label, text in mentions]
            links = [{"relation": "with", "score": 0.5, "head": one, "tail": other} for one in found for other in found]
            builder.add(found, links)
        graph = builder.graph()
        graphs.add(json.dumps([list(graph.nodes(data=True)), list(graph.edges(data=True))]))
    assert len(graphs) == 1


def test_relations_of_a_part_of_a_name_are_those_of_the_node():
    builder = GraphBuilder()
    full, short, company = entities(["Bill Gates", "Gates"]) + entities(["Microsoft"], "company")
    links = [{"relation": "founded", "score": 0.5, "head": head, "tail": company} for head in (full, short)]
    builder.add([full, short, company], links)
    ((head, tail, data),) = builder.graph().edges(data=True)
    assert (head, tail, data["mentions"]) == ("person/bill gates", "company/microsoft", 2)


def test_an_end_of_a_relation_with_other_white_space_is_the_entity():
    """White space makes it longer than the names whose parts are looked at."""
    builder = GraphBuilder()
    (ada,) = entities(["Dr. Ada Lovelace"])
    spaced = ada | {"text": "Dr. Ada" + " " * 300 + "Lovelace"}
    builder.add([ada], [{"relation": "knows", "score": 0.5, "head": ada, "tail": spaced}])
    assert list(builder.graph()) == ["person/ada lovelace"]


@pytest.mark.parametrize(
    ("label", "kind"),
    [
        ("PERSON", "person"), ("company director", "person"), ("Persönlichkeit", ""), ("sports team", "team"),
        ("Organización", "organization"), ("person's employer", "organization"), ("city", ""), ("", ""),
        ("人名", "person"), ("x" * 100_000, ""), ("patient id", ""), ("company address", ""), ("person_name", "person"),
        ("name of person", "person"), ("football clubs", "team"), ("universities", ""), ("name", ""), ("bus", ""),
    ],
)  # fmt: skip
def test_a_label_says_what_it_names(label, kind):
    assert kind_of(label) == kind


@pytest.mark.parametrize(
    "text", ["Mr", "Dr. Prof.", ",", "...", "& Co.", "Ltd", "The Ltd", "Jr.", "'s", "J.", "-", "a,b,c", "'"]
)
def test_no_name_is_lost(text):
    for kind in ("person", "organization", "team", ""):
        assert canonical(text, kind).key


def calls(texts):
    """Number of function calls that a document with these names takes."""
    count = 0

    def counted(_frame, event, _argument):
        nonlocal count
        count += event in ("call", "c_call")

    build._cached_canonical.cache_clear()
    builder = GraphBuilder()
    document = entities(texts)
    sys.setprofile(counted)
    try:
        builder.add(document, [])
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("name", ["{} Gates", "B{} Gates", "B. {} Gates", "Dr {}", "Bill {} Henry Gates", "Gates {}"])
def test_the_cost_grows_with_the_number_of_names_and_not_with_its_square(name):
    small, large = (
        calls([name.format(f"X{number}") for number in range(size)] + ["Gates", "B. Gates", "Bill Gates"])
        for size in (100, 500)
    )
    assert large < 7 * small


def test_ten_thousand_mentions_of_a_surname_and_very_long_names():
    long = "Bill " + "very " * 20_000 + "Gates"
    assert nodes(["Bill Gates", *["Gates"] * 10_000, long]) == sorted(
        [["Bill Gates", "Gates"], [" ".join(long.split())]]
    )


@pytest.mark.parametrize("field", ["text", "label", "score"])
@pytest.mark.parametrize("value", [None, "", " \x00", 3, [], "nan"])
def test_a_damaged_row_is_one_line_and_can_be_skipped(tmp_path, capsys, field, value):
    if (field, value) in [("score", 3), ("label", ""), ("label", " \x00"), ("label", "nan"), ("text", "nan")]:
        return
    damaged = {"text": "Ada", "label": "person", "score": 0.5} | {field: value}
    (tmp_path / "a.jsonl").write_text(
        "\n".join(json.dumps({"entities": [one]}) for one in (damaged, entities(["Ada"])[0]))
    )
    arguments = ["graph", str(tmp_path / "a.jsonl"), "-o", str(tmp_path / "g.graphml")]
    assert cli.main(arguments) == 1
    message = "a.jsonl: line 1: not entities and relations as the API returns them\n"
    assert capsys.readouterr().err.endswith(message)
    assert cli.main([*arguments, "--skip-invalid", "--json"]) == 2
    written = capsys.readouterr()
    assert written.err.endswith(message)
    assert json.loads(written.out)["documents"] == 1


def test_merges_are_counted_in_the_report_and_can_be_turned_off(tmp_path, capsys):
    (tmp_path / "a.jsonl").write_text(
        json.dumps({"entities": entities(["Bill Gates", "Gates", "Mr Gates", "B. Gates"])})
    )
    for flags, merged, number in (([], {"initials": 1, "surname": 2}, 1), (["--merge", "none"], {}, 4)):
        assert cli.main(["graph", str(tmp_path / "a.jsonl"), "-o", str(tmp_path / "g.graphml"), "--json", *flags]) == 0
        report = json.loads(capsys.readouterr().out)
        assert (report["merged"], report["entities"]) == (merged, number)


@pytest.mark.parametrize("name", ["names", "names_later"])
def test_precision_and_recall_are_the_measured_ones(name):
    measure = runpy.run_path(str(MEASURE))
    stored = json.loads(MEASURE.with_suffix(".json").read_text(encoding="utf-8"))
    assert measure["measured"](name, "names") == stored[name]["names"]
    for pairs in ("in a document", "in a document, of different names", "in all documents"):
        assert stored[name]["names"][pairs]["precision"] >= 0.97
        assert stored[name]["names"][pairs]["recall"] >= 0.8
    assert stored[name]["names"]["documents"] >= 20
