"""GLiNER2 models: results are those of gliner2's own calls with one text, and independent of batching."""

from __future__ import annotations

import asyncio
import json
import random
import re
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from functools import cache
from pathlib import Path
from shutil import copytree
from typing import Any

import httpx
import pytest
import torch
from checkpoints import LABELS, RELATIONS, TEXTS, load_engine, named
from chunked_requests import extract_in_passes
from comparison import TOLERANCE, extract_batch, extract_one, random_item
from gliner2_checkpoints import BOUNDARY, COUNTING_LAYERS, extracted, reference_of, tiny_gliner2
from lora_training import Trained, linears, serving, train
from safetensors.torch import load_file, save_file

from gliner_bento.adapters.archive import FILES
from gliner_bento.adapters.sources import from_folder
from gliner_bento.asgi import create_app
from gliner_bento.engine.checkpoint.find import ModelError
from gliner_bento.engine.checkpoint.gliner2 import GLiNER2Span
from gliner_bento.engine.engine import GLiNEREngine
from gliner_bento.engine.heads import schema_head
from gliner_bento.engine.heads.span_scores import MarkerV0
from gliner_bento.engine.text.words import Words
from gliner_bento.errors import InvalidField, LimitExceeded
from gliner_bento.gateway.compat.fastino import FastinoField
from gliner_bento.settings import Settings
from gliner_bento.tasks.classifications import Classification
from gliner_bento.tasks.extraction import Extraction
from gliner_bento.tasks.extraction import ExtractionItem as Item
from gliner_bento.tasks.structures import StructureField

pytest.importorskip("gliner2")

CASES = [(layer, backbone) for layer in COUNTING_LAYERS for backbone in ("deberta", "modernbert")]
CASES += list(zip(BOUNDARY, ("deberta", "modernbert"), strict=True))
OVERLAPS = (None, "allow", "nested", "flat", "longest")

Scores = dict[tuple[Any, ...], float]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The folder of a tiny checkpoint."""

    @cache
    def made(layer: str = "count_lstm", backbone: str = "deberta", **options: Any) -> Path:
        return tiny_gliner2(tmp_path_factory.mktemp(layer), counting_layer=layer, backbone=backbone, **options)

    return made


@pytest.fixture(scope="module")
def served(folder: Callable[..., Path]) -> Callable[..., GLiNEREngine]:
    @cache
    def loaded(layer: str = "count_lstm", backbone: str = "deberta", padded: bool = False) -> GLiNEREngine:
        return load_engine(folder(layer, backbone), padded=padded)

    return loaded


@pytest.fixture(scope="module")
def reference(folder: Callable[..., Path]) -> Callable[..., Any]:
    return cache(lambda layer="count_lstm", backbone="deberta": reference_of(folder(layer, backbone)))


@pytest.fixture(scope="module")
def answer_of(reference: Any) -> Callable[[str, str, Item], Any]:
    """gliner2's answer of a model to an item, once for both layouts; None where it fails (see `boundary_head`)."""
    known: dict[Any, Any] = {}

    def answer(layer: str, backbone: str, item: Item) -> Any:
        key = layer, backbone, repr(item)
        if key not in known:
            known[key] = None
            with suppress(ValueError):
                known[key] = extracted(reference(layer, backbone), item)
        return known[key]

    return answer


def drawn_item(seed: int, *, overlap: Any = None) -> Item:
    """An item with options drawn from `seed`: descriptions too, and thresholds of their own."""
    item = random_item(seed, relations=True)
    draw = random.Random(seed)
    item = replace(item, text=item.text.rstrip(".") if draw.random() < 0.3 else item.text, overlap=overlap)
    if draw.random() < 0.3:
        item = replace(item, labels={name: f"{name} of a text" for name in LABELS[:3]})
    if draw.random() < 0.3:
        item = replace(item, label_thresholds={next(iter(item.labels)): 0.3})
    return replace(item, labels={}) if item.relations and draw.random() < 0.2 else item


