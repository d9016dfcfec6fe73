"""A file that all runners share: which models a process serves when it is started again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from gliner_bento.storage.files import file_lock


class JournalContent(msgspec.Struct):
    """added: the requests that added models, by name. unloaded: models that are not loaded at the start. pinned: the
    last value that a request has set, by model. failures: number of failed loads since the last success, by runner and
    model; a load that killed the process counts."""

    added: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    unloaded: set[str] = msgspec.field(default_factory=set)
    pinned: dict[str, bool] = msgspec.field(default_factory=dict)
    failures: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)


class ModelsJournal:
    """The file `models.json` in `folder`. service: this runner's name, under which its failures are kept."""

    def __init__(self, folder: Path, service: str) -> None:
        self.folder = folder
        self._file = folder / "models.json"
        self._service = service

    def read(self) -> JournalContent:
        """The content of the file."""
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=JournalContent)
        except FileNotFoundError:
            return JournalContent()

    @contextmanager
    def changing(self) -> Iterator[JournalContent]:
        """The content of the file; changes are written when the context ends. Locks the file among processes."""
        with file_lock(self._file.with_suffix(".lock")):
            content = self.read()
            yield content
            temporary = self._file.with_suffix(".new")
            temporary.write_bytes(msgspec.json.encode(content))
            os.replace(temporary, self._file)

    def failures(self) -> dict[str, int]:
        """The failures of this runner, by model."""
        return self.read().failures.get(self._service, {})

    def note_failures(self, name: str, count: int) -> None:
        """Note how often loading a model has failed since it was last loaded."""
        with self.changing() as content:
            counts = content.failures.setdefault(self._service, {})
            if count:
                counts[name] = count
            else:
                counts.pop(name, None)

    def note_loaded(self, name: str, request: dict[str, Any] | None) -> None:
        """Note that a model has been loaded. request: the request that added it, if any."""
        with self.changing() as content:
            content.failures.get(self._service, {}).pop(name, None)
            content.unloaded.discard(name)
            if request:
                content.added[name] = request

    def note_unloaded(self, name: str, request: dict[str, Any] | None) -> None:
        """Note that a model was unloaded by request, or added without loading it."""
        with self.changing() as content:
            content.unloaded.add(name)
            if request:
                content.added[name] = request

    def note_pinned(self, name: str, pinned: bool) -> None:
        """Note that a model was pinned or unpinned by request."""
        with self.changing() as content:
            content.pinned[name] = pinned

    def forget(self, name: str) -> None:
        """Forget a model that was deleted."""
        with self.changing() as content:
            content.unloaded.discard(name)
            content.added.pop(name, None)
            content.pinned.pop(name, None)
            content.failures.get(self._service, {}).pop(name, None)
