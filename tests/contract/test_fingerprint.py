"""The fingerprint of a model, and replicas of different base models with one `disk_cache_dir`."""

from __future__ import annotations

import asyncio
import shutil
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import LABELS, TEXTS, load_engine, named, needs_int8
from gliner import GLiNER
from lora_training import train
from safetensors.torch import load_file, save_file

from gliner_bento.commands import FindAdapter, InstallAdapter, ListAdapters, RemoveAdapter
from gliner_bento.engine.checkpoint.fingerprint import SAMPLED_VALUES, fingerprint_of
from gliner_bento.errors import AdapterNotFound, Conflict
from gliner_bento.replicas.base import Call
from gliner_bento.replicas.local.replica import LocalReplica
from gliner_bento.settings import Settings
from gliner_bento.tasks.extraction import Extraction
from gliner_bento.tasks.extraction import ExtractionItem as Item

Checkpoint = Callable[..., Path]
WEIGHTS = "model.safetensors"


def fingerprint(folder: Path, **options: Any) -> str:
    found = load_engine(folder, **options).info.fingerprint
    assert found
    return found


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_it_is_the_same_in_every_dtype(checkpoint: Checkpoint, dtype: Any) -> None:
    folder = checkpoint("span", seed=1)
    assert fingerprint(folder, dtype=dtype) == fingerprint(folder)


@pytest.mark.parametrize(
    "options",
    [pytest.param({"quantization": "int8"}, marks=needs_int8), {"enable_lora": True, "max_device_adapters": 2}],
)
def test_it_does_not_depend_on_how_the_engine_computes(checkpoint: Checkpoint, options: dict[str, Any]) -> None:
    folder = checkpoint("span", seed=1)
    assert fingerprint(folder, **options) == fingerprint(folder)


def test_it_does_not_depend_on_the_files(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """Another folder, and weights in another order, as shards or a pickle have them, and in bfloat16."""
    folder = checkpoint("span", seed=1)
    shutil.copytree(folder, tmp_path / "copy")
    weights = load_file(folder / WEIGHTS)
    rounded = {name: weights[name].bfloat16() for name in reversed(weights)}
    save_file(rounded, tmp_path / "copy" / WEIGHTS)
    assert fingerprint(tmp_path / "copy") == fingerprint(folder)


def test_other_weights_have_another(checkpoint: Checkpoint) -> None:
    folders = [checkpoint("span", seed=seed) for seed in (1, 2)] + [checkpoint("token", seed=1)]
    assert len({fingerprint(folder) for folder in folders}) == 3


def test_a_short_training_of_one_layer_changes_it() -> None:
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(768, 768), torch.nn.Linear(768, 768))
        before = fingerprint_of(model)
        weight = model[1].weight
        assert weight.numel() > SAMPLED_VALUES
        weight += torch.randn_like(weight) * weight.std() * 0.01
    assert fingerprint_of(model) != before


def test_it_does_not_matter_whether_equal_weights_are_tied() -> None:
    tied = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    tied[1].load_state_dict(tied[0].state_dict())
    untied = fingerprint_of(tied)
    tied[1].weight = tied[0].weight
    assert fingerprint_of(tied) == untied


# Replicas


@contextmanager
def replica_of(model: Path, folder: Path, **settings: Any) -> Iterator[LocalReplica]:
    """A replica that stores adapters below `folder`."""
    options = {"dtype": "float32", "enable_lora": True, "warmup_iterations": 0} | settings
    replica = LocalReplica.load(Settings(model=str(model), disk_cache_dir=folder / "cache", **options))
    try:
        yield replica
    finally:
        replica.close()


@pytest.fixture(scope="module")
def archives(checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two adapters that fit both models, because they have the same shapes."""
    folder = tmp_path_factory.mktemp("archives")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gliner = GLiNER.from_pretrained(str(checkpoint("span", seed=1)))
    trained = [train(gliner, folder / str(seed), ["query", "value"], seed=seed, strength=2.0) for seed in range(2)]
    return [Path(shutil.make_archive(str(one.folder), "zip", one.folder)) for one in trained]


def test_replicas_of_different_base_models_do_not_see_each_others_adapters(
    checkpoint: Checkpoint, archives: list[Path], tmp_path: Path
) -> None:
    with (
        replica_of(checkpoint("span", seed=1), tmp_path) as one,
        replica_of(checkpoint("span", seed=2), tmp_path, max_disk_adapters=1) as other,
    ):

        async def scene() -> None:
            expected = await extracted(one, None)
            assert (await one.apply(InstallAdapter("tenant-a"), upload(archives[0])))[1]
            adapted = await extracted(one, "tenant-a")
            assert adapted != expected
            assert await other.apply(ListAdapters()) == []
            with pytest.raises(AdapterNotFound):
                await other.apply(FindAdapter("tenant-a"))
            with pytest.raises(AdapterNotFound):
                await extracted(other, "tenant-a")
            assert (await other.apply(InstallAdapter("tenant-a"), upload(archives[1])))[1]
            await other.apply(RemoveAdapter("tenant-a", 5.0))
            assert [info.id for info in await one.apply(ListAdapters())] == ["tenant-a"]
            assert await extracted(one, "tenant-a") == adapted

        asyncio.run(scene())


def test_replicas_of_one_base_model_share_adapters_whatever_its_folder_and_dtype(
    checkpoint: Checkpoint, archives: list[Path], tmp_path: Path
) -> None:
    model = checkpoint("span", seed=1)
    shutil.copytree(model, tmp_path / "copy")
    with replica_of(model, tmp_path) as one, replica_of(tmp_path / "copy", tmp_path, dtype="bfloat16") as other:

        async def scene() -> None:
            await one.apply(InstallAdapter("tenant-a"), upload(archives[0]))
            assert [info.id for info in await other.apply(ListAdapters())] == ["tenant-a"]
            with pytest.raises(Conflict, match="replace=true"):
                await other.apply(InstallAdapter("tenant-a"), upload(archives[1]))
            await other.apply(RemoveAdapter("tenant-a", 5.0))
            assert await one.apply(ListAdapters()) == []

        asyncio.run(scene())


async def extracted(replica: LocalReplica, adapter_id: str | None) -> Extraction:
    item = replace(Item(TEXTS[1], named(LABELS), threshold=0.0), adapter_id=adapter_id)
    [outcome] = await replica.extract([item], Call("r", time.monotonic() + 60))
    if not isinstance(outcome, Extraction):
        raise outcome
    return outcome


async def upload(archive: Path) -> AsyncIterator[bytes]:
    yield archive.read_bytes()
