"""Adapters are installed and removed under load: each item gets the result of its merged model, or an error."""

from __future__ import annotations

import itertools
import random
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import load_engine
from comparison import assert_same, gliner_extraction, random_item
from lora_training import Trained, linears, train
from safetensors.torch import load_file, save_file
from test_adapters import KINDS
from views import view

from gliner_bento.adapters.base import AdapterSettings
from gliner_bento.adapters.device import DeviceSlots
from gliner_bento.adapters.disk import AdapterStore
from gliner_bento.adapters.manager import AdapterManager
from gliner_bento.commands import InstallAdapter
from gliner_bento.engine.engine import GLiNEREngine
from gliner_bento.errors import AdapterInvalid, AdapterNotFound, ScoresNotFinite
from gliner_bento.scheduler.scheduler import Scheduler, SchedulerConfig
from gliner_bento.tasks.extraction import Extraction

PATIENCE_S = 120.0
COUNT = 7
ITEMS = [replace(random_item(seed, relations=False), threshold=0.2, multi_label=True) for seed in range(6)]


@dataclass
class Served:
    """A scheduler over one engine, with more adapters than slots and than fit in memory."""

    engine: GLiNEREngine
    scheduler: Scheduler
    manager: AdapterManager
    adapters: dict[str | None, Trained]
    expected: dict[tuple[str | None, int], Extraction]

    def submit(self, adapter: str | None, number: int) -> Future[Extraction]:
        item = replace(ITEMS[number], adapter_id=adapter)
        return self.scheduler.submit(item, request_id="r")


@pytest.fixture(scope="module")
def trained(checkpoint: Any, reference: Any, tmp_path_factory: Any) -> tuple[Path, dict[str | None, Any]]:
    """An adapter_root with adapters a0, a1, …, and for each, and for None, gliner's merged model."""
    options = {"backbone": "deberta", "seed": 2}
    gliner, root = reference("span", **options), tmp_path_factory.mktemp("adapters")
    engine = adaptable(checkpoint("span", **options))
    models: dict[str | None, Any] = {None: gliner}
    for number in range(COUNT):
        names = linears(engine, list(KINDS.values())[number % 3])
        models[f"a{number}"] = train(gliner, root / f"a{number}", names, seed=number, r=2 + number).merged
    return root, models


def adaptable(folder: Path) -> GLiNEREngine:
    return load_engine(folder, enable_lora=True, max_device_adapters=3)


@pytest.fixture
def served(checkpoint: Any, trained: Any, tmp_path: Path) -> Iterator[Served]:
    root, models = trained
    shutil.copytree(root, tmp_path / "root")
    engine = adaptable(checkpoint("span", backbone="deberta", seed=2))
    settings = view(
        AdapterSettings,
        disk_cache_dir=tmp_path / "cache",
        adapter_root=tmp_path / "root",
        max_disk_adapters=100,
        adapter_id_pattern=r"\w+",
        max_adapter_bytes=2**24,
        max_cpu_adapters=4,
    )
    assert engine.adapter_slots is not None
    assert engine.info.fingerprint is not None
    store = AdapterStore(settings, engine.info.fingerprint)
    manager = AdapterManager(store, engine.adapter_slots, engine.adaptable_layers, settings)
    engine.serve_adapters(manager.acquire)
    config = view(SchedulerConfig, max_batch_size=8, max_batch_tokens=1024, inference_lanes=2, decoding_threads=1)
    scheduler = Scheduler(engine, config)
    scheduler.start()
    expected = {
        (name, number): gliner_extraction(model, item)
        for name, model in models.items()
        for number, item in enumerate(ITEMS)
    }
    yield Served(engine, scheduler, manager, models, expected)
    scheduler.close()
    manager.close()


def test_adapters_differ(served: Served) -> None:
    """Otherwise the other tests could not distinguish them."""
    of_adapters = [str([served.expected[name, number] for number in range(len(ITEMS))]) for name in served.adapters]
    assert len(set(of_adapters)) == COUNT + 1


def test_more_adapters_than_slots_and_memory_are_all_served(served: Served) -> None:
    draw = random.Random(0)
    submitted = [(draw.choice(list(served.adapters)), draw.randrange(len(ITEMS))) for _ in range(150)]
    answers = [served.submit(*one) for one in submitted]
    for one, answer in zip(submitted, answers, strict=True):
        assert_same(answer.result(PATIENCE_S), served.expected[one])
    assert len({name for name, _ in submitted}) == COUNT + 1
    status = served.manager.status()
    assert len(status.in_memory) <= 4
    assert set(filter(None, status.device_slots)) <= set(status.in_memory)


