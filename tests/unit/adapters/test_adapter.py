"""The configuration of adapters: what it means, against what PEFT saves and computes, and what is refused."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from adapter_reading import ATTENTION, A, B, read, refused
from peft import IA3Config, LoraConfig
from peft_adapters import LAYERS, Save, model, wrapper
from safetensors.torch import load_file, save_file

from gliner_bento.adapters import peft_config
from gliner_bento.adapters.adapter import TEXT_ENCODER, Adapter, check_adapter
from gliner_bento.adapters.archive import CONFIG_FILE, GLINER2_WEIGHTS_FILE, WEIGHTS_FILE
from gliner_bento.errors import AdapterInvalid

SLOW = r"((\w|\.)+)+!"
PATTERNS = {
    "r": 4,
    "target_modules": ["query_proj", "value_proj", "dense"],
    "rank_pattern": {"layer.1.attention.self.query_proj": 3, r"layer\.[01]\.output\.dense": 1, "value_proj": 2},
    "alpha_pattern": {r"^encoder\.layer\.0\.attention.*": 5, "dense": 0.5},
}


def assert_as_peft(saved, prefix: str = TEXT_ENCODER) -> Adapter:
    adapter = read(saved.folder)
    expected = {prefix + name: delta for name, delta in saved.deltas().items()}
    assert adapter.updates.keys() == expected.keys() != set()
    for name, (weight, bias) in expected.items():
        update = adapter.updates[name]
        assert update.a.dtype == update.b.dtype == torch.float32
        torch.testing.assert_close(update.b @ update.a, weight)
        assert (update.bias is None) == (bias is None)
        if bias is not None:
            torch.testing.assert_close(update.bias, bias)
    plan = check_adapter(saved.folder, LAYERS, max_rank=8)
    assert plan.layers.keys() == expected.keys()
    assert plan.rank == adapter.rank == max(update.a.shape[0] for update in adapter.updates.values())
    assert {name: layer.rank for name, layer in plan.layers.items()} == {
        name: update.a.shape[0] for name, update in adapter.updates.items()
    }
    return adapter


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"r": 1, "lora_alpha": 3},
        {"r": 8, "lora_dropout": 0.5, "lora_alpha": 0.25},
        {"use_rslora": True, "r": 5},
        {"lora_bias": True, "lora_alpha": 7},
        PATTERNS,
        PATTERNS | {"use_rslora": True, "lora_bias": True},
        {"target_modules": r".*\.layer\.1\..*(query|key)_proj"},
        {"target_modules": "all-linear"},
        {"target_modules": "all-linear", "exclude_modules": ["value_proj", "encoder.layer.0.output.dense"]},
        {"target_modules": "all-linear", "exclude_modules": r".*\.attention\..*"},
        {"target_modules": ["dense"], "layers_to_transform": [1], "layers_pattern": "layer"},
        {"target_modules": ["dense"], "layers_to_transform": 0, "layers_pattern": ["blocks?", "lay(er)?"]},
        {"init_lora_weights": "gaussian"},
        {"init_lora_weights": "orthogonal"},
        {"init_lora_weights": "mica"},
        {"init_lora_weights": False},
        {"task_type": "FEATURE_EXTRACTION"},
        {"bias": "lora_only", "target_modules": ["query_proj"]},
    ],
    ids=str,
)
def test_every_layer_gets_what_peft_adds(save: Save, options):
    if "bias" in options:  # layers without a bias have no tensor for it

        def without_biases(module):
            for name in ("0", "1"):
                module.get_submodule(f"encoder.layer.{name}.attention.self.query_proj").bias = None
            return module

        options = options | {"of": without_biases}
    assert_as_peft(save(**options))


@pytest.mark.parametrize(("of", "prefix"), [(model, ""), (wrapper, None), (lambda it: it, TEXT_ENCODER)])
def test_names_may_be_relative_to_the_model_its_wrapper_or_its_text_encoder(save: Save, of, prefix):
    saved = save(of=of)
    if prefix is not None:
        assert_as_peft(saved, prefix)
    names = {TEXT_ENCODER + f"encoder.layer.{layer}.attention.self.query_proj" for layer in (0, 1)}
    assert read(saved.folder).updates.keys() == names


def in_gliner2s_form(folder: Path, tensors: dict[str, torch.Tensor], **fields: Any) -> Path:
    folder.mkdir()
    (folder / CONFIG_FILE).write_text(json.dumps({"adapter_type": "lora", "lora_r": 2, "lora_alpha": 8.0} | fields))
    save_file(tensors, folder / GLINER2_WEIGHTS_FILE)
    return folder


def test_gliner2s_own_form_says_what_pefts_does(save: Save, tmp_path):
    saved = save(of=model, r=2, lora_alpha=8)
    tensors = load_file(saved.folder / WEIGHTS_FILE)
    own = {name.removeprefix("base_model.model.").removesuffix(".weight"): one for name, one in tensors.items()}
    expected, found = read(saved.folder), read(in_gliner2s_form(tmp_path / "own", own))
    assert found.rank == expected.rank == 2
    assert found.updates.keys() == expected.updates.keys() != set()
    for name, update in found.updates.items():
        assert torch.equal(update.a, expected.updates[name].a)
        assert torch.equal(update.b, expected.updates[name].b)

    assert "lora_r: Input should be" in refused(in_gliner2s_form(tmp_path / "rank", own, lora_r="2"))
    assert "has rank 2, and adapter_config.json says 3" in refused(in_gliner2s_form(tmp_path / "other", own, lora_r=3))
    assert "twice, once in gliner2's form" in refused(
        in_gliner2s_form(tmp_path / "twice", own | load_file(saved.folder / WEIGHTS_FILE))
    )


def test_patterns_match_the_names_of_training(save: Save):
    """`^` is the start of the layer's name in PEFT's model, not in gliner's."""
    saved = save(of=wrapper, lora_alpha=2, alpha_pattern={r"^model\.token_rep_layer.*layer\.0.*": 6})
    scales = {name: layer.scale for name, layer in check_adapter(saved.folder, LAYERS, max_rank=8).layers.items()}
    assert sorted(scales.values()) == [1.0, 3.0]
    assert scales[f"{TEXT_ENCODER}{ATTENTION}.query_proj"] == 3.0


