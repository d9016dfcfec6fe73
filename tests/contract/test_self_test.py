"""The self-test at start: a correct forward pass passes, a wrong one is replaced by gliner's own."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from checkpoints import FAMILIES, LABELS, TEXTS, checkpoint_in, load_engine, named, needs_int8
from chunked_requests import extract_in_passes, long_text
from comparison import assert_same, extract_batch, gliner_extraction, random_item
from lora_training import linears, serving, train
from test_adapters import KINDS
from views import view

from gliner_bento.engine.checkpoint.device import DType
from gliner_bento.engine.checkpoint.find import ModelError
from gliner_bento.engine.checkpoint.load import load
from gliner_bento.engine.encoders import bert
from gliner_bento.engine.engine import GLiNEREngine
from gliner_bento.engine.gliner_forward import MAX_PROPOSALS
from gliner_bento.engine.heads.relations import PairScorer
from gliner_bento.engine.layers.kernels import EAGER
from gliner_bento.engine.layers.packing import Block
from gliner_bento.engine.options import EngineOptions
from gliner_bento.engine.self_test import TOLERANCES, Difference, exceeded
from gliner_bento.engine.text.prompts import Prompt
from gliner_bento.engine.text.tokenize import ItemTokenizer, Tokenized
from gliner_bento.engine.text.words import Words
from gliner_bento.errors import LimitExceeded
from gliner_bento.replicas.local.replica import LocalReplica
from gliner_bento.settings import Settings
from gliner_bento.settings.configuration import PROJECT_ROOT
from gliner_bento.tasks.extraction import Extraction
from gliner_bento.tasks.extraction import ExtractionItem as Item

BERT = {"backbone": "bert", "seed": 1}
CASES = [
    *((family, BERT) for family in FAMILIES),
    *((family, {"backbone": "deberta", "seed": 2}) for family in ("span", "relex-token")),
    ("bi-token", {"backbone": "modernbert", "seed": 3}),
    ("bi-span", {"backbone": "electra", "seed": 3}),
    ("span", {**BERT, "fuse_layers": True}),
    ("relex-span", {**BERT, "relations_layer": "gat"}),
]
NEVER_IN_16_BITS = "relex-span-gcn"  # gliner's own adjacency does not run


def name_of(value: Any) -> str:
    return "-".join(map(str, value.values())) if isinstance(value, dict) else str(value)


def some_items(family: str) -> list[Item]:
    """For relations, short texts with few labels: gliner relates all spans above the threshold."""
    items = [random_item(seed, relations="relex" in family) for seed in range(6)]
    if "relex" not in family:
        return [replace(item, threshold=min(item.threshold, 0.1)) for item in items]
    return [
        replace(item, text=TEXTS[number % 2], labels=named(LABELS[:3]), threshold=0.5, relation_threshold=0.05)
        for number, item in enumerate(items)
    ]


def assert_gliners(answer: Extraction, model: Any, item: Item) -> None:
    """gliner's label decoder, and its graph attention, fail in a text without entities: nothing is compared."""
    try:
        expected = gliner_extraction(model, item)
    except (RuntimeError, AttributeError) as error:
        if "0 elements" in str(error) or "'dim'" in str(error):
            return
        raise
    assert_same(answer, expected)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("family", "options"), CASES, ids=name_of)
def test_a_correct_forward_pass_passes(family: str, options: dict[str, Any], dtype: DType, checkpoint: Any) -> None:
    folder = checkpoint(family, **options)
    if family == NEVER_IN_16_BITS and dtype != "float32":
        with pytest.raises(ModelError, match="m1 and m2 to have the same dtype"):
            load_engine(folder, dtype, self_test=True)
        return
    engine = load_engine(folder, dtype, self_test=True)
    assert engine.info.self_test == "passed"
    assert not engine.info.forward.startswith("gliner's Uni")


