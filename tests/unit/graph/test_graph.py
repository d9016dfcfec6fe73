"""Graphs: what is merged, what is counted, and that the field's readers read them."""

from __future__ import annotations

import csv
import gzip
import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import rdflib
import rdflib.compare
from doubles.memory_replica import INFO

from gliner_bento import cli
from gliner_bento.errors import install_hint
from gliner_bento.files.graph.build import GraphBuilder
from gliner_bento.files.graph.formats import FORMATS
from gliner_bento.files.graph.iris import Iris, parse_iris
from reliability.document_files import pdf
from tests.unit.bulk.bulk_program import MemoryReplica, client

nx = pytest.importorskip("networkx")


def entity(text, label="person", score=0.9):
    return {"start": 0, "end": len(text), "text": text, "label": label, "score": score}


def relation(head, name, tail, score=0.8):
    return {"relation": name, "score": score, "head": head, "tail": tail}


GATES, SHORT, MS, MSFT = (
    entity("Bill Gates"),
    entity("BILL\ngates", score=0.5),
    entity("Microsoft", "org"),
    entity("MICROSOFT", "org"),
)


@pytest.fixture
def graph():
    builder = GraphBuilder()
    builder.add([GATES, GATES, MS], [relation(GATES, "worked for", MS)])
    builder.add([SHORT, MSFT, entity("Ada \x00\ud800 & <b>", "person")], [relation(SHORT, "worked for", MSFT, 0.95)])
    builder.add([entity("Microsoft", "product")], [])
    return builder.graph()


def test_mentions_are_merged_by_label_and_normalized_name(graph):
    assert graph.nodes["person/bill gates"] == {
        "name": "Bill Gates", "label": "person", "mentions": 3, "documents": 2, "score": 0.9,
        "aliases": [{"name": "BILL gates", "reason": "spelling", "mentions": 1}],
    }  # fmt: skip
    assert graph.nodes["org/microsoft"]["mentions"] == 2
    assert graph.nodes["product/microsoft"]["mentions"] == 1
    assert list(graph.edges(data=True)) == [
        (
            "person/bill gates",
            "org/microsoft",
            {"relation": "worked for", "mentions": 2, "documents": 2, "score": 0.95},
        )
    ]


def test_a_shorter_name_is_another_entity_if_nothing_is_merged():
    builder = GraphBuilder("none")
    builder.add([GATES, entity("Gates")], [])
    assert set(builder.graph().nodes) == {"person/bill gates", "person/gates"}


def test_a_document_that_is_refused_leaves_nothing():
    builder = GraphBuilder()
    builder.add([GATES], [])
    with pytest.raises(ValueError, match="'bill gates', which is not an entity of the document"):
        builder.add([MS], [relation(MS, "founded by", GATES)])
    assert (builder.documents, list(builder.graph())) == (1, ["person/bill gates"])


def test_graphml_is_read_again(graph, tmp_path):
    FORMATS["graphml"](graph, tmp_path / "g.graphml", Iris())
    again = nx.read_graphml(tmp_path / "g.graphml", force_multigraph=True)
    aliases = {"aliases": json.dumps(graph.nodes["person/bill gates"]["aliases"])}
    assert again.nodes["person/bill gates"] == graph.nodes["person/bill gates"] | aliases
    assert again.nodes["product/microsoft"].items() < graph.nodes["product/microsoft"].items()
    assert list(again) == list(graph)
    assert list(again.edges(data=True)) == list(graph.edges(data=True))
    assert "person/ada & <b>" in again


def test_csv_has_the_headers_of_neo4j(graph, tmp_path):
    FORMATS["csv"](graph, tmp_path / "g", Iris())
    nodes, edges, merges = (
        list(csv.DictReader((tmp_path / "g" / name).read_text(encoding="utf-8").splitlines()))
        for name in ("nodes.csv", "relationships.csv", "merges.csv")
    )
    assert merges[-1] == {"id": "person/bill gates", "name": "BILL gates", "reason": "spelling", "mentions": "1"}
    assert {node["id:ID"]: node for node in nodes}["person/bill gates"] == {
        "id:ID": "person/bill gates", "name": "Bill Gates", "mentions:int": "3", "documents:int": "2",
        "score:float": "0.9", ":LABEL": "Person",
    }  # fmt: skip
    assert [edge[":TYPE"] for edge in edges] == ["WORKED_FOR"]
    ids = {node["id:ID"] for node in nodes}
    assert {edges[0][":START_ID"], edges[0][":END_ID"]} <= ids


def test_jsonld_has_an_iri_for_each_entity(graph, tmp_path):
    FORMATS["jsonld"](graph, tmp_path / "g.jsonld", Iris())
    nodes = {one["@id"]: one for one in json.loads((tmp_path / "g.jsonld").read_text())["@graph"]}
    gates = nodes["urn:gliner-bento:person/bill%20gates"]
    assert (gates["@type"], gates["name"]) == ("urn:gliner-bento:person", "Bill Gates")
    assert gates["alias"] == [{"name": "BILL gates", "reason": "spelling", "mentions": 1}]
    assert gates["urn:gliner-bento:worked%20for"] == [{"@id": "urn:gliner-bento:org/microsoft"}]


def triples(path, form):
    return rdflib.Graph().parse(path, format=form)


IRIS = {
    "base": "https://example.org/id/",
    "labels": {"person": "https://schema.org/Person"},
    "relations": {"worked for": "https://schema.org/worksFor"},
}


@pytest.mark.filterwarnings("ignore:ConjunctiveGraph is deprecated:DeprecationWarning")  # in rdflib 7's JSON-LD parser
@pytest.mark.parametrize("iris", [Iris(), parse_iris(IRIS)])
def test_turtle_has_the_triples_of_jsonld(graph, tmp_path, iris):
    """And any label, relation and name is an IRI or a literal that a parser reads."""
    hostile = entity('"Zoë" \\ \n<x> \u2028 \x85', 'a|b> "c" {d}')
    builder = GraphBuilder()
    builder.add([hostile, GATES], [relation(hostile, "^`é`\\ <>", GATES)])
    for number, written in enumerate((graph, builder.graph())):
        for kind in ("jsonld", "turtle"):
            FORMATS[kind](written, tmp_path / f"{number}.{kind}", iris)
        one, other = triples(tmp_path / f"{number}.turtle", "turtle"), triples(tmp_path / f"{number}.jsonld", "json-ld")
        assert len(one) > 5
        assert rdflib.compare.isomorphic(one, other)


@pytest.mark.parametrize("name", ["mentions", "documents", "score", "alias", "reason", "property:mentions"])
def test_a_relation_named_like_a_count_is_a_property_of_its_own(tmp_path, name):
    builder = GraphBuilder()
    builder.add([GATES, SHORT, MS], [relation(GATES, name, MS)])
    FORMATS["turtle"](builder.graph(), tmp_path / "g.ttl", Iris())
    found = triples(tmp_path / "g.ttl", "turtle")
    microsoft = rdflib.URIRef(Iris().node("org/microsoft"))
    (of_relation,) = found.predicates(None, microsoft)
    assert [*found.objects(None, of_relation)] == [microsoft]


def test_iris_of_a_mapping_replace_those_of_names(graph, tmp_path):
    FORMATS["turtle"](graph, tmp_path / "g.ttl", parse_iris(IRIS))
    found = triples(tmp_path / "g.ttl", "turtle")
    gates, schema = rdflib.URIRef("https://example.org/id/person/bill%20gates"), rdflib.Namespace("https://schema.org/")
    assert found.value(gates, rdflib.RDF.type) == schema.Person
    assert found.value(gates, schema.name).toPython() == "Bill Gates"
    assert found.value(gates, schema.worksFor) == rdflib.URIRef("https://example.org/id/org/microsoft")
    assert found.value(gates, rdflib.URIRef("urn:gliner-bento:property:mentions")).toPython() == 3
    alias = found.value(gates, rdflib.URIRef("urn:gliner-bento:property:alias"))
    assert found.value(alias, schema.name).toPython() == "BILL gates"


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        ("", [], "must be an object with base, labels, relations"),
        ("[1]", [], "must be an object with"),
        ("classes: {}", [], "must be an object with"),
        ("base: example", [], "base: 'example' is not an IRI"),
        ("base: 3", [], "base: 3 is not an IRI"),
        ("labels: {person: 'schema:Person'}", [], "labels: person: 'schema:Person' is not an IRI"),
        ("relations: {founded: 'https://x/a b'}", [], "relations: founded: 'https://x/a b' is not an IRI"),
        ("relations: {founded: 'https://x/>.<'}", [], "is not an IRI"),
        ("labels: [person]", [], "labels: must be names with IRIs"),
        ("labels: {1: 'https://x/'}", [], "labels: must be names with IRIs"),
        ("a: [", [], "invalid YAML"),
        ("base: https://x/", ["--format", "csv"], "is for the formats jsonld and turtle; this is csv"),
        ("base: https://x/", ["-o", "iris.yaml", "--format", "turtle"], "iris.yaml: is an input"),
        (None, [], "iris.yaml: No such file"),
    ],
)
def test_a_mapping_that_is_none_is_one_line(tmp_path, capsys, monkeypatch, content, arguments, message):
    monkeypatch.chdir(tmp_path)
    Path("a.jsonl").write_text(json.dumps({"entities": [GATES]}))
    if content is not None:
        Path("iris.yaml").write_text(content)
    assert cli.main(["graph", "a.jsonl", "-o", "g.ttl", "--iris", "iris.yaml", *arguments]) == 1
    written = capsys.readouterr().err
    assert (message in written, written.count("\n"), written.count("graph:")) == (True, 1, 1)
    assert not Path("g.ttl").exists()


