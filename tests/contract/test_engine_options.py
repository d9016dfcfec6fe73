"""Each engine option has its effect, and results stay the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import load_engine, needs_int8
from comparison import assert_same, extract_batch, extract_one, random_item

from gliner_bento.engine.checkpoint.find import ModelError
from gliner_bento.engine.layers import linear
from gliner_bento.engine.layers.kernels import Kernels


@pytest.mark.parametrize("backbone", ["bert", "deberta"])
def test_without_sequence_packing_transformers_encodes_padded_texts(backbone: str, checkpoint: Any) -> None:
    folder = checkpoint("span", backbone=backbone, seed=2)
    packed, padded = load_engine(folder), load_engine(folder, enable_sequence_packing=False)
    assert packed.packs
    assert packed.info.forward.startswith("packed ")
    assert not padded.packs
    assert padded.info.forward.startswith("transformers' ")
    items = [random_item(seed, relations=False) for seed in range(8)]
    for answer, expected in zip(extract_batch(padded, items), extract_batch(packed, items), strict=True):
        assert_same(answer, expected)


@needs_int8
def test_int8_is_reported_and_results_are_nearly_equal(checkpoint: Any) -> None:
    folder = checkpoint("span", backbone="bert", seed=1)
    exact, rounded = load_engine(folder), load_engine(folder, quantization="int8")
    assert rounded.info.dtype == "int8"
    differences = []
    for item in (random_item(seed, relations=False) for seed in range(30)):
        scores = {(e.start, e.end, e.label): e.score for e in extract_one(exact, item).entities}
        others = {(e.start, e.end, e.label): e.score for e in extract_one(rounded, item).entities}
        differences += [abs(scores[key] - others[key]) for key in scores.keys() & others.keys()]
    assert len(differences) > 30
    assert 0 < sum(differences) / len(differences) < 0.05


@needs_int8
def test_int8_results_do_not_depend_on_batching(checkpoint: Any) -> None:
    engine = load_engine(checkpoint("span", backbone="deberta", seed=2), quantization="int8")
    items = [random_item(seed, relations=False) for seed in range(8)]
    for item, answer in zip(items, extract_batch(engine, items), strict=True):
        assert_same(answer, extract_one(engine, item))


@needs_int8
def test_int8_scales_are_of_the_texts_in_a_file(checkpoint: Any, tmp_path: Path) -> None:
    folder, file = checkpoint("span", backbone="bert", seed=1), tmp_path / "texts.txt"
    item = random_item(3, relations=False)
    file.write_text(f"{item.text}\n\n", encoding="utf-8")
    own, of_package, exact = (
        load_engine(folder, **options)
        for options in ({"quantization": "int8", "calibration_file": file}, {"quantization": "int8"}, {})
    )
    scores = [[e.score for e in extract_one(engine, item).entities] for engine in (own, of_package, exact)]
    assert scores[0] != scores[1]
    assert all(len(one) == len(scores[2]) for one in scores)


@needs_int8
def test_a_layer_that_is_too_inexact_is_not_quantized_and_is_named(
    checkpoint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, item = checkpoint("span", backbone="bert", seed=1), random_item(3, relations=False)
    monkeypatch.setattr(linear, "INT8_MAX_ERROR", 0.0)
    engine = load_engine(folder, quantization="int8")
    assert "token_rep_layer.bert_layer.model.encoder.layer.0.attention.self.query" in engine.info.unquantized_layers
    assert_same(extract_one(engine, item), extract_one(load_engine(folder), item))


@needs_int8
@pytest.mark.parametrize(
    ("content", "reason"), [(None, "cannot be read"), (b"\xff\xfe", "cannot be read"), (b"\n \n", "has no text")]
)
def test_a_calibration_file_without_texts_is_refused(
    content: bytes | None, reason: str, checkpoint: Any, tmp_path: Path
) -> None:
    file = tmp_path / "texts.txt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ModelError, match=reason):
        load_engine(checkpoint("span", backbone="bert", seed=1), quantization="int8", calibration_file=file)


def test_int8_is_refused_where_it_would_be_slower(checkpoint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True, "avx512_vnni": False})
    with pytest.raises(ModelError, match="needs a CPU with VNNI or AMX"):
        load_engine(checkpoint("span", backbone="bert", seed=1), quantization="int8")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"calibration_file": Path("texts.txt")}, "is for quantization int8"),
        ({"quantization": "int8", "enable_sequence_packing": False}, "needs a packed encoder"),
        ({"quantization": "int8", "runtime": "onnxruntime"}, "for runtime torch"),
        ({"enable_flashdeberta": True, "runtime": "onnxruntime"}, "for runtime torch"),
    ],
)
def test_incompatible_options_are_refused(options: dict[str, Any], reason: str, tmp_path: Path) -> None:
    from checkpoints import tiny_checkpoint

    folder = tiny_checkpoint(tmp_path, "span", seed=1)
    (folder / "model.onnx").touch()
    with pytest.raises(ModelError, match=reason):
        load_engine(folder, **options)


@pytest.mark.parametrize(("size", "encoded"), [(4096, 6), (0, 12)])
def test_a_bi_encoder_caches_as_many_labels_as_the_setting_allows(size: int, encoded: int, checkpoint: Any) -> None:
    engine = load_engine(checkpoint("bi-span", seed=1), label_cache_size=size)
    items = [random_item(seed, relations=False) for seed in range(40)]
    item = next(item for item in items if len(item.labels) == 6)
    before = engine.encoded_labels  # by the checks at start
    first, second = extract_one(engine, item), extract_one(engine, item)
    assert_same(second, first)
    assert engine.encoded_labels - before == encoded


@pytest.mark.parametrize("family", ["span", "bi-span", "token", "relex-span"])
def test_the_weights_are_held_once(family: str, checkpoint: Any) -> None:
    """Beside its own weights, the forward holds little of gliner's model."""
    import gc

    folder = checkpoint(family, backbone="bert", seed=1)
    gc.collect()
    before = {id(each) for each in gc.get_objects()}
    engine = load_engine(folder, self_test=True)
    gc.collect()
    left = {type(each).__name__ for each in gc.get_objects() if id(each) not in before}
    assert "PostNormLayer" in left
    assert not left & {"BertModel", "BertLayer", "BertSelfAttention", "BertIntermediate"}
    assert engine.packs


def test_a_failing_compiler_is_reported(checkpoint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("no compiler")

    monkeypatch.setattr("gliner_bento.engine.engine.compiled", lambda: Kernels(fail, fail))
    with pytest.raises(ModelError, match="needs a C\\+\\+ compiler"):
        load_engine(checkpoint("span", backbone="deberta", seed=2), enable_compilation=True)