@pytest.mark.parametrize("family", ["token", "bi-span", "relex-span"])
def test_a_correct_forward_pass_passes_in_float16(family: str, checkpoint: Any) -> None:
    assert load_engine(checkpoint(family, **BERT), "float16", self_test=True).info.self_test == "passed"


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        pytest.param({"backbone": "deberta", "seed": 2}, {"quantization": "int8"}, marks=needs_int8),
        ({"backbone": "deberta", "seed": 2}, {"enable_sequence_packing": False}),
        (BERT, {"enable_lora": True}),
        (BERT, {"max_labels_per_pass": 1}),
    ],
    ids=name_of,
)
@pytest.mark.parametrize("family", ["token", "relex-span"])
def test_passes_with_other_settings(
    family: str, options: dict[str, Any], settings: dict[str, Any], checkpoint: Any
) -> None:
    assert load_engine(checkpoint(family, **options), self_test=True, **settings).info.self_test == "passed"


def test_a_model_of_two_words_passes(checkpoint: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(checkpoint("span", **BERT), tmp_path / "short")
    config = folder / "gliner_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "max_len": 2}))
    assert load_engine(folder, self_test=True).info.self_test == "passed"


def test_weights_that_are_damaged_in_the_same_way_for_gliner_are_a_warning(tmp_path: Path, caplog: Any) -> None:
    """The self-test passes: gliner gives the same meaningless scores."""
    demo = PROJECT_ROOT / "models" / "demo"
    folder = shutil.copytree(demo, tmp_path / "damaged")
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    weights["prompt_rep_layer.3.weight"].zero_()  # all labels have the same scores
    safetensors.torch.save_file(weights, folder / "model.safetensors")
    sound, damaged = load_engine(demo, self_test=True), load_engine(folder, self_test=True)
    assert [engine.info.self_test for engine in (sound, damaged)] == ["passed", "passed"]
    assert sound.info.warnings == ()
    (warning,) = damaged.info.warnings
    assert warning.startswith("obvious entities score low: 'Ada Lovelace' as person (")
    assert [record.message for record in caplog.records if "obvious" in record.message] == [f"damaged: {warning}"]


ATTEND = bert.attend


def _wrong_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bert, "attend", lambda q, k, v, block: 1.01 * ATTEND(q, k, v, block))


def _attention_to_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of other lengths change the result."""
    monkeypatch.setattr(bert, "attend", lambda q, k, v, block: ATTEND(q, k, v, Block(block.texts, block.length)))


def _failing_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("no kernel image\nis available")

    monkeypatch.setattr(bert, "attend", fail)


def _not_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bert, "attend", lambda q, k, v, block: math.nan * ATTEND(q, k, v, block))


def _wrong_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = EAGER._replace(relu_of_sums=lambda *arguments: EAGER.relu_of_sums(*arguments) + 0.003)
    monkeypatch.setattr("gliner_bento.engine.engine.EAGER", kernels)


def _wrong_relations(monkeypatch: pytest.MonkeyPatch) -> None:
    score = PairScorer.__call__
    monkeypatch.setattr(PairScorer, "__call__", lambda *arguments: score(*arguments) + 0.01)


FAULTS: list[tuple[Callable[[pytest.MonkeyPatch], None], str]] = [
    (_wrong_attention, "span"),
    (_wrong_attention, "bi-token"),
    (_wrong_attention, "decoder-token"),
    (_failing_attention, "bi-span"),
    (_not_a_number, "token"),
    (_wrong_kernel, "span"),
    (_wrong_relations, "relex-span"),
    (_wrong_relations, "relex-token"),
]


@pytest.mark.parametrize(("fault", "family"), FAULTS, ids=lambda value: getattr(value, "__name__", value))
def test_a_fault_is_found_and_gliners_forward_pass_serves(
    fault: Any,
    family: str,
    checkpoint: Any,
    reference: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = checkpoint(family, **BERT)
    fault(monkeypatch)
    engine = load_engine(folder, self_test=True)
    assert engine.info.self_test == "failed"
    assert engine.info.forward == f"gliner's {type(reference(family, **BERT).model).__name__}, text by text"
    (record,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    message = record.getMessage()
    assert "\n" not in message
    for part in ("self-test failed", f"torch {torch.__version__}", "transformers ", "gliner ", "gliner's own forward"):
        assert part in message
    items = some_items(family)
    answers = extract_batch(engine, items)
    for item, answer in zip(items, answers, strict=True):
        assert_gliners(answer, reference(family, **BERT), item)
    assert sum(len(answer.entities) for answer in answers) > 3


def test_a_large_fault_is_found_in_bfloat16(checkpoint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = checkpoint("span", **BERT)
    monkeypatch.setattr(bert, "attend", lambda q, k, v, block: -ATTEND(q, k, v, block))
    assert load_engine(folder, "bfloat16", self_test=True).info.self_test == "failed"


def test_a_text_that_changes_another_is_found(checkpoint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each text alone has the right scores: only a batch shows the fault."""
    folder = checkpoint("token", **BERT)
    assert load_engine(folder, self_test=True, padded=True).info.self_test == "passed"
    _attention_to_padding(monkeypatch)
    assert load_engine(folder, self_test=True, padded=True).info.self_test == "failed"