def test_a_turtle_file_is_written_with_the_mapping(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"entities": [GATES]}))
    (tmp_path / "iris.yaml").write_text("labels: {person: 'https://schema.org/Person'}")
    arguments = [
        "graph",
        str(tmp_path / "a.jsonl"),
        "-o",
        str(tmp_path / "g.ttl"),
        "--iris",
        str(tmp_path / "iris.yaml"),
    ]
    assert cli.main(arguments) == 0
    assert "<urn:gliner-bento:person/bill%20gates> a <https://schema.org/Person>" in (tmp_path / "g.ttl").read_text()


def test_any_name_and_label_gives_files_that_are_read_again(tmp_path):
    """langchain 23367, biocypher 306: quotes, line ends and control characters. Nodes of other names stay apart."""
    hostile = entity('Apple "A";\r\nInc. <&>,\x00\x0b\ufffe\ud800', 'a "b",\n<c>')
    names = [entity("Apple", "org"), entity("Pear Inc.", "org")]
    builder = GraphBuilder()
    builder.add([hostile, *names], [relation(hostile, 'is "at"\r\n<x>', names[0])])
    for kind, write in FORMATS.items():
        write(builder.graph(), tmp_path / kind, Iris())
    assert len(nx.read_graphml(tmp_path / "graphml")) == 3
    assert len(json.loads((tmp_path / "jsonld").read_text(encoding="utf-8"))["@graph"]) == 3
    assert len(set(triples(tmp_path / "turtle", "turtle").subjects())) == 3
    for name, number in (("nodes.csv", 3), ("relationships.csv", 1)):
        with (tmp_path / "csv" / name).open(newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file)
        assert [len(row) for row in rows] == [len(header)] * number


def test_results_of_many_files_become_one_graph(tmp_path, capsys):
    (tmp_path / "in").mkdir()
    rows = [{"text": "x", "entities": [GATES, MS], "relations": [relation(GATES, "founded", MS)], "error": None}]
    rows += [{"text": "y", "entities": None, "relations": None, "error": "text: too long"}]
    (tmp_path / "in" / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "in" / "b.jsonl.gz").write_bytes(gzip.compress(json.dumps({"entities": [MSFT]}).encode()))
    assert cli.main(["graph", str(tmp_path / "in"), "-o", str(tmp_path / "g.graphml"), "--json"]) == 2
    written = capsys.readouterr()
    place = f"{tmp_path}/in/a.jsonl: line 2"
    assert json.loads(written.out) == {
        "documents": 2, "entities": 2, "relations": 1, "merged": {"spelling": 1},
        "failed": {place: "text: too long"}, "warnings": {}, "left_out": {},
    }  # fmt: skip
    assert written.err == f"gliner-bento: graph: {place}: text: too long\n"
    assert len(nx.read_graphml(tmp_path / "g.graphml")) == 2


