from __future__ import annotations

import random
from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gliner_bento.engine.heads.overlap import kept_spans
from gliner_bento.engine.heads.predictions import Span, SpanTable
from gliner_bento.engine.results import EntityTable, PairRelation, PassResult
from gliner_bento.engine.text.merge import Merger, RelationKey, add_relations
from gliner_bento.engine.text.windows import Cutter, Window, context
from gliner_bento.engine.text.words import Words
from gliner_bento.errors import LimitExceeded
from gliner_bento.tasks.extraction import Entity
from gliner_bento.tasks.extraction import ExtractionItem as Item

LABELS = ("person", "place", "thing")


def words_of(text: str, rng: random.Random | None = None, most_tokens: int = 1) -> Words:
    """Each token is the number of its word."""
    counts = [rng.randint(1, most_tokens) if rng else most_tokens for _ in text.split(" ")]
    ends = np.cumsum([len(word) + 1 for word in text.split(" ")]) - 1
    bounds = np.stack([ends - [len(word) for word in text.split(" ")], ends], axis=1)
    return Words(np.arange(len(counts), dtype=np.int32).repeat(counts), np.array(counts), bounds)


def columns(words: Words) -> tuple[list[Any], ...]:
    return words.token_ids.tolist(), words.counts.tolist(), words.bounds.tolist()


def cut(text: str, words: Words, chunk: int = 7, **limits: int) -> list[Window]:
    cutter = Cutter(text, **limits)
    windows = []
    for start in range(0, len(words), chunk):
        windows += cutter.push(words[start : start + chunk])
    return [*windows, *cutter.close()]


@given(
    st.lists(st.sampled_from(["a", "word", "End.", "Mr.", "so,", "長い"]), min_size=1, max_size=120),
    st.integers(1, 30),
    st.integers(4, 60),
    st.integers(0, 29),
    st.integers(1, 200),
    st.randoms(use_true_random=True),
)
def test_windows_hold_every_word_within_their_limits(
    parts: list[str], max_words: int, max_tokens: int, overlap: int, chunk: int, rng: random.Random
) -> None:
    text = " ".join(parts)
    words = words_of(text, rng, most_tokens=4)
    limits = {"max_words": max_words, "max_tokens": max_tokens, "overlap_words": min(overlap, max_words - 1)}
    windows = cut(text, words, chunk, **limits)
    assert columns(Words.joined([window.words[window.repeated :] for window in windows])) == columns(words)
    assert [window.number for window in windows] == list(range(len(windows)))
    assert [window.next_start for window in windows] == [window.start for window in windows[1:]] + [None]
    for window, following in zip([None, *windows], windows, strict=False):
        assert len(following.words) <= max_words
        assert following.words.counts.sum() == len(following.words.token_ids) <= max_tokens
        if window:
            assert following.repeated <= limits["overlap_words"]
            end = window.words[len(window.words) - following.repeated :]
            assert columns(end) == columns(following.words[: following.repeated])
    for one, other in zip(windows, cut(text, words, len(words), **limits), strict=True):
        assert (columns(one.words), one.repeated, one.next_start) == (
            columns(other.words),
            other.repeated,
            other.next_start,
        )


def test_a_text_that_fits_is_one_window() -> None:
    text = "one two three. Four five"
    (window,) = cut(text, words_of(text), max_words=5, max_tokens=5, overlap_words=2)
    assert (window.number, window.repeated, window.next_start) == (0, 0, None)


def test_windows_end_with_a_sentence_and_begin_with_one() -> None:
    sentence = "This is a sentence of eight words. "
    text = (sentence.strip() + " ") * 12
    windows = cut(text.strip(), words_of(text.strip()), max_words=24, max_tokens=99, overlap_words=10)
    assert len(windows) > 3
    for window in windows:
        assert text[window.start : window.end].startswith("This")
        assert text[window.start : window.end].endswith("words.")


def test_without_sentences_windows_end_at_words_with_full_overlap() -> None:
    text = " ".join(f"w{number}" for number in range(100))
    windows = cut(text, words_of(text), max_words=20, max_tokens=99, overlap_words=5)
    assert [len(window.words) for window in windows[:-1]] == [20] * (len(windows) - 1)
    assert [window.repeated for window in windows[1:]] == [5] * (len(windows) - 1)


def test_windows_of_few_words_make_progress() -> None:
    text = " ".join("w" for _ in range(50))
    windows = cut(text, words_of(text, most_tokens=4), max_words=40, max_tokens=9, overlap_words=30)
    assert all(len(window.words) == 2 for window in windows[:-1])
    assert all(window.repeated == 1 for window in windows[1:])


