"""What all tasks have in common: a request, its items and their results, and what a task declares.

A wire format translates its JSON to a `Request`. The gateway makes an `Item` of each text, in which every option is
decided, and gets a `Result` for each; both pass through all layers unchanged. Layers between gateway and engine know no
more of them than the classes of this module.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import MISSING, dataclass, field, fields, make_dataclass
from functools import cache
from operator import getitem
from typing import Annotated, Any, ClassVar, Generic, Protocol, TypeVar, cast, get_type_hints

from pydantic import BaseModel, Field, create_model
from typing_extensions import Self

from gliner_bento.errors import ErrorDetail, InvalidField
from gliner_bento.tasks.fields import Elements, RequestId, Strict

BASE_ADAPTER_ID = "__base__"
"""An adapter id that selects the base model, as in gliner.serve."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The settings that apply to all requests of a model; see docs/settings.md for each."""

    default_threshold: float
    default_relation_threshold: float
    max_labels: int
    max_text_chars: int
    max_batch_items: int
    max_entities: int
    max_relations: int
    recognizers: Sequence[str]
    phone_regions: Sequence[str]
    presidio_labels: Sequence[str]
    presidio_entities: Sequence[str]
    presidio_min_score: float


@dataclass(frozen=True, slots=True)
class Item:
    """One text with every option decided: all that its result depends on. task: the name of its task."""

    task: ClassVar[str]

    text: str
    adapter_id: str | None = field(default=None, kw_only=True)

    @property
    def chars(self) -> int:
        """Characters that the model reads."""
        return len(self.text)

    @property
    def is_large(self) -> bool:
        """Whether the item costs much more than its length suggests; it is then scheduled as a large request."""
        return False

    @property
    def abilities(self) -> Mapping[str, str]:
        """What a model must be able to do (`ModelInfo.tasks`), by the field of the request that asks for it."""
        return {}

    def check_supported(self, model: str, tasks: Collection[str]) -> None:
        """Raise InvalidField for the first field that asks for what the model cannot do. tasks: `ModelInfo.tasks`."""
        for param, ability in self.abilities.items():
            if ability not in tasks:
                message = f"{param}: {model!r} does not support the task {ability}; it supports {' and '.join(tasks)}"
                raise InvalidField(message, param=param)

    def without_model(self) -> Result | None:
        """The result that the `merger` adds to if the model need not read the text; None if it has to."""
        return None

    @property
    def has_merger(self) -> bool:
        """Whether the task's `merger` adds to the item's result."""
        return False


@dataclass(frozen=True, slots=True)
class Usage:
    """What was computed for one text."""

    words: Annotated[int, Field(description="Number of words of the text that were processed.")] = 0
    tokens: Annotated[int, Field(description="Number of sub-word tokens of all passes, labels included.")] = 0
    windows: Annotated[int, Field(description="Number of windows of the text; 0 for a blank text.")] = 0
    passes: Annotated[int, Field(description="Number of passes of the model over windows or parts of windows.")] = 0
    label_groups: Annotated[
        int, Field(description="Number of groups that the labels were divided into. Each takes a pass per window.")
    ] = 1
    relation_groups: Annotated[
        int, Field(description="Number of groups that the relations were divided into; 0 without relations.")
    ] = 0


@dataclass(frozen=True, slots=True)
class ExtractionWarning:
    """A reason why the result of a valid request may be poor."""

    code: Annotated[
        str,
        Field(
            description="Stable, machine-readable name of the reason. `unsupported_language`: the text is mostly in a "
            "language that the model's card does not list. `max_entities`, `max_relations`: only those with the "
            "highest scores are returned (`on_limit`).",
            examples=["unsupported_language"],
        ),
    ]
    message: Annotated[str, Field(description="One sentence for people.")]


NO_USAGE = Usage()


class ResultMerger(Protocol):
    """Adds to the model's result what the model has not computed, such as matches of recognizers."""

    def add(self, parts: Iterable[Any]) -> Sequence[Any]:
        """Merge the model's next parts of a stream; returns the next parts to send."""

    def whole(self, result: Any) -> Any:
        """The merged result; in a stream, without the parts that `add` has returned."""


class Result:
    """The result of one item. Each task has a subclass: a frozen dataclass that declares `usage` and `warnings` as
    fields, in the order of its JSON.

    task: the name of its task.
    """

    __slots__ = ()
    task: ClassVar[str]

    @property
    def usage(self) -> Usage:
        """What was computed."""
        return NO_USAGE

    @property
    def warnings(self) -> Sequence[ExtractionWarning]:
        """Why the result may be poor."""
        return ()

    def rest(self, streamed: int) -> Self:
        """The result without its first `streamed` parts, which a stream has already sent."""
        return self


Options = TypeVar("Options")
Answer = TypeVar("Answer")
BatchAnswer = TypeVar("BatchAnswer")


