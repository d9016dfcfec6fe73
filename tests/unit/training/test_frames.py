"""Frames, noise and the probe suite: what is denied is asked, what is held out is never trained, probes are new."""

import random
import re
from collections import Counter
from math import prod

import pytest

pytest.importorskip("gliner")

from training.frames import ALTERNATIVES, parse_frame, spread
from training.noise import noisy
from training.ontology import Ontology
from training.questions import PROBES, QUESTIONS, parse_question, read_questions
from training.records import Mention, Record, split_words
from training.sampling import Sampler
from training.templates import DATA, Library, Writer, load_library, parse_template

pytestmark = pytest.mark.long


def test_a_line_that_denies_has_no_relation_and_asks_for_it() -> None:
    frame = parse_frame("@frame person#a, company#b : founded(a, b); founded by(b, a)")
    states, denies = (parse_template(frame.expand(line), "x") for line in ("+ {a} set up {b}.", "- {a} sued {b}."))
    assert states.relations == [(0, 1, "founded"), (1, 0, "founded by")]
    assert denies.relations == []
    assert denies.denied == states.relations


def test_alternatives_with_slots_become_templates_and_plain_ones_stay() -> None:
    lines = list(spread("{person} [left|quit] [{company}|the office]."))
    assert lines == ["{person} [left|quit] {company}.", "{person} [left|quit] the office."]


def test_what_a_text_denies_is_in_the_prompt_as_false(library: Library, ontology: Ontology) -> None:
    template = parse_template("{person#a} did not found {company#b}. => not founded(a, b)", "relations")
    record = Writer(library, ontology).write(template, random.Random(1))
    assert record.asked == {"founded"}
    names = ontology.relation_names("founded")
    draw = Sampler(ontology, {}, random.Random(3))
    examples = [draw.example([record]) for _ in range(100)]
    asked = [
        example for example in examples if names & {label.replace("_", " ").lower() for label in example.relations}
    ]
    assert len(asked) > 50
    assert not any(target == 1 for example in examples for *_, target in example.pairs)


def test_sixty_relations_have_thirty_phrasings(library: Library) -> None:
    phrasings: Counter[str] = Counter()
    for template in library.templates:
        if template.domain == "relations":
            choices = prod(choice.count("|") + 1 for piece in template.pieces for choice in ALTERNATIVES.findall(piece))
            phrasings.update({name: choices for name in {name for _, _, name in template.triples}})
    assert sum(count >= 30 for count in phrasings.values()) >= 60


def test_held_out_names_are_never_trained(library: Library, ontology: Ontology) -> None:
    extended = Ontology()
    declared = load_library(extended, held_out=True)
    trained = {name for known in ontology.synonyms for name in ontology.name_set(known)}
    for kind in declared.types["held_out"]:
        assert not extended.name_set(kind) & trained, kind
    for relation in declared.relations["held_out"]:
        assert relation not in ontology.relations, relation
    assert len(declared.types["held_out"]) >= 15
    assert len(declared.relations["held_out"]) >= 12


def test_noise_keeps_mentions() -> None:
    words = [word for word, _, _ in split_words("Please send the parcel, and call Orla Finch at Tarnhelm before noon.")]
    record = Record(words, [Mention(7, 8, "person"), Mention(10, 10, "company")], "templates", frozenset())
    rng = random.Random(2)
    copies = [noisy(record, rng) for _ in range(200)]
    assert sum(copy.words != words for copy in copies) > 100
    assert (
        sum([copy.text_of(mention) for mention in copy.mentions] == ["Orla Finch", "Tarnhelm"] for copy in copies) > 150
    )
    assert all(
        m.last - m.first == n.last - n.first
        for copy in copies
        for m, n in zip(copy.mentions, record.mentions, strict=True)
    )


def test_probes_are_many_and_their_answers_are_asked() -> None:
    probes = list(read_questions(PROBES))
    assert len(probes) >= 150
    assert {probe.noise for probe in probes} >= {"none", "typos", "chat", "spacing"}
    assert sum(len(question.related) for question in read_questions(QUESTIONS)) >= 200
    assert any(len(probe.related) >= 8 for probe in probes)
    assert any("\n" in probe.text for probe in probes)
    with pytest.raises(ValueError, match="not asked"):
        parse_question("[Orla](person) left.", {"types": "city", "domain": "x"})


def test_names_of_the_probes_are_not_trained() -> None:
    """Names of people, companies and works do not occur in word lists and templates.

    Blind probes and those of an encyclopedia may name anybody.
    """
    kinds = {"person", "company", "username", "film", "book", "song", "album", "sports team", "email address"}
    probed = {
        probe.text[start:end].lower()
        for probe in read_questions(PROBES)
        for start, end, kind in probe.entities
        if kind in kinds and not probe.domain.startswith(("blind", "encyclopedia"))
    }
    files = [DATA / "names.txt", *sorted((DATA / "templates").glob("*.txt"))]
    trained = " ".join(path.read_text(encoding="utf-8").lower() for path in files)
    assert [name for name in sorted(probed) if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", trained)] == []