def test_without_the_setting_nothing_is_compared(checkpoint: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    folder = checkpoint("span", **BERT)
    _wrong_attention(monkeypatch)
    engine = load_engine(folder, self_test=False, batch_invariant=False)
    assert engine.info.self_test == "disabled"
    assert engine.info.forward.startswith("packed ")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_model_whose_answers_cannot_be_reproduced_is_refused(
    checkpoint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault before any forward pass: other tokens."""
    folder, tokenized = checkpoint("span", **BERT), ItemTokenizer.tokenized

    def wrong(self: Any, text: str, words: Words, prompt: Prompt) -> Tokenized:
        ids = words.token_ids.copy()
        ids[-1] -= 1
        return tokenized(self, text, replace(words, token_ids=ids), prompt)

    monkeypatch.setattr(ItemTokenizer, "tokenized", wrong)
    with pytest.raises(ModelError, match=r"cannot be reproduced with torch .*gliner 0.*self_test=false") as error:
        load_engine(folder, self_test=True)
    assert "\n" not in str(error.value)


def test_status_and_metric_show_a_failure(checkpoint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from gliner_bento.telemetry import metrics

    folder = checkpoint("span", **BERT)
    _wrong_attention(monkeypatch)
    settings = Settings(model=str(folder), device="cpu", dtype="float32", warmup_iterations=0)
    replica = LocalReplica.load(settings, observer_of=metrics.process_metrics().of_model)
    try:
        assert replica.model.self_test == "failed"
        assert replica.model.forward == "gliner's UniEncoderSpanModel, text by text"
        state = metrics.ReplicaState(replica.model.model, asyncio.run(replica.status()), None)
        failed = f'gliner_self_test{{model="{folder.name}",outcome="failed"}} 1.0'
        assert failed in metrics.exposition([state]).decode()
    finally:
        replica.close()


def test_a_score_that_is_not_a_number_exceeds_every_tolerance() -> None:
    key = ((0, 5), "city")
    near, wrong = Difference("Paris", key, 0.5, 0.50005), Difference("Paris", key, math.nan, 0.5)
    assert exceeded([near, near], TOLERANCES["float32"]) is None
    assert all(exceeded([near, wrong], tolerance) for tolerance in TOLERANCES.values())
    many = [Difference("Paris", key, 0.5, 0.75)] * 10
    assert exceeded(many[:1] + [near] * 99, TOLERANCES["bfloat16"]) is None
    assert "'city' of 'Paris' has score 0.50000, the reference is 0.75000" in str(
        exceeded(many, TOLERANCES["bfloat16"])
    )


# gliner's forward pass, served


def gliner_served(folder: Path, **options: Any) -> GLiNEREngine:
    model = load(checkpoint_in(folder), torch.device("cpu"), torch.float32)
    return GLiNEREngine(model, "gliner's", view(EngineOptions, **options), gliner_forward=True)


@pytest.mark.parametrize(("family", "options"), CASES, ids=name_of)
def test_gliners_forward_pass_gives_gliners_results(
    family: str, options: dict[str, Any], checkpoint: Any, reference: Any
) -> None:
    engine, gliner = gliner_served(checkpoint(family, **options)), reference(family, **options)
    items = some_items(family)
    answers = extract_batch(engine, items)
    for item, answer in zip(items, answers, strict=True):
        assert_gliners(answer, gliner, item)
    assert sum(len(answer.entities) for answer in answers) > 3
    assert "relex" not in family or sum(len(answer.relations) for answer in answers) > 1


@pytest.mark.parametrize("family", ["span", "token", "bi-span", "relex-span"])
def test_gliners_forward_pass_serves_windows_and_label_groups(family: str, checkpoint: Any) -> None:
    folder = checkpoint(family, **BERT)
    relations = named(["founder", "lives in"]) if "relex" in family else {}
    item = Item(long_text(3, sentences=12), named(LABELS), relations, threshold=0.6)
    served, ours = (
        make(folder, max_labels_per_pass=0 if family == "bi-span" else 4) for make in (gliner_served, load_engine)
    )
    answer, expected = extract_in_passes(served, item), extract_in_passes(ours, item)
    # Of the relations between given entities, gliner's forward pass has those between the ones that it predicts again.
    ends = {(one.relation, one.head.entity_idx, one.tail.entity_idx) for one in answer.relations}
    common = [one for one in expected.relations if (one.relation, one.head.entity_idx, one.tail.entity_idx) in ends]
    assert_same(answer, replace(expected, relations=common))
    assert answer.usage == expected.usage
    assert answer.usage.windows > 1
    assert len(answer.entities) > 5


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("span", {"backbone": "deberta", "seed": 2}),
        ("bi-token", BERT),
        ("token-spans", BERT),
        ("relex-token", BERT),
        ("relex-span", {**BERT, "relations_layer": "gat"}),
        ("decoder-span", BERT),
    ],
    ids=name_of,
)
def test_gliners_forward_pass_serves_adapters(
    family: str, options: dict[str, Any], checkpoint: Any, reference: Any, tmp_path: Path
) -> None:
    folder, gliner = checkpoint(family, **options), reference(family, **options)
    engine = gliner_served(folder, enable_lora=True, max_device_adapters=2)
    ours = load_engine(folder, enable_lora=True, max_device_adapters=2)
    assert set(linears(ours)) <= set(linears(engine))
    adapters = {
        kind: train(gliner, tmp_path / kind, linears(ours, KINDS[kind]), seed=seed)
        for seed, kind in enumerate(["attention", "everything"])
    }
    items = some_items(family)
    names = [None, "attention", "everything", "everything", None, "attention"]
    with serving(engine, adapters):
        answers = extract_batch(
            engine, [replace(item, adapter_id=name) for item, name in zip(items, names, strict=True)]
        )
    for answer, item, name in zip(answers, items, names, strict=True):
        assert_gliners(answer, adapters[name].merged if name else gliner, item)
    with serving(engine, adapters):
        changed = extract_batch(engine, [replace(item, adapter_id="everything") for item in items])
    assert [answer.entities for answer in changed] != [answer.entities for answer in answers]


def test_gliners_forward_pass_refuses_relations_of_too_many_spans(checkpoint: Any) -> None:
    engine = gliner_served(checkpoint("relex-token", **BERT))
    item = Item(" ".join(TEXTS[:2]), named(LABELS), named(["founder"]), threshold=0.0)
    (answer,) = extract_batch(engine, [item])
    assert isinstance(answer, LimitExceeded)
    assert f"the limit is {MAX_PROPOSALS}" in answer.message
    assert extract_batch(engine, [replace(item, relations={})])[0].entities
