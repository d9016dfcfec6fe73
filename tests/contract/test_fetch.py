"""Backbones from the hub's cache, and `gliner-bento models fetch`: a folder that needs nothing else."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import BACKBONES, LABELS, TEXTS, checkpoint_in, load_engine, named, wordpiece_tokenizer
from comparison import assert_same, extract_one
from hub import cached_folder
from safetensors.torch import load_file
from views import view

from gliner_bento import cli
from gliner_bento.engine.checkpoint.fetch import fetch
from gliner_bento.engine.checkpoint.find import ModelError
from gliner_bento.engine.checkpoint.load import load
from gliner_bento.engine.options import EngineOptions
from gliner_bento.settings.configuration import PROJECT_ROOT
from gliner_bento.tasks.extraction import ExtractionItem as Item

ITEM = Item(TEXTS[1], named(LABELS), threshold=0.3)


@pytest.fixture
def needy(checkpoint: Callable[..., Path], tmp_path: Path) -> Path:
    """A bi-encoder whose backbones' configurations and tokenizers are elsewhere, with pickled float16 weights."""
    folder = Path(shutil.copytree(checkpoint("bi-span", seed=1), tmp_path / "needy"))
    config = json.loads((folder / "gliner_config.json").read_text())
    del config["encoder_config"], config["labels_encoder_config"]
    config |= {"model_name": "one/backbone", "labels_encoder": "one/labels"}
    (folder / "gliner_config.json").write_text(json.dumps(config))
    tensors = load_file(folder / "model.safetensors")
    torch.save({name: tensor.half() for name, tensor in tensors.items()}, folder / "pytorch_model.bin")
    for name in ("model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    for name in ("tokenizer", "labels_tokenizer"):
        shutil.rmtree(folder / name)
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """The hub's cache, with both backbones."""
    for repo_id in ("one/backbone", "one/labels"):
        folder = cached_folder(tmp_path / "hub", repo_id)
        tokenizer = wordpiece_tokenizer()
        tokenizer.save_pretrained(folder)
        (folder / "config.json").write_text(json.dumps(BACKBONES["bert"] | {"vocab_size": len(tokenizer)}))
    return tmp_path / "hub"


def options(**changes: Any) -> EngineOptions:
    return view(EngineOptions, **changes)


def test_backbones_come_from_the_hubs_cache_and_are_refused_in_one_line_without(
    needy: Path, cache: Path, tmp_path: Path
) -> None:
    def start() -> Any:
        return load_engine(needy, cache_dir=cache, convert=False)

    assert extract_one(start(), ITEM).entities
    shutil.rmtree(cache / "models--one--labels")
    with pytest.raises(ModelError) as refused:
        start()
    assert str(refused.value) == (
        f"'{needy}' lacks the configuration and tokenizer of its backbone 'one/labels', which is not in the cache "
        f"{cache} and cannot be downloaded (HF_HUB_OFFLINE is set); where the hub can be reached, run "
        f"`gliner-bento models fetch {needy} -o FOLDER`, then serve FOLDER"
    )


def test_a_backbone_on_another_machine_is_refused_in_one_line(needy: Path) -> None:
    """As it was trained; gliner writes the name that it was given."""
    config = json.loads((needy / "gliner_config.json").read_text())
    (needy / "gliner_config.json").write_text(json.dumps(config | {"model_name": "/data/deberta"}))
    with pytest.raises(
        ModelError, match=r"of its backbone '/data/deberta', which is neither a folder nor a hub id; copy"
    ):
        load_engine(needy)


def test_a_checkpoint_with_all_parts_needs_no_hub(checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(checkpoint("bi-span", seed=1), tmp_path / "whole"))
    config = json.loads((folder / "gliner_config.json").read_text())
    (folder / "gliner_config.json").write_text(json.dumps(config | {"model_name": "a/b", "labels_encoder": "c/d"}))
    assert extract_one(load_engine(folder, cache_dir=tmp_path / "nothing"), ITEM).entities


@pytest.fixture
def _signals() -> Iterator[None]:
    """The command handles SIGTERM."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("_signals")
def test_a_fetched_folder_needs_nothing_else_and_answers_the_same(
    needy: Path, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the command line; it serves offline, as all tests are."""
    (needy / "README.md").write_text("---\nlanguage: [en, nl]\n---\n")
    expected = extract_one(load_engine(needy, cache_dir=cache, convert=False), ITEM)
    output = tmp_path / "new" / "fetched"
    assert cli.main(["models", "fetch", str(needy), "-o", str(output), "--cache-dir", str(cache)]) == 0
    assert capsys.readouterr().out == f"{output}: 0.2 MB; serve it with: gliner-bento serve --model {output}\n"
    assert cli.main(["models", "fetch", str(needy), "-o", str(output), "--cache-dir", str(cache)]) == 1
    assert capsys.readouterr().err == f"gliner-bento: models fetch: {output} exists and is not an empty folder\n"
    assert [path.name for path in output.parent.iterdir()] == ["fetched"]
    shutil.rmtree(cache)
    shutil.rmtree(needy)
    engine = load_engine(output, cache_dir=cache)
    assert_same(extract_one(engine, ITEM), expected)
    assert engine.info.languages == ["en", "nl"]
    assert {tensor.dtype for tensor in load_file(output / "model.safetensors").values()} == {torch.float16}
    assert len({(output / name).stat().st_mode for name in ("model.safetensors", "gliner_config.json")}) == 1
    assert load(checkpoint_in(output), torch.device("cpu"), torch.float32).config.model_name == "one/backbone"


def test_an_ended_fetch_leaves_nothing(needy: Path, cache: Path, tmp_path: Path) -> None:
    """It is ended while it imports torch, which does not end here."""
    for folder in ("new", "endless"):
        (tmp_path / folder).mkdir()
    importing = tmp_path / "importing"
    (tmp_path / "endless" / "torch.py").write_text(f"import time; open({str(importing)!r}, 'w'); time.sleep(3600)")
    path = os.pathsep.join([str(tmp_path / "endless"), str(PROJECT_ROOT)])
    command = ["models", "fetch", str(needy), "-o", str(tmp_path / "new" / "fetched"), "--cache-dir", str(cache)]
    with subprocess.Popen(
        [sys.executable, "-m", "gliner_bento.cli", *command], env=os.environ | {"PYTHONPATH": path}
    ) as run:
        try:
            while not importing.exists():
                assert run.poll() is None
                time.sleep(0.01)
            assert list((tmp_path / "new").iterdir())
            run.send_signal(signal.SIGTERM)
            assert run.wait(60) == 143
        finally:
            run.kill()  # no matter if it has ended
    assert list((tmp_path / "new").iterdir()) == []


def test_a_used_folder_is_not_fetched_to(needy: Path, tmp_path: Path) -> None:
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "mine").touch()
    for used in (tmp_path / "used", tmp_path / "used" / "mine"):
        with pytest.raises(ModelError, match=r"used.* exists and is not an empty folder$"):
            fetch(str(needy), used, options())
    assert [path.name for path in (tmp_path / "used").iterdir()] == ["mine"]


def test_a_full_disk_leaves_nothing_half_fetched(checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    folder, before = checkpoint("span", seed=1), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        with pytest.raises(ModelError, match=r"cannot be written: .*File too large"):
            fetch(str(folder), tmp_path / "fetched", options())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []
