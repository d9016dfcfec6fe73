"""Checkpoints that a request adds: all parts come from their own folder, and their configuration fits their weights."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import torch
from checkpoints import FAMILIES, checkpoint_in
from gliclass_checkpoints import tiny_gliclass
from gliner2_checkpoints import tiny_gliner2
from views import view

from gliner_bento.engine.checkpoint.find import HUB, WHOLE, ModelError
from gliner_bento.engine.checkpoint.hub import Hub
from gliner_bento.engine.checkpoint.load import load
from gliner_bento.engine.checkpoint.resolve import Checkpoint, find_checkpoint
from gliner_bento.engine.options import CheckpointOptions
from gliner_bento.errors import InvalidField
from gliner_bento.host.archives import ModelArchives
from gliner_bento.host.requests import ModelRequests
from gliner_bento.model_types import AddModelRequest
from gliner_bento.settings import Settings


@pytest.fixture(autouse=True)
def no_hub(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids that the hub was asked for."""
    asked: list[str] = []

    def refusal(_: Hub, repo_id: str, revision: str | None = None) -> str:
        asked.append(repo_id)
        return "it cannot be reached"

    monkeypatch.setattr(Hub, "refusal", refusal)
    return asked


def added(folder: Path) -> Checkpoint:
    return find_checkpoint(f"{WHOLE}{folder}", view(CheckpointOptions))


def changed(folder: Path, tmp_path: Path, lacks: tuple[str, ...] = (), **values: Any) -> Path:
    """A copy of a checkpoint whose configuration has other values (None: not at all), without the files `lacks`."""
    copy = copytree(folder, tmp_path / "copy")
    path = copy / "gliner_config.json"
    config = json.loads(path.read_text()) | values
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
    for name in lacks:
        (copy / name).unlink()
    return copy


@pytest.mark.parametrize("family", FAMILIES)
def test_a_whole_checkpoint_of_each_family_is_loaded(family: str, checkpoint: Any, no_hub: list[str]) -> None:
    found = added(checkpoint(family))
    assert not found.chosen
    load(found, torch.device("cpu"), torch.float32)
    assert not no_hub


@pytest.mark.parametrize("make", [tiny_gliner2, tiny_gliclass])
def test_a_whole_checkpoint_of_another_package_is_loaded(make: Any, tmp_path: Path, no_hub: list[str]) -> None:
    pytest.importorskip(make.__name__.removeprefix("tiny_"))
    load(added(make(tmp_path)), torch.device("cpu"), torch.float32)
    assert not no_hub


@pytest.mark.parametrize("source", ["owner/backbone", "bert-base-uncased", "/etc", "..", ".", "here"])
def test_no_part_comes_from_the_hub_or_another_folder(
    source: str, checkpoint: Any, tmp_path: Path, no_hub: list[str]
) -> None:
    if source == "here":
        source = str(checkpoint("span"))
    tokens = ("tokenizer_config.json",)
    cases: tuple[tuple[tuple[str, ...], dict[str, Any], str], ...] = (
        ((), {"encoder_config": None, "model_name": source}, "lacks the configuration that model_name names"),
        (tokens, {"model_name": source}, "lacks the tokenizer that model_name names"),
        (tokens, {"model_name": None}, "lacks the tokenizer that model_name names"),
        ((), {"labels_encoder": source}, "lacks the configuration and tokenizer that labels_encoder names"),
        ((), {"labels_decoder": source}, "lacks the configuration and tokenizer that labels_decoder names"),
    )
    for number, (lacks, values, message) in enumerate(cases):
        folder = changed(checkpoint("span"), tmp_path / str(number), lacks, **values)
        with pytest.raises(ModelError, match=message) as raised:
            added(folder)
        assert str(tmp_path) not in str(raised.value)
    assert not no_hub


