"""Relations in windows of sentences: each gives gliner's scores between the text's entities, and the entities stay."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from types import MethodType
from typing import Any

import pytest
import torch
from checkpoints import LABELS, RELATIONS, load_engine, named
from chunked_requests import LIVELY, extract_in_passes, long_text, many, passes_of
from comparison import TOLERANCE, extract_one
from gliner import GLiNER
from views import view

from gliner_bento.engine.base import Prepared
from gliner_bento.engine.checkpoint.find import ModelError, read_json
from gliner_bento.engine.engine import GLiNEREngine
from gliner_bento.engine.options import EngineOptions
from gliner_bento.engine.results import PassResult
from gliner_bento.tasks.extraction import ExtractionItem as Item

FAMILIES = ["relex-span", "relex-span-dot", "relex-span-gcn", "relex-span-triples", "relex-token", "relex-token-gat"]
CharSpan = tuple[int, int]


def item_of(sentences: int = 5, seed: int = 3, **options: Any) -> Item:
    """In windows of one sentence, with all of their relations."""
    wanted = {"threshold": 0.3, "relation_threshold": 0.0, "relation_window_sentences": 1} | options
    return Item(long_text(seed, sentences), named(LABELS[:3]), named(RELATIONS[:2]), **wanted)


def result_of(served: GLiNEREngine, one: Prepared) -> PassResult:
    return served.decode(served.forward(served.collate([one]), 1))[0]


def relation_passes(passes: Sequence[Prepared]) -> list[Prepared]:
    return [one for one in passes if one.payload.entities is not None]


def scores_of(result: PassResult) -> dict[tuple[str, CharSpan, CharSpan], float]:
    spans = [(entity.start, entity.end) for entity in result.entities]
    return {(one.relation, spans[one.head], spans[one.tail]): one.score for one in result.relations}


def gliner_scores(model: Any, one: Prepared) -> dict[tuple[str, CharSpan, CharSpan], float]:
    """gliner's own forward on the text of a pass alone, whose spans for relations are the pass's entities.

    gliner selects those that are labelled when it is trained, and those above the threshold when it is asked. Here, it
    is asked, and selects the labelled ones."""
    item, bounds = one.item, one.payload.bounds
    start, end = int(bounds[0, 0]), int(bounds[-1, 1])
    spans = sorted(set(zip(one.payload.entities.first.tolist(), one.payload.entities.last.tolist(), strict=True)))
    inner, outputs = model.model, []
    represent = inner.represent_spans

    def represent_labelled(
        self: Any, words: Any, mask: Any, prompts: Any, span_idx: Any, span_mask: Any, *_: Any, **__: Any
    ) -> Any:
        if span_idx is None:  # a token model
            given = torch.tensor(spans)[None]
            return represent(words, mask, prompts, given, torch.ones(given.shape[:2], dtype=torch.long))
        is_labelled = torch.tensor([tuple(span) in spans for span in span_idx[0].tolist()])
        labels = (is_labelled & span_mask[0].bool()).view(1, words.shape[1], -1, 1).float()
        return represent(words, mask, prompts, span_idx, span_mask, labels)

    def run_batch(batch: Any, **options: Any) -> Any:
        outputs.append(type(model).run_batch(model, batch, **options | {"adjacency_threshold": item.threshold}))
        return outputs[-1]

    inner.represent_spans, model.run_batch = MethodType(represent_labelled, inner), run_batch
    try:
        options = {"threshold": 1.0, "relation_threshold": 1.0}
        model.inference([item.text[start:end]], [dict(item.labels)], list(item.relations.values()), **options)
    finally:
        del inner.represent_spans, model.run_batch
    (output,) = outputs
    found = [tuple(span) for span in output.entity_spans[0].tolist()]
    assert found == spans
    chars = [(int(bounds[first, 0]), int(bounds[last, 1])) for first, last in spans]
    pairs = zip(
        output.rel_idx[0].tolist(), output.rel_mask[0].tolist(), output.rel_logits[0].sigmoid().tolist(), strict=True
    )
    return {
        (relation, chars[head], chars[tail]): score
        for (head, tail), is_pair, scores in pairs
        for relation, score in zip(item.relations, scores, strict=True)
        if is_pair and head != tail
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_relations_of_a_window_are_those_of_gliners_forward_on_it_alone(
    family: str, engine: Any, reference: Any
) -> None:
    served, model = engine(family, **LIVELY), reference(family, **LIVELY)
    item = item_of(3, 6, threshold=0.5 if "token" in family else 0.3)
    answer, passes = passes_of(served, item)
    expected: dict[Any, float] = {}
    for one in relation_passes(passes):
        of_gliner = gliner_scores(model, one)
        assert scores_of(result_of(served, one)) == pytest.approx(of_gliner, abs=TOLERANCE)
        expected |= of_gliner
    ours = {(r.relation, (r.head.start, r.head.end), (r.tail.start, r.tail.end)): r.score for r in answer.relations}
    assert ours == pytest.approx(expected, abs=TOLERANCE)
    assert len(expected) > 3
    assert len({round(score, 3) for score in expected.values()}) > 3


@pytest.mark.parametrize("family", ["relex-span", "relex-span-gcn"])
@pytest.mark.parametrize("long_text_option", ["window", "truncate"])
def test_entities_are_those_of_the_whole_text(family: str, long_text_option: Any, engine: Any) -> None:
    served = engine(family, **LIVELY)
    item = item_of(40, threshold=0.7, relation_threshold=0.4, long_text=long_text_option)
    answer, passes = passes_of(served, item)
    as_whole = replace(item, relation_window="whole", relation_window_sentences=None)
    whole = (extract_in_passes if long_text_option == "window" else extract_one)(served, as_whole)
    assert answer.entities == whole.entities
    assert (answer.truncated_at, answer.usage.words) == (whole.truncated_at, whole.usage.words)
    assert answer.usage.windows == whole.usage.windows
    assert (whole.usage.passes, answer.usage.passes) == (whole.usage.windows, len(passes))
    assert answer.usage.tokens == sum(one.tokens for one in passes)
    assert answer.relations
    parts = [one.payload.bounds for one in relation_passes(passes)]
    for relation in answer.relations:
        ends = {relation.head.start, relation.head.end, relation.tail.start, relation.tail.end}
        assert any(part[0, 0] <= min(ends) and max(ends) <= part[-1, 1] for part in parts)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_relations_are_the_same_bits_alone_and_under_load(precision: Any, checkpoint: Any) -> None:
    served = load_engine(checkpoint("relex-span", seed=3, backbone="bert"), dtype=precision)
    assert served.info.batch_invariant
    passes = [
        one for seed in range(6) for one in relation_passes(passes_of(served, item_of(6, seed, threshold=0.1))[1])
    ]
    others = [
        served.prepare(
            item_of(1, seed, relation_threshold=0.1, relation_window="whole", relation_window_sentences=None)
        )
        for seed in range(4)
    ]
    alone = [scores_of(result_of(served, one)) for one in passes]
    together = served.decode(served.forward(served.collate([*others, *passes, *others]), 1))[len(others) : -len(others)]
    assert [scores_of(one) for one in together] == alone
    assert sum(map(len, alone)) > 20


@pytest.mark.parametrize("family", ["relex-span", "relex-token"])
def test_the_order_in_which_passes_end_does_not_matter(family: str, engine: Any) -> None:
    served = engine(family, **LIVELY)
    item = item_of(20, threshold=0.6, relation_threshold=0.4, relation_window_sentences=2)
    expected = extract_in_passes(served, item)
    assert expected.relations
    for seed in range(3):
        assert passes_of(served, item, seed)[0] == expected


def test_the_best_score_of_a_pair_counts(engine: Any) -> None:
    served = engine("relex-span", **LIVELY)
    _, passes = passes_of(served, item := item_of(3, 0, relation_window_sentences=2))
    best: dict[Any, float] = {}
    for one in relation_passes(passes):
        for key, score in scores_of(result_of(served, one)).items():
            best[key] = max(score, best.get(key, 0.0))
    answer = extract_in_passes(served, item)
    assert {
        (r.relation, (r.head.start, r.head.end), (r.tail.start, r.tail.end)): r.score for r in answer.relations
    } == best


def test_a_text_of_one_sentence_takes_one_pass_and_one_without_pairs_no_more(engine: Any) -> None:
    served = engine("relex-span", **LIVELY)
    item = replace(item_of(), text="Bill Gates founded Microsoft in Redmond.")
    assert served.prepare(item).chunked is None
    whole = replace(item, relation_window="whole", relation_window_sentences=None)
    assert extract_one(served, item) == extract_one(served, whole)
    _, passes = passes_of(served, item_of(3, 6, threshold=0.999999))
    assert len(passes) == 1
    typed = replace(
        item_of(3, 6),
        relation_heads={name: [0] for name in RELATIONS[:2]},
        relation_tails={name: [] for name in RELATIONS[:2]},
    )
    answer, passes = passes_of(served, typed)
    assert (len(passes), list(answer.relations)) == (1, [])


def test_with_many_labels_a_window_has_the_labels_of_its_entities(engine: Any) -> None:
    served = engine("relex-span", **LIVELY)
    item = Item(
        long_text(2, 8), many(60), named(RELATIONS), threshold=0.1, relation_threshold=0.1, relation_window_sentences=1
    )
    answer, passes = passes_of(served, item)
    of_relations = relation_passes(passes)
    assert answer.usage.label_groups > 1
    assert answer.relations
    for one in of_relations:
        assert {list(one.item.labels)[label] for label in one.payload.entities.label} <= set(one.item.labels)
        assert len(one.item.labels) <= 25
    whole = extract_in_passes(served, replace(item, relation_window="whole", relation_window_sentences=None))
    assert whole.entities == answer.entities
    assert whole.usage.passes < answer.usage.passes == len(passes)


def test_the_checkpoint_has_the_default_and_settings_and_requests_replace_it(checkpoint: Any, tmp_path: Any) -> None:
    folder = shutil.copytree(checkpoint("relex-span", **LIVELY), tmp_path / "model")
    config = read_json(folder / "gliner_config.json")

    def load(own: dict[str, Any], **options: Any) -> GLiNEREngine:
        (folder / "gliner_config.json").write_text(json.dumps(config | own))
        return load_engine(folder, **options)

    def windows(served: GLiNEREngine, **options: Any) -> Any:
        item = replace(item_of(3, 0, relation_window_sentences=None), **options)
        return extract_in_passes(served, item) if served.prepare(item).chunked else extract_one(served, item)

    plain, own = load({}), load({"relation_window_sentences": 2})
    assert (plain.info.relation_window_sentences, own.info.relation_window_sentences) == (None, 2)
    two = windows(plain, relation_window_sentences=2)
    one = windows(plain, relation_window="sentences")
    whole = windows(plain)
    assert len({str(answer.relations) for answer in (whole, one, two)}) == 3
    assert windows(own) == two
    assert windows(own, relation_window="whole") == whole
    assert windows(own, relation_window_sentences=1) == one
    assert windows(load({"relation_window_sentences": 2}, relation_window="whole")) == whole
    assert windows(load({}, relation_window="sentences")) == one
    assert windows(load({}, relation_window_sentences=2)) == two
    for wrong in (
        {"relation_window": "whole", "relation_window_sentences": 1},
        {"relation_window_overlap_sentences": 1},
    ):
        with pytest.raises(ModelError, match="relation_window"):
            load({}, **wrong)
    for wrong in ({"relation_window_sentences": "1"}, {"relation_window_sentences": 0}):
        with pytest.raises(ModelError, match="relation_window"):
            load(wrong)


def test_gliners_own_forward_serves_relation_windows(checkpoint: Any) -> None:
    """Between the entities that it finds in the window, too."""
    folder = checkpoint("relex-span", **LIVELY)
    model = GLiNER.from_pretrained(str(folder))
    slow = GLiNEREngine(model, "slow", view(EngineOptions), gliner_forward=True)
    fast = load_engine(folder)
    item = item_of(5, threshold=0.3, relation_threshold=0.2)
    expected, answer = extract_in_passes(fast, item), extract_in_passes(slow, item)
    assert [(e.start, e.end) for e in answer.entities] == [(e.start, e.end) for e in expected.entities]
    scores = {(r.relation, r.head.start, r.tail.start): r.score for r in expected.relations}
    assert answer.relations
    for relation in answer.relations:
        assert relation.score == pytest.approx(
            scores[relation.relation, relation.head.start, relation.tail.start], abs=TOLERANCE
        )