def test_documents_in_another_language_are_named(tmp_path, capsys, commands_call):
    commands_call(lambda *_: client(MemoryReplica(replace(INFO, languages=["en"]))))
    for name, text in (("a", "Привет, как дела?"), ("b", "Что нового?"), ("c", "What is new in Oslo?")):
        (tmp_path / f"{name}.txt").write_text(text)
    arguments = ["graph", str(tmp_path), "-o", str(tmp_path / "g.graphml"), "--labels", "city", "--json"]
    assert cli.main(arguments) == 2
    written = capsys.readouterr()
    ((message, number),) = json.loads(written.out)["warnings"].items()
    assert (number, "Cyrillic" in message) == (2, True)
    assert written.err == f"gliner-bento: graph: 2 documents: {message}\n"
    assert (tmp_path / "g.graphml").exists()


@pytest.fixture
def memory_client(commands_call):
    commands_call()


def test_the_pages_that_a_model_reads_are_one_document(tmp_path, capsys, memory_client):
    """Also if rows that have a result are read between them."""
    (tmp_path / "a.pdf").write_bytes(pdf([["Oslo"], ["Bergen"], ["Tromso"]]))
    (tmp_path / "b.jsonl").write_text(json.dumps({"entities": [GATES]}) + "\n")
    (tmp_path / "c.pdf").write_bytes(pdf([["Oslo"], ["Bergen"]]))
    arguments = ["graph", str(tmp_path), "-o", str(tmp_path / "g.graphml"), "--labels", "city", "--json"]
    assert cli.main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["documents"] == 3


@pytest.fixture
def mixed(tmp_path):
    """A folder with two texts, nine things that are left out, and files of operating systems."""
    folder = tmp_path / "in"
    (folder / "more").mkdir(parents=True)
    for name in ("a.txt", "more/b.md", "c.ODT", "more/d.odt", ".notes.txt", "more/README", "t.tar.gz", "p.parquet.gz"):
        (folder / name).write_text("Oslo")
    (folder / "linked").symlink_to(tmp_path)
    (folder / ".git").mkdir()
    (folder / ".git" / "x.txt").write_text("Oslo")
    (folder / "__MACOSX").mkdir()
    for name in (".DS_Store", "Thumbs.db", "more/desktop.ini", "__MACOSX/a.txt"):
        (folder / name).write_text("Oslo")
    os.mkfifo(folder / "pipe.txt")
    return folder


LEFT_OUT = {
    "hidden": 3, ".odt": 2, "linked folder": 1, ".parquet.gz": 1, "not a file": 1, ".tar.gz": 1, "without a suffix": 1,
}  # fmt: skip


@pytest.mark.parametrize("command", ["graph", "bulk"])
def test_what_is_left_out_of_a_folder_is_counted_by_suffix_and_is_code_2(command, mixed, capsys, memory_client):
    output = mixed / ("out.graphml" if command == "graph" else "out.jsonl")  # no input, and not left out
    more = ["--overwrite"] if command == "bulk" else []
    arguments = [command, str(mixed), "-o", str(output), "--labels", "city", *more]
    for as_json in ([], ["--json"]):
        assert cli.main([*arguments, *as_json]) == 2
        written = capsys.readouterr()
        (line,) = (line for line in written.err.splitlines() if "left out" in line)
        assert line.startswith(f"gliner-bento: {command}: left out: 3 hidden, 2 .odt, ")
        assert all(f"{number} {kind}" in line for kind, number in LEFT_OUT.items())
        assert not as_json or json.loads(written.out)["left_out"] == LEFT_OUT
    for path in (mixed / "a.txt", mixed / "more" / "b.md", output):
        path.unlink()
    assert cli.main(arguments) == 1
    written = capsys.readouterr().err
    assert (written.count("\n"), "left out: 3 hidden" in written) == (1, True)


@pytest.mark.parametrize("command", ["graph", "bulk"])
def test_hidden_files_are_counted_and_need_no_attention(command, tmp_path, capsys, memory_client):
    for name in ("a.txt", ".env", ".DS_Store"):
        (tmp_path / name).write_text("Oslo")
    output = tmp_path / ("out.graphml" if command == "graph" else "out.jsonl")
    assert cli.main([command, str(tmp_path), "-o", str(output), "--labels", "city"]) == 0
    assert "left out: 1 hidden; " in capsys.readouterr().err