def test_a_layer_computes_what_peft_has_merged(save: Save):
    saved = save(lora_bias=True, use_rslora=True, lora_alpha=3)
    adapter = read(saved.folder)
    update = adapter.updates[f"{TEXT_ENCODER}{ATTENTION}.query_proj"]
    base = saved.peft.get_base_model().get_submodule(f"{ATTENTION}.query_proj").base_layer
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    ours = torch.nn.functional.linear(x, base.weight, base.bias) + x @ update.a.T @ update.b.T + update.bias
    merged = saved.peft.merge_and_unload().get_submodule(f"{ATTENTION}.query_proj")
    torch.testing.assert_close(ours, merged(x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_read_as_float32(save: Save, dtype):
    def halve(tensors):
        for name in tensors:
            tensors[name] = tensors[name].to(dtype)

    saved = save(lora_alpha=3)
    folder = saved.tensors(halve)
    tensors = load_file(folder / WEIGHTS_FILE)
    update = read(folder).updates[f"{TEXT_ENCODER}{ATTENTION}.query_proj"]
    assert torch.equal(update.a, tensors[A].float())
    assert torch.equal(update.b, tensors[B].float() * 1.5)


def test_missing_fields_have_pefts_defaults(save: Save):
    saved = save(r=8)
    (saved.folder / CONFIG_FILE).write_text(json.dumps({"peft_type": "LORA", "target_modules": ["query_proj"]}))
    assert_as_peft(saved)


def test_the_name_of_the_base_model_has_no_effect(save: Save):
    assert read(save().config(base_model_name_or_path="of/somebody")).rank == read(save().folder).rank


@pytest.mark.parametrize("value", [None, False, [], {}, ""])
def test_an_unknown_field_may_be_empty(save: Save, value):
    read(save().config(from_the_future=value))


def test_an_unknown_field_with_a_value_is_refused_by_name(save: Save):
    assert "'from_the_future'" in refused(save().config(from_the_future={"x": 0}))


def test_every_field_of_peft_is_read_or_without_effect_or_refused(save: Save):
    saved = save()
    read_fields = set(peft_config._Fields.model_fields) | peft_config._WITHOUT_EFFECT
    others = set(LoraConfig.__dataclass_fields__) - read_fields
    assert {"use_dora", "modules_to_save", "trainable_token_indices", "layer_replication", "target_parameters"} < others
    assert {"use_qalora", "alora_invocation_tokens", "megatron_config", "velora_config", "arrow_config"} < others
    for name in others:
        assert f"'{name}'" in refused(saved.config(**{name: {"some": 1}}))
        saved.config(**{name: None})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"use_dora": True}, "use_dora"),
        ({"modules_to_save": ["output.dense"]}, "modules_to_save"),
        ({"trainable_token_indices": {"word_embeddings": [1]}}, "trainable_token_indices"),
        ({"target_modules": ["query_proj", "word_embeddings"]}, "of an embedding"),
        ({"bias": "all"}, "a bias of the model itself"),
        ({"bias": "lora_only"}, "a bias of the model itself"),
        ({"init_lora_weights": "pissa"}, "'pissa'"),
        ({"init_lora_weights": "pissa_niter_2"}, "'pissa_niter_2'"),
        ({"init_lora_weights": "olora"}, "'olora'"),
        ({"config": IA3Config(target_modules=["query_proj"], feedforward_modules=[])}, "peft_type: 'IA3'"),
    ],
    ids=str,
)
def test_unsupported_peft_features_are_refused(save: Save, options, words):
    assert words in refused(save(**options).folder)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("peft_type", None, "peft_type"),
        ("peft_type", ["LORA"], "peft_type"),
        ("init_lora_weights", "corda", "init_lora_weights"),
        ("init_lora_weights", "loftq", "init_lora_weights"),
        ("init_lora_weights", "lora_ga", "init_lora_weights"),
        ("init_lora_weights", 1, "init_lora_weights"),
        ("r", "2", "r: "),
        ("r", 0, "r: "),
        ("r", True, "r: "),
        ("r", 2.0, "r: "),
        ("r", None, "r: "),
        ("lora_alpha", "8", "lora_alpha"),
        ("lora_alpha", True, "lora_alpha"),
        ("lora_alpha", float("nan"), "lora_alpha"),
        ("lora_alpha", float("inf"), "lora_alpha"),
        ("lora_alpha", 10**400, "lora_alpha"),
        ("rank_pattern", [], "rank_pattern"),
        ("rank_pattern", {"query_proj": "2"}, "rank_pattern"),
        ("rank_pattern", {"query_proj": -1}, "rank_pattern"),
        ("rank_pattern", {"(": 2}, "rank_pattern: is not a regular expression"),
        ("rank_pattern", {"(" * 5000: 2}, "rank_pattern: is not a regular expression"),
        ("alpha_pattern", {"query_proj": None}, "alpha_pattern"),
        ("alpha_pattern", {"[[a]query_proj": 2}, "alpha_pattern: is not a regular expression"),
        ("use_rslora", 1, "use_rslora"),
        ("lora_bias", "yes", "lora_bias"),
        ("bias", "some", "bias"),
        ("target_modules", None, "target_modules"),
        ("target_modules", [1], "target_modules"),
        ("target_modules", [], "not in target_modules"),
        ("target_modules", ["value_proj"], "not in target_modules"),
        ("target_modules", "query", "not in target_modules"),
        ("target_modules", "[", "target_modules: is not a regular expression"),
        ("exclude_modules", "(?P<", "exclude_modules: is not a regular expression"),
        ("exclude_modules", ["query_proj"], "not in target_modules"),
        ("layers_to_transform", "1", "layers_to_transform"),
        ("layers_to_transform", [5], "not in target_modules"),
        ("layers_pattern", "layer", "layers_pattern"),
        ("rank_pattern", {"query_proj": 3}, "has rank 2, and adapter_config.json says 3"),
        ("r", 4, "has rank 2, and adapter_config.json says 4"),
        ("lora_bias", True, "has no bias"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_field_with_a_wrong_value_is_refused_by_name(save: Save, field, value, words):
    assert words in refused(save().config(**{field: value}))


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"r": ' + b"9" * 10_000 + b"}", b" " * 300_000],
    ids=lambda content: content[:8].decode(errors="replace"),
)
def test_an_invalid_configuration_is_refused(save: Save, content):
    saved = save()
    (saved.folder / CONFIG_FILE).write_bytes(content)
    assert CONFIG_FILE in refused(saved.folder)