def drawn_schema(seed: int, *, overlap: Any = None) -> Item:
    """An item with classifications and structures, drawn from `seed`. Its spans do not compete: two scores may differ
    by rounding alone."""
    draw = random.Random(seed)
    item = drawn_item(seed, overlap=overlap or draw.choice(["allow", "longest"]))
    fields = {
        name: StructureField(
            draw.choice([name, f"the {name}"]),
            draw.choice(["list", "string"]),
            threshold,
            draw.choice([(), (), ("paris", "Tokyo city", "bill")]),
            own_threshold=threshold != item.threshold,
        )
        for name in draw.sample(["person", "company", "city of birth"], draw.randint(1, 3))
        for threshold in [draw.choice([0.1, 0.5, item.threshold])]
    }
    return replace(
        item,
        structures={"record": fields, **({"other": dict(list(fields.items())[:1])} if draw.random() < 0.5 else {})},
        classifications={
            "topic": Classification({"works": "works", "city": draw.choice(["city", "a city"])}),
            "kind": Classification(named(LABELS[:4]), multi_label=True, top_k=None, description="what it is"),
        },
    )


def ours(found: Extraction) -> tuple[Scores, Scores]:
    """The scores of entities and relations."""
    entities = {(one.start, one.end, one.label): one.score for one in found.entities}
    assert len(entities) == len(found.entities)
    relations = {
        (one.relation, one.head.start, one.head.end, one.tail.start, one.tail.end): one.score for one in found.relations
    }
    assert len(relations) == len(found.relations)
    return entities, relations


def gliner2s(answer: dict[str, Any], text: str) -> tuple[Scores, Scores]:
    """The same of gliner2's answer. What is behind the text's end is cut off; the best of equal results counts."""
    entities: Scores = {}
    relations: Scores = {}

    end = len(text.rstrip())

    def cut(span: dict[str, Any]) -> tuple[int, int]:
        return span["start"], min(span["end"], end)

    for label, spans in answer.get("entities", {}).items():
        for span in spans:
            if (key := (*cut(span), label))[0] < end:
                entities[key] = max(span["confidence"], entities.get(key, 0.0))
    for relation, instances in answer.get("relation_extraction", {}).items():
        for one in instances:
            head, tail = cut(one["head"]), cut(one["tail"])
            if max(head[0], tail[0]) < end:
                score = one.get("confidence", min(one["head"]["confidence"], one["tail"]["confidence"]))
                key = (relation.split(":")[0], *head, *tail)
                relations[key] = max(score, relations.get(key, 0.0))
    return entities, relations


def assert_equal(found: Extraction, answer: dict[str, Any], item: Item) -> tuple[int, int]:
    """Same spans, labels and relations; scores within the tolerance. Returns how many there are."""
    for entity in found.entities:
        assert item.text[entity.start : entity.end] == entity.text
    sizes = []
    for scores, expected in zip(ours(found), gliner2s(answer, item.text), strict=True):
        assert scores == pytest.approx(expected, abs=TOLERANCE), (item, scores.keys() ^ expected.keys())
        sizes.append(len(scores))
    return sizes[0], sizes[1]


@pytest.mark.parametrize("padded", [False, True], ids=["packed", "padded"])
@pytest.mark.parametrize(("layer", "backbone"), CASES)
def test_results_are_gliner2s(layer: str, backbone: str, padded: bool, served: Any, answer_of: Any) -> None:
    """Padded: in the layout of a GPU."""
    engine = served(layer, backbone, padded=padded)
    entities = relations = 0
    for seed in range(25):
        item = drawn_item(seed, overlap=OVERLAPS[seed % len(OVERLAPS)])
        sizes = assert_equal(extract_one(engine, item), answer_of(layer, backbone, item), item)
        entities, relations = entities + sizes[0], relations + sizes[1]
    assert entities > 40
    assert relations > 12


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_words_are_pooled_as_gliner2_does(pooling: str, folder: Any) -> None:
    made = folder(token_pooling=pooling)
    engine, model = load_engine(made), reference_of(made)
    for seed in range(12):
        item = drawn_item(seed)
        assert_equal(extract_one(engine, item), extracted(model, item), item)


