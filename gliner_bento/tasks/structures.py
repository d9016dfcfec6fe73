"""Structured records of a text: their options in a request, and their result.

A structure is a kind of record with named fields, such as a purchase. A text has any number of instances of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag
from typing_extensions import TypedDict

from gliner_bento.errors import InvalidField
from gliner_bento.frozen import frozen
from gliner_bento.tasks.base import Limits
from gliner_bento.tasks.fields import Elements, Fields, Name, Score, Strict
from gliner_bento.tasks.part import Decided, Part, Row

FieldType = Literal["list", "string"]

MAX_STRUCTURE_FIELDS = 100
"""Maximum number of fields of all structures of a text: boundary models take longer per instance with more fields."""
_SHOWN_CHARS = 100


class FieldOptions(TypedDict, total=False):
    """One field."""

    __pydantic_config__ = Strict.model_config  # type: ignore[misc]

    type: Annotated[FieldType, Field(description="`list`: all values. `string`: the value with the highest score.")]
    description: Annotated[Name | None, Field(description="What the model reads about the field, beside its name.")]
    choices: Annotated[
        Annotated[list[Name], Field(min_length=1)] | None,
        Field(description="The values to choose from. Default: any words of the text."),
    ]
    threshold: Annotated[Score | None, Field(description="Lowest score of a value. Default: the request's threshold.")]


def _kind_of_field(value: object) -> str:
    return "str" if isinstance(value, str) else "dict[options]"


if TYPE_CHECKING:
    StructureFields = Sequence[str] | Mapping[str, str | FieldOptions]
    Structures = Mapping[str, StructureFields]
else:
    _Field = Annotated[
        Annotated[Name, Tag("str")] | Annotated[Fields[FieldOptions], Tag("dict[options]")],
        Discriminator(_kind_of_field),
    ]
    StructureFields = Elements[Annotated[list[Name] | dict[Name, _Field], Field(min_length=1)]]
    Structures = Elements[Annotated[dict[Name, StructureFields], Field(min_length=1)]]

StructuresOption = Annotated[
    Structures | None,
    Field(
        description="Records to find, by name, each with its fields: names, {name: description}, or objects with "
        "`type` (`list` or `string`), `choices`, `description` and `threshold`. Needs a GLiNER2 model."
    ),
]


@dataclass(frozen=True, slots=True)
class StructureField:
    """A field of an item's structure, every option decided. choices: possible values; empty: any words of the text.
    own_threshold: whether `threshold` is the field's own; if not, it is the request's."""

    description: str
    type: FieldType
    threshold: float
    choices: tuple[str, ...] = ()
    own_threshold: bool = True


Structure = Mapping[str, StructureField]
"""The fields of a structure, by name. The name is also the description of a field without one."""


@frozen()
class FieldValue:
    """A value of a field."""

    text: str
    score: float
    start: Annotated[int | None, Field(description="Index of the first character; null for a choice.")] = None
    end: Annotated[int | None, Field(description="Index after the last character; null for a choice.")] = None


Instance = Mapping[str, Sequence[FieldValue]]
"""The values of each field: choices in their order, words of the text best first; at most one if it is a `string`."""


@dataclass(slots=True)
class WindowInstances:
    """The instances in an item's windows. Windows may be added in any order."""

    _windows: dict[int, Mapping[str, Sequence[Instance]]] = field(default_factory=dict)

    def add(self, window: int, instances: Mapping[str, Sequence[Instance]]) -> None:
        """Add the instances of a pass over window number `window`. No effect for a pass without structures."""
        if instances:
            self._windows[window] = instances

    def results(self, structures: Mapping[str, Structure]) -> dict[str, list[Instance]]:
        """The instances of each structure, in order of windows. An instance in several windows counts once."""
        windows = [instances for _, instances in sorted(self._windows.items())]
        return {name: _once([instance for window in windows for instance in window[name]]) for name in structures}


def _once(instances: Sequence[Instance]) -> list[Instance]:
    """The instances without those that repeat the values of an earlier one."""
    by_values: dict[tuple[Any, ...], Instance] = {}
    for instance in instances:
        key = tuple((name, value.text, value.start) for name, values in instance.items() for value in values)
        by_values.setdefault(key, instance)
    return list(by_values.values())


def _decide(options: Any, limits: Limits, _: Decided) -> Decided:
    threshold = limits.default_threshold if options.threshold is None else options.threshold
    given = options.structures or {}
    return {"structures": structure_options(given, default_threshold=threshold, max_labels=limits.max_labels)}


def _chars(structures: Mapping[str, Structure]) -> int:
    fields = (each for structure in structures.values() for each in structure.values())
    return sum(len(each.description) + sum(map(len, each.choices)) for each in fields)


def _rows(structures: Mapping[str, Sequence[Instance]]) -> Iterator[Row]:
    """A row per value. `instance` is the number of the instance in its structure."""
    for name, instances in structures.items():
        for number, instance in enumerate(instances):
            for field_name, values in instance.items():
                about = {"structure": name, "instance": number, "field": field_name}
                yield from ({**about, **asdict(value)} for value in values)


STRUCTURES = Part(
    option="structures",
    result="structures",
    ability="structures",
    decide=_decide,
    names=lambda structures: sum(map(len, structures.values())),
    chars=_chars,
    blank=lambda structures: {name: [] for name in structures},
    windows=WindowInstances,
    columns=("structure", "instance", "field", "text", "score", "start", "end"),
    rows=_rows,
)


def structure_options(given: Structures, *, default_threshold: float, max_labels: int) -> dict[str, Structure]:
    """The structures of an item. max_labels: maximum number of fields of all structures, and of choices of all fields;
    -1: any number. Raises InvalidField."""
    decided: dict[str, Structure] = {
        name: dict(_decided(name, fields, default_threshold)) for name, fields in given.items()
    }
    fields = sum(map(len, decided.values()))
    if fields > MAX_STRUCTURE_FIELDS:
        raise InvalidField(f"structures: {fields} fields; the limit is {MAX_STRUCTURE_FIELDS}", param="structures")
    choices = sum(len(options.choices) for structure in decided.values() for options in structure.values())
    for total, what in ((fields, "fields"), (choices, "choices")):
        if 0 < max_labels < total:
            raise InvalidField(
                f"structures: {total} {what}; the limit is {max_labels} (max_labels)", param="structures"
            )
    return decided


def _decided(structure: str, fields: StructureFields, default_threshold: float) -> Iterator[tuple[str, StructureField]]:
    """The name and the decided options of each field."""
    param = f"structures.{structure[:_SHOWN_CHARS]}"
    if len(set(fields)) < len(fields):
        raise InvalidField(f"{param}: a field is repeated", param=param)
    for name in fields:
        given: Any = fields[name] if isinstance(fields, Mapping) else {}
        options: Mapping[str, Any] = {"description": given} if isinstance(given, str) else given
        choices, threshold = options.get("choices") or (), options.get("threshold")
        if len({choice.lower() for choice in choices}) < len(choices):
            param = f"{param}.{name[:_SHOWN_CHARS]}.choices"
            raise InvalidField(f"{param}: a choice is repeated", param=param)
        yield (
            name,
            StructureField(
                description=options.get("description") or name,
                type=options.get("type") or "list",
                threshold=default_threshold if threshold is None else threshold,
                choices=tuple(choices),
                own_threshold=threshold is not None,
            ),
        )
