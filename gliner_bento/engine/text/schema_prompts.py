"""The prompt of GLiNER2 models: tasks for the structures, the labels, the relations and the classifications.

    ( [P] entities ( [E] person [E] city ) ) [SEP_STRUCT] ( [P] lives in ( [R] head [R] tail ) ) [SEP_TEXT] words … .

Each structure, relation and classification is a task, and so are all labels together. The embedding of a task's [P]
gives the number of its instances. Descriptions follow the name of the task. The choices of fields are words before the
text. A text that does not end in one of `_STOPS` gets a full stop, as in training: a word that has no characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from gliner_bento.engine.text.prompts import CACHED_PROMPTS, NO_ROOM, Prompt, Prompts, PromptTooLong
from gliner_bento.engine.text.subwords import ModelLimits, Subwords, check_unicode, shortened
from gliner_bento.engine.text.words import NO_WORDS, Words, token_array
from gliner_bento.errors import InvalidField
from gliner_bento.tasks.extraction import ExtractionItem
from gliner_bento.tasks.structures import Structure

_MARKERS = ("[SEP_STRUCT]", "[SEP_TEXT]", "[P]", "[C]", "[E]", "[R]", "[L]", "[EXAMPLE]", "[OUTPUT]", "[DESCRIPTION]")
_STOPS = (".", "!", "?")
_NOT_SPACE = re.compile(r"\S")
_ENDS = {"head": "head", "tail": "tail"}  # the fields of a relation; their descriptions are their names


class PromptTask(NamedTuple):
    """A task of a prompt, from the option `param`. title: the text after [P]. marker: the token before each field."""

    param: str
    title: str
    marker: str
    fields: tuple[str, ...]

    @property
    def elements(self) -> list[str]:
        """The parts that are tokenized separately. Parts 4 + 2 n and 5 + 2 n are the marker and the name of field n."""
        return ["(", "[P]", self.title, "(", *(part for name in self.fields for part in (self.marker, name)), ")", ")"]


class SchemaPrompts(Prompts):
    """See `Prompts`. `label_positions` are those of [E]; `relation_positions` those of [P] and all other markers of
    fields, in order."""

    framed = False
    schema = True

    def __init__(self, processor: Any, subwords: Subwords, limits: ModelLimits, *, relations: bool) -> None:
        self._subwords = subwords
        self._max_tokens = limits.tokens
        self._cached = lru_cache(maxsize=CACHED_PROMPTS)(self._build)
        self._stop = token_array(subwords.ids(["."]))

    @staticmethod
    def markers(processor: Any, *, relations: bool) -> set[int]:
        return set(processor.transformer_tokenizer.convert_tokens_to_ids(list(_MARKERS)))

    def prompt(self, item: ExtractionItem) -> Prompt:
        tasks = tuple(schema_tasks(item))
        if 2 * sum(len(task.fields) for task in tasks) >= self._max_tokens:  # at least a marker and a token each
            return NO_ROOM
        try:
            return self._cached(tasks, tuple(choice_words(item.structures)))
        except PromptTooLong:
            return NO_ROOM

    def tokens_of(self, name: str, description: str, param: str) -> int:
        if param == "relations":
            task = _task(param, name, description, "[R]", _ENDS)
            return 1 + sum(map(len, self._elements(task)))
        task = _task(param, "", "", "", {name: description})
        ids = self._subwords.ids([name])
        self._subwords.check_name(ids, name, param)
        return 1 + len(ids) + len(self._subwords.ids([task.title]))

    def after(self, text: str, words: Words) -> Words:
        """A full stop if the words do not end in one of `_STOPS` or (as in gliner2) only white space follows them."""
        end = words.end if _NOT_SPACE.search(text, words.end) else len(text)
        if text.endswith(_STOPS, 0, end):
            return NO_WORDS
        return Words(self._stop, np.array([len(self._stop)]), np.array([[words.end, words.end]]))

    def _build(self, tasks: Sequence[PromptTask], choices: Sequence[str]) -> Prompt:
        ids: list[int] = []
        label_positions: list[int] = []
        other_positions: list[int] = []
        for task in tasks:
            ids += self._subwords.ids(["[SEP_STRUCT]"]) if ids else ()
            elements = self._elements(task)
            starts = list(accumulate(map(len, elements), initial=len(ids)))
            other_positions.append(starts[1])  # [P]
            positions = label_positions if task.marker == "[E]" else other_positions
            positions.extend(starts[4 : 4 + 2 * len(task.fields) : 2])
            for element in elements:
                ids += element
            if len(ids) > self._max_tokens:
                raise PromptTooLong  # an exception, so that the cache does not keep it
        ids += self._subwords.ids(["[SEP_TEXT]"])
        words = self._words(choices)
        room = self._subwords.room(ids) - len(self._stop) - len(words.token_ids)
        if room < 1:
            raise PromptTooLong
        labels, others = np.array(label_positions, np.int64), np.array(other_positions, np.int64)
        return Prompt(token_array(ids), (), room, labels, others, words)

    def _words(self, choices: Sequence[str]) -> Words:
        """The choices as words without characters. Raises InvalidField for a choice without tokens."""
        ids = self._subwords.each(choices) if choices else []
        for word, tokens in zip(choices, ids, strict=True):
            self._subwords.check_name(tokens, word, "structures")
        counts = np.array([len(tokens) for tokens in ids], np.int64)
        return Words(token_array([n for tokens in ids for n in tokens]), counts, np.zeros((len(ids), 2), np.int64))

    def _elements(self, task: PromptTask) -> list[tuple[int, ...]]:
        """The tokens of each element. Raises InvalidField for a name that the model cannot encode."""
        elements = self._subwords.each(task.elements)
        for name, ids in zip(task.fields, elements[5::2], strict=False):
            self._subwords.check_name(ids, name, task.param)
        return elements


def schema_tasks(item: ExtractionItem) -> Iterator[PromptTask]:
    """The tasks of an item, in the order of its prompt. Raises InvalidField for a name with a marker."""
    for name, structure in item.structures.items():
        descriptions = {field_name: field.description for field_name, field in structure.items()}
        choices = (choice for field in structure.values() for choice in field.choices)
        yield _task("structures", name, name, "[C]", descriptions, *choices)
    if item.labels:
        yield _task("labels", "entities", "entities", "[E]", item.labels)
    for name, description in item.relations.items():
        yield _task("relations", name, description, "[R]", _ENDS)
    for name, question in item.classifications.items():
        yield _task("classifications", name, question.description or name, "[L]", question.labels)


def choice_words(structures: Mapping[str, Structure]) -> list[str]:
    """The choices of fields, as words before the text, such as ( car: color ( red | blue ) , doors ( 2 | 4 ) )."""
    words: list[str] = []
    for name, fields in structures.items():
        with_choices = {field_name: field.choices for field_name, field in fields.items() if field.choices}
        for number, (field_name, choices) in enumerate(with_choices.items()):
            words += [",", field_name, "("] if number else ["(", f"{name}:", field_name, "("]
            words += [choices[0], *(part for choice in choices[1:] for part in ("|", choice)), ")"]
        words += [")"] if with_choices else []
    return words


def choice_index(words: Sequence[str], choice: str) -> int:
    """The index in `words` of a choice: as in gliner2, of the first word that equals it, ignoring case."""
    return next(number for number, word in enumerate(words) if word.lower() == choice.lower())


def _task(param: str, name: str, description: str, marker: str, fields: Mapping[str, str], *choices: str) -> PromptTask:
    """fields: the description of each field, by default its name. choices: only checked for markers."""
    texts = (name, description, *fields, *fields.values(), *choices)
    check_unicode(texts, param)
    for text in texts:
        if "[" in text and any(reserved in text for reserved in _MARKERS):
            raise InvalidField(f"{param}: {shortened(text)} has a marker that the model reserves", param=param)
    title = name if name == description else f"{name}: {description}"
    for field, text in fields.items():
        title += f" [DESCRIPTION] {field}: {text}" if field != text else ""
    return PromptTask(param, title, marker, tuple(fields))