@dataclass(frozen=True, slots=True)
class Request(Generic[Options, Answer, BatchAnswer]):
    """What a client asks for, in any wire format.

    inputs: texts with their options. model: the model's name; None: the default model.
    param: the field with the texts of a batch, for errors: `texts` (they share options) or `items`.
    """

    task: Task[Options, Answer, BatchAnswer]
    inputs: Sequence[tuple[str, Options]]
    model: str | None = None
    request_id: str | None = None
    timeout_ms: float | None = None
    priority: int = 0
    param: str = "texts"


class RequestOptions(Strict):
    """How the server treats the request as a whole."""

    model: str | None = Field(
        default=None, description="Name of the model, as /v1/models lists it. Default: the first."
    )
    request_id: RequestId | None = Field(
        default=None, description="Your id for this request, for logs and abort. Default: the server makes one."
    )
    timeout_ms: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None,
        description="Milliseconds until the request fails with 504; limited to request_timeout_s, except for streams.",
    )
    priority: Annotated[int, Field(ge=-1000, le=1000)] = Field(
        default=0,
        description="Lower values are scheduled earlier among the tenant's waiting requests. For a large request "
        "(more than 32 texts, or 8,000 characters), a value below 0 counts as 0.",
    )


@dataclass(frozen=True, slots=True)
class Route:
    """What the OpenAPI document says of a route."""

    summary: str
    description: str