def test_context_is_the_shorter_side() -> None:
    words = words_of("aa bb cc dd ee")
    first, middle, last = Window(0, words[:3], 0, 3), Window(1, words[1:4], 2, 6), Window(2, words[2:], 2, None)
    assert context(first, 0, 2) == 6
    assert context(first, 6, 8) == 0
    assert context(middle, 3, 5) == 0
    assert context(middle, 6, 8) == 3
    assert context(last, 12, 14) == 6
    assert context(middle, 0, 2) < 0
    assert context(Window(0, words, 0, None), 0, 14) == inf


# Predictions of each window: any spans with any scores, which may depend on the window.


def found_in(window: Window, text: str, rng: random.Random) -> PassResult:
    entities = {}
    for _ in range(rng.randint(0, 12)):
        first = rng.randrange(len(window.words))
        last = min(len(window.words) - 1, first + rng.randint(0, 3))
        start, end, label = window.words[first:].start, window.words[last:][:1].end, rng.choice(LABELS)
        entities[start, end, label] = Entity(start, end, text[start:end], label, rng.randint(50, 99) / 100)
    standing = [entity for entity in entities.values() if rng.random() < 0.7]
    suppressed = [entity for entity in entities.values() if entity not in standing]
    relations = {}
    for _ in range(rng.randint(0, 4) if len(standing) > 1 else 0):
        head, tail = rng.sample(range(len(standing)), 2)
        ends = [(standing[number].start, standing[number].end) for number in (head, tail)]
        if ends[0] != ends[1]:
            relations[tuple(ends)] = PairRelation("knows", rng.randint(50, 99) / 100, head, tail)
    return PassResult(table(text, standing), table(text, suppressed), list(relations.values()))


def table(text: str, entities: Sequence[Entity]) -> EntityTable:
    columns = zip(*((e.start, e.end, LABELS.index(e.label)) for e in entities), strict=True) if entities else ((),) * 3
    start, end, label = (np.array(column, np.int64) for column in columns)
    return EntityTable(text, LABELS, start, end, label, np.array([entity.score for entity in entities]))


def merger_of(text: str, *, flat: bool = True, multi_label: bool = False, **limits: Any) -> Merger:
    return Merger(
        Item(text, dict.fromkeys(LABELS, ""), flat_ner=flat, multi_label=multi_label, **limits), LABELS, schema=False
    )


def add(merger: Merger, window: Window, *passes: PassResult) -> Sequence[Entity]:
    relations: dict[RelationKey, float] = {}
    for one in passes:
        add_relations(relations, one)
    return merger.add(window, passes, relations)


def merged_slowly(
    text: str, windows: Sequence[Window], found: Sequence[PassResult], *, flat: bool, multi_label: bool
) -> tuple[list[Entity], set[tuple[object, ...]]]:
    """The rules, applied to the whole text."""
    best: dict[tuple[int, int, str], tuple[float, Entity]] = {}
    for window, one in zip(windows, found, strict=True):
        for entity in [*one.entities, *one.suppressed]:
            key, around = (entity.start, entity.end, entity.label), context(window, entity.start, entity.end)
            if key not in best or best[key][0] < around:
                best[key] = around, entity
    whole = []
    for around, entity in best.values():
        seen_best = max(context(window, entity.start, entity.end) for window in windows)
        if around > 0 or seen_best <= 0:
            whole.append(entity)
    spans = {Span(e.start, e.end - 1, LABELS.index(e.label), e.score): e for e in whole}
    order = sorted(spans, key=lambda span: span[:3])
    item = Item("", flat_ner=flat, multi_label=multi_label)
    kept = kept_spans(SpanTable.of(order), item, within_labels=False)
    entities = [spans[order[index]] for index in kept]
    stands = {(entity.start, entity.end) for entity in entities}
    related: dict[tuple[object, ...], tuple[float, float]] = {}
    for window, one in zip(windows, found, strict=True):
        for relation in one.relations:
            head, tail = one.entities[relation.head], one.entities[relation.tail]
            key_of = relation.relation, (head.start, head.end), (tail.start, tail.end)
            around = context(window, min(head.start, tail.start), max(head.end, tail.end))
            if key_of[1] in stands and key_of[2] in stands and related.get(key_of, (-1.0, 0.0))[0] < around:
                related[key_of] = around, relation.score
    return entities, {(*key, score) for key, (_, score) in related.items()}