@pytest.mark.parametrize("padded", [False, True], ids=["packed", "padded"])
@pytest.mark.parametrize(("layer", "backbone"), CASES)
def test_results_do_not_depend_on_batching(layer: str, backbone: str, padded: bool, served: Any) -> None:
    """Packed, not even their bits."""
    engine = served(layer, backbone, padded=padded)
    assert engine.info.batch_invariant is not padded
    items = [(drawn_schema if seed % 2 else drawn_item)(seed) for seed in range(100, 112)]
    for item, together in zip(items, extract_batch(engine, items), strict=True):
        alone = extract_one(engine, item)
        if padded:
            for one, other in zip(ours(together), ours(alone), strict=True):
                assert one == pytest.approx(other, abs=TOLERANCE)
        else:
            assert together == alone


@pytest.mark.parametrize("layer", COUNTING_LAYERS)
def test_the_self_test_compares_with_gliner2(layer: str, folder: Any, served: Any, monkeypatch: Any) -> None:
    """After a difference, gliner2's own modules compute, and give the same results."""
    engine = load_engine(folder(layer), self_test=True)
    assert engine.info.self_test == "passed"

    from gliner_bento.engine.heads import count_queries

    with monkeypatch.context() as patch:
        patch.setattr(count_queries, "_sigmoid", lambda x: x * 0.1)
        fallback = load_engine(folder(layer), self_test=True)
    assert fallback.info.self_test == "failed"
    assert fallback.info.forward.endswith("gliner2's SpanExtractor, text by text")
    items = [drawn_schema(seed) for seed in range(100, 110)]
    for item, found in zip(items, extract_batch(fallback, items), strict=True):
        for one, other in zip(ours(found), ours(extract_one(engine, item)), strict=True):
            assert one == pytest.approx(other, abs=TOLERANCE)


@pytest.mark.parametrize("padded", [False, True], ids=["packed", "padded"])
@pytest.mark.parametrize("layer", [*COUNTING_LAYERS, *BOUNDARY])
def test_classes_and_structures_are_gliner2s(layer: str, padded: bool, served: Any, answer_of: Any) -> None:
    engine = served(layer, padded=padded)
    instances = choices = 0
    for seed in range(20):
        item = drawn_schema(seed)
        found = extract_one(engine, item)
        answer = answer_of(layer, "deberta", item)
        if answer is None:
            assert layer in BOUNDARY
            continue
        assert_equal(found, answer, item)
        topic, kind = found.classifications["topic"].labels, found.classifications["kind"].labels
        assert [one.label for one in topic] == [answer["topic"]["label"]]
        assert topic[0].score == pytest.approx(answer["topic"]["confidence"], abs=TOLERANCE)
        scores = {one["label"]: one["confidence"] for one in answer["kind"]}
        assert {one.label: one.score for one in kind} == pytest.approx(scores, abs=TOLERANCE)
        for name, fields in item.structures.items():
            expected = [cut_instance(one, fields, item.text) for one in answer.get(name) or ()]
            expected = [one for one in expected if any(one.values())]
            assert len(found.structures[name]) == len(expected)
            for instance, other in zip(found.structures[name], expected, strict=True):
                values = {field: {one[:3]: one[3] for one in map(astuple, ones)} for field, ones in by_place(instance)}
                assert values.keys() == other.keys()
                for field, of_field in values.items():
                    assert of_field == pytest.approx(other[field], abs=TOLERANCE)
                    choices += bool(fields[field].choices and of_field)
            instances += len(expected)
    assert instances > 10
    assert choices > 1


def by_place(instance: Any) -> Any:
    """The values of each field as (text, start, end, score)."""
    for field, values in instance.items():
        yield field, [Value(one.text, one.start, one.end, one.score) for one in values]


@dataclass
class Value:
    text: str
    start: int | None
    end: int | None
    score: float


def cut_instance(instance: dict[str, Any], fields: Any, text: str) -> dict[str, dict[tuple[Any, ...], float]]:
    """The values of gliner2's instance, cut off at the text's end."""
    end = len(text.rstrip())
    cut: dict[str, dict[tuple[Any, ...], float]] = {}
    for field in fields:
        given = instance.get(field) or []
        cut[field] = {}
        for one in given if isinstance(given, list) else [given]:
            start, last = one.get("start"), one.get("end")
            if fields[field].choices:
                cut[field][one["text"], None, None] = one["confidence"]
            elif start < end:
                last = min(last, end)
                key = text[start:last], start, last
                cut[field][key] = max(one["confidence"], cut[field].get(key, 0.0))
    return cut


