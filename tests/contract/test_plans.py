"""Every plan ends, reads all of the text with every name, and fits the model; what cannot fit is refused by its name.

Drawn texts and options, for every kind of prompt. The passes run on tiny models.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import load_engine, tiny_checkpoint
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.engine import GLiNEREngine
from gliner_bento.errors import GLiNERBentoError, InvalidField, TooLarge
from gliner_bento.tasks.classifications import Classification
from gliner_bento.tasks.extraction import ExtractionItem as Item
from gliner_bento.tasks.structures import StructureField

GLINER = ("span", "token", "bi-span", "bi-token", "relex-span", "relex-token", "decoder-span")
GLINER2 = ("count_lstm", "boundary")
GLICLASS = ("deberta", "qwen3")
MAX_PASSES = 20_000  # far more than any of the drawn texts can need

_WORDS = st.sampled_from(
    ["person", "city", "paris", "born", "Tokyo.", "x", "日本語。日本", "\u0301", "👍", "e\u0301" * 5]
)
_LONG = st.builds(
    lambda word, times: word * times, st.sampled_from(["paris", "日本。", "\u0640", "ab-"]), st.integers(9, 90)
)
_TEXTS = st.lists(_WORDS | _LONG, max_size=90).map(" ".join)
_LENGTHS = st.one_of(st.integers(1, 4), st.integers(5, 70))
_LONG_TEXTS = st.sampled_from(["window", "window", "window", "truncate", "reject"])


@st.composite
def names(draw: Any, most: int) -> list[str]:
    """Different names, from short to longer than the model takes."""
    count = draw(st.integers(0, 2) | st.integers(0, most))
    length = draw(_LENGTHS)
    return [f"{number} " + "city " * draw(st.integers(1, length)) for number in range(count)]


@st.composite
def items(draw: Any, *, labels: bool, relations: bool, schema: bool) -> Item:
    """An item with a text and options of every size."""
    item = Item(
        draw(_TEXTS),
        {name: name for name in draw(names(60))} if labels else {},
        threshold=0.9,
        on_limit="truncate",
        max_relations=500,
        long_text=draw(_LONG_TEXTS),
        window_words=draw(st.none() | st.integers(8, 48)),
    )
    if relations:
        relation_names = {f"r {name}": f"r {name}" for name in draw(names(12))}
        item = replace(item, relations=relation_names, relation_threshold=0.9)
    if schema or not labels:
        asked = st.dictionaries(st.sampled_from(["kind", "topic", "tone"]), names(40).filter(bool), max_size=3)
        item = replace(
            item, classifications={key: Classification({n: n for n in each}) for key, each in draw(asked).items()}
        )
    if schema:
        fields = {f"f {name}": draw(names(40)) for name in draw(names(12))}
        structure = {name: StructureField(name, "list", 0.5, tuple(choices)) for name, choices in fields.items()}
        item = replace(item, structures={"record": structure} if structure else {})
    return item


@pytest.fixture(scope="module")
def engine_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], GLiNEREngine]:
    """The engine of a tiny model, by the name of its family, counting layer or backbone."""

    def folder(name: str) -> Path:
        path = tmp_path_factory.mktemp(name)
        if name in GLINER:
            return tiny_checkpoint(path, name, seed=1)
        if name in GLINER2:
            pytest.importorskip("gliner2")
            from gliner2_checkpoints import tiny_gliner2

            return tiny_gliner2(path, counting_layer=name)
        pytest.importorskip("gliclass")
        from gliclass_checkpoints import tiny_gliclass

        return tiny_gliclass(path, backbone=name)

    return cache(lambda name: load_engine(folder(name)))


def run(engine: GLiNEREngine, item: Item) -> tuple[Any, list[Prepared]]:
    """The item's result and its passes. Fails if there is no end."""
    prepared = engine.prepare(item)
    if prepared.result is not None:
        return prepared.result, []
    if prepared.chunked is None:
        return engine.decode(engine.forward(engine.collate([prepared]), 1))[0], [prepared]
    chunked = prepared.chunked
    passes: list[Prepared] = []
    for _ in range(MAX_PASSES):
        if chunked.done:
            return chunked.result(), passes
        for one in chunked.next_passes():
            passes.append(one)
            chunked.add(one, engine.decode(engine.forward(engine.collate([one]), 1))[0])
    raise AssertionError("the passes do not end")


