"""A further task, as its module would be: counts the words of a text that have some length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, ClassVar

from pydantic import Field

from gliner_bento.tasks.base import NO_USAGE, ExtractionWarning, Item, Limits, Result, Task, Usage

NAME = "count"


@dataclass(frozen=True, slots=True, kw_only=True)
class CountOptions:
    min_chars: Annotated[int, Field(ge=1, description="Characters of a word that counts, at least.")]
    adapter_id: Annotated[str | None, Field(description="LoRA adapter to use.")] = None


@dataclass(frozen=True, slots=True)
class CountItem(Item):
    task: ClassVar[str] = NAME

    min_chars: int


@dataclass(frozen=True, slots=True)
class Count(Result):
    task: ClassVar[str] = NAME

    words: Sequence[str]
    usage: Usage = NO_USAGE
    warnings: Sequence[ExtractionWarning] = ()

    def rest(self, streamed: int) -> Count:
        return replace(self, words=self.words[streamed:])


@dataclass(frozen=True, slots=True)
class CountedWord:
    word: str


@dataclass(frozen=True, slots=True)
class CountEnd:
    usage: Usage
    warnings: Sequence[ExtractionWarning]
    model: str
    adapter_id: str | None
    request_id: str


def _decide(options: CountOptions, _: Limits) -> Callable[[str], CountItem]:
    return partial(CountItem, min_chars=options.min_chars, adapter_id=options.adapter_id)


COUNTING: Task = Task(
    NAME,
    "Count",
    "Words in texts.",
    options=CountOptions,
    item=CountItem,
    result=Count,
    decide=_decide,
    parts="words",
    line=CountedWord,
    end=CountEnd,
    example={"text": "a bc", "min_chars": 2},
    batch_example={"texts": ["a bc"], "min_chars": 2},
)