class Task(Generic[Options, Answer, BatchAnswer]):
    """A row of the table of tasks.

    name: in its routes (`/v1/{name}`), operations and messages; at most 31 characters. title: the beginning of the
    names of its JSON types. description: one sentence. routes: its routes, by what follows `/v1/{name}` in their path.
    example, batch_example: bodies of requests.
    options: a dataclass with the options of a text, their only declaration; those without a default are required.
    requires: fields of which at least one must be set; if none is, the error names the first.
    decide: returns a function that makes an item of a text with the given options. Raises InvalidField.
    share: returns a request's items, with the limits of an answer divided among them.
    merger: makes the merger of an item (see `Item.has_merger`). Called in a thread. Raises errors of the item.
    text: pydantic's `Field` for the text of a request.
    parts: the field of a result whose elements, of the type `part`, a stream may send before its end. line: the type of
    a line of the stream, made from an element.
    end, answer: types of a stream's last line and of an answer, with fields of the result, and `model`, `adapter_id`
    and `request_id`. batch_result, batch_answer: types of a batch's result for one text, and of its answer. By
    default, these four types are made from `result`.
    """

    def __init__(
        self,
        name: str,
        title: str,
        description: str,
        *,
        options: type[Options],
        item: type[Item],
        result: type[Result],
        decide: Callable[[Options, Limits], Callable[[str], Item]],
        example: Mapping[str, Any],
        batch_example: Mapping[str, Any],
        requires: Sequence[str] = (),
        share: Callable[[Sequence[Any]], Sequence[Any]] = lambda items: items,
        merger: Callable[[Any], ResultMerger] | None = None,
        text: Any = None,
        parts: str | None = None,
        part: type[Any] = str,
        line: type[Any] | None = None,
        end: type[Any] | None = None,
        answer: type[Answer] | None = None,
        batch_result: Any = None,
        batch_answer: type[BatchAnswer] | None = None,
        routes: Mapping[str, Route] | None = None,
    ) -> None:
        self.name, self.title, self.description = name, title, description
        self.options, self.item, self.result = options, item, result
        self.parts, self.part = parts, part
        self._any_of = requires
        self.decide, self.share, self._merger = decide, share, merger
        self.example, self.batch_example = example, batch_example
        self.routes = routes or dict.fromkeys(("", "/stream", "/batch"), Route(title, description))
        added: list[Any] = [("model", str), ("adapter_id", str | None), ("request_id", str)]
        self.answer: type[Answer] = answer or _dataclass(f"{title}Response", added, bases=(result,), kw_only=True)
        self.line, self.end = line, end or self.answer
        outcome = [("result", result | None, None), ("error", ErrorDetail | None, None)]
        self.batch_result: Any = batch_result or _dataclass(f"{title}BatchResult", outcome)
        results: Any = getitem(cast(Any, Sequence), self.batch_result)  # `Sequence[...]`, for a type known at run time
        batch_fields = [("results", results), ("model", str), ("request_id", str)]
        self.batch_answer: type[BatchAnswer] = batch_answer or _dataclass(f"{title}BatchResponse", batch_fields)
        self._names = [option.name for option in fields(cast(Any, options))]
        self._required = [option.name for option in fields(cast(Any, options)) if option.default is MISSING]
        self._make_models(text or Field(description="The text."))

    def request_of(self, body: Mapping[str, Any]) -> Request[Options, Answer, BatchAnswer]:
        """The request of a body. body: the fields of a `request_model`."""
        return self._request([(body["text"], self._options_in(body))], body)

    def batch_of(
        self, body: Mapping[str, Any], check_size: Callable[[int, str], None]
    ) -> Request[Options, Answer, BatchAnswer]:
        """The request of a batch. body: the fields of a `batch_model`. check_size: takes the number of texts and the
        name of their field; raises an error for too many texts."""
        texts, items = body["texts"], body["items"]
        if (texts is None) == (items is None):
            raise InvalidField("texts: send either texts or items", param="texts")
        check_size(len(texts or items or ()), "items" if texts is None else "texts")
        if texts is not None:
            shared = self._options_in(body)
            self.check(shared)
            return self._request([(text, shared) for text in texts], body)
        return self._request([(item.text, self._options_in(body, vars(item))) for item in items], body, "items")

    def check(self, options: Options) -> None:
        """Raise InvalidField for required options that are absent."""
        for name in self._required:
            if getattr(options, name) is None:
                raise InvalidField(f"{name}: Field required", param=name)
        if self._any_of and not any(getattr(options, name) for name in self._any_of):
            first, *others = self._any_of
            raise InvalidField(f"{first}: Field required, or {' or '.join(others)}", param=first)

    def with_merger(self, merger: Callable[[Any], ResultMerger]) -> Self:
        """The same task with another merger."""
        task = copy(self)
        task._merger = merger
        return task

    def merger(self, item: Item) -> ResultMerger:
        """The merger of the item. Raises errors of the item."""
        assert self._merger is not None
        return self._merger(item)

    def parts_of(self, result: Result) -> Sequence[Any]:
        """The parts of a result that a stream may send before its end."""
        return getattr(result, self.parts) if self.parts else ()

    def _request(
        self, inputs: Sequence[tuple[str, Options]], body: Mapping[str, Any], param: str = "texts"
    ) -> Request[Options, Answer, BatchAnswer]:
        return Request(self, inputs, body["model"], body["request_id"], body["timeout_ms"], body["priority"], param)

    def _options_in(self, shared: Mapping[str, Any], own: Mapping[str, Any] | None = None) -> Options:
        """The options of a text. own: the item's, which override the shared ones where they are not None."""
        if own is None:
            return self.options(**{name: shared[name] for name in self._names})
        return self.options(**{name: shared[name] if own[name] is None else own[name] for name in self._names})

    def _make_models(self, text: Any) -> None:
        """Set the JSON types of requests: `request_model`, `item_model`, `batch_model`."""
        hints = get_type_hints(self.options, include_extras=True)
        defaults = {option.name: option.default for option in fields(cast(Any, self.options))}
        declared = {name: (hints[name], ... if defaults[name] is MISSING else defaults[name]) for name in self._names}
        optional = {name: _optional(hints[name]) for name in self._names}
        required = {
            name: _optional(hints[name], f"As in /v1/{self.name}; required unless every item has its own.")
            for name in self._required
        }
        text_of_item = {"text": (str, Field(description="The text.", examples=text.examples))}
        title = self.title
        self.request_model = _model(f"{title}Request", "One text.", RequestOptions, declared | {"text": (str, text)})
        doc = "One text of a batch; an option that is set here overrides the batch's."
        self.item_model = _model(f"{title}Item", doc, Strict, optional | text_of_item)
        texts: Any = Elements[list[str]] | None
        items: Any = getitem(cast(Any, Elements), getitem(cast(Any, list), self.item_model)) | None
        lists = {
            "texts": (texts, Field(default=None, description="Texts that all use the options below.")),
            "items": (items, Field(default=None, description="Texts with options of their own.")),
        }
        doc = "Several texts that share options (`texts`), or items that may each have their own (`items`)."
        self.batch_model = _model(f"{title}BatchRequest", doc, RequestOptions, declared | required | lists)


def answer_of(kind: type[Answer], result: Result, **others: Any) -> Answer:
    """An answer of the type `kind`, with its fields from `others`, or else from the result."""
    return kind(**{name: getattr(result, name) for name in _names_of(cast(Any, kind)) if name not in others}, **others)


def _model(name: str, doc: str, base: type[BaseModel], declared: dict[str, Any]) -> type[BaseModel]:
    return create_model(name, __base__=base, __doc__=doc, **declared)


def _optional(hint: Any, description: str = "") -> tuple[Any, Any]:
    """The declaration of a field that may be absent. hint: Annotated, with a `Field` last."""
    *metadata, declared = hint.__metadata__
    kind = getitem(cast(Any, Annotated), (hint.__origin__, *metadata)) if metadata else hint.__origin__
    return kind | None, Field(default=None, description=description or declared.description)


def _dataclass(name: str, own: Sequence[Any], **options: Any) -> Any:
    return make_dataclass(name, own, frozen=True, slots=True, **options)


@cache
def _names_of(kind: type[Any]) -> Sequence[str]:
    return [declared.name for declared in fields(kind)]


AnyTask = Task[Any, Any, Any]