@pytest.mark.parametrize(
    "fields",
    [
        {"rank_pattern": {SLOW: 2}},
        {"alpha_pattern": {SLOW: 2}},
        {"target_modules": SLOW},
        {"exclude_modules": SLOW},
        {"layers_to_transform": [1], "layers_pattern": [SLOW]},
    ],
    ids=" ".join,
)
def test_a_pattern_that_takes_too_long_is_refused(save: Save, fields):
    """After a second of CPU time, whatever else the machine does."""
    assert peft_config.PATTERN_CPU_S == 1
    before_s = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    assert "takes too long to match" in refused(save().config(**fields))
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before_s < 3


def test_a_pattern_on_a_busy_machine_is_refused_after_a_while(save: Save, monkeypatch):
    monkeypatch.setattr(peft_config, "PATTERN_TIMEOUT_S", 0.3)
    monkeypatch.setattr(peft_config, "PATTERN_CPU_S", 100)
    assert "takes too long to match" in refused(save().config(target_modules=SLOW))


def test_many_plain_patterns_need_no_process(save: Save, monkeypatch):
    def no_process(*_, **__):
        raise AssertionError("a process was started")

    monkeypatch.setattr(peft_config.subprocess, "run", no_process)
    names = {f"encoder.layer.{layer}.attention.self.query_proj": 2 for layer in range(100)}
    saved = save(rank_pattern=names, alpha_pattern={"^encoder.layer.1.attention.self.query_proj": 3})
    assert_as_peft(saved)


def test_nothing_that_a_configuration_names_is_imported(save: Save, tmp_path, monkeypatch):
    (tmp_path / "named_by_a_config.py").write_text("raise AssertionError")
    monkeypatch.syspath_prepend(tmp_path)
    named = {"base_model_class": "Model", "parent_library": "named_by_a_config"}
    read(save().config(auto_mapping=named, megatron_core="named_by_a_config"))
    assert "named_by_a_config" not in sys.modules


def test_the_maximum_rank_is_a_setting(save: Save):
    saved = save(**PATTERNS)
    assert "has rank 4; the server's maximum is 3" in refused(saved.folder, max_rank=3)
    assert read(saved.folder, max_rank=4).rank == 4


def test_a_scale_beyond_float32_is_refused(save: Save):
    folder = save().config(lora_alpha=1e300)
    with pytest.raises(AdapterInvalid, match="not finite"):
        read(folder)