@settings(max_examples=150, deadline=None)
@given(
    st.integers(1, 80),
    st.integers(2, 20),
    st.integers(0, 15),
    st.booleans(),
    st.booleans(),
    st.randoms(use_true_random=True),
)
def test_merging_window_by_window_equals_merging_the_whole_text(
    length: int, max_words: int, overlap: int, flat: bool, multi_label: bool, rng: random.Random
) -> None:
    text = " ".join(rng.choice(["a", "bb", "ccc.", "Dd"]) for _ in range(length))
    windows = cut(text, words_of(text), max_words=max_words, max_tokens=999, overlap_words=min(overlap, max_words - 1))
    found = [found_in(window, text, rng) for window in windows]
    merger = merger_of(text, flat=flat, multi_label=multi_label)
    arriving = list(zip(windows, found, strict=True))
    rng.shuffle(arriving)
    streamed = [entity for window, one in arriving for entity in add(merger, window, one)]
    entities, relations = merged_slowly(text, windows, found, flat=flat, multi_label=multi_label)
    assert list(merger.entities) == entities
    assert streamed == entities
    by_span: dict[tuple[int, int], int] = {}
    for number, entity in enumerate(entities):
        by_span.setdefault((entity.start, entity.end), number)
    ours, _ = merger.relations()
    assert all(by_span[entities[r.head].start, entities[r.head].end] == r.head for r in ours)
    assert len(ours) == len(relations)
    span = {number: (entity.start, entity.end) for number, entity in enumerate(entities)}
    assert {(r.relation, span[r.head], span[r.tail], r.score) for r in ours} == relations


def test_a_piece_of_an_entity_at_an_edge_is_dropped() -> None:
    text = "we met Ada Lovelace in London"
    words = words_of(text)
    windows = [Window(0, words[:3], 0, words[1:].start), Window(1, words[1:], 2, None)]
    piece = Entity(7, 10, "Ada", "person", 0.99)
    name = Entity(7, 19, "Ada Lovelace", "person", 0.8)
    merger = merger_of(text)
    add(merger, windows[0], PassResult(table(text, [piece]), table(text, [])))
    add(merger, windows[1], PassResult(table(text, [name]), table(text, [])))
    assert list(merger.entities) == [name]


def test_an_entity_of_only_the_window_with_less_context_is_kept() -> None:
    text = "one two three four five six"
    words = words_of(text)
    windows = [Window(0, words[:4], 0, words[2:].start), Window(1, words[2:], 2, None)]
    found = Entity(8, 13, "three", "thing", 0.7)
    merger = merger_of(text)
    add(merger, windows[0], PassResult(table(text, [found]), table(text, [])))
    add(merger, windows[1], PassResult(table(text, []), table(text, [])))
    assert list(merger.entities) == [found]


def test_overlap_resolution_runs_over_all_label_groups() -> None:
    window = Window(0, words_of("Paris"), 0, None)
    person, place = Entity(0, 5, "Paris", "person", 0.6), Entity(0, 5, "Paris", "place", 0.9)
    for multi_label, stands in ((False, [place]), (True, [place, person])):
        merger = merger_of("Paris", multi_label=multi_label)
        add(merger, window, *(PassResult(table("Paris", [found]), table("Paris", [])) for found in (person, place)))
        assert list(merger.entities) == stands


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.integers(1, 8), st.integers(1, 4), st.booleans(), st.randoms(use_true_random=True))
def test_over_a_whole_text_the_best_by_score_are_kept(
    length: int, max_entities: int, max_relations: int, multi_label: bool, rng: random.Random
) -> None:
    text = " ".join(rng.choice(["a", "bb", "ccc.", "Dd"]) for _ in range(length))
    windows = cut(text, words_of(text), max_words=6, max_tokens=999, overlap_words=2)
    found = [found_in(window, text, rng) for window in windows]
    limits = {"max_entities": max_entities, "max_relations": max_relations}
    unlimited = merger_of(text, multi_label=multi_label)
    truncating = merger_of(text, multi_label=multi_label, on_limit="truncate", **limits)
    failing = merger_of(text, multi_label=multi_label, on_limit="error", **limits)
    for window, one in zip(windows, found, strict=True):
        add(unlimited, window, one)
        assert not add(truncating, window, one)
    entities = list(unlimited.entities)
    best = sorted(range(len(entities)), key=lambda index: (-entities[index].score, index))[:max_entities]
    kept = [entities[index] for index in sorted(best)]
    assert list(truncating.entities) == kept
    spans = {(entity.start, entity.end) for entity in kept}
    relations, _ = truncating.relations()
    assert len(relations) <= max_relations
    assert all((kept[end].start, kept[end].end) in spans for one in relations for end in (one.head, one.tail))
    assert ("max_entities" in truncating.cut) == (len(entities) > max_entities)
    try:
        for window, one in zip(windows, found, strict=True):
            add(failing, window, one)
        assert list(failing.entities) == entities
        assert failing.relations() == unlimited.relations()
    except LimitExceeded:
        assert len(entities) > max_entities or any(len(one.relations) > 0 for one in found)


def test_a_table_is_a_sequence_of_its_entities() -> None:
    entities = [Entity(0, 3, "Ada", "person", 0.9), Entity(4, 7, "Bob", "person", 0.8)]
    of_text = table("Ada Bob", entities)
    assert [of_text[0], of_text[1], of_text[-1]] == [entities[0], entities[1], entities[1]]
    with pytest.raises(IndexError):
        of_text[2]
