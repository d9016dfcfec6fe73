"""Classification of texts: its options in a request, its scores, and its result.

A classification is one question about a text with a fixed set of labels. A request may have several, by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, GetJsonSchemaHandler, Tag
from typing_extensions import Required, TypeAliasType, TypedDict

from gliner_bento.errors import InvalidField
from gliner_bento.frozen import frozen
from gliner_bento.tasks.base import Limits
from gliner_bento.tasks.fields import Elements, Fields, Name, Score, Strict
from gliner_bento.tasks.part import Decided, Part, Row

Merge = Literal["mean", "max"]

MAX_DEPTH = 10
"""Maximum depth of nested objects in the classifications of a request."""

_SHOWN_CHARS = 100


def _check_depth(value: object, depth: int = 0) -> object:
    """Raise ValueError for objects that are nested in more than `MAX_DEPTH` other objects."""
    if depth > MAX_DEPTH:
        raise ValueError(f"objects are nested in more than {MAX_DEPTH} levels")
    for below in value.values() if isinstance(value, dict) else ():
        _check_depth(below, depth + 1)
    return value


# Discriminators of the unions below: which form of JSON a value has.
def _kind_of_labels(value: object) -> str:
    return "list[labels]" if isinstance(value, list) else "dict[labels]"


def _kind_of_label(value: object) -> str:
    return "str" if isinstance(value, str) else _kind_of_labels(value)


def _kind_of_classification(value: object) -> str:
    has_labels = isinstance(value, Mapping) and isinstance(value.get("labels"), list | Mapping)
    return "dict[options]" if has_labels else _kind_of_labels(value)


_List = Annotated[list[Name], Field(min_length=1), Tag("list[labels]")]


class _ForBentoML:
    """Omits the constraints on a dict's keys from its JSON schema: BentoML's OpenAPI document cannot contain them."""

    def __get_pydantic_json_schema__(self, core: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler(core)
        (values,) = schema.pop("patternProperties").values()
        del schema["propertyNames"]
        return {**schema, "additionalProperties": values}


if TYPE_CHECKING:
    LabelTree = Sequence[str] | Mapping[str, Any]
    Classifications = Mapping[str, LabelTree | "ClassificationOptions"]
else:
    _Group = Annotated[
        Annotated[Name, Tag("str")] | _List | Annotated["_Groups", Tag("dict[labels]")], Discriminator(_kind_of_label)
    ]
    _Groups = TypeAliasType("LabelGroups", Annotated[dict[Name, _Group], Field(min_length=1), _ForBentoML()])
    LabelTree = Annotated[_List | Annotated[_Groups, Tag("dict[labels]")], Discriminator(_kind_of_labels)]


class ClassificationOptions(TypedDict, total=False):
    """One classification."""

    __pydantic_config__ = Strict.model_config  # type: ignore[misc]

    labels: Required[
        Annotated[
            LabelTree,
            Field(
                description="What to choose from: names; or {name: description}, where the model gets the description "
                "and the answer has the name; or nested groups, {group: labels}, whose labels are named `group.label`."
            ),
        ]
    ]
    description: Annotated[Name | None, Field(description="What the model reads about the question, beside its name.")]
    multi_label: Annotated[
        bool, Field(description="Score each label on its own; any number may fit. false: the scores add up to 1.")
    ]
    threshold: Annotated[
        Score | None,
        Field(description="Lowest score of a label. Default: with multi_label the server's default_threshold, else 0."),
    ]
    top_k: Annotated[
        Annotated[int, Field(ge=1)] | None,
        Field(description="Maximum number of labels in the answer. Default: with multi_label any number, else 1."),
    ]
    merge: Annotated[
        Merge | None,
        Field(
            description="How the scores of a long text's windows become one. Default: with multi_label their `max`, "
            "else their `mean`."
        ),
    ]


if not TYPE_CHECKING:
    _Classification = Annotated[
        _List
        | Annotated[_Groups, Tag("dict[labels]")]
        | Annotated[Fields[ClassificationOptions], Tag("dict[options]")],
        Discriminator(_kind_of_classification),
    ]
    Classifications = Elements[
        Annotated[dict[Name, _Classification], Field(min_length=1), BeforeValidator(_check_depth)]
    ]

ClassificationsOption = Annotated[
    Classifications | None,
    Field(
        description="Questions about the whole text, by name, each with the labels to choose from: names, {name: "
        "description}, groups of these, or an object with `labels` and options. Needs a classification "
        "model."
    ),
]


@dataclass(frozen=True, slots=True)
class Classification:
    """One classification of an item, every option decided.

    labels: by name, their descriptions; the name is also the description of a label without one. Descriptions are
    unique. top_k: maximum number of labels in the result; None: any number. merge: how the scores of several windows
    become one. description: what the model reads about the classification, beside its name.
    """

    labels: Mapping[str, str]
    multi_label: bool = False
    threshold: float = 0.0
    top_k: int | None = 1
    merge: Merge = "mean"
    description: str | None = None


@frozen()
class LabelScore:
    """A label that fits a text."""

    label: str
    score: float


@frozen()
class ClassificationResult:
    """The result of one classification."""

    labels: Annotated[Sequence[LabelScore], Field(description="Best first. Empty for a blank text.")] = ()
    merge: Annotated[
        Merge | None, Field(description="How the scores of several windows became one; null: there was one window.")
    ] = None


ClassScores = Mapping[str, Sequence[float]]
"""By classification, the scores of its labels, in the item's order."""


