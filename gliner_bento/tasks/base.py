"""Items and results, as far as layers between gateway and engine know them.

The gateway makes an `Item` of each text, in which every option is decided, and gets a `Result` for each; both pass
through all layers unchanged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol

from pydantic import Field
from typing_extensions import Self

from gliner_bento.errors import InvalidField
from gliner_bento.frozen import frozen

BASE_ADAPTER_ID = "__base__"
"""An adapter id that selects the base model, as in gliner.serve."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The settings that apply to all requests of a model; see docs/settings.md for each."""

    default_threshold: float
    default_relation_threshold: float
    label_thresholds: Mapping[str, float]
    relation_thresholds: Mapping[str, float]
    review_band: Sequence[float]
    max_labels: int
    max_text_chars: int
    max_batch_items: int
    max_entities: int
    max_relations: int
    recognizers: Sequence[str]
    phone_regions: Sequence[str]


@frozen()
class Item:
    """One text with every option decided: all that its result depends on."""

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
        """The result that the `ResultMerger` adds to if the model need not read the text; None if it has to."""
        return None

    @property
    def has_merger(self) -> bool:
        """Whether a `ResultMerger` adds to the item's result."""
        return False

    def merger(self, *, all_found: bool) -> ResultMerger:
        """Find what the model does not: the matches of recognizers. Returns the merger that adds them.

        all_found: see `AllFound`. Raises LimitExceeded."""
        raise NotImplementedError


@frozen()
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
    """The result of one item. Its subclass, made by `frozen`, declares `usage` and `warnings` as fields, in the order
    of its JSON."""

    __slots__ = ()

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
