"""The two files of an adapter, and how they are unpacked from an untrusted archive, within limits.

Only the two files are written, under fixed names. The other entries are skipped, but count towards the limits.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path, PurePosixPath

from gliner_bento.adapter_types import SAVE_AS_SAFETENSORS
from gliner_bento.errors import AdapterInvalid, TooLarge
from gliner_bento.storage.archives import PICKLES, ArchiveError, ArchiveTooLarge, files_of, shown

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"
FILES = (CONFIG_FILE, WEIGHTS_FILE)
GLINER2_WEIGHTS_FILE = "adapter_weights.safetensors"
"""The weights in gliner2's own form. An installed adapter has them as WEIGHTS_FILE."""
SOURCE_FILES = (*FILES, GLINER2_WEIGHTS_FILE)
"""Names that the files may have before they are installed."""

_MAX_ENTRIES = 64


def invalid(problem: str) -> AdapterInvalid:
    """The error for an adapter with this problem."""
    return AdapterInvalid(f"adapter: {problem}", param="adapter")


def check_complete(names: Collection[str]) -> None:
    """Raises `AdapterInvalid` if one of the two files is not among `names`."""
    if CONFIG_FILE not in names:
        raise invalid(f"there is no {CONFIG_FILE}")
    if not {WEIGHTS_FILE, GLINER2_WEIGHTS_FILE} & {*names}:
        pickled = min((name for name in names if name.endswith(PICKLES)), default=None)
        hint = f", and {shown(pickled)} is never unpickled; {SAVE_AS_SAFETENSORS}" if pickled else ""
        raise invalid(f"there is no {WEIGHTS_FILE}{hint}")


def files_in(names: Collection[str]) -> tuple[str, str]:
    """The names of an adapter's configuration and weights: PEFT's weights, even if `names` has gliner2's too."""
    check_complete(names)
    return CONFIG_FILE, WEIGHTS_FILE if WEIGHTS_FILE in names else GLINER2_WEIGHTS_FILE


def installed_name(name: str) -> str:
    """The name of one of `SOURCE_FILES` in the folder of an installed adapter."""
    return WEIGHTS_FILE if name == GLINER2_WEIGHTS_FILE else name


def unpack(archive: Path, into: Path, *, max_bytes: int) -> None:
    """Write the adapter's two files, from a zip or a tar, gzipped or not, into the folder `into`.

    Both files may be at the top of the archive, or in one folder. After an error, `into` may contain incomplete files.

    max_bytes: limit on all files of the archive together, unpacked.

    Raises `AdapterInvalid` for any other archive, and `TooLarge` if it has more than 64 entries, or if it unpacks to
    more bytes than `files_of` permits.
    """
    seen: set[PurePosixPath] = set()
    try:
        for file in files_of(archive, max_bytes=max_bytes, max_entries=_MAX_ENTRIES):
            seen.add(file.path)
            if file.path.name in SOURCE_FILES:
                _check_folder(file.path, seen)
                with (into / installed_name(file.path.name)).open("xb") as target:
                    target.writelines(file.content)
            else:
                for _ in file.content:  # counts towards the limits
                    pass
    except ArchiveTooLarge as error:
        raise TooLarge(f"adapter: {error}", param="adapter") from error
    except ArchiveError as error:
        raise invalid(str(error)) from error
    check_complete({path.name for path in seen})


def _check_folder(path: PurePosixPath, seen: set[PurePosixPath]) -> None:
    """Raises `AdapterInvalid` unless both files are at the top or in the same folder."""
    if len(path.parts) > 2:
        raise invalid(f"the archive holds {shown(path)}; the files may be in one folder, not deeper")
    others = [other for other in seen if other.name in SOURCE_FILES and other != path]
    if any(other.parent != path.parent or installed_name(other.name) == installed_name(path.name) for other in others):
        raise invalid("the archive holds more than one adapter")