@dataclass(slots=True)
class WindowScores:
    """The scores of an item's windows. Windows may be added in any order; one may take several passes."""

    _windows: dict[int, dict[str, Sequence[float]]] = field(default_factory=dict)

    def add(self, window: int, scores: ClassScores) -> None:
        """Add the scores of a pass over window number `window`."""
        self._windows.setdefault(window, {}).update(scores)

    def results(self, classifications: Mapping[str, Classification]) -> dict[str, ClassificationResult]:
        """The merged result of each classification; empty results if there is no window."""
        windows = [scores for _, scores in sorted(self._windows.items())]
        return {name: _merged(each, [scores[name] for scores in windows]) for name, each in classifications.items()}


def _merged(classification: Classification, windows: Sequence[Sequence[float]]) -> ClassificationResult:
    """The result of all windows. windows: their scores, in order, because a sum of floats depends on the order."""
    if not windows:
        return ClassificationResult()
    by_label = zip(*windows, strict=True)
    if classification.merge == "max":
        scores = [max(of_label) for of_label in by_label]
    else:
        scores = [sum(of_label) / len(windows) for of_label in by_label]
    fitting = [
        LabelScore(label, score)
        for label, score in zip(classification.labels, scores, strict=True)
        if score >= classification.threshold
    ]
    best = sorted(fitting, key=lambda fit: -fit.score)[: classification.top_k]
    return ClassificationResult(best, classification.merge if len(windows) > 1 else None)


def results_of(
    classifications: Mapping[str, Classification], scores: ClassScores | None = None
) -> dict[str, ClassificationResult]:
    """The results of a text of one window. scores: None if the text is blank."""
    windows = WindowScores()
    if scores is not None:
        windows.add(0, scores)
    return windows.results(classifications)


def _decide(options: Any, limits: Limits, _: Decided) -> Decided:
    given, threshold = options.classifications or {}, limits.default_threshold
    return {"classifications": classification_options(given, default_threshold=threshold, max_labels=limits.max_labels)}


def _chars(classifications: Mapping[str, Classification]) -> int:
    return sum(len(description) for each in classifications.values() for description in each.labels.values())


def _rows(results: Mapping[str, ClassificationResult]) -> Iterator[Row]:
    """A row per label that fits."""
    for name, result in results.items():
        yield from ({"classification": name, **asdict(label)} for label in result.labels)


CLASSIFICATIONS = Part(
    option="classifications",
    result="classifications",
    ability="classifications",
    decide=_decide,
    names=lambda classifications: sum(len(each.labels) for each in classifications.values()),
    chars=_chars,
    blank=results_of,
    windows=WindowScores,
    columns=("classification", "label", "score"),
    rows=_rows,
)


def classification_options(
    given: Classifications, *, default_threshold: float, max_labels: int
) -> dict[str, Classification]:
    """The classifications of an item. max_labels: maximum number of labels of all classifications together; -1:
    any number. Raises InvalidField."""
    decided = {
        name: _decided(f"classifications.{_shown(name)}", options, default_threshold) for name, options in given.items()
    }
    total = sum(len(classification.labels) for classification in decided.values())
    if 0 < max_labels < total:
        message = f"classifications: {total} labels; the limit is {max_labels} (max_labels)"
        raise InvalidField(message, param="classifications")
    return decided


def _decided(
    param: str, given: LabelTree | ClassificationOptions | Mapping[str, Any], default_threshold: float
) -> Classification:
    options: Mapping[str, Any] = given if _kind_of_classification(given) == "dict[options]" else {"labels": given}  # type: ignore[assignment]
    multi_label, threshold = bool(options.get("multi_label")), options.get("threshold")
    labels = _described(param, options["labels"])
    if len(labels) < 2 and not multi_label:
        raise InvalidField(f"{param}: one label always has the score 1; add labels, or set multi_label", param=param)
    if threshold is None:
        threshold = default_threshold if multi_label else 0.0
    return Classification(
        labels,
        multi_label,
        threshold,
        top_k=options.get("top_k") or (None if multi_label else 1),
        merge=options.get("merge") or ("max" if multi_label else "mean"),
        description=options.get("description"),
    )


def _described(param: str, tree: LabelTree) -> dict[str, str]:
    """Labels with their descriptions. Raises InvalidField for a label or a description that is repeated."""
    labels: dict[str, str] = {}
    for name, description in _leaves(tree):
        if name in labels:
            raise InvalidField(f"{param}: {_shown(name)!r} is repeated", param=param)
        labels[name] = description
    if len(set(labels.values())) < len(labels):
        raise InvalidField(f"{param}: two labels have the same description", param=param)
    return labels


def _leaves(tree: LabelTree, group: str = "") -> Iterator[tuple[str, str]]:
    """The labels of a tree, with their descriptions."""
    for name in tree:
        below = tree[name] if isinstance(tree, Mapping) else None
        if below is None:
            yield group + name, group + name
        elif isinstance(below, str):
            yield group + name, below
        else:
            yield from _leaves(below, f"{group}{name}.")


def _shown(name: str) -> str:
    return name[:_SHOWN_CHARS]
