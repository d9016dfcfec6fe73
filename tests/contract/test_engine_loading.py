"""Which checkpoints are loaded, and which are refused before anything runs."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from checkpoints import LABELS, TEXTS, checkpoint_in, load_engine, named
from comparison import extract_one
from safetensors.torch import load_file, save_file
from transformers import DebertaV2Model

from gliner_bento.engine.base import Engine
from gliner_bento.engine.checkpoint.device import computes_bfloat16, pick_device
from gliner_bento.engine.checkpoint.find import ModelError
from gliner_bento.engine.checkpoint.limits import token_limit
from gliner_bento.engine.checkpoint.load import check_flashdeberta
from gliner_bento.engine.checkpoint.load import load as load_model
from gliner_bento.engine.engine import GLiNEREngine
from gliner_bento.tasks.extraction import ExtractionItem as Item

LIVELY = {"seed": 1}


@pytest.fixture
def copy(checkpoint: Callable[..., Path], tmp_path: Path) -> Callable[..., Path]:
    """A copy of a checkpoint, to be damaged."""

    def copied(family: str = "span", **config: Any) -> Path:
        folder = tmp_path / "checkpoint"
        shutil.copytree(checkpoint(family, **LIVELY), folder)
        path = folder / "gliner_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **config}))
        return folder

    return copied


def load(folder: Path) -> GLiNEREngine:
    return load_engine(folder)


def test_reports_the_model(engine: Any) -> None:
    served: Engine = engine("relex-token", **LIVELY)
    info = served.info
    assert (info.family, info.supports_relations, info.max_span_width) == ("UniEncoderTokenRelexGLiNER", True, None)
    assert (info.device, info.dtype, info.max_words) == ("cpu", "float32", 48)
    assert info.forward == "packed BertModel, factorised tags"
    assert not info.supports_adapters


def test_is_named_after_its_folder(copy: Callable[..., Path]) -> None:
    assert load(copy()).info.model == "checkpoint"


@pytest.mark.parametrize("where", ["encoder_config", "root"])
def test_refuses_a_configuration_that_names_code(where: str, copy: Callable[..., Path]) -> None:
    folder = copy()
    path = folder / "gliner_config.json"
    config = json.loads(path.read_text())
    (config if where == "root" else config[where])["auto_map"] = {"AutoModel": "evil--modeling.Evil"}
    path.write_text(json.dumps(config))
    with pytest.raises(ModelError, match="auto_map"):
        load(folder)


def test_refuses_a_backbone_elsewhere_that_names_code(copy: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "backbone").mkdir()
    backbone = {"model_type": "bert", "auto_map": {"AutoModel": "modeling.Evil"}}
    (tmp_path / "backbone" / "config.json").write_text(json.dumps(backbone))
    (tmp_path / "backbone" / "modeling.py").write_text("raise SystemExit('code of a checkpoint has run')")
    with pytest.raises(ModelError, match="auto_map"):
        load(copy(encoder_config=None, model_name=str(tmp_path / "backbone")))


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"model_type": "gliner_streaming_span"}, "streaming"),
        ({"precomputed_prompts_mode": True}, "precomputed prompts"),
        ({"labels_decoder": "x", "decoder_mode": "prompt"}, "invents its labels"),
    ],
)
def test_refuses_what_it_cannot_serve(config: dict[str, Any], reason: str, copy: Callable[..., Path]) -> None:
    with pytest.raises(ModelError, match=reason):
        load(copy(**config))


@pytest.mark.parametrize(
    "value",
    [
        *({name: value} for name in ("max_len", "max_width") for value in (None, "256", -1, 0, 12.5, True, [256])),
        *({"max_types": value} for value in ("25", -1, 2.5)),
        *({"class_token_index": value} for value in (None, "7", -2)),
        *({name: value} for name in ("ent_token", "sep_token") for value in (None, "", 7, ["<<ENT>>"])),
    ],
    ids=json.dumps,
)
def test_refuses_a_value_that_no_model_can_have_and_names_it(value: dict[str, Any], copy: Callable[..., Path]) -> None:
    ((name, shown),) = value.items()
    with pytest.raises(ModelError) as raised:
        checkpoint_in(copy(**value))
    assert str(raised.value).startswith(f"{name} is {json.dumps(shown)}; it must be a ")


def test_takes_null_where_the_value_has_a_default(copy: Callable[..., Path]) -> None:
    assert load(copy(max_types=None)).info.max_words == 48


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
@pytest.mark.parametrize("part", ["pair_rep_layer", "prompt_rep_layer", "span_rep_layer"])
def test_refuses_a_head_with_numbers_that_are_not_finite(part: str, number: float, copy: Callable[..., Path]) -> None:
    """Also without the self-test, and a head that a request without relations does not use."""
    file = copy("relex-span") / "model.safetensors"
    tensors = load_file(file)
    name = next(name for name in sorted(tensors) if name.startswith(part))
    tensors[name].view(-1)[0] = number
    save_file(tensors, file)
    with pytest.raises(ModelError, match=f"model.safetensors has numbers that are NaN or infinite: {name}$"):
        load_engine(file.parent)


def test_refuses_a_backbone_configuration_beside_it_that_names_code(copy: Callable[..., Path]) -> None:
    """transformers reads it for the tokenizer, and would ask on the terminal whether to run the code."""
    folder = copy()
    (folder / "config.json").write_text(json.dumps({"auto_map": {"AutoConfig": "evil.Evil"}}))
    with pytest.raises(ModelError, match="auto_map"):
        load(folder)


def test_refuses_a_folder_without_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"gliner_config\.json"):
        load(tmp_path)


def test_refuses_a_tokenizer_that_names_code(copy: Callable[..., Path]) -> None:
    folder = copy("bi-span")
    path = folder / "labels_tokenizer" / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "auto_map": {"AutoTokenizer": ["evil.Evil", None]}}))
    with pytest.raises(ModelError, match="auto_map"):
        load(folder)


def test_refuses_a_missing_device() -> None:
    for device in ("cuda:99", "abacus"):
        with pytest.raises(ModelError, match=device):
            pick_device(device)


@pytest.mark.parametrize("dtype", ["bfloat16", "auto"])
@pytest.mark.parametrize("family", ["span", "token", "bi-span", "relex-span", "relex-token", "decoder-token"])
def test_runs_in_bfloat16(family: str, dtype: Any, checkpoint: Any) -> None:
    served = load_engine(checkpoint(family, **LIVELY), dtype=dtype)
    native = computes_bfloat16(torch.device("cpu"))
    assert served.info.dtype == ("bfloat16" if dtype != "auto" or native else "float32")
    relations = named(["founder", "lives in"]) if served.info.supports_relations else {}
    assert extract_one(served, Item(TEXTS[1], named(["person", "city"]), relations, threshold=0.3)).entities


def test_falls_back_to_float32_where_the_model_does_not_run_in_bfloat16(checkpoint: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("gliner_bento.engine.checkpoint.device.computes_bfloat16", lambda device: True)
    served = load_engine(checkpoint("relex-span-gcn", **LIVELY), dtype="auto")
    assert served.info.dtype == "float32"


@pytest.mark.parametrize("family", ["span", "token", "token-spans", "bi-span", "relex-span-dot", "relex-token"])
def test_runs_in_float16_on_a_cpu(family: str, checkpoint: Any, engine: Any) -> None:
    """Scores are as close to float32's as ten bits of mantissa allow."""
    served = load_engine(checkpoint(family, **LIVELY), dtype="float16")
    assert served.info.dtype == "float16"
    compared = 0
    for text in TEXTS:
        item = Item(text, named(LABELS), threshold=0.0, flat_ner=False, multi_label=True)
        exact = {(e.start, e.end, e.label): e.score for e in extract_one(engine(family, **LIVELY), item).entities}
        found = {(e.start, e.end, e.label): e.score for e in extract_one(served, item).entities}
        both = exact.keys() & found.keys()
        assert {key: found[key] for key in both} == pytest.approx({key: exact[key] for key in both}, abs=0.05)
        compared += len(both)
    assert compared > 50


