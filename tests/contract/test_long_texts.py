"""Long texts: each window gives gliner's results, and they are merged by the rules."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from checkpoints import LABELS, POSITIONS, RELATIONS, TEXTS, load_engine, named
from chunked_requests import LIVELY, extract_in_passes, long_text, many, passes_of
from comparison import assert_same, extract_one, gliner_extraction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gliner_bento.engine.checkpoint.find import ModelError
from gliner_bento.engine.engine import GLiNEREngine
from gliner_bento.errors import GLiNERBentoError, InvalidField
from gliner_bento.tasks.extraction import ExtractionItem as Item

FAMILIES = ["span", "token", "token-spans", "bi-span", "bi-token", "relex-span", "relex-token", "relex-span-gcn"]


@pytest.mark.parametrize("family", FAMILIES)
def test_each_window_gives_gliners_results(family: str, engine: Any, reference: Any) -> None:
    served, model = engine(family, **LIVELY), reference(family, **LIVELY)
    relations = named(RELATIONS[:2]) if served.info.supports_relations else {}
    # With many spans, gliner's own relation head of a token model takes minutes.
    sentences, threshold = (12, 0.7) if family == "relex-token" else (40, 0.3)
    item = Item(long_text(3, sentences), named(LABELS[:3]), relations, threshold=threshold, relation_threshold=0.3)
    prepared = served.prepare(item)
    windows = 0
    assert prepared.chunked is not None
    while not prepared.chunked.exhausted:
        for one in prepared.chunked.next_passes():
            windows += 1
            start, end = one.payload.words[0][0], one.payload.words[-1][1]
            expected = gliner_extraction(model, replace(item, text=item.text[start:end]))
            answer = served.decode(served.forward(served.collate([one]), 1))[0]
            moved = [replace(e, start=e.start - start, end=e.end - start) for e in answer.entities]
            assert_same(replace(answer, entities=moved), expected)
            assert one.words <= served.info.max_words
            assert one.tokens <= POSITIONS
    assert windows > 2


@pytest.mark.parametrize("family", ["span", "relex-span", "bi-token"])
def test_the_order_in_which_passes_end_does_not_matter(family: str, engine: Any) -> None:
    served = engine(family, **LIVELY)
    relations = named(RELATIONS) if served.info.supports_relations else {}
    item = Item(long_text(5, 15), named(LABELS), relations, threshold=0.3, relation_threshold=0.3)
    expected = extract_in_passes(served, item)
    assert expected.entities
    for seed in range(3):
        assert passes_of(served, item, seed)[0] == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_the_merged_result_is_consistent(family: str, engine: Any) -> None:
    served = engine(family, **LIVELY)
    relations = named(RELATIONS) if served.info.supports_relations else {}
    item = Item(long_text(7), named(LABELS), relations, threshold=0.4, relation_threshold=0.4, max_relations=10**6)
    answer, passes = passes_of(served, item)
    assert all(item.text[entity.start : entity.end] == entity.text for entity in answer.entities)
    assert [entity.start for entity in answer.entities] == sorted(entity.start for entity in answer.entities)
    spans = [(entity.start, entity.end) for entity in answer.entities]
    assert all(one[1] <= other[0] for one, other in pairwise(spans))
    assert answer.truncated_at is None
    assert (answer.usage.windows, answer.usage.label_groups) == (len(passes), 1)
    assert answer.usage.tokens == sum(one.tokens for one in passes)
    words = {word for one in passes for word in one.payload.words}
    assert answer.usage.words == len(words)
    assert max(end for _, end in words) == len(item.text)
    for relation in answer.relations:
        assert relation.head.entity_idx != relation.tail.entity_idx
        assert max(relation.head.entity_idx, relation.tail.entity_idx) < len(answer.entities)


def test_a_chunked_request_is_not_batched(engine: Any) -> None:
    served = engine("span", **LIVELY)
    with pytest.raises(ValueError, match="chunked request"):
        served.collate([served.prepare(Item(long_text(1), named(LABELS)))])


def test_a_text_that_fits_takes_one_pass(engine: Any) -> None:
    served = engine("relex-span", **LIVELY)
    item = Item(TEXTS[1], named(LABELS), named(RELATIONS), threshold=0.2)
    assert served.prepare(item).chunked is None
    answer = extract_one(served, item)
    assert (answer.usage.windows, answer.usage.label_groups, answer.usage.relation_groups) == (1, 1, 1)


def test_windows_have_the_requested_length(engine: Any) -> None:
    served = engine("span", **LIVELY)
    item = Item(long_text(9, 10), named(LABELS), window_words=10, window_overlap_words=4)
    _, passes = passes_of(served, item)
    assert max(one.words for one in passes) == 10
    places = [set(one.payload.words) for one in passes]
    shared = [len(one & other) for one, other in pairwise(places)]
    assert max(shared) == 4
    _, apart = passes_of(served, replace(item, window_overlap_words=0))
    assert sum(one.words for one in apart) == len(set().union(*places))


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"window_words": 49}, "window_words"),
        ({"window_words": 8, "window_overlap_words": 8}, "window_overlap_words"),
        ({"window_overlap_words": 48}, "window_overlap_words"),
    ],
)
def test_refuses_impossible_windows(options: dict[str, int], param: str, engine: Any) -> None:
    for text in ("Paris", " "):
        with pytest.raises(InvalidField) as raised:
            engine("span", **LIVELY).prepare(Item(text, named(LABELS), **options))
        assert raised.value.param == param


def test_the_settings_are_the_defaults_of_requests(checkpoint: Any, engine: Any) -> None:
    def load(**options: int) -> GLiNEREngine:
        return load_engine(checkpoint("span", **LIVELY), **options)

    item = Item(long_text(9, 10), named(LABELS))
    windowed = replace(item, window_words=12, window_overlap_words=3)
    expected = extract_in_passes(engine("span", **LIVELY), windowed)
    assert extract_in_passes(load(window_words=12, window_overlap_words=3), item) == expected
    assert extract_in_passes(load(window_words=12, window_overlap_words=9), item) == expected  # a quarter of the window
    assert extract_in_passes(load(window_words=20), windowed) == expected
    assert load(max_labels_per_pass=4).info.max_labels_per_pass == 4
    assert engine("span", **LIVELY).info.max_labels_per_pass == 25
    assert engine("bi-span", **LIVELY).info.max_labels_per_pass is None
    with pytest.raises(ModelError, match="window_words is 49"):
        load(window_words=49)


UNBROKEN = {
    "one word without end": "z" * 100_000,
    "Chinese": "张三在北京工作李四在上海" * 2000,
    "Japanese": "東京都に住んでいます。" * 2000,
    "Thai": "เขามาจากกรุงเทพมหานคร" * 2000,
    "one grapheme without end": "e" + "\u0301" * 20_000 + " Paris",
    "hyphens": "a-" * 30_000,
    "emoji": "👩‍👩‍👧" * 5000,
}


@pytest.mark.parametrize("text", UNBROKEN.values(), ids=UNBROKEN.keys())
@pytest.mark.parametrize("family", ["span", "bi-span"])
def test_texts_without_spaces_are_processed_completely(text: str, family: str, engine: Any) -> None:
    served = engine(family, **LIVELY)
    item = Item(text, named(LABELS[:2]), threshold=0.9)
    prepared = served.prepare(item)
    if prepared.chunked is None:  # for this tokenizer the word is one unknown token
        assert prepared.truncated_at is None
        return
    read = []
    while not prepared.chunked.exhausted:
        for one in prepared.chunked.next_passes():
            assert one.tokens <= POSITIONS
            assert one.words <= served.info.max_words
            read += one.payload.words
    assert read[-1][1] == len(text)


NASTY = ["a", "Paris", " ", "\n", ".", "! ", "\x00", "\u0301", "\u200b", "東京", "กรุงเทพ", "👩‍👩‍👧", "x" * 90, "-_"]


LONE_SURROGATE = "é\ud800"


def read_or_refused(served: GLiNEREngine, item: Item) -> list[tuple[int, int]] | GLiNERBentoError:
    """Positions of the words in all passes, each of which is within its limits."""
    read: list[tuple[int, int]] = []
    try:
        prepared = served.prepare(item)
        if prepared.chunked is None:
            return list(prepared.payload.words) if prepared.tokens else []
        while not prepared.chunked.exhausted:
            for one in prepared.chunked.next_passes():
                assert one.tokens <= POSITIONS
                assert one.words <= (item.window_words or served.info.max_words)
                read += one.payload.words
    except GLiNERBentoError as error:
        return error
    return read


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    family=st.sampled_from(["span", "bi-span", "relex-span"]),
    parts=st.lists(st.tuples(st.sampled_from(NASTY), st.integers(1, 60)), max_size=25),
    surrogate=st.booleans(),
    window=st.none() | st.integers(1, 60),
    overlap=st.none() | st.integers(0, 60),
    labels=st.integers(1, 80),
    label_words=st.integers(1, 40),
)
def test_any_request_is_processed_completely_or_refused_by_name(
    family: str,
    parts: list[tuple[str, int]],
    surrogate: bool,
    window: int | None,
    overlap: int | None,
    labels: int,
    label_words: int,
    engine: Any,
) -> None:
    served = engine(family, **LIVELY)
    text = "".join(part * times for part, times in parts) + (LONE_SURROGATE if surrogate else "")
    names = [*list(many(labels - 1)), "person " * label_words] if labels > 1 else ["person " * label_words]
    item = Item(text, named(names), window_words=window, window_overlap_words=overlap)
    read = read_or_refused(served, item)
    if isinstance(read, GLiNERBentoError):
        assert read.param in ("text", "labels", "window_words", "window_overlap_words")
        assert read.param in read.message
        return
    assert not surrogate
    # Every gap between words has no tokens.
    gaps, at = [], 0
    for start, end in sorted(read):
        if start > at:
            gaps.append(text[at:start])
        at = max(at, end)
    for gap in [*gaps, text[at:]]:
        assert not served.prepare(Item(gap, named(["person"]))).tokens


@pytest.mark.parametrize(
    ("unit", "times"),
    [
        (" ", 2_000_000),
        ("\n", 2_000_000),
        ("\u0301", 1_000_000),
        ("\x00", 500_000),
        ("\u200b ", 500_000),
        (". ", 100_000),
    ],
)
def test_millions_of_blank_characters_are_processed(unit: str, times: int, engine: Any) -> None:
    served = engine("span", **LIVELY)
    text = unit * times
    for ending in ("", " Paris"):
        prepared = served.prepare(Item(text + ending, named(LABELS[:1]), threshold=0.9))
        if prepared.chunked is None:
            assert prepared.truncated_at is None
            continue
        tokens = 0
        while not prepared.chunked.exhausted:
            tokens += sum(one.tokens for one in prepared.chunked.next_passes())
        assert tokens or not ending


def test_a_late_surrogate_is_refused(engine: Any) -> None:
    with pytest.raises(InvalidField) as raised:
        engine("span", **LIVELY).prepare(Item(long_text(1) + LONE_SURROGATE, named(LABELS[:2])))
    assert raised.value.param == "text"


def test_more_spans_than_the_limit_are_refused(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gliner_bento.engine.text.merge.MAX_CANDIDATES", 50)
    with pytest.raises(GLiNERBentoError) as raised:
        extract_in_passes(engine("span", **LIVELY), Item(long_text(1), named(LABELS), threshold=0.0, flat_ner=False))
    assert raised.value.param == "threshold"


def test_a_suppressed_span_may_be_kept_by_merging(engine: Any) -> None:
    """A suppressed span of one window is kept if another window's span suppresses its rival."""
    served = engine("span", **LIVELY)
    item = Item(long_text(11, 30), named(LABELS), threshold=0.2)
    answer, passes = passes_of(served, item)
    extractions = [served.decode(served.forward(served.collate([one]), 1))[0] for one in passes]
    assert any(one.suppressed for one in extractions)
    found = {(e.start, e.end, e.label) for one in extractions for e in (*one.entities, *one.suppressed)}
    assert {(e.start, e.end, e.label) for e in answer.entities} <= found