def test_a_folder_that_cannot_be_read_is_an_error(tmp_path, capsys, monkeypatch):
    """Its path is too long: a folder without permission is readable for root."""
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("Oslo")
    for _ in range(20):
        name = "n" * 240
        os.mkdir(name)
        os.chdir(name)
    os.chdir(tmp_path)
    try:
        for command in (["graph", "-o", "g.graphml"], ["bulk", "-o", "o.jsonl", "--url", "http://127.0.0.1:9"]):
            assert cli.main([*command, str(tmp_path), "--labels", "city"]) == 1
            written = capsys.readouterr().err
            assert written.startswith(f"gliner-bento: {command[0]}: {tmp_path}/n")
            assert written.count("\n") == 1
        assert cli.main(["redact", str(tmp_path), "--check"]) == 2
        assert "skipped" in capsys.readouterr().out
    finally:
        subprocess.run(["rm", "-r", "n" * 240], check=True)


def test_no_graph_is_written_if_every_document_has_failed(tmp_path, capsys):
    (tmp_path / "a.jsonl").write_text('{"text": "y", "entities": null, "error": "text: too long"}\n')
    assert cli.main(["graph", str(tmp_path / "a.jsonl"), "-o", str(tmp_path / "g.graphml")]) == 2
    assert capsys.readouterr().out == ""
    assert not (tmp_path / "g.graphml").exists()


@pytest.mark.parametrize(("flag", "documents", "place"), [([], 2, "in/b.jsonl"), (["--skip-invalid"], 3, "line 2")])
def test_what_cannot_be_read_is_skipped_and_the_others_are_in_the_graph(tmp_path, capsys, flag, documents, place):
    (tmp_path / "in").mkdir()
    rows = [json.dumps({"entities": [one], "name": "Malm\xf6"}, ensure_ascii=False) for one in (GATES, MS)]
    (tmp_path / "in" / "a.jsonl").write_bytes("\n".join(rows).encode("latin-1"))
    (tmp_path / "in" / "b.jsonl").write_text(f"{json.dumps({'entities': [GATES]})}\n{{broken\n")
    arguments = ["graph", str(tmp_path / "in"), "-o", str(tmp_path / "g.graphml"), "--encoding", "latin-1", *flag]
    assert cli.main([*arguments, "--json"]) == 2
    report = json.loads(capsys.readouterr().out)
    assert report["documents"] == documents
    (failed,) = report["failed"]
    assert failed.endswith(place)


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        ("{", ["-o", "g.graphml"], "a.jsonl: line 1: Input data was truncated"),
        ('{"entities": [{"text": "a"}]}', ["-o", "g.graphml"], "a.jsonl: line 1: not entities and relations"),
        ('{"txt": "a"}', ["-o", "g.graphml"], "a.jsonl: line 1: has neither 'entities' nor a text 'text'"),
        ('{"text": "a"}', ["-o", "g.graphml"], "--labels is required for texts"),
        ('{"text": "a"}', ["-o", "g.graphml", "--labels", "b", "--threshold", "3"], "threshold: Input should be less"),
        ("{}", ["-o", "g.xml"], "--output: .xml is no known suffix"),
        ("{}", ["-o", "a.jsonl", "--format", "jsonld"], "a.jsonl: is an input; choose another output"),
        ("{}", [], "the following arguments are required"),
    ],
)
def test_what_cannot_be_a_graph_is_one_line(tmp_path, capsys, monkeypatch, content, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.jsonl").write_text(content + "\n")
    assert cli.main(["graph", "a.jsonl", *arguments]) == 1
    written = capsys.readouterr().err
    assert message in written
    assert written.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_the_files_of_a_csv_graph_are_no_inputs(tmp_path, capsys):
    (tmp_path / "nodes.csv").write_text("text\nAda\n")
    assert cli.main(["graph", str(tmp_path), "-o", str(tmp_path), "--format", "csv", "--labels", "person"]) == 1
    assert "nodes.csv: is an input" in capsys.readouterr().err
    assert (tmp_path / "nodes.csv").read_text() == "text\nAda\n"


def test_without_networkx_the_extra_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("gliner_bento.cli.graph.find_spec", lambda name: None)
    assert cli.main(["graph", "a.jsonl", "-o", "g.graphml"]) == 1
    assert capsys.readouterr().err == (
        "gliner-bento: graph: networkx is not installed; " + install_hint("graph") + "\n"
    )
