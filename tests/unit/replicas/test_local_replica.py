"""What the replica of this process does beside the contract: warm up, drain, report its load, take its settings."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from doubles.fake_engine import FAKE_INFO, FakeEngine
from doubles.memory_adapters import MemoryManager
from replica_calls import call, item, run, scheduler_config
from serving import LONG, PASS_WORDS, LocalServing, parts_of

from gliner_bento.errors import NotReady, StartupError
from gliner_bento.replicas.local.adapters import LocalAdapters
from gliner_bento.replicas.local.replica import LocalReplica
from gliner_bento.replicas.local.uploads import Uploads
from gliner_bento.settings import Settings

Start = Callable[..., LocalReplica]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a replica over an engine, which several items of a batch may reach."""
    started: list[LocalReplica] = []

    def start(engine: FakeEngine, **options: Any) -> LocalReplica:
        config = scheduler_config(max_batch_size=8, max_batch_tokens=1000)
        adapters = LocalAdapters(options.pop("manager", None), Uploads(tmp_path))
        started.append(LocalReplica(engine, config, adapters=adapters, **options))
        return started[-1]

    yield start
    for replica in started:
        replica.close()


@pytest.mark.parametrize(("sizes", "iterations", "items"), [((2, 4), 3, 19), ((), 5, 1), ((8,), 0, 1)])
def test_warms_up_with_every_size_in_every_iteration(
    start: Start, sizes: Sequence[int], iterations: int, items: int
) -> None:
    engine = FakeEngine()
    start(engine).warm_up(sizes, iterations)
    assert sum(map(len, engine.batches)) == items


def test_a_warm_up_that_fails_raises(start: Start) -> None:
    replica = start(FakeEngine(forward_error=lambda item: ValueError("broken")))
    with pytest.raises(Exception, match="internal error"):
        replica.warm_up((1,), 1)


def test_a_warm_up_that_fails_leaves_shared_adapters_open(start: Start) -> None:
    manager = MemoryManager()
    shared = start(FakeEngine(forward_error=lambda item: ValueError("broken")), manager=manager)
    with pytest.raises(Exception, match="internal error"):
        LocalReplica.load(Settings.load({"device": "cpu"}), shared=shared)
    assert not manager.closed


def test_a_drained_replica_has_ended_its_items_and_admits_none(start: Start) -> None:
    gate = threading.Event()
    replica = start(FakeEngine(on_forward=lambda batch: gate.wait(30)))

    async def scene() -> tuple[Any, bool, bool, Any]:
        running = asyncio.ensure_future(replica.extract([item()], call()))
        await asyncio.sleep(0)
        early = await asyncio.to_thread(replica.drain, 0.01)
        gate.set()
        drained = await asyncio.to_thread(replica.drain, 30)
        return await running, early, drained, await replica.extract([item()], call())

    (outcome,), early, drained, (refused,) = run(scene)
    assert outcome.entities
    assert (early, drained, replica.ready) == (False, True, False)
    assert type(refused) is NotReady


def test_closing_closes_the_adapters(start: Start) -> None:
    manager = MemoryManager()
    start(FakeEngine(), manager=manager).close()
    assert manager.closed


def test_entities_arrive_in_the_parts_of_the_passes_they_are_from(tmp_path: Path) -> None:
    serving = LocalServing(tmp_path)
    serving.release()
    try:
        parts, last = run(lambda: parts_of(serving.replica.stream(item(LONG), call())))
    finally:
        serving.end()
    assert {len(part) for part in parts} == {PASS_WORDS}
    assert not last.entities


def test_a_folder_that_adapters_cannot_be_stored_in_ends_the_start() -> None:
    """Even root cannot create files there."""
    settings = Settings.load({"enable_lora": "true", "disk_cache_dir": "/sys/kernel"})
    with pytest.raises(StartupError, match=r"^disk_cache_dir: adapters cannot be stored in /sys/kernel: "):
        LocalAdapters.check_storage(settings)


def test_a_read_only_store_of_the_model_ends_the_start(tmp_path: Path) -> None:
    engine: Any = SimpleNamespace(adapter_slots="slots", info=replace(FAKE_INFO, fingerprint="model"))
    (tmp_path / "model").symlink_to("/sys/kernel")
    settings = Settings.load({"enable_lora": "true", "disk_cache_dir": str(tmp_path)})
    with pytest.raises(StartupError, match=f"adapters cannot be stored in {tmp_path}/model: "):
        LocalAdapters.load(engine, settings, None)