TOPICS = ["people", "places"]
RECORD = {
    "record": {
        "fields": [
            {"name": "person", "dtype": "str", "description": "who"},
            {"name": "city", "dtype": "str", "choices": ["paris", "bill"]},
            {"name": "works"},
        ]
    }
}
"""The same record in the form of vllm-factory's plugin."""


@pytest.mark.parametrize("flags", [(), ("include_confidence", "include_spans")], ids=["plain", "flags"])
def test_fastinos_answers_are_gliner2s(flags: tuple[str, ...], folder: Any, reference: Any) -> None:
    """`/gliner-2` answers what gliner2's own methods return for the arguments that its client sends; so does `/pooling`
    for a schema."""
    model, given = reference(), dict.fromkeys(flags, True)
    fields = ["person::str::who", "city::[paris|bill]", "works::list"]
    entities = {"person": "people", "city": {"threshold": 0.3, "dtype": "str"}}
    settings = Settings(
        model=str(folder()),
        device="cpu",
        dtype="float32",
        warmup_iterations=0,
        self_test=False,
        compat=("fastino", "vllm_factory"),
    )
    found = 0

    async def ask(client: httpx.AsyncClient, task: str, text: str, schema: Any) -> Any:
        body = {"task": task, "text": text, "schema": schema, "threshold": 0.3, **given}
        response = await client.post("/gliner-2", json=body)
        assert response.status_code == 200, response.text
        return response.json()["result"]

    async def pool(client: httpx.AsyncClient, text: str, **schema: Any) -> Any:
        data = {"text": text, "schema": schema, "threshold": 0.3, **given}
        response = await client.post("/pooling", json={"model": "any", "data": data})
        assert response.status_code == 200, response.text
        return response.json()["data"]

    async def scene() -> None:
        nonlocal found
        app = create_app(settings)
        transport = httpx.ASGITransport(app)
        async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://h") as one:
            for text in (f"{text}." for text in TEXTS[:12] if len(text.split()) < 40 and text.strip()):
                records = await ask(one, "extract_json", text, {"record": fields})
                assert records == close(model.extract_json(text, {"record": fields}, threshold=0.3, **given))
                pooled = (await pool(one, text, structures=RECORD))["record"]
                if not flags:  # that plugin repeats a text that is found twice
                    pooled = [instance | {"works": [*dict.fromkeys(instance["works"])]} for instance in pooled]
                assert pooled == records["record"]
                several = {"topic": {"labels": TOPICS, "multi_label": True, "cls_threshold": 0.3}}
                for schema in ({"topic": TOPICS}, several):
                    asked = schema["topic"] if isinstance(schema["topic"], dict) else {"labels": TOPICS}
                    classes = model.classify_text(text, schema, include_confidence=bool(flags))
                    assert await pool(one, text, classifications=[{"task": "topic", **asked}]) == close(classes)
                schema = {"entities": entities, "structures": {"record": fields}}
                both = await ask(one, "schema", text, schema)
                expected = model.create_schema().entities(entities).structure("record")
                for field in ("person", "city", "works"):
                    parsed = FastinoField.of(next(one for one in fields if one.startswith(field)))
                    expected = expected.field(field, parsed.dtype, parsed.choices, parsed.description)
                assert both == close(model.extract(text, expected, threshold=0.3, **given))
                if not flags:  # with confidences, gliner2 has one for each end
                    related = await ask(one, "schema", text, {"relations": ["works"]})
                    alone = model.extract_relations(text, ["works"], threshold=0.3)["relation_extraction"]["works"]
                    assert sorted(related["relation_extraction"]["works"]) == sorted(map(list, {*alone}))  # each once
                    pooled = (await pool(one, text, relations=["works"]))["relation_extraction"]["works"]
                    assert {(pair["head"], pair["tail"]) for pair in pooled} == {*alone}
                    found += len(alone)
                found += len(records["record"])

    asyncio.run(scene())
    assert found > 5


