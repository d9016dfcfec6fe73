"""Requests that add models: checks them, and finds the checkpoints."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from gliner_bento.engine.checkpoint.find import HUB, WHOLE
from gliner_bento.errors import InvalidField
from gliner_bento.host.archives import ModelArchives
from gliner_bento.host.hosted import HostedModel
from gliner_bento.model_types import UPLOADED, AddModelRequest
from gliner_bento.settings import Settings
from gliner_bento.settings.marks import OfOperator, marked
from gliner_bento.settings.models import MODEL_PROPERTIES, checked_own
from gliner_bento.storage.archives import shown

_MAX_FILES = 10_000  # of a folder that a request adds


class ModelRequests:
    """Makes rows from requests. memory_fraction: `target_memory_fraction` of a model whose request does not set it."""

    def __init__(self, settings: Settings, archives: ModelArchives, memory_fraction: float) -> None:
        self._settings, self._archives, self._memory_fraction = settings, archives, memory_fraction

    def row(self, request: AddModelRequest, *, uploading: bool = False) -> HostedModel:
        """The row of the model that a request adds. uploading: its archive is not stored yet. Raises `InvalidField`."""
        settings = self.settings(request, uploading=uploading)
        return HostedModel(request.name, settings, pinned=request.pinned, request=request)

    def settings(self, request: AddModelRequest, *, uploading: bool = False) -> Settings:
        """The settings of the model that a request adds; see `row`."""
        if reserved := sorted(request.settings.keys() & MODEL_PROPERTIES):
            raise InvalidField(f"settings: {reserved[0]} is not a setting", param="settings")
        if reserved := sorted(request.settings.keys() & marked(Settings, OfOperator).keys()):
            raise InvalidField(f"settings: {reserved[0]} can only be set where the server is started", param="settings")
        try:
            own = checked_own(request.settings)
        except ValueError as error:
            raise InvalidField(f"settings: {error}", param="settings") from None
        own = {"target_memory_fraction": self._memory_fraction} | own
        source = "" if uploading else self._source(request.name, request.source)
        return self._settings.with_own(request.name, source, own)

    def _source(self, name: str, source: str) -> str:
        """The checkpoint of a request's `source`, as the setting `model` takes it."""
        root = self._settings.model_root
        if source == UPLOADED:
            if not (folder := self._archives.find(name)):
                raise InvalidField("source: no archive was sent, or it has no files", param="source")
            return WHOLE + str(folder)
        if source.startswith(HUB):
            if not self._settings.allow_model_hub:
                raise InvalidField("source: the hub is not enabled (setting allow_model_hub)", param="source")
            return source
        if root is None:
            raise InvalidField("source: folders are not enabled (setting model_root)", param="source")
        with suppress(ValueError, OSError):  # a zero byte; a name that is too long; a folder that cannot be read
            path = (root / source).resolve()
            if path.is_relative_to(root) and path.is_dir():
                self._check_links(path, root, source)
                return WHOLE + str(path)
        raise InvalidField(f"source: no folder {shown(source)} in model_root", param="source")

    @staticmethod
    def _check_links(folder: Path, root: Path, source: str) -> None:
        """Raise `InvalidField` if a link in `folder` leads out of `root`, or if it has too many files to look."""
        for number, path in enumerate(folder.rglob("*")):
            if number == _MAX_FILES:
                raise InvalidField(f"source: {shown(source)} has more than {_MAX_FILES} files", param="source")
            if path.is_symlink() and not path.resolve().is_relative_to(root):
                raise InvalidField(f"source: {shown(source)} has a link that leads out of model_root", param="source")
