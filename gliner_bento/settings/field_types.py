"""Types of the settings' values: parsing, validation and formatting. Knows no setting by name."""

from __future__ import annotations

import ipaddress
import json
import os
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic_settings import NoDecode

from gliner_bento.errors import install_hint
from gliner_bento.privacy.recognizers.find import DEFAULT_REGIONS, RECOGNIZERS
from gliner_bento.privacy.recognizers.phones import regions
from gliner_bento.settings.configuration import PACKAGE, PROJECT_ROOT
from gliner_bento.storage import lists
from gliner_bento.storage.api_keys import is_content, read_keys
from gliner_bento.storage.archives import SUFFIXES
from gliner_bento.storage.bundled import BUNDLED, installed_models
from gliner_bento.storage.files import in_cache
from gliner_bento.storage.other_models import config_name, no_checkpoint
from gliner_bento.storage.redaction_keys import is_path, keys_in, may_be_keys
from gliner_bento.tasks.recognition import ALL, NONE

_HUB_ID = re.compile(r"\w[\w.-]*(/[\w.-]+)?")
FORMATS = tuple(sorted(file.stem for file in (PACKAGE / "gateway" / "compat").glob("[!_]*.py")))
"""Names of other servers' wire formats; each is a module of `gateway.compat`."""

NAMED_MODEL = r"^[A-Za-z0-9_.-]{1,64}=\S"

_DTYPE_ALIASES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def _checkpoint(value: str) -> str:
    """The absolute path of a checkpoint folder or archive, or a hub id unchanged. A relative folder is looked up in the
    working directory and PROJECT_ROOT; BUNDLED is where it is installed. Raises ValueError."""
    if value.endswith(SUFFIXES):
        if not (archive := Path(value).expanduser()).is_file():
            raise ValueError("no such archive")
        return str(archive.resolve())
    models = installed_models() if value == BUNDLED else None
    installed = (models / "demo",) if models else ()
    for folder in (Path(value).expanduser(), PROJECT_ROOT / value, *installed):
        if value and folder.is_dir():
            try:
                config = config_name(folder)
            except OSError as error:
                raise ValueError(f"the folder cannot be read: {error.strerror}") from None
            if config is None:
                raise ValueError(f"the folder is {no_checkpoint(folder)}")
            return str(folder.resolve())
    if not _HUB_ID.fullmatch(value):
        raise ValueError("neither a folder nor a hub id (owner/name)")
    return value


def _absolute(value: Path) -> Path:
    """The absolute path; a leading `~/.cache` is replaced by `$XDG_CACHE_HOME` if it is set."""
    return in_cache(value).resolve()


def existing_folder(value: Path) -> Path:
    """The path of an existing folder. Raises ValueError."""
    if not value.is_dir():
        raise ValueError("no such folder")
    return value


def existing_file(value: Path) -> Path:
    """The path of an existing file. Raises ValueError."""
    if not value.is_file():
        raise ValueError("no such file")
    return value


def regular_expression(value: str) -> str:
    """A valid regular expression. Raises ValueError."""
    try:
        re.compile(value)
    except (re.error, RecursionError, OverflowError) as error:  # too many brackets, too large a count
        raise ValueError(f"not a regular expression: {error}") from None
    return value


def _api_keys(value: str) -> str:
    """The absolute path of a file of API keys, or its content. Raises ValueError if the keys are invalid.

    Symbolic links are not resolved, because Kubernetes updates a mounted Secret by changing a link.
    """
    source = value if is_content(value) else os.path.abspath(Path(value).expanduser())
    read_keys(source)
    return source


def _list(kind: lists.Kind) -> Callable[[str], str]:
    """A validator for entries of a list, or the path of their file: returns them, or the absolute path."""

    def check(value: str) -> str:
        source = value if lists.is_content(value) else os.path.abspath(Path(value).expanduser())
        lists.read_lists(*((source, None) if kind == "allow_list" else (None, source)))
        return source

    return check