def close(answer: Any) -> Any:
    """The answer, with scores that need not be equal to the last digit."""
    if isinstance(answer, dict):
        return {name: close(value) for name, value in answer.items()}
    if isinstance(answer, list):
        return list(map(close, answer))
    return pytest.approx(answer, abs=TOLERANCE) if isinstance(answer, float) else answer


KINDS = {
    "encoder": lambda name: name.startswith("encoder."),
    "heads": lambda name: not name.startswith("encoder."),
    "everything": lambda name: True,
}


@pytest.mark.parametrize("padded", [False, True], ids=["packed", "padded"])
@pytest.mark.parametrize(("layer", "backbone"), [*CASES[::2], CASES[1], CASES[-1]])
def test_a_batch_of_adapters_gives_the_results_of_merged_models(
    layer: str, backbone: str, padded: bool, folder: Any, reference: Any, tmp_path: Path
) -> None:
    engine = load_engine(folder(layer, backbone), padded=padded, enable_lora=True, max_device_adapters=3)
    model = GLiNER2Span(reference(layer, backbone), 48)
    adapters = {
        kind: train(model, tmp_path / kind, linears(engine, wanted), seed=seed, r=3 + seed)
        for seed, (kind, wanted) in enumerate(KINDS.items())
    }
    structures = layer in COUNTING_LAYERS  # gliner2 fails for some of them; see `boundary_head`
    names = [None, "encoder", "heads", "everything", "everything", None, "heads", "encoder", "heads"]
    items = [
        replace((drawn_schema if seed % 2 and structures else drawn_item)(seed, overlap="allow"), adapter_id=name)
        for seed, name in enumerate(names)
    ]
    with serving(engine, adapters):
        together = extract_batch(engine, items)
        alone = [extract_one(engine, item) for item in items]
    without_effect = set(adapters)
    for item, found, one in zip(items, together, alone, strict=True):
        answer = extracted((adapters[item.adapter_id].merged if item.adapter_id else model).model, item)
        assert_equal(found, answer, item)
        before = gliner2s(extracted(model.model, item), item.text)
        if any(one != pytest.approx(other, abs=TOLERANCE) for one, other in zip(ours(found), before, strict=True)):
            without_effect.discard(item.adapter_id)
        if item.classifications:
            assert found.classifications["topic"].labels[0].label == answer["topic"]["label"]
        assert padded or found == one
    assert not without_effect


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
@pytest.mark.parametrize(("layer", "backbone"), CASES[:2])
def test_an_adapter_in_gliner2s_own_form(layer: str, backbone: str, folder: Any, tmp_path: Path) -> None:
    from gliner2.training import lora

    parts = ["encoder", "encoder.Wqkv", "encoder.Wo", "classifier"]  # ModernBERT's layers have names of their own
    config = lora.LoRAConfig(enabled=True, r=4, alpha=8.0, target_modules=parts)
    adapted, _ = lora.apply_lora_to_model(reference_of(folder(layer, backbone)), config)
    torch.manual_seed(0)
    for name, parameter in adapted.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.5 / parameter.shape[-1] ** 0.5)
    given, installed = tmp_path / "given", tmp_path / "installed"
    lora.save_lora_adapter(adapted, given)
    # As gliner2 1 did: gliner2 2 writes names of layers, and then loads only some of what it has saved.
    lora.LoRAAdapterConfig(lora_r=4, lora_alpha=8.0, target_modules=parts).save(given)
    installed.mkdir()
    from_folder(given, 2**20)(installed)
    assert {file.name for file in installed.iterdir()} == set(FILES)

    base = reference_of(folder(layer, backbone))
    engine = load_engine(folder(layer, backbone), enable_lora=True)
    other = train(GLiNER2Span(base, 48), tmp_path / "peft", linears(engine, KINDS["heads"]), seed=1)
    own = reference_of(folder(layer, backbone)).load_adapter(str(given))
    models = {None: base, "own": own, "peft": other.merged.model}
    items = [replace(drawn_schema(seed, overlap="allow"), adapter_id=name) for seed in range(3) for name in models]
    for kept in (given, installed):
        with serving(engine, {"own": Trained(kept, own), "peft": other}):
            found = extract_batch(engine, items)
        for item, one in zip(items, found, strict=True):
            assert_equal(one, extracted(models[item.adapter_id], item), item)
        assert [ours(one) for one in found[::3]] != [ours(one) for one in found[1::3]]