@pytest.mark.parametrize("kind", KINDS)
def test_an_adapter_that_yields_nan_fails_its_own_items_only(
    kind: str, served: Served, trained: Any, tmp_path: Path, caplog: Any
) -> None:
    """Its weights are finite, as a check at load requires; its products are not."""
    root, _ = trained
    broken = Path(shutil.copytree(root / f"a{list(KINDS).index(kind)}", tmp_path / "root" / "broken"))
    file = broken / "adapter_model.safetensors"
    save_file({name: torch.full_like(weight, 1e30) for name, weight in load_file(file).items()}, file)
    draw = random.Random(0)
    submitted = [(draw.choice(["broken", None, "a1"]), draw.randrange(len(ITEMS))) for _ in range(60)]
    answers = [served.submit(*one) for one in submitted]
    for (name, number), answer in zip(submitted, answers, strict=True):
        if name == "broken":
            assert isinstance(answer.exception(PATIENCE_S), ScoresNotFinite)
        else:
            assert_same(answer.result(PATIENCE_S), served.expected[name, number])
    assert "(adapter broken): the model's scores are not numbers (NaN)" in caplog.text


def test_a_damaged_adapter_fails_its_own_items_with_a_clear_error(served: Served, trained: Any, tmp_path: Path) -> None:
    root, _ = trained
    broken = Path(shutil.copytree(root / "a0", tmp_path / "root" / "broken"))
    file = broken / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    answers = [served.submit(name, 0) for name in ("a1", "broken", None, "broken", "a2")]
    for name, answer in zip(("a1", "broken", None, "broken", "a2"), answers, strict=True):
        if name == "broken":
            error = answer.exception(PATIENCE_S)
            assert isinstance(error, AdapterInvalid)
            assert "adapter_model.safetensors" in error.message
        else:
            assert_same(answer.result(PATIENCE_S), served.expected[name, 0])


def test_results_stay_correct_while_adapters_are_installed_and_removed(
    served: Served, trained: Any, tmp_path: Path
) -> None:
    """One thread installs and removes copies of adapters while others use these and the permanent ones."""
    root, _ = trained
    (tmp_path / "root" / "new").mkdir()
    guests = Guests(served, root, tmp_path / "root" / "new")
    threads = [
        threading.Thread(target=guests.come_and_go),
        *(threading.Thread(target=guests.ask, args=(seed,)) for seed in range(2)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not guests.faults
    assert guests.over.is_set()
    assert guests.answered > 20
    assert guests.refused > 0


class Guests:
    """Adapters guest0, guest1, … with the content of a0, a1, …, which are installed and removed."""

    def __init__(self, served: Served, originals: Path, sources: Path) -> None:
        self.over = threading.Event()
        self.faults: list[BaseException] = []
        self.answered = self.refused = 0
        self._served = served
        self._originals = originals
        self._sources = sources

    def come_and_go(self) -> None:
        manager = self._served.manager
        turns = itertools.count()
        while (turn := next(turns)) < 12 or self.answered <= 20 or not self.refused:
            number = turn % COUNT
            shutil.copytree(self._originals / f"a{number}", self._sources / f"c{turn}")
            manager.install(InstallAdapter(f"guest{number}", f"new/c{turn}", preload=turn % 2 == 0))
            self._served.submit(f"guest{number}", 0).result(PATIENCE_S)
            manager.remove(f"guest{number}", PATIENCE_S)
        self.over.set()

    def ask(self, seed: int) -> None:
        draw = random.Random(seed)
        while not self.over.is_set():
            submitted = []
            for _ in range(8):
                kind, adapter, number = draw.choice(("a", "guest")), draw.randrange(COUNT), draw.randrange(len(ITEMS))
                submitted.append((f"a{adapter}", number, self._served.submit(f"{kind}{adapter}", number)))
            for like, number, answer in submitted:
                self._check(answer, self._served.expected[like, number])

    def _check(self, answer: Future[Extraction], expected: Extraction) -> None:
        try:
            assert_same(answer.result(PATIENCE_S), expected)
            self.answered += 1
        except AdapterNotFound:
            self.refused += 1
        except BaseException as fault:
            self.faults.append(fault)
            raise


def test_swapped_adapters_are_detected(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two adapters' slots swapped, each gives the other's results: the comparison detects that."""
    hold = DeviceSlots.hold

    @contextmanager
    def swapped(slots: DeviceSlots, adapters: Any) -> Iterator[dict[Any, int]]:
        with hold(slots, adapters) as slot_of:
            yield dict(zip(slot_of, reversed(list(slot_of.values())), strict=True))

    monkeypatch.setattr(DeviceSlots, "hold", swapped)
    prepared = [served.engine.prepare(replace(item, adapter_id=name)) for item in ITEMS for name in ("a0", "a1")]
    for one in prepared:
        one.adapter.ready.result(PATIENCE_S)
    given = served.engine.decode(served.engine.forward(served.engine.collate(prepared), 1))
    for number in range(len(ITEMS)):
        assert_same(given[2 * number], served.expected["a1", number])
        assert_same(given[2 * number + 1], served.expected["a0", number])
