"""GLiClass checkpoints: the scores of gliclass's own pipeline, one call per text, whatever else is in a batch."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import LABELS, TEXTS, load_engine, named
from chunked_requests import long_text, passes_of
from comparison import extract_batch
from gliclass_checkpoints import expected, reference, tiny_gliclass
from lora_training import linears, serving, train

from gliner_bento.engine.checkpoint.find import ModelError
from gliner_bento.engine.classify import forward
from gliner_bento.errors import InvalidField, TooLarge
from gliner_bento.replicas.local.replica import LocalReplica
from gliner_bento.settings import Settings
from gliner_bento.tasks.classifications import Classification, classification_options, results_of
from gliner_bento.tasks.extraction import Extraction
from gliner_bento.tasks.extraction import ExtractionItem as Item

Make = Callable[..., Path]
PACKED: Mapping[str, dict[str, Any]] = {
    "deberta": {},
    "deberta-narrow": {"backbone": "deberta-narrow", "scorer_type": "weighted-dot", "seed": 1},
    "modernbert": {"backbone": "modernbert", "pooling_strategy": "avg"},
    "bert": {"backbone": "bert", "scorer_type": "mlp", "pooling_strategy": "max"},
    "roberta": {"backbone": "roberta", "scorer_type": "hopfield", "embed_class_token": False},
    "text-features": {"extract_text_features": True, "class_token_pooling": "average"},
    "text-first": {"prompt_first": False, "normalize_features": True, "pooling_strategy": "last"},
    "cross-attention": {"scorer_type": "cross-attn", "pooling_strategy": "pass", "use_lstm": True},
    "calibrated": {"use_calibrator": True, "calibrator_use_bias": True, "normalize_features": True},
    "fixed": {"max_labels_alloc": "fixed", "max_num_classes": 5, "scorer_type": "hopfield"},
}
GLICLASS_OWN: Mapping[str, dict[str, Any]] = {
    "inner-layer": {"encoder_layer_id": -2, "layer_wise": True},
    "segments": {"use_segment_embeddings": True, "extract_text_features": True},
    "electra": {"backbone": "electra"},
    "encoder-decoder": {"backbone": "t5", "architecture_type": "encoder-decoder"},
    "encoder-decoder-cls": {"backbone": "t5", "architecture_type": "encoder-decoder-cls", "use_calibrator": True},
    "decoder-kv": {"backbone": "qwen3", "architecture_type": "decoder-kv"},
}
KINDS = {
    "encoder-decoder": "GLiClassEncoderDecoder",
    "encoder-decoder-cls": "GLiClassEncoderDecoderCLS",
    "decoder-kv": "GLiClassDecoderKV",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Make:
    @cache
    def make(name: str) -> Path:
        return tiny_gliclass(tmp_path_factory.mktemp(name), **(PACKED | GLICLASS_OWN)[name])

    return make


def drawn(seed: int) -> Item:
    """An item with one classification, all of whose scores are in the answer."""
    draw = random.Random(seed)
    labels = draw.sample(LABELS, draw.randint(2, 5))
    one = Classification(
        {f"L{number}": label for number, label in enumerate(labels)} if draw.random() < 0.5 else named(labels),
        multi_label=draw.random() < 0.5,
        threshold=0.0,
        top_k=None,
        description=draw.choice([None, None, "which of the companies "]),
    )
    return Item(" ".join(draw.sample(TEXTS[:4], draw.choice([1, 1, 2]))), classifications={"c": one})


def scores_of(answer: Extraction, name: str = "c") -> dict[str, float]:
    return {one.label: one.score for one in answer.classifications[name].labels}


def assert_gliclass(answer: Extraction, folder: Path, item: Item) -> None:
    (one,) = item.classifications.values()
    theirs = dict(zip(one.labels, expected(folder, item.text, one), strict=True))
    assert scores_of(answer) == pytest.approx(theirs, abs=1e-4)


@pytest.mark.parametrize("name", [*PACKED, *GLICLASS_OWN])
def test_scores_are_gliclass_alone_and_in_a_batch(name: str, made: Make) -> None:
    engine = load_engine(made(name), self_test=True)
    assert (engine.info.self_test, engine.info.tasks) == ("passed", ("classifications",))
    own = f"gliclass's {KINDS.get(name, 'GLiClassUniEncoder')}, text by text"
    assert engine.info.forward.startswith("packed" if name in PACKED else own)
    items = [drawn(seed) for seed in range(10)]
    alone = [extract_batch(engine, [item])[0] for item in items]
    spread = {round(score, 1) for answer in alone for score in scores_of(answer).values()}
    assert len(spread) > 3, "the model says something"
    for item, answer in zip(items, alone, strict=True):
        assert_gliclass(answer, made(name), item)
    assert extract_batch(engine, items) == alone, "the same bits"


def test_a_padded_batch_as_on_a_gpu(made: Make) -> None:
    engine = load_engine(made("deberta"), padded=True)
    items = [drawn(seed) for seed in range(8)]
    for item, answer in zip(items, extract_batch(engine, items), strict=True):
        assert_gliclass(answer, made("deberta"), item)


@pytest.mark.parametrize("name", ["deberta", "text-first", "encoder-decoder", "decoder-kv"])
def test_a_long_text_is_merged_from_windows_that_gliclass_classifies_alike(name: str, made: Make) -> None:
    engine, text = load_engine(made(name)), long_text(3, 12)
    asked = {
        "mean": Classification(named(LABELS[:3]), threshold=0.0, top_k=None),
        "max": Classification(named(LABELS[2:]), True, 0.0, None, "max", "what is it "),
    }
    item = Item(text, classifications=asked)
    result, passes = passes_of(engine, item, seed=5)
    assert passes_of(engine, item)[0] == result, "whatever the order"
    assert result.usage.windows * len(asked) == len(passes) > 5
    assert result.usage.passes == len(passes)
    assert {name: one.merge for name, one in result.classifications.items()} == {"mean": "mean", "max": "max"}
    tokenizer = engine._preparer.tokenizer
    pieces = list(tokenizer.pieces(text, tokenizer.longest(asked), 128, 32))
    assert [text[piece.start : piece.end].split() for piece in pieces[:1]] == [text.split()[: pieces[0].words]]
    assert result.usage.words == len(text.split()) == sum(piece.words - piece.repeated for piece in pieces)
    assert all(one.tokens <= engine.info.max_words for one in passes)
    for name_of_task, one in asked.items():
        rows = [expected(made(name), text[piece.start : piece.end], one) for piece in pieces]
        merged = [max(row) if one.merge == "max" else sum(row) / len(row) for row in zip(*rows, strict=True)]
        theirs = dict(zip(one.labels, merged, strict=True))
        assert scores_of(result, name_of_task) == pytest.approx(theirs, abs=1e-4)


def test_a_long_text_without_spaces_is_cut_at_the_ends_of_its_sentences(made: Make) -> None:
    item = replace(drawn(1), text="東京日本語。" * 60)
    result, passes = passes_of(load_engine(made("deberta")), item)
    assert result.usage.windows == len(passes) > 3
    tokenizer = load_engine(made("deberta"))._preparer.tokenizer
    pieces = list(tokenizer.pieces(item.text, tokenizer.longest(item.classifications), 128, 32))
    assert "".join(item.text[piece.start : piece.end] for piece in pieces) == item.text
    assert all(item.text[: piece.end].endswith("。") for piece in pieces)


def test_several_classifications_of_a_short_text_are_those_of_single_calls(made: Make) -> None:
    engine = load_engine(made("deberta"))
    asked = {"one": drawn(1).classifications["c"], "two": drawn(2).classifications["c"]}
    result, passes = passes_of(engine, Item(TEXTS[0], classifications=asked))
    assert (len(passes), result.usage.windows) == (2, 1)
    for name, one in asked.items():
        (answer,) = extract_batch(engine, [Item(TEXTS[0], classifications={"c": one})])
        assert result.classifications[name] == answer.classifications["c"]
        assert answer.classifications["c"].merge is None


def test_groups_of_labels_are_gliclass_hierarchy(made: Make) -> None:
    groups = {"person": ["founder", "human"], "place": {"city": ["paris", "tokyo"]}}
    given: Any = {"c": {"labels": groups, "multi_label": True, "threshold": 0.0}}
    asked = classification_options(given, default_threshold=0.5, max_labels=10)
    (answer,) = extract_batch(load_engine(made("deberta")), [Item(TEXTS[3], classifications=asked)])
    (theirs,) = reference(made("deberta"))([TEXTS[3]], groups, threshold=0.0)
    assert scores_of(answer) == pytest.approx({one["label"]: one["score"] for one in theirs}, abs=1e-4)


def test_long_texts_are_cut_or_refused_if_the_request_says_so(made: Make) -> None:
    engine, item = load_engine(made("deberta")), replace(drawn(1), text=long_text(2, 10))
    cut = extract_batch(engine, [replace(item, long_text="truncate")])[0]
    assert cut.truncated_at
    assert cut.truncated
    assert item.text[cut.truncated_at].isspace()
    whole = extract_batch(engine, [replace(item, text=item.text[: cut.truncated_at])])[0]
    assert cut.classifications == whole.classifications
    assert passes_of(engine, replace(item, text=item.text[: cut.truncated_at + 20]))[0].usage.windows == 2
    with pytest.raises(TooLarge, match="text: the model's maximum length is 128 tokens"):
        engine.prepare(replace(item, long_text="reject"))
    blank = engine.prepare(replace(item, text=" \n")).result
    assert blank == Extraction((), classifications=results_of(item.classifications))
    words = passes_of(engine, replace(item, window_words=8, window_overlap_words=0))[1]
    assert max(one.words for one in words) == 8
    unbroken, passes = passes_of(engine, replace(item, text="paris," * 400))
    assert unbroken.usage.windows == len(passes) > 2
    for param in ("window_words", "window_overlap_words"):
        with pytest.raises(InvalidField, match=f"^{param}: 200"):
            engine.prepare(replace(item, **{param: 200}))


def asking(choices: Iterable[str], text: str = "a", **options: Any) -> Item:
    return Item(text, classifications={"c": Classification(named(choices))}, **options)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (
            asking("ab", labels={"x": "x"}),
            "labels: 'fixed0' does not support the task entities",
        ),
        (Item("a"), "classifications: Field required"),
        (asking("abcdef"), "classifications: 6 labels; the limit of the model is 5"),
        (asking(["person " * 80, "b"]), "classifications.c: the labels have"),
        (asking(["a<<LABEL>>b", "b"]), "classifications.c: contains a marker"),
        (asking(["a", "\ud800"]), "classifications.c: is not valid Unicode"),
        (asking("ab", "a <<LABEL>> b"), "text: contains a marker"),
        (asking("ab", "a <<SEP>> b"), "text: contains a marker"),
        (asking("ab", "a \ud800"), "text: is not valid Unicode"),
    ],
)
def test_what_the_model_cannot_do_is_refused(item: Item, message: str, made: Make) -> None:
    engine = load_engine(made("fixed"))
    with pytest.raises(InvalidField) as caught:
        engine.prepare(item)
    assert caught.value.message.startswith(message)


def test_a_failed_self_test_serves_gliclass_own_forward(
    made: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = forward.packed_model

    def packed(*given: Any) -> Any:
        encode = wrong(*given)
        return encode and (lambda *inputs: 1.1 * encode(*inputs))

    monkeypatch.setattr(forward, "packed_model", packed)
    with caplog.at_level(logging.ERROR):
        engine = load_engine(made("deberta"), self_test=True)
    assert "self-test failed" in caplog.text
    assert (engine.info.self_test, engine.info.forward) == ("failed", "gliclass's GLiClassUniEncoder, text by text")
    assert_gliclass(extract_batch(engine, [drawn(3)])[0], made("deberta"), drawn(3))


def test_adapters_of_a_batch_are_those_of_merged_models(made: Make, tmp_path: Path) -> None:
    cases: Any = (("deberta", {}), ("deberta", {"enable_sequence_packing": False}), ("encoder-decoder", {}))
    for number, (name_of_model, options) in enumerate(cases):
        engine = load_engine(made(name_of_model), enable_lora=True, max_device_adapters=2, **options)
        assert engine.info.fingerprint == load_engine(made(name_of_model)).info.fingerprint
        model = reference(made(name_of_model)).pipe
        kinds = {"encoder": lambda name: "coder_model" in name, "head": lambda name: "projector" in name}
        adapters = {
            kind: train(model, tmp_path / f"{kind}{number}", linears(engine, wanted), seed=seed)
            for seed, (kind, wanted) in enumerate(kinds.items())
        }
        items = [replace(drawn(seed), adapter_id=(None, *kinds)[seed % 3]) for seed in range(9)]
        with serving(engine, adapters):
            answers = extract_batch(engine, items)
        for item, answer in zip(items, answers, strict=True):
            (one,) = item.classifications.values()
            pipeline = adapters[item.adapter_id].merged if item.adapter_id else model
            (theirs,) = pipeline(
                [item.text],
                list(one.labels.values()),
                classification_type="multi-label" if one.multi_label else "single-label",
                prompt=one.description,
                return_hierarchical=True,
            )
            merged = {name: theirs[label] for name, label in one.labels.items()}
            assert scores_of(answer) == pytest.approx(merged, abs=1e-4)


def changed(folder: Path, **config: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | config), "utf-8")


def pickled(folder: Path) -> None:
    from safetensors.torch import load_file

    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def test_forms_of_a_checkpoint(tmp_path: Path) -> None:
    folder = tiny_gliclass(tmp_path)
    answers: list[Sequence[Extraction]] = [extract_batch(load_engine(folder), [drawn(1)])]
    pickled(folder)
    answers.append(extract_batch(load_engine(folder, convert=False), [drawn(1)]))
    assert answers[0] == answers[1]
    assert load_engine(folder, convert=False, max_model_len=60).info.max_words == 60
    refused = {
        "names code to run": {"auto_map": {"AutoModel": "x.py"}},
        "architecture 'bi-encoder'; served are uni-encoder, ": {"architecture_type": "bi-encoder"},
        "transformers has no encoder 'custom'": {"encoder_config": {"model_type": "custom", "auto": 1}},
    }
    original = (folder / "config.json").read_bytes()
    for message, config in refused.items():
        changed(folder, **config)
        with pytest.raises(ModelError, match=message):
            load_engine(folder, convert=False)
        (folder / "config.json").write_bytes(original)


def test_without_the_package_the_refusal_names_it(made: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from gliner_bento.engine.checkpoint import gliclass

    monkeypatch.setattr(gliclass, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"a GLiClass model, which needs the package gliclass; install"):
        load_engine(made("deberta"))


def test_a_replica_serves_it(made: Make) -> None:
    replica = LocalReplica.load(Settings(model=str(made("deberta")), device="cpu", dtype="float32"))
    try:
        assert (replica.model.self_test, replica.model.batch_invariant) == ("passed", True)
        item = replace(drawn(4), text=long_text(4, 15))
        (future,) = replica.scheduler.submit_many([item], request_id="r")
        assert future.result(60) == passes_of(load_engine(made("deberta")), item)[0]
    finally:
        replica.close()