def run_or_refuse(engine: GLiNEREngine, item: Item) -> tuple[Any, list[Prepared]] | GLiNERBentoError:
    """As `run`, or the error with which the item is refused."""
    try:
        return run(engine, engine._preparer.checked(item))
    except (InvalidField, TooLarge) as error:
        return error


@pytest.mark.parametrize("name", [*GLINER, *GLINER2])
@pytest.mark.timeout(400)
def test_a_plan_ends_fits_and_covers_every_name_and_word(name: str, engine_of: Any) -> None:
    engine = engine_of(name)
    relations, schema = engine.info.supports_relations, name in GLINER2

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(items(labels=True, relations=relations, schema=schema))
    def check(item: Item) -> None:
        outcome = run_or_refuse(engine, item)
        if isinstance(outcome, GLiNERBentoError):
            assert outcome.param in {*item.abilities, "text", "labels"}, outcome
            return
        result, passes = outcome
        tokenizer = engine._preparer._tokenizer
        max_words = item.window_words if item.window_words and item.long_text == "window" else 48
        for one in passes:
            assert one.tokens <= engine._limits.tokens
            assert one.payload.own_words <= max_words
            assert_names(one, inline=tokenizer.prompts.inline)
        if not passes:
            return
        assert_all_names_in_every_window(item, passes, divided=len(passes) > 1)
        read = read_characters(passes)
        end = len(item.text) if result.truncated_at is None else result.truncated_at
        words = [(start, stop) for chunk in tokenizer.chunks(item.text) for start, stop in chunk.bounds.tolist()]
        missing = [item.text[start:stop] for start, stop in words if stop <= end and not read[start:stop].all()]
        assert not [word for word in missing if tokenizer.subwords.ids([word.strip("\u0301\u0640")])]

    check()


def assert_names(one: Prepared, *, inline: bool) -> None:
    """The prompt has a marker for each name of the pass."""
    item, payload = one.item, one.payload
    if not inline:
        assert len(payload.prompt.labels) == len(item.labels)
        return
    assert len(payload.prompt.label_positions) == len(item.labels)
    asked = [each.labels for each in item.classifications.values()] + list(item.structures.values())
    plain = len(item.relations)
    in_schema = 3 * plain + sum(1 + len(each) for each in asked) + bool(item.labels)  # [P], and a marker per field
    assert len(payload.prompt.relation_positions) in (plain, in_schema)
    assert max(payload.prompt.relation_positions, default=0) < len(payload.token_ids)


def assert_all_names_in_every_window(item: Item, passes: list[Prepared], *, divided: bool) -> None:
    """The passes of a window have each label, classification and structure once between them."""
    windows: defaultdict[tuple[int, int], list[Item]] = defaultdict(list)
    for one in passes:
        bounds = one.payload.bounds[one.payload.own]
        if one.payload.entities is None:  # no relation pass between given entities
            windows[int(bounds[0, 0]), int(bounds[-1, 1])].append(one.item)
    for parts in windows.values():
        assert Counter(label for part in parts for label in part.labels) == Counter(list(item.labels))
        assert Counter(name for part in parts for name in part.classifications) == Counter(list(item.classifications))
        assert Counter(name for part in parts for name in part.structures) == Counter(list(item.structures))


def read_characters(passes: list[Prepared]) -> np.ndarray[Any, Any]:
    """For each character, whether it is in a word of a pass."""
    last = max(int(one.payload.bounds.max()) for one in passes)
    read = np.zeros(last + 1, bool)
    for one in passes:
        for start, stop in one.payload.bounds[one.payload.own].tolist():
            read[start:stop] = True
    return read


