"""The files of adapters: tensors that do not fit the model, missing files, and damaged or made-up content."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from adapter_reading import A, B, read, refused
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig
from peft_adapters import LAYERS, Save, encoder, layers_of, save_adapter
from safetensors.torch import load_file, save

from gliner_bento.adapter_types import SAVE_AS_SAFETENSORS
from gliner_bento.adapters.adapter import TEXT_ENCODER, check_adapter, read_adapter
from gliner_bento.adapters.archive import CONFIG_FILE, WEIGHTS_FILE
from gliner_bento.errors import AdapterInvalid

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tensors: tensors.pop(A), "query_proj' has no lora_A.weight"),
        (lambda tensors: tensors.pop(B), "query_proj' has no lora_B.weight"),
        (lambda tensors: tensors.clear(), "no tensors"),
        (lambda tensors: tensors.update({A: torch.zeros(2, 9)}), "lora_A.weight has shape [2, 9], not [2, 8]"),
        (lambda tensors: tensors.update({B: torch.zeros(9, 2)}), "lora_B.weight has shape [9, 2], not [8, 2]"),
        (lambda tensors: tensors.update({B: torch.zeros(8, 3)}), "lora_B.weight has shape [8, 3], not [8, 2]"),
        (lambda tensors: tensors.update({A: torch.zeros(2)}), "lora_A.weight has shape [2], not [2, 8]"),
        (lambda tensors: tensors.update({A: torch.tensor(1.0)}), "has rank 0"),
        (lambda tensors: tensors.update({A: torch.zeros(0, 8), B: torch.zeros(8, 0)}), "has rank 0"),
        (lambda tensors: tensors.update({A: torch.zeros(3, 8), B: torch.zeros(8, 3)}), "has rank 3, and"),
        (lambda tensors: tensors.update({A: torch.zeros(9, 8), B: torch.zeros(8, 9)}), "the server's maximum is 8"),
        (lambda tensors: tensors.update({A: tensors[A].double()}), "'F64'"),
        (lambda tensors: tensors.update({A: tensors[A].to(torch.int8)}), "'I8'"),
        (
            lambda tensors: tensors.update({B.replace("weight", "bias"): torch.zeros(8)}),
            "has a bias, which",
        ),
        (lambda tensors: tensors.update({"base_model.model.x.lora_magnitude_vector": torch.ones(8)}), "of DoRA"),
        (lambda tensors: tensors.update({"base_model.model.x.weight": torch.ones(8)}), "not a LoRA tensor"),
        (lambda tensors: tensors.update({A.removeprefix("base_model.model."): torch.ones(2, 8)}), "not a LoRA tensor"),
        (lambda tensors: tensors.update({A.replace("query", "quary"): tensors.pop(A)}), "quary_proj' is not in this"),
        (
            lambda tensors: tensors.update({A.replace(".query_proj", ""): tensors.pop(A)}),
            "attention.self' cannot have an adapter: not a linear layer",
        ),
        (
            lambda tensors: tensors.update({f"base_model.model.{'x' * 9999}.lora_A.weight": torch.ones(2, 8)}),
            "xxx...xxx",
        ),
    ],
)
def test_mismatched_tensors_are_refused_by_the_layers_name(save: Save, change, words):
    message = refused(save().tensors(change))
    assert words in message
    assert len(message) < 300


def test_an_embedding_is_refused_with_its_reason(save: Save):
    def rename(tensors):
        for part in ("A", "B"):
            tensors[f"base_model.model.embeddings.word_embeddings.lora_{part}.weight"] = tensors.pop(
                A.replace("lora_A", f"lora_{part}")
            )

    assert "word_embeddings' cannot have an adapter: an embedding" in refused(save().tensors(rename))


def test_layers_relative_to_different_modules_are_refused(save: Save):
    def rename(tensors):
        for key in (A, B):
            tensors[key.replace("base_model.model.", f"base_model.model.{TEXT_ENCODER}")] = tensors.pop(key)

    assert "is not in this model" in refused(save().tensors(rename))


def test_shapes_are_checked_against_the_model(save: Save):
    saved = save()
    fewer = {name: shape for name, shape in LAYERS.items() if ".layer.1." not in name}
    with pytest.raises(AdapterInvalid, match=r"layer\.1\..*is not in this model"):
        read_adapter(saved.folder, fewer, max_rank=8)
    assert read_adapter(saved.folder, layers_of(encoder()), max_rank=8).updates.keys() == {
        f"encoder.layer.{layer}.attention.self.query_proj" for layer in (0, 1)
    }


@pytest.mark.parametrize("key", [A, B, B.replace("weight", "bias")])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_not_finite_are_refused_when_tensors_are_read(save: Save, key, value):
    folder = save(lora_bias=True).tensors(lambda tensors: tensors[key].view(-1)[-1:].fill_(value))
    check_adapter(folder, LAYERS, max_rank=8)
    with pytest.raises(AdapterInvalid, match="not finite"):
        read(folder)


def test_pickled_weights_are_refused_by_name(save: Save):
    folder = save().folder
    (folder / WEIGHTS_FILE).rename(folder / "adapter_model.bin")
    assert f"'adapter_model.bin' is never unpickled; {SAVE_AS_SAFETENSORS}" in refused(folder)


def test_the_advice_for_pickled_weights_works(save: Save):
    folder = save().folder
    tensors = load_file(folder / WEIGHTS_FILE)
    torch.save(tensors, folder / "adapter_model.bin")
    (folder / WEIGHTS_FILE).unlink()
    command = shlex.split(SAVE_AS_SAFETENSORS.rpartition("or: ")[2])
    subprocess.run([sys.executable, *command[1:]], check=True, cwd=folder)
    assert load_file(folder / WEIGHTS_FILE).keys() == tensors.keys()
    check_adapter(folder, LAYERS, max_rank=8)


@pytest.mark.parametrize("name", [CONFIG_FILE, WEIGHTS_FILE])
def test_a_missing_file_is_named(save: Save, name):
    folder = save().folder
    (folder / name).unlink()
    assert f"there is no {name}" in refused(folder)
    (folder / name).mkdir()
    assert f"there is no {name}" in refused(folder)


def test_a_missing_folder_is_refused(tmp_path):
    assert "cannot be read" in refused(tmp_path / "nothing")


@pytest.fixture(scope="module")
def example(tmp_path_factory) -> tuple[Path, bytes, bytes]:
    """A folder to write into, and what belongs there."""
    folder = tmp_path_factory.mktemp("example")
    save_adapter(folder)
    return folder, (folder / CONFIG_FILE).read_bytes(), (folder / WEIGHTS_FILE).read_bytes()


def written(example: tuple[Path, bytes, bytes], *, config: bytes | None = None, weights: bytes | None = None) -> Path:
    folder, config_before, weights_before = example
    (folder / CONFIG_FILE).write_bytes(config_before if config is None else config)
    (folder / WEIGHTS_FILE).write_bytes(weights_before if weights is None else weights)
    return folder


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_weights_truncated_anywhere_are_refused(example, data):
    cut = data.draw(st.integers(0, len(example[2]) - 1))
    refused(written(example, weights=example[2][:cut]))
    refused(written(example, weights=example[2] + b"\0" * (cut + 1)))


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_a_damaged_header_is_refused_or_says_the_same(example, data):
    whole = bytearray(example[2])
    header_end = 8 + int.from_bytes(whole[:8], "little")
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, header_end - 1))] = data.draw(st.integers(0, 255))
    folder = written(example, weights=bytes(whole))
    try:
        plan = check_adapter(folder, LAYERS, max_rank=8)
    except AdapterInvalid:
        with pytest.raises(AdapterInvalid):
            read(folder)
        return
    assert plan == check_adapter(written(example), LAYERS, max_rank=8)
    written(example, weights=bytes(whole))
    with suppress(AdapterInvalid):  # safetensors also checks what is not used here
        read(folder)


@given(header=st.binary(max_size=200), tail=st.binary(max_size=20))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_refused_as_weights(example, header, tail):
    refused(written(example, weights=len(header).to_bytes(8, "little") + header + tail))


@pytest.mark.parametrize(
    "header",
    [
        b"{}",
        b"[]",
        b'{"a": 1}',
        b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], "more": 1}}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}',
        b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [18446744073709551615, 2], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, '
        b'"b": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}',
        b'{"__metadata__": {"a": 1}, "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}',
    ],
    ids=lambda header: header[:60].decode(),
)
def test_headers_that_contradict_themselves_or_the_file_are_refused(example, header):
    refused(written(example, weights=len(header).to_bytes(8, "little") + header + b"\0" * 4))


def test_a_header_larger_than_any_adapters_is_refused(example):
    size = 5 * 2**20
    refused(written(example, weights=size.to_bytes(8, "little") + b" " * size))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(name=st.sampled_from(sorted(LoraConfig.__dataclass_fields__)), value=JSON)
@settings(max_examples=80, deadline=None)
def test_any_value_of_any_field_is_accepted_or_refused(example, name, value):
    config = json.loads(example[1]) | {name: value}
    folder = written(example, config=json.dumps(config).encode())
    with suppress(AdapterInvalid):
        assert read(folder).updates


def test_tensors_are_saved_as_safetensors_writes_them(example):
    """A header by other writers: no metadata, another order."""
    tensors = load_file(written(example) / WEIGHTS_FILE)
    assert read(written(example, weights=save(dict(reversed(tensors.items()))))).rank == 2
