"""Training targets: the most specific prompted type wins, the undecidable is masked, relations keep their direction."""

import random
from collections import Counter
from typing import Any

from training.naming import plural
from training.ontology import SYMMETRIC, Ontology
from training.records import Mention, Record, parse_record
from training.refine import Refiner
from training.sampling import Example, Sampler
from training.templates import Library


def sampler(ontology: Ontology) -> Sampler:
    return Sampler(ontology, {}, random.Random(0))


def record(*mentions: Mention, source: str = "news", pool: tuple[str, ...] = ("person",)) -> Record:
    return Record(["Olga", "votes", "in", "Graz"], list(mentions), source, frozenset(pool))


def ontology() -> Ontology:
    result = Ontology()
    result.add_type("politician", "person", [])
    result.add_type("city", "location", [])
    return result


def test_child_beats_parent() -> None:
    mention = Mention(0, 0, "politician")
    targets = sampler(ontology())._targets(mention, record(mention), ["person", "politician", "city"])
    assert targets == [0, 1, 0]


def test_parent_alone_is_right() -> None:
    mention = Mention(0, 0, "politician")
    assert sampler(ontology())._targets(mention, record(mention), ["city", "person"]) == [0, 1]


def test_unknown_child_is_masked_unless_annotated() -> None:
    mention = Mention(0, 0, "person")
    coarse, fine = record(mention), record(mention, pool=("person", "politician"))
    assert sampler(ontology())._targets(mention, coarse, ["person", "politician"]) == [1, -1]
    assert sampler(ontology())._targets(mention, fine, ["person", "politician"]) == [1, 0]


def test_example_targets_follow_offsets_of_the_pack() -> None:
    first = record(Mention(0, 0, "person"), Mention(3, 3, "city"), pool=("person", "city"))
    draw = sampler(ontology())
    for _ in range(20):
        example = draw.example([first, first])
        assert example.words == [*first.words, *first.words]
        assert {(a, b) for a, b, _ in example.positives} <= {(0, 0), (3, 3), (4, 4), (7, 7)}
        assert len(set(example.labels)) == len(example.labels)


def test_places_and_years_are_refined() -> None:
    text = Record(
        ["Graz", "1998"], [Mention(0, 0, "location"), Mention(1, 1, "date")], "news", frozenset({"location", "date"})
    )
    refined = Refiner({"city": ["Graz"]}).refine(text)
    assert [m.type for m in refined.mentions] == ["city", "year"]
    assert {"city", "country", "year"} <= refined.pool


def test_a_relation_whose_direction_is_not_annotated_is_neither_true_nor_false() -> None:
    mentions = [Mention(0, 0, "person"), Mention(3, 3, "person")]
    for source, known in (("redocred", False), ("fewrel_val", True)):
        text = record(*mentions, source=source)
        text.relations = [(0, 1, "child of"), (0, 1, "sibling")]
        refined = Refiner({}).refine(text)
        assert ((0, 1, "child of") in refined.relations) is known
        assert ((0, 1) in refined.unknown_pairs, (1, 0) in refined.unknown_pairs) == (not known, not known)
        assert (0, 1, "sibling") in refined.relations


def targets_of(name: str, *relations: tuple[int, int, str], shared: frozenset[str] = frozenset()) -> dict[Any, int]:
    """The targets of the pairs (head, tail) of two people in a text of the templates."""
    people = [Mention(0, 0, "person"), Mention(2, 2, "person")]
    text = record(*people, source="templates")
    text.relations, text.soft_rel_pool = list(relations), shared
    example = Example(text.words, ["person"], [name])
    sampler(ontology())._pairs(text, 0, [name], [False], example)
    return {(head, tail): target for head, tail, _, target in example.pairs}


def test_a_relation_that_holds_one_way_is_false_the_other_way() -> None:
    both_ways = (1, 0, "child of"), (0, 1, "parent of")
    shared = frozenset({"child of", "parent of", "teacher of"})
    assert targets_of("child of", *both_ways, shared=shared) == {(1, 0): 1}
    assert targets_of("parent of", *both_ways, shared=shared) == {(0, 1): 1}
    assert targets_of("teacher of", *both_ways, shared=shared) == {(0, 1): -1, (1, 0): -1}


def test_a_stage_may_ask_for_one_of_two_converses() -> None:
    people = [Mention(0, 0, "person"), Mention(2, 2, "person")]
    text = record(*people, source="templates")
    text.relations = [(1, 0, "child of"), (0, 1, "parent of")]
    text.rel_pool = frozenset({"child of", "parent of"})
    known = Ontology()
    for name in sorted(text.rel_pool):
        known.add_relation(name, [name])
    asked = [set[str](), set[str]()]
    for one_way in (False, True):
        draw = Sampler(known, {}, random.Random(0), one_way=one_way)
        for _ in range(50):
            asked[one_way].update(name.replace("_", " ") for name in draw.example([text]).relations)
    assert asked == [{"child of", "parent of"}, {"child of"}]


def test_a_symmetric_relation_holds_both_ways() -> None:
    assert targets_of("married to", (0, 1, "married to")) == {(0, 1): 1, (1, 0): 1}


def test_templates_state_symmetric_relations_both_ways_and_others_one_way(library: Library) -> None:
    stated: Counter[str] = Counter()
    mutual: Counter[str] = Counter()
    for template in library.templates:
        for head, tail, name in template.relations:
            stated[name] += 1
            mutual[name] += (tail, head, name) in template.relations
    assert {name for name in stated if mutual[name] > stated[name] / 2} <= SYMMETRIC
    assert all(mutual[name] > 0.9 * stated[name] for name in SYMMETRIC & stated.keys())
    assert not any(mutual[name] for name in stated.keys() - SYMMETRIC)


def test_words_are_split_as_served() -> None:
    raw = {
        "tokenized_text": ["The", "U.S.", "economy", "grew"],
        "ner": [[1, 1, "location"]],
        "relations": [],
        "source": "news",
        "ent_pool": ["location"],
        "rel_pool": [],
        "partial": False,
        "unknown_pairs": [],
    }
    parsed = parse_record(raw, 12)
    assert parsed is not None
    assert parsed.words == ["The", "U", ".", "S", ".", "economy", "grew"]
    assert parsed.text_of(parsed.mentions[0]) == "U . S ."


def test_plural() -> None:
    assert [plural(name) for name in ("person", "city", "job title", "phone number")] == [
        "people",
        "cities",
        "job titles",
        "phone numbers",
    ]