@pytest.mark.parametrize("name", GLICLASS)
@pytest.mark.timeout(400)
def test_a_plan_of_a_gliclass_model_ends_fits_and_covers_every_word(name: str, engine_of: Any) -> None:
    engine = engine_of(name)

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(items(labels=False, relations=False, schema=False).filter(lambda item: bool(item.classifications)))
    def check(item: Item) -> None:
        outcome = run_or_refuse(engine, item)
        if isinstance(outcome, GLiNERBentoError):
            assert (outcome.param or "").partition(".")[0] in ("classifications", "text"), outcome
            return
        result, passes = outcome
        assert all(one.tokens <= engine.info.max_words for one in passes)
        asked = Counter(name for one in passes for name in one.item.classifications)
        assert set(asked) == set(item.classifications) or not passes
        assert set(asked.values()) == {result.usage.windows} or len(passes) < 2
        if len(asked) < len(passes):  # several windows
            tokenizer, unread = engine._preparer.tokenizer, item.text
            longest = tokenizer.longest(item.classifications)
            for piece in tokenizer.pieces(item.text, longest, item.window_words or 128, 16):
                unread = unread[: piece.start] + " " * (piece.end - piece.start) + unread[piece.end :]
            assert not unread.strip()

    check()


def cases() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """For each kind of name that cannot be divided: a model, the option, and too many or too long names of it."""
    many = {f"class number {number}": f"class number {number}" for number in range(300)}
    long = {f"{number} " + "city " * 99: f"{number} " + "city " * 99 for number in range(9)}
    for model in GLINER2:
        for labels in (many, long):
            yield model, "classifications", {"classifications": {"c": Classification(labels)}}
            yield model, "structures", {"structures": {"r": {"f": StructureField("f", "list", 0.5, tuple(labels))}}}
        fields = {name: StructureField(name, "list", 0.5) for name in many}
        yield model, "structures", {"structures": {"r": fields}}
        described = {"f": StructureField("city " * 500, "list", 0.5)}
        yield model, "structures", {"structures": {"r": described}}
        spread = {name: StructureField(name, "list", 0.5, ("city " * 30, "paris " * 30)) for name in list(many)[:20]}
        yield model, "structures", {"structures": {"r": spread}}
        yield model, "structures", {"structures": {name: {"f": StructureField("f", "list", 0.5)} for name in many}}
        yield model, "classifications", {"classifications": {name: Classification({"a": "a"}) for name in many}}
        yield (
            model,
            "classifications",
            {"classifications": {"c": Classification({"a": "a"}, description="city " * 500)}},
        )
    for model in (*GLINER2, *GLINER):
        yield model, "labels", {"labels": {"city " * 500: "city " * 500}}
        yield model, "labels", {"labels": {"city": "city " * 500}}
    for model in (*GLINER2, "relex-span", "relex-token"):
        relation = {"labels": {"city": "city"}, "relations": {"lives in": "city " * 500}}
        yield model, "relations", relation
    for labels in (many, long):
        yield "deberta", "classifications", {"classifications": {"c": Classification(labels)}}


@pytest.mark.parametrize("long_text", ["window", "truncate", "reject"])
@pytest.mark.parametrize("more", [{}, {"labels": {"city": "city"}}, {"labels": {f"l{n}": f"l{n}" for n in range(90)}}])
@pytest.mark.timeout(300)
def test_names_that_leave_no_room_are_refused_by_their_option(more: Any, long_text: Any, engine_of: Any) -> None:
    for model, param, options in cases():
        if more and (model in GLICLASS or "labels" in options):
            continue
        item = Item("Ada Lovelace lives in Paris.", **(more | options), long_text=long_text)
        with pytest.raises(InvalidField) as raised:
            run(engine_of(model), item)
        assert (raised.value.param or "").partition(".")[0] == param, model
