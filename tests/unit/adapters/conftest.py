"""Adapters in a folder of the test's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from saved_by_peft import Save, Saved, save_adapter


@pytest.fixture
def save(tmp_path: Path) -> Save:
    def save(**options: Any) -> Saved:
        return save_adapter(tmp_path / "adapter", **options)

    return save