def _as_json(value: object) -> object:
    """A list or an object of the configuration file as JSON; any other value unchanged."""
    return json.dumps(value) if isinstance(value, list | dict) else value


def _redaction_key(value: SecretStr) -> SecretStr:
    """Keys, or the absolute path of a file of keys, which need not exist. Raises ValueError; its message has no key."""
    source = value.get_secret_value()
    if is_path(source):
        path = os.path.abspath(Path(source).expanduser())  # links are kept, see `_api_keys`
        if may_be_keys(path):
            raise ValueError("make the folder of this path first; if it is a key, choose one without a / at its start")
        return SecretStr(path)
    keys_in(source)
    return value


def _redis_url(value: SecretStr) -> SecretStr:
    """The URL of a Redis server. Raises ValueError; its message has no password."""
    try:
        url = urlsplit(value.get_secret_value())
        place = {"redis": url.hostname, "rediss": url.hostname, "unix": url.path}.get(url.scheme)
        is_url = bool(place) and url.port != 0
    except ValueError:  # the port is not a number
        is_url = False
    if not is_url:
        raise ValueError("must be redis://HOST:PORT/NUMBER, rediss://... or unix://PATH")
    _needs("redis")(True)
    return value


def _needs(package: str) -> Callable[[bool], bool]:
    """A validator for a setting that is true or false: true raises ValueError if `package` is not installed."""

    def check(value: bool) -> bool:
        if value and not find_spec(package):
            raise ValueError(f"{package} is not installed; {install_hint(package)}")
        return value

    return check


def _full_dtype(value: object) -> object:
    return _DTYPE_ALIASES.get(value, value) if isinstance(value, str) else value


def decoded(value: object) -> object:
    """Decode the JSON of a flag or an environment variable; the file's value is an object already."""
    return json.loads(value) if isinstance(value, str) else value


def _band(values: tuple[float, ...]) -> tuple[float, ...]:
    if values and not (len(values) == 2 and values[0] <= values[1]):
        raise ValueError("must be two scores, the lower one first, such as 0.4,0.6")
    return values


def _comma_separated(value: object) -> object:
    return value.split(",") if isinstance(value, str) else value


def _unique(values: tuple[str, ...]) -> tuple[str, ...]:
    if repeated := [value for value in values if values.count(value) > 1]:
        raise ValueError(f"{repeated[0]} is listed twice")
    return values