def test_a_folder_that_is_added_is_no_hub_id_and_no_archive(tmp_path: Path, no_hub: list[str]) -> None:
    (tmp_path / "x.zip").touch()
    for source in ("owner/name", str(tmp_path / "x.zip"), "~", f"{HUB}owner/name"):
        with pytest.raises(ModelError):
            find_checkpoint(f"{WHOLE}{source}", view(CheckpointOptions))
    assert not no_hub


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_width": 10**9}, "max_width is 1000000000; it must be 1 to 1000"),
        ({"max_width": -5}, "max_width is -5"),
        ({"num_rnn_layers": 10**6}, r"num_rnn_layers is 1000000, but the weights have \d+ tensors"),
        ({"hidden_size": 2**20}, "does not fit gliner_config.json"),
        ({"num_post_fusion_layers": 10**9}, "num_post_fusion_layers is 1000000000"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused_before_it_takes_memory(
    values: dict[str, Any], message: str, checkpoint: Any, tmp_path: Path
) -> None:
    folder = changed(checkpoint("span"), tmp_path, **values)
    with pytest.raises(ModelError, match=message):
        load(added(folder), torch.device("cpu"), torch.float32)


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000"),
        ({"vocab_size": 10**12}, "does not fit"),
        ({"intermediate_size": 10**9}, "does not fit"),
        ({"backbone": "owner/name", "use_pretrained_backbone": True}, "names a further model"),
    ],
)
def test_an_encoder_that_does_not_fit_is_refused_before_it_takes_memory(
    encoder: dict[str, Any], message: str, checkpoint: Any, tmp_path: Path, no_hub: list[str]
) -> None:
    config = json.loads((checkpoint("span") / "gliner_config.json").read_text())["encoder_config"]
    folder = changed(checkpoint("span"), tmp_path, encoder_config=config | encoder)
    with pytest.raises(ModelError, match=message):
        load(added(folder), torch.device("cpu"), torch.float32)
    assert not no_hub


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("hidden_size", "x", 'hidden_size is "x"; it must be a whole number, 1 to 16777216'),
        ("hidden_size", None, "hidden_size is null; it must be a whole number"),
        ("hidden_size", -1, "hidden_size is -1; it must be"),
        ("hidden_size", 10**9, "hidden_size is 1000000000; it must be"),
        ("dropout", "nan", 'dropout is "nan"; it must be a number from 0 to 1'),
        ("dropout", 5, "dropout is 5; it must be"),
        ("num_rnn_layers", "x", 'num_rnn_layers is "x"; it must be a whole number, 0 or more'),
        ("encoder_config.hidden_act", "swoosh", 'encoder_config.hidden_act is "swoosh"; it must be an activation'),
        ("encoder_config.hidden_size", -8, "encoder_config.hidden_size is -8; it must be"),
        ("encoder_config.hidden_dropout_prob", 5, "encoder_config.hidden_dropout_prob is 5; it must be"),
        ("encoder_config.num_attention_heads", 0, "encoder_config.num_attention_heads is 0; it must be"),
        ("encoder_config.model_type", "nezha", "model_type 'nezha' is unknown to transformers"),
    ],
)
def test_a_value_that_no_model_can_have_is_named(
    key: str, value: Any, message: str, checkpoint: Any, tmp_path: Path
) -> None:
    """In place of what torch or a table says, which names no key."""
    folder = changed(checkpoint("span"), tmp_path)
    path = folder / "gliner_config.json"
    config = inner = json.loads(path.read_text())
    *parents, name = key.split(".")
    for parent in parents:
        inner = inner[parent]
    inner[name] = value
    path.write_text(json.dumps(config))
    with pytest.raises(ModelError, match=message) as raised:
        load(added(folder), torch.device("cpu"), torch.float32)
    assert "gliner cannot load 'copy': " in str(raised.value)


@pytest.mark.parametrize("target", ["/etc/passwd", "../../outside", "/etc"])
def test_a_link_that_leads_out_of_the_root_is_refused(target: str, tmp_path: Path) -> None:
    (tmp_path / "outside").touch()
    root = tmp_path / "root"
    (root / "model").mkdir(parents=True)
    (root / "model" / "inside").symlink_to("gliner_config.json")
    requests = ModelRequests(Settings.load({"model_root": root}), ModelArchives(None, 0), 0.5)
    assert requests.settings(AddModelRequest(name="a", source="model")).model == f"{WHOLE}{root.resolve() / 'model'}"
    (root / "model" / "tokenizer.json").symlink_to(target)
    with pytest.raises(InvalidField, match="a link that leads out of model_root"):
        requests.settings(AddModelRequest(name="a", source="model"))


def test_a_checkpoint_that_the_operator_names_may_lack_parts(checkpoint: Any) -> None:
    assert checkpoint_in(checkpoint("span")).chosen