def test_float32_is_never_computed_in_tf32(checkpoint: Any) -> None:
    torch.backends.cudnn.allow_tf32 = True
    load_engine(checkpoint("span", **LIVELY))
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32
    assert torch.get_float32_matmul_precision() == "highest"


def test_flashdeberta_needs_its_package_and_a_gpu(checkpoint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match="needs the package flashdeberta and a CUDA device"):
        load_engine(checkpoint("span", **LIVELY), enable_flashdeberta=True)
    with pytest.raises(ModelError, match=r"needs the package flashdeberta$"):
        check_flashdeberta(torch.device("cuda"))
    monkeypatch.setattr("gliner_bento.engine.checkpoint.load.find_spec", lambda name: object())
    with pytest.raises(ModelError, match=r"needs a CUDA device$"):
        check_flashdeberta(torch.device("cpu"))
    check_flashdeberta(torch.device("cuda"))


@pytest.mark.parametrize("backbone", ["bert", "deberta"])
def test_flashdeberta_is_never_silently_skipped(
    backbone: str, checkpoint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gliner falls back to the ordinary backbone; here that is an error."""
    monkeypatch.setattr("gliner_bento.engine.checkpoint.load.check_flashdeberta", lambda device: None)
    folder = checkpoint("span", backbone=backbone, seed=2)
    with pytest.raises(ModelError, match="did not use flashdeberta's"):
        load_model(checkpoint_in(folder), torch.device("cpu"), torch.float32, flashdeberta=True)


def test_flashdeberta_is_loaded_only_if_enabled(checkpoint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a fake of the package's class, which needs a GPU. Setting only the environment variable has no effect."""
    flash = type("FlashDebertaV2Model", (DebertaV2Model,), {})
    monkeypatch.setattr("gliner.modeling.encoder.IS_FLASHDEBERTA", True)
    monkeypatch.setattr("gliner.modeling.encoder.FlashDebertaV2Model", flash, raising=False)
    monkeypatch.setattr("gliner_bento.engine.checkpoint.load.check_flashdeberta", lambda device: None)
    monkeypatch.setenv("USE_FLASHDEBERTA", "1")
    folder = checkpoint("span", backbone="deberta", seed=2)
    for wanted in (True, False):
        model = load_model(checkpoint_in(folder), torch.device("cpu"), torch.float32, flashdeberta=wanted)
        assert (type(model.model.token_rep_layer.bert_layer.model) is flash) is wanted
    assert os.environ["USE_FLASHDEBERTA"] == "1"


@pytest.mark.parametrize(
    ("model_max_length", "table", "padding_idx", "limit"),
    [(512, 128, None, 128), (100, 128, None, 100), (10**30, 514, 1, 512), (10**30, None, None, None)],
)
def test_token_limit_of_tokenizer_and_encoder(
    model_max_length: int, table: int | None, padding_idx: int | None, limit: int | None
) -> None:
    tokenizer = SimpleNamespace(model_max_length=model_max_length)
    encoder = torch.nn.Module()
    if table is not None:
        encoder.position_embeddings = torch.nn.Embedding(table, 4, padding_idx=padding_idx)
    assert token_limit(encoder, tokenizer) == limit


@pytest.mark.parametrize("length", [-1, "x", float("nan"), [512]])
def test_a_tokenizer_without_a_possible_limit_is_refused(length: Any) -> None:
    with pytest.raises(ModelError, match=r"model_max_length in tokenizer_config.json is .*; it must be a whole number"):
        token_limit(torch.nn.Module(), SimpleNamespace(model_max_length=length))
