"""Checkpoints and engines, made once for all contract tests."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # transformers' DeBERTa scripts functions when it is imported
    from checkpoints import load_engine, tiny_checkpoint
    from gliner import GLiNER

    from gliner_bento.engine.engine import GLiNEREngine


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `gpu` are skipped where there is none."""
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _as_in_a_new_process(no_level_of_logs: None) -> None:
    pass


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The folder of a tiny checkpoint: `checkpoint(family, **options)`."""

    @cache
    def made(family: str, **options: Any) -> Path:
        return tiny_checkpoint(tmp_path_factory.mktemp(family), family, **options)

    return made


@pytest.fixture(scope="session")
def engine(checkpoint: Callable[..., Path]) -> Callable[..., GLiNEREngine]:
    """An engine in float32 on the CPU over that checkpoint: `engine(family, padded=False, **options)`."""

    @cache
    def loaded(family: str, padded: bool = False, **options: Any) -> GLiNEREngine:
        return load_engine(checkpoint(family, **options), padded=padded)

    return loaded


@pytest.fixture(scope="session")
def reference(checkpoint: Callable[..., Path]) -> Callable[..., Any]:
    """gliner's own model over that checkpoint: `reference(family, **options)`."""

    @cache
    def loaded(family: str, **options: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return GLiNER.from_pretrained(str(checkpoint(family, **options)))

    return loaded
