"""Allow lists and deny lists of operators: a file, or its content in a setting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import regex
import yaml
from pydantic import TypeAdapter, ValidationError

from gliner_bento.errors import InvalidField
from gliner_bento.privacy.lists import Lists
from gliner_bento.tasks.lists import AllowList, DenyList, lists_of

Kind = Literal["allow_list", "deny_list"]
_TYPES: Mapping[Kind, TypeAdapter[Any]] = {"allow_list": TypeAdapter(AllowList), "deny_list": TypeAdapter(DenyList)}


def is_content(source: str) -> bool:
    """Whether `source` has the entries themselves, instead of the path of a file."""
    return source.lstrip().startswith(("[", "{", "- ")) or "\n" in source


def read_lists(allow_list: str | None, deny_list: str | None) -> Lists:
    """The lists of YAML or JSON files, or of their content. Raises ValueError; its message has no values."""
    return checked(
        None if allow_list is None else read_entries("allow_list", allow_list),
        None if deny_list is None else read_entries("deny_list", deny_list),
    )


def checked(allow_list: AllowList | None, deny_list: DenyList | None) -> Lists:
    """The lists. Raises ValueError, also for a pattern that is not a regular expression."""
    try:
        lists = lists_of(allow_list, deny_list)
    except InvalidField as error:
        raise ValueError(error.message) from None
    for name, entry in lists.patterns:
        try:
            regex.compile(*entry.expression)
        except (regex.error, RecursionError) as error:  # too many brackets
            raise ValueError(f"{name}.{entry.place}.pattern: {error}") from None
    return lists


def place_of(error: Iterable[Any]) -> str:
    """The field of an error of pydantic, without the names of types in unions. error: its `loc`."""
    return ".".join(str(part) for part in error if not (isinstance(part, str) and ("[" in part or part == "str")))


def read_entries(kind: Kind, source: str) -> Any:
    """The entries of a YAML or JSON file, or of its content, as a request has them. Raises ValueError."""
    try:
        content = source if is_content(source) else Path(source).read_text(encoding="utf-8")
        return _TYPES[kind].validate_python(yaml.safe_load(content), strict=True)
    except FileNotFoundError:
        raise ValueError('neither a file nor a list of entries, such as ["Ada"]') from None
    except OSError as error:
        raise ValueError(f"the file cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
        raise ValueError("not a list of entries in YAML or JSON") from None
    except ValidationError as invalid:
        fault = invalid.errors(include_input=False, include_url=False)[0]
        path = place_of(fault["loc"])
        raise ValueError(f"{path}: {fault['msg']}" if path else fault["msg"]) from None