WORDS = (
    "See https://example.org/A?b=c, www.Example.org or mail Jane.Doe+x@example.co.uk and @jane_doe !",
    "İstanbul'da e-mail_adress a--b (x) 3.14 日本語 دِلّی naïve\u200dx",
    "",
    "  ",
)


@pytest.mark.parametrize("text", WORDS)
def test_words_are_gliner2s(text: str, served: Any, reference: Any) -> None:
    split = served().prepare  # tokens of the words, behind those of the prompt
    tokenizer = served()._preparer._tokenizer
    words = Words.joined(list(tokenizer.chunks(text)))
    expected = [(start, end) for _, start, end in reference().processor.word_splitter(text)]
    assert list(map(tuple, words.bounds.tolist())) == expected
    if text.strip():
        payload = split(Item(text, named(LABELS[:2]), named(RELATIONS[:1]))).payload
        schema = {"entities": dict.fromkeys(LABELS[:2], ""), "relations": [{RELATIONS[0]: {"head": "", "tail": ""}}]}
        assert payload.token_ids.tolist() == reference().processor.transform_record(text, schema).input_ids


@pytest.mark.parametrize("text", ["Apple", "Apple .", "Apple ", "Apple. ", "Is it?", "a"])
def test_offsets_are_inside_the_text(text: str, served: Any, reference: Any) -> None:
    """gliner2 appends a full stop to a text without one, and finds it."""
    for overlap in OVERLAPS:
        item = Item(text, named(LABELS), named(RELATIONS[:2]), threshold=0.05, overlap=overlap)
        found = extract_one(served(), item)
        assert_equal(found, extracted(reference(), item), item)
        assert found.usage.words == len(re.findall(r"\w+|\S", text))


