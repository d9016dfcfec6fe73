"""Sources of adapters: an archive, a folder, the hub. Each fills a folder for `AdapterStore.install`."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import (
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from gliner_bento.adapters.archive import SOURCE_FILES, files_in, installed_name, invalid, unpack
from gliner_bento.errors import AdapterNotFound, GLiNERBentoError, InternalError, InvalidField, TooLarge
from gliner_bento.storage.archives import shown

logger = logging.getLogger(__name__)

Fill = Callable[[Path], None]
"""Writes the two files of an adapter into a folder."""

_CHUNK_BYTES = 2**20


def from_archive(archive: Path, max_bytes: int) -> Fill:
    """Fill from a zip or tar file; see `unpack`."""
    return partial(unpack, archive, max_bytes=max_bytes)


def from_folder(source: Path, max_bytes: int) -> Fill:
    """Fill from the two files in another folder; links out of that folder are refused."""

    def fill(folder: Path) -> None:
        home = source.resolve()
        for name in SOURCE_FILES:
            if not (home / name).resolve().is_relative_to(home):
                raise invalid(f"{name} is a link to outside its folder")
        _copy(home, folder, max_bytes)

    return fill


def from_hub(repo_id: str, revision: str | None, max_bytes: int) -> Fill:
    """Fill from a repository on the hub, or from huggingface_hub's cache if the hub cannot be reached.

    Raises `InvalidField` for an invalid id, `AdapterNotFound` if the repository or revision does not exist or is not
    accessible, and `InternalError` for other failures.
    """

    def fill(folder: Path) -> None:
        name = shown(repo_id if revision is None else f"{repo_id}@{revision}")
        try:
            _check_on_hub(repo_id, revision, max_bytes)
            snapshot = snapshot_download(repo_id, revision=revision, allow_patterns=list(SOURCE_FILES))
        except GLiNERBentoError:
            raise
        except HFValidationError as error:
            raise InvalidField(f"adapter: {name} is not a repository id", param="adapter") from error
        except (RepositoryNotFoundError, RevisionNotFoundError) as error:
            raise AdapterNotFound(
                f"adapter: {name} does not exist on the hub, or is not accessible", param="adapter"
            ) from error
        except Exception as error:
            if isinstance(error, OSError) and error.errno:  # see `storage_errors`
                raise
            if isinstance(error, LocalEntryNotFoundError) and isinstance(error.__cause__, OfflineModeIsEnabled):
                raise AdapterNotFound(
                    f"adapter: {name} has not been downloaded before, and the server is offline", param="adapter"
                ) from error
            logger.exception("%s cannot be downloaded", name)
            raise InternalError(f"adapter: {name} cannot be downloaded; the server's log has the details") from error
        _copy(Path(snapshot), folder, max_bytes)

    return fill


def _check_on_hub(repo_id: str, revision: str | None, max_bytes: int) -> None:
    """Check the files before the download, if the hub can be reached."""
    try:
        info = HfApi().model_info(repo_id, revision=revision, files_metadata=True)
    except (HFValidationError, RepositoryNotFoundError, RevisionNotFoundError):
        raise
    except Exception:
        return
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
    if sum(sizes[name] for name in files_in(sizes)) > max_bytes:
        raise _too_large(max_bytes)


def _copy(source: Path, target: Path, max_bytes: int) -> None:
    """Copy the two files; raises `TooLarge` before more than `max_bytes` are written."""
    left = max_bytes
    for name in files_in([name for name in os.listdir(source) if (source / name).is_file()]):
        with (source / name).open("rb") as file, (target / installed_name(name)).open("xb") as copy:
            while chunk := file.read(_CHUNK_BYTES):
                left -= len(chunk)
                if left < 0:
                    raise _too_large(max_bytes)
                copy.write(chunk)


def _too_large(max_bytes: int) -> TooLarge:
    return TooLarge(f"adapter: its files have more than {max_bytes} bytes", param="adapter")
