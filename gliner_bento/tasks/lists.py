"""Allow lists and deny lists in a request, in the entry of an API key and in a setting: their JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Discriminator, Field, StringConstraints, Tag
from typing_extensions import Required, TypedDict

from gliner_bento.errors import InvalidField
from gliner_bento.privacy.lists import SENSITIVE, ListEntry, Lists
from gliner_bento.privacy.recognizers.expressions import ExpressionError, check
from gliner_bento.tasks.base import Limits
from gliner_bento.tasks.fields import Elements, Fields, Name, Strict
from gliner_bento.tasks.part import Decided, Part

_MAX_ENTRIES = 1000
_MAX_CHARS = 1000

_Value = Annotated[str, StringConstraints(min_length=1, max_length=_MAX_CHARS, pattern=r"\w")]
_Pattern = Annotated[str, StringConstraints(min_length=1, max_length=_MAX_CHARS)]
_CaseSensitive = Annotated[bool, Field(description="Whether another case is another text. Default: false.")]
_Label = Annotated[Name, Field(description=f"Label of what is found. Default: {SENSITIVE}.")]


class AllowedValue(TypedDict, total=False):
    """A text that is no find."""

    __pydantic_config__ = Strict.model_config  # type: ignore[misc]

    value: Required[Annotated[_Value, Field(description="The text.")]]
    case_sensitive: _CaseSensitive


class AllowedPattern(TypedDict, total=False):
    """A regular expression of texts that are no finds."""

    __pydantic_config__ = Strict.model_config  # type: ignore[misc]

    pattern: Required[Annotated[_Pattern, Field(description="Regular expression, searched for in the text.")]]
    case_sensitive: _CaseSensitive


class DeniedValue(AllowedValue, total=False):
    """A text that is always found, as a whole word."""

    label: _Label


class DeniedPattern(AllowedPattern, total=False):
    """A regular expression of texts that are always found."""

    label: _Label


def _kind(entry: object) -> str | None:
    if isinstance(entry, Mapping):
        return "dict[pattern]" if "pattern" in entry else "dict[value]"
    return "str" if isinstance(entry, str) else None


_KIND = Discriminator(
    _kind,
    custom_error_type="list_entry",
    custom_error_message="Input should be a text, or an object with a value or a pattern",
)
_Allowed = Annotated[
    Annotated[_Value, Tag("str")]
    | Annotated[Fields[AllowedValue], Tag("dict[value]")]
    | Annotated[Fields[AllowedPattern], Tag("dict[pattern]")],
    _KIND,
]
_Denied = Annotated[
    Annotated[_Value, Tag("str")]
    | Annotated[Fields[DeniedValue], Tag("dict[value]")]
    | Annotated[Fields[DeniedPattern], Tag("dict[pattern]")],
    _KIND,
]
if TYPE_CHECKING:
    AllowList = Sequence[str | AllowedValue | AllowedPattern]
    DenyList = Sequence[str | DeniedValue | DeniedPattern] | Mapping[str, AllowList]
else:
    AllowList = Elements[Annotated[list[_Allowed], Field(max_length=_MAX_ENTRIES)]]
    DenyList = Elements[
        Annotated[list[_Denied], Field(max_length=_MAX_ENTRIES)]
        | Annotated[dict[Name, AllowList], Field(max_length=_MAX_ENTRIES)]
    ]

AllowListOption = Annotated[
    AllowList | None,
    Field(
        description="Texts that are no finds: values, in any case, or objects with a `value` or a `pattern`. What is "
        "found inside an occurrence of one is left out, and what reaches beyond it is not. Adds to the lists of the "
        "API key and of the server.",
        examples=[["Ada Lovelace Institute", {"pattern": "ticket [0-9]+"}]],
    ),
]
DenyListOption = Annotated[
    DenyList | None,
    Field(
        description="Texts that are always found, whatever allow_list has: values, as whole words in any case, or "
        f"objects with a `value` or a `pattern`, and a `label` (default: {SENSITIVE}); or {{label: such a list}}. "
        "Their score is 1. Adds to the lists of the API key and of the server.",
        examples=[["Bluebird", {"pattern": "ACME-[0-9]{6}", "label": "customer number"}]],
    ),
]


def lists_of(allow_list: AllowList | None, deny_list: DenyList | None) -> Lists:
    """The lists. Raises `InvalidField` for patterns that are too long, and for too many entries."""
    lists = Lists([*_entries(allow_list or (), "")], [*_entries(deny_list or (), "")])
    if len(lists.deny) > _MAX_ENTRIES:
        raise InvalidField(f"deny_list: {len(lists.deny)} entries; the limit is {_MAX_ENTRIES}", param="deny_list")
    try:
        check([entry.expression for _, entry in lists.patterns])
    except ExpressionError as error:
        raise wrong_pattern(lists, error) from None
    return lists


def wrong_pattern(lists: Lists, error: ExpressionError) -> InvalidField:
    """The error for a pattern of lists, by its field."""
    name, entry = lists.patterns[error.expression or 0]
    path = name if error.expression is None else f"{name}.{entry.place}.pattern"
    return InvalidField(f"{path}: {error}", param=path)


def _entries(given: Any, label: str, before: str = "") -> Iterator[ListEntry]:
    """The entries of a list. label: of entries without one. before: what their places begin with."""
    if isinstance(given, Mapping):
        for name, entries in given.items():
            yield from _entries(entries, name, f"{name[:50]}.")
        return
    for index, entry in enumerate(given):
        options: Mapping[str, Any] = {"value": entry} if isinstance(entry, str) else entry
        yield ListEntry(
            options.get("pattern") or options["value"],
            is_pattern="pattern" in options,
            case_sensitive=options.get("case_sensitive", False),
            label=options.get("label") or label or SENSITIVE,
            place=f"{before}{index}",
        )


def _decide(options: Any, _limits: Limits, _decided: Decided) -> Decided:
    if options.allow_list is None and options.deny_list is None:
        return {}
    lists = lists_of(options.allow_list, options.deny_list)
    return {"allow_list": lists.allow, "deny_list": lists.deny}


DENY_LIST = Part(option="deny_list", decide=_decide)