def test_a_long_text_has_the_results_of_its_windows(served: Any) -> None:
    engine = served()
    text = " ".join(TEXTS * 4)
    item = Item(text, named(LABELS), named(RELATIONS), window_words=20, window_overlap_words=4)
    found = extract_in_passes(engine, item)
    assert found.usage.windows > 4
    assert found.relations
    for relation in found.relations:
        for end in (relation.head, relation.tail):
            assert text[end.start : end.end] == end.text
            if end.entity_idx is not None:
                assert found.entities[end.entity_idx].label == end.label
    assert {(one.start, one.end) for one in found.entities if one.start > len(text) // 2}


@pytest.mark.parametrize("padded", [False, True], ids=["packed", "padded"])
def test_relations_alone_may_have_several_groups(padded: bool, folder: Any, reference: Any) -> None:
    engine = load_engine(folder(), padded=padded, max_labels_per_pass=1)
    item = Item(TEXTS[0], {}, named(RELATIONS), threshold=0.1, relation_threshold=0.1)
    found = extract_in_passes(engine, item)
    assert found.usage.relation_groups == len(RELATIONS)
    expected: Scores = {}
    for relation in RELATIONS:
        alone = replace(item, relations=named([relation]))
        expected |= gliner2s(extracted(reference(), alone), item.text)[1]
    assert ours(found)[1] == pytest.approx(expected, abs=TOLERANCE)
    assert expected


def test_ends_can_be_limited_to_labels(served: Any) -> None:
    """Then both must be entities."""
    item = Item(" ".join(TEXTS[:2]), named(LABELS), named(RELATIONS), threshold=0.2, relation_threshold=0.2)
    every = extract_one(served(), item).relations
    only = replace(item, relation_heads={name: [0, 1] for name in RELATIONS})
    allowed = extract_one(served(), only).relations
    assert 0 < len(allowed) < len(every)
    assert {one.head.label for one in allowed} <= set(LABELS[:2])


def test_classifications_alone_compute_no_spans(served: Any, monkeypatch: Any) -> None:
    engine, item = served(), Item(TEXTS[0], classifications={"c": Classification(named(LABELS[:2]))})
    expected = extract_batch(engine, [item, replace(item, labels=named(LABELS))])[0]
    monkeypatch.setattr(MarkerV0, "__call__", lambda *_: pytest.fail("spans"))
    assert extract_batch(engine, [item]) == [expected]


def test_too_many_instances_of_too_many_fields_fail_alone(served: Any, monkeypatch: Any) -> None:
    small, large = Item(TEXTS[0], named(LABELS[:1])), replace(drawn_schema(0), text=TEXTS[4])
    before = extract_one(served(), small)
    monkeypatch.setattr(schema_head, "MAX_WORDS_TIMES_QUERIES", 20)
    found, refused = extract_batch(served(), [small, large])
    assert found == before
    assert isinstance(refused, LimitExceeded)
    assert refused.param in ("labels", "relations", "structures")


@pytest.mark.parametrize(
    ("item", "param"),
    [
        (Item("Apple", {}), "labels"),
        (Item("Apple", {"a [E] b": "a [E] b"}), "labels"),
        (Item("Apple", {"a": "a [DESCRIPTION] b"}), "labels"),
        (Item("Apple", {"a": "a"}, {"r": "[SEP_TEXT]"}), "relations"),
        (Item("Apple", {"\udc00": "a"}), "labels"),
    ],
)
def test_what_the_model_cannot_read_is_refused(item: Item, param: str, served: Any) -> None:
    with pytest.raises(InvalidField) as refused:
        served().prepare(item)
    assert refused.value.param == param


def test_published_forms_load(folder: Any, served: Any, tmp_path: Path) -> None:
    """Pickled weights, more embeddings than tokens, a list of special tokens, and the fields of old configurations."""
    old = copytree(folder(), tmp_path / "old")
    config = json.loads((old / "config.json").read_text())
    width = config.pop("span_head")["max_width"]
    for name in ("architecture", "architectures", "config_version", "architecture_version"):
        config.pop(name, None)
    (old / "config.json").write_text(json.dumps({**config, "max_width": width}))
    tokens = json.loads((old / "tokenizer_config.json").read_text())
    (old / "tokenizer_config.json").write_text(json.dumps({**tokens, "extra_special_tokens": ["[P]", "[E]"]}))
    tensors = load_file(old / "model.safetensors")
    (name,) = (name for name in tensors if name.endswith("word_embeddings.weight"))
    tensors[name] = torch.cat([tensors[name], torch.ones(7, tensors[name].shape[1])])
    (old / "model.safetensors").unlink()
    torch.save(tensors, old / "pytorch_model.bin")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        engine = load_engine(old, conversion_cache_dir=tmp_path / "converted")
    item = drawn_item(3)
    assert extract_one(engine, item) == extract_one(served(), item)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("config.json", {"auto_map": {"AutoModel": "model.Evil"}}, "auto_map"),
        ("encoder_config/config.json", {"auto_map": {"AutoModel": "model.Evil"}}, "auto_map"),
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["tokens.Evil", None]}}, "auto_map"),
        ("config.json", {"architecture": "other"}, "architecture 'other'"),
        ("config.json", {"counting_layer": "other"}, "cannot load"),
    ],
)
def test_a_checkpoint_is_checked_before_gliner2_sees_it(
    file: str, change: dict[str, Any], message: str, folder: Any, tmp_path: Path
) -> None:
    changed = copytree(folder(), tmp_path / "changed")
    content = json.loads((changed / file).read_text())
    (changed / file).write_text(json.dumps(content | change))
    with pytest.raises(ModelError, match=message):
        load_engine(changed)


@pytest.mark.parametrize("file", ["encoder_config/config.json", "tokenizer_config.json", "model.safetensors"])
def test_a_missing_file_is_named(file: str, folder: Any, tmp_path: Path) -> None:
    changed = copytree(folder(), tmp_path / "changed")
    (changed / file).unlink()
    with pytest.raises(ModelError, match=file):
        load_engine(changed)


def test_a_missing_tensor_is_named(folder: Any, tmp_path: Path) -> None:
    changed = copytree(folder(), tmp_path / "changed")
    tensors = load_file(changed / "model.safetensors")
    del tensors["count_pred.0.weight"]
    save_file(tensors, changed / "model.safetensors")
    with pytest.raises(ModelError, match=r"count_pred\.0\.weight"):
        load_engine(changed)
