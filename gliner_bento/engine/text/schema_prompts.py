"""The prompt of GLiNER2 models: a task for the labels, and one for each relation, before the text.

    ( [P] entities ( [E] person [E] city ) ) [SEP_STRUCT] ( [P] lives in ( [R] head [R] tail ) ) [SEP_TEXT] words … .

The number of a task's instances follows from its [P]. Descriptions are behind the name of the task. A text that does
not end in a full stop gets one, as the models were trained; it has no characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from gliner_bento.engine.text.prompts import CACHED_PROMPTS, NO_ROOM, DoesNotFit, Prompt
from gliner_bento.engine.text.subwords import ModelLimits, Subwords, check_unicode, shortened
from gliner_bento.engine.text.words import NO_WORDS, Words, token_array
from gliner_bento.errors import InvalidField
from gliner_bento.tasks.extraction import ExtractionItem

_MARKERS = ("[SEP_STRUCT]", "[SEP_TEXT]", "[P]", "[C]", "[E]", "[R]", "[L]", "[EXAMPLE]", "[OUTPUT]", "[DESCRIPTION]")
_STOPS = (".", "!", "?")
_NOT_SPACE = re.compile(r"\S")
_ENDS = ("head", "tail")


class SchemaTask(NamedTuple):
    """A task of a prompt. title: behind [P]. marker: before each of the fields."""

    param: str
    title: str
    marker: str
    fields: Sequence[str]

    @property
    def elements(self) -> list[str]:
        """What is tokenized, each on its own."""
        return ["(", "[P]", self.title, "(", *(part for name in self.fields for part in (self.marker, name)), ")", ")"]


class SchemaPrompts:
    """See `Prompts`. `relation_positions` are those of all [P] and [R], in order."""

    inline, framed, schema = True, False, True

    def __init__(self, processor: Any, subwords: Subwords, limits: ModelLimits, *, relations: bool) -> None:
        self._subwords = subwords
        self._max_tokens = limits.tokens
        self._cached = lru_cache(maxsize=CACHED_PROMPTS)(self._build)
        self._stop = token_array(subwords.ids(["."]))

    @staticmethod
    def markers(processor: Any, *, relations: bool) -> set[int]:
        """See `Prompts`."""
        return set(processor.transformer_tokenizer.convert_tokens_to_ids(list(_MARKERS)))

    def prompt(self, item: ExtractionItem) -> Prompt:
        """See `Prompts`."""
        names = (item.labels, item.relations)
        for param, described in zip(("labels", "relations"), names, strict=True):
            _check_names(described, param)
        if 2 * sum(map(len, names)) >= self._max_tokens:  # at least a marker and a token each
            return NO_ROOM
        try:
            return self._cached(*(tuple(described.items()) for described in names))
        except DoesNotFit:
            return NO_ROOM

    def tokens_of(self, name: str, description: str, param: str) -> int:
        """See `Prompts`."""
        _check_names({name: description}, param)
        if param == "relations":
            return 1 + sum(map(len, self._elements(next(_relation_tasks({name: description})))))
        ids = self._subwords.ids([name])
        self._subwords.check_name(ids, name, param)
        return 1 + len(ids) + len(self._subwords.ids([_described({name: description})]))

    def after(self, text: str, words: Words) -> Words:
        """See `Prompts`: a full stop, unless there is one. The text's last characters decide, be they white space."""
        end = words.end if _NOT_SPACE.search(text, words.end) else len(text)
        if text.endswith(_STOPS, 0, end):
            return NO_WORDS
        return Words(self._stop, np.array([len(self._stop)]), np.array([[words.end, words.end]]))

    def _build(self, labels: Sequence[tuple[str, str]], relations: Sequence[tuple[str, str]]) -> Prompt:
        tasks = [*_entity_tasks(dict(labels)), *_relation_tasks(dict(relations))]
        ids: list[int] = []
        of_labels: list[int] = []
        of_others: list[int] = []
        for task in tasks:
            ids += self._subwords.ids(["[SEP_STRUCT]"]) if ids else ()
            elements = self._elements(task)
            starts = list(accumulate(map(len, elements), initial=len(ids)))
            of_others.append(starts[1])
            (of_labels if task.marker == "[E]" else of_others).extend(starts[4 : 4 + 2 * len(task.fields) : 2])
            for element in elements:
                ids += element
            if len(ids) > self._max_tokens:
                raise DoesNotFit  # an exception, so that the cache does not keep it
        ids += self._subwords.ids(["[SEP_TEXT]"])
        room = self._subwords.room(ids) - len(self._stop)
        if room < 1:
            raise DoesNotFit
        return Prompt(token_array(ids), (), room, np.array(of_labels, np.int64), np.array(of_others, np.int64))

    def _elements(self, task: SchemaTask) -> list[tuple[int, ...]]:
        """The tokens of each element. Raises InvalidField for a name that the model cannot encode."""
        elements = self._subwords.each(task.elements)
        for name, ids in zip(task.fields, elements[5::2], strict=False):
            self._subwords.check_name(ids, name, task.param)
        return elements


def _check_names(described: Mapping[str, str], param: str) -> None:
    """Raises InvalidField for names and descriptions with a marker inside, or that are not valid Unicode."""
    texts = (*described, *described.values())
    check_unicode(texts, param)
    for text in texts:
        if "[" in text and any(marker in text for marker in _MARKERS):
            raise InvalidField(f"{param}: {shortened(text)} has a marker that the model reserves", param=param)


def _described(described: Mapping[str, str]) -> str:
    """What is behind a task's name."""
    return "".join(f" [DESCRIPTION] {name}: {text}" for name, text in described.items() if name != text)


def _entity_tasks(labels: Mapping[str, str]) -> Iterator[SchemaTask]:
    if labels:
        yield SchemaTask("labels", f"entities{_described(labels)}", "[E]", list(labels))


def _relation_tasks(relations: Mapping[str, str]) -> Iterator[SchemaTask]:
    for name, description in relations.items():
        title = name if name == description else f"{name}: {description}"
        yield SchemaTask("relations", title, "[R]", _ENDS)
