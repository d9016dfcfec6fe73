"""The template files of the bundled model: they parse, their annotations fit, and no reserved name occurs in them."""

import random
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from training.mixing import Mixer
from training.ontology import Ontology
from training.slots import email_address, url
from training.templates import DATA, Library, TemplateError, Writer, parse_template

WORD_FILES = [
    *sorted((DATA / "templates").glob("*.txt")),
    *sorted((DATA / "held_out").glob("*.txt")),
    *sorted((DATA.parent / "probes").glob("*.txt")),
    DATA / "names.txt",
    DATA / "gazetteer.txt",
]


def test_all_files_are_read(library: Library) -> None:
    domains = {template.domain for template in library.templates}
    assert {"business", "culture", "knowledge"} <= domains
    assert len(library.templates) > 1000


def test_addresses_have_domains_that_cannot_be_learnt_by_heart(library: Library) -> None:
    rng = random.Random(2)
    mails = [email_address(rng, library.lists) for _ in range(300)]
    assert len({mail.partition("@")[2] for mail in mails}) > 150
    assert len({url(rng, library.lists).rpartition("/")[2] for _ in range(300)}) > 100


def test_mentions_are_whole_slot_values(library: Library, ontology: Ontology) -> None:
    writer, rng = Writer(library, ontology), random.Random(1)
    for template in rng.sample(library.templates, 300):
        record = writer.write(template, rng)
        assert all(0 <= m.first <= m.last < len(record.words) for m in record.mentions), record.words
        assert all(max(head, tail) < len(record.mentions) for head, tail, _ in record.relations)
        spans = sorted((m.first, m.last) for m in record.mentions)
        assert all(left[1] < right[0] for left, right in pairwise(spans)), record.words


def test_every_relation_is_declared(library: Library, ontology: Ontology) -> None:
    used = {name for template in library.templates for _, _, name in template.relations}
    assert used <= ontology.relations.keys()


def test_same_seed_same_text(library: Library, ontology: Ontology) -> None:
    writer = Writer(library, ontology)
    texts = [
        [writer.write(t, rng).words for t in library.templates[:50]] for rng in (random.Random(5), random.Random(5))
    ]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    "line",
    [
        "{person#a} met {person#a}.",
        "{person#a} met {person}. => knows(a, b)",
        "{person met {person}.",
        "{person#a} works. => works at(a)",
    ],
)
def test_malformed_templates_are_refused(line: str) -> None:
    with pytest.raises(TemplateError):
        parse_template(line, "test")


def test_relations_keep_their_direction(ontology: Ontology) -> None:
    template = parse_template("{city#b} is home to {person#a}. => lives in(a, b)", "test")
    assert template.relations == [(1, 0, "lives in")]


def test_a_crowd_has_many_facts_of_few_kinds(library: Library, ontology: Ontology) -> None:
    mixer = Mixer([], library, Writer(library, ontology), random.Random(4))
    crowds = [list(mixer.crowd()) for _ in range(60)]
    assert all(2 <= len(crowd) <= 12 for crowd in crowds)
    facts = [Counter(name for record in crowd for _, _, name in record.relations) for crowd in crowds]
    assert sum(max(names.values(), default=0) >= 5 for names in facts) > 20
    listed = [crowd for crowd in crowds if all(record.words[0] == "-" for record in crowd)]
    assert listed
    assert all(m.first > 0 for crowd in listed for record in crowd for m in record.mentions)


def test_directions_state_a_relation_and_its_converse(library: Library, ontology: Ontology) -> None:
    assert parse_template("{person#a} taught {person#b}. => teacher of(a, b); student of(b, a)", "x").converse
    assert not parse_template("{person#a} met {person#b}. => met(a, b); met(b, a)", "x").converse
    assert not parse_template("{person#a} runs {company#b}. => CEO of(a, b); led by(b, a)", "x").converse
    mixer = Mixer([], library, Writer(library, ontology), random.Random(4))
    templates = [mixer._template("directions") for _ in range(300)]
    assert all(template.converse for template in templates)
    assert {"child of", "student of", "succeeded"} <= {name for one in templates for _, _, name in one.relations}


def test_the_head_of_a_table_is_in_its_first_row_and_is_no_mention(library: Library, ontology: Ontology) -> None:
    row = parse_template("{person#a} ¦ {company#b} => works at(a, b)", "relations")
    first, *others = Writer(library, ontology).write_table("Name ¦ [Firm|Employer]", row, 4, random.Random(1))
    assert first.words[0] == "Name"
    assert min(m.first for m in first.mentions) >= 2
    assert len(others) == 3
    assert all(record.relations == [(0, 1, "works at")] for record in (first, *others))
    assert not any("¦" in word or word == "Name" for record in others for word in record.words)


@pytest.mark.parametrize("path", WORD_FILES, ids=lambda path: path.name)
def test_no_reserved_name_occurs(path: Path) -> None:
    """What the README, the tests and the examples show must be new to the model's own sentences."""
    listed = (DATA / "reserved.txt").read_text(encoding="utf-8").replace("\n", ",").split(",")
    reserved = [name.strip() for name in listed if name.strip()]
    pattern = re.compile(r"(?<!\w)(" + "|".join(map(re.escape, reserved)) + r")(?!\w)")
    found = {match.group() for match in pattern.finditer(path.read_text(encoding="utf-8"))}
    assert not found
