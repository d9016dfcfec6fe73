"""The models of a server as its next process should serve them: a file that all runners share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from gliner_bento.storage.files import file_lock


class Noted(msgspec.Struct):
    """added: the requests of models that were added, by name. unloaded: models that are not loaded at the start.
    pinned: whether each model that was pinned or unpinned is pinned. failures: number of failed loads since the last
    success, by runner and model; a load that killed the process counts."""

    added: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    unloaded: set[str] = msgspec.field(default_factory=set)
    pinned: dict[str, bool] = msgspec.field(default_factory=dict)
    failures: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)


class ModelsJournal:
    """The file `models.json` in `folder`, as the runner `service` sees it."""

    def __init__(self, folder: Path, service: str) -> None:
        self.folder = folder
        self._file = folder / "models.json"
        self._service = service

    def read(self) -> Noted:
        """The content of the file."""
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=Noted)
        except FileNotFoundError:
            return Noted()

    @contextmanager
    def changing(self) -> Iterator[Noted]:
        """The content of the file; changes are written when the context ends. Locks the file among processes."""
        with file_lock(self._file.with_suffix(".lock")):
            noted = self.read()
            yield noted
            written = self._file.with_suffix(".new")
            written.write_bytes(msgspec.json.encode(noted))
            os.replace(written, self._file)

    def failures(self) -> dict[str, int]:
        """The failures of this runner, by model."""
        return self.read().failures.get(self._service, {})

    def note_failures(self, name: str, count: int) -> None:
        """Note how often loading a model has failed since it was last loaded."""
        with self.changing() as noted:
            own = noted.failures.setdefault(self._service, {})
            own.pop(name, None)
            own.update({name: count} if count else {})

    def note_loaded(self, name: str, request: dict[str, Any] | None) -> None:
        """A model has been loaded. request: of one that was added."""
        with self.changing() as noted:
            noted.failures.get(self._service, {}).pop(name, None)
            noted.unloaded.discard(name)
            noted.added.update({name: request} if request else {})

    def note_unloaded(self, name: str, request: dict[str, Any] | None) -> None:
        """A model was unloaded by request, or was added without loading it."""
        with self.changing() as noted:
            noted.unloaded.add(name)
            noted.added.update({name: request} if request else {})

    def note_pinned(self, name: str, pinned: bool) -> None:
        """A model was pinned or unpinned by request."""
        with self.changing() as noted:
            noted.pinned[name] = pinned

    def forget(self, name: str) -> None:
        """A model was deleted."""
        with self.changing() as noted:
            noted.unloaded.discard(name)
            noted.added.pop(name, None)
            noted.pinned.pop(name, None)
            noted.failures.get(self._service, {}).pop(name, None)