def _addresses(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        try:
            if value != "*":
                ipaddress.ip_network(value)
        except ValueError:
            raise ValueError(f"{value}: must be an IP address, a network (10.0.0.0/8), or *") from None
    return values


def _count_or_unlimited(value: int) -> int:
    if value == 0:
        raise ValueError("must be at least 1, or -1 for no limit")
    return value


def _pairs(value: object) -> object:
    """An object `{name: value}` as a list of `name=value`; any other value unchanged."""
    return tuple(f"{name}={item}" for name, item in value.items()) if isinstance(value, dict) else value


def _named_checkpoints(values: tuple[str, ...]) -> tuple[str, ...]:
    """`name=checkpoint`, checked as by `_checkpoint`. Raises ValueError, also for a repeated name."""
    named = dict(value.split("=", 1) for value in values)
    if len(named) < len(values):
        raise ValueError("a name is given twice")
    checkpoints = []
    for name, path in named.items():
        try:
            checkpoints.append(f"{name}={_checkpoint(path)}")
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return tuple(checkpoints)


def _formats(values: tuple[str, ...]) -> tuple[str, ...]:
    """`all`, `none`, or names of formats. Raises ValueError."""
    if set(values) <= {*FORMATS} or values in (("all",), ("none",)):
        return values
    raise ValueError(f"must be all, none, or a list of {', '.join(FORMATS)}")


def _recognizers(values: tuple[str, ...]) -> tuple[str, ...]:
    """`all`, `none`, or names of recognizers. Raises ValueError."""
    unknown = [] if values in (ALL, NONE) else [name for name in values if name not in RECOGNIZERS]
    if unknown:
        raise ValueError(f"no recognizer {unknown[0]!r}; must be all, none, or a list of {', '.join(RECOGNIZERS)}")
    return values


def _regions(values: tuple[str, ...]) -> tuple[str, ...]:
    """Codes of regions that phonenumbers knows, in capitals. Raises ValueError."""
    if values == DEFAULT_REGIONS:  # also valid if phonenumbers is not installed
        return values
    codes = tuple(value.upper() for value in values)
    if unknown := [code for code in codes if code not in regions()]:
        raise ValueError(f"no region {unknown[0]!r}; must be ISO 3166 codes, such as US, DE, IN")
    return codes


def text_of(value: object) -> str:
    """A value as it is written in a flag, the environment or the docs."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return json.dumps(value, default=text_of)
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


T = TypeVar("T")
Listed = Annotated[tuple[T, ...], NoDecode, BeforeValidator(_comma_separated)]
"""A list; in flags and the environment, separated by commas."""

_Text = Annotated[str, Field(pattern=r"\S")]

RedactionKey = Annotated[SecretStr, AfterValidator(_redaction_key)]
RedisUrl = Annotated[SecretStr, AfterValidator(_redis_url)]
AllowListSource = Annotated[str, BeforeValidator(_as_json), AfterValidator(_list("allow_list"))]
DenyListSource = Annotated[str, BeforeValidator(_as_json), AfterValidator(_list("deny_list"))]
ApiKeysSource = Annotated[str, AfterValidator(_api_keys)]
AbsolutePath = Annotated[Path, AfterValidator(_absolute)]
Model = Annotated[str, AfterValidator(_checkpoint)]
Models = Annotated[
    Listed[Annotated[str, Field(pattern=NAMED_MODEL)]], BeforeValidator(_pairs), AfterValidator(_named_checkpoints)
]
Dtype = Annotated[Literal["auto", "float32", "float16", "bfloat16"], BeforeValidator(_full_dtype)]
Probability = Annotated[float, Field(ge=0, le=1)]
Thresholds = Annotated[
    dict[Annotated[str, Field(pattern=r"\S", max_length=1000)], Probability], NoDecode, BeforeValidator(decoded)
]
Band = Annotated[Listed[Probability], AfterValidator(_band)]
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")]
PathPrefix = Annotated[str, Field(pattern=r"^(/[A-Za-z0-9._~-]+)+$")]
Timeout = Annotated[float, Field(gt=0, le=3600)]
Origins = Listed[Annotated[str, Field(pattern=r"^(\*|https?://[^/\s]+)$")]]
ProxyAddresses = Annotated[Listed[_Text], AfterValidator(_addresses)]
Count = Annotated[int, Field(ge=1)]
CountOrUnlimited = Annotated[int, Field(ge=-1), AfterValidator(_count_or_unlimited)]
CountOrAuto = Annotated[int, Field(ge=0)]
Formats = Annotated[Listed[Annotated[str, Field(pattern=r"^[a-z_]+$")]], AfterValidator(_formats)]
EntityTypes = Listed[Annotated[str, Field(pattern=r"^[^\s=,]+$")]]
NamedLabels = Annotated[Listed[Annotated[str, Field(pattern=r"^[^\s=]+=\s*\S")]], BeforeValidator(_pairs)]
LabelNames = Listed[_Text]
ClassNames = Annotated[Listed[_Text], Field(min_length=2), AfterValidator(_unique)]
Mcp = Annotated[bool, AfterValidator(_needs("mcp"))]
CudaDevices = Annotated[Listed[Annotated[str, Field(pattern=r"^[\w-]+$")]], AfterValidator(_unique)]
BatchSizes = Listed[Annotated[int, Field(ge=1, le=4096)]]
RecognizerNames = Annotated[Listed[_Text], AfterValidator(_recognizers)]
PhoneRegions = Annotated[Listed[_Text], AfterValidator(_regions)]
Threads = Annotated[int, Field(ge=1, le=256)]
ThreadsOrAuto = Annotated[int, Field(ge=0, le=256)]
