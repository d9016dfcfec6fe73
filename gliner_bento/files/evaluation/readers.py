"""Reads examples from JSONL, JSON (spaCy, Label Studio) and CoNLL files. A fault is an error with file and line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gliner_bento.errors import one_line
from gliner_bento.files.evaluation.gold import Choice, Example, Link, Span, check_text, example, folded, span
from gliner_bento.files.records.json_value import json_value

MAX_BYTES = 256 * 2**20
"""Largest file of examples or of reports: it is read as a whole."""

_TAG = re.compile(r"O|[BIESLUM]-\S+")
_BEGINS = "BSU"


def read_gold(path: Path, kind: str | None = None, text_column: str = "text") -> list[Example]:
    """The examples of a file. kind: a value of `SUFFIXES`; by default, that of the file's suffix.

    Raises ValueError for a fault of the file, which names file and line, and OSError.
    """
    kind = kind or SUFFIXES.get(path.suffix.lower())
    if kind is None:
        raise ValueError(f"{path}: the suffix must be one of {', '.join(SUFFIXES)}; or use --format")
    examples = list(_READERS[kind](_content(path), str(path), text_column))
    if not examples:
        raise ValueError(f"{path}: has no examples")
    return examples


def read_whole(path: Path) -> bytes:
    """The content of a file. Raises OSError, and ValueError for one that is too large, or is no file."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path}: must be a file")
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"{path}: is larger than {MAX_BYTES // 2**20} MiB")
    return path.read_bytes()


def _content(path: Path) -> str:
    try:
        return read_whole(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8: byte {error.start}") from None


def _jsonl(content: str, path: str, text_column: str) -> Iterator[Example]:
    for number, line in enumerate(content.split("\n"), 1):
        if line.strip():
            where = f"{path}: line {number}"
            with _located(where):
                read = example(json_value(line), where, text_column)
            yield read


def _json(content: str, path: str, text_column: str) -> Iterator[Example]:
    """A list of examples, or an export of Label Studio."""
    with _located(path):
        items = json_value(content)
    if not isinstance(items, list):
        raise ValueError(f"{path}: must be a list; a file with an object in each line is .jsonl")
    for number, item in enumerate(items, 1):
        where = f"{path}: item {number}"
        is_task = isinstance(item, dict) and isinstance(item.get("data"), dict)
        with _located(where):
            read = (_task if is_task else example)(item, where, text_column)
        yield read


@contextmanager
def _located(where: str) -> Iterator[None]:
    """Begin the message of a ValueError with `where`."""
    try:
        yield
    except RecursionError:
        raise ValueError(f"{where}: nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{where}: {one_line(error)}") from None


def _task(task: Mapping[str, Any], where: str, text_column: str) -> Example:
    """A task of Label Studio's JSON export. Raises ValueError."""
    text = task["data"].get(text_column)
    if not isinstance(text, str):
        raise ValueError(f"data.{text_column}: must be a string; name the field with the text: --text-column")
    regions = _regions(task)
    spans: dict[Any, Span] = {}
    entities: set[Span] = set()
    for number, region in enumerate(regions):
        value = region.get("value")
        if isinstance(value, dict) and "start" in value:
            try:
                of_region = _spans_of_region(value, text)
            except ValueError as error:
                raise ValueError(f"result[{number}]: {error}") from None
            entities.update(of_region)
            spans[region.get("id")] = of_region[0]
    relations = (region for region in regions if region.get("type") == "relation")
    links = {link for region in relations for link in _links_of_region(region, text, spans)}
    choices = {choice for region in regions for choice in _choices_of_region(region)}
    questions = frozenset(choice.question for choice in choices)
    return Example(where, text, frozenset(entities), frozenset(links), questions, frozenset(choices))


def _regions(task: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The result of the one annotation that counts."""
    given = task.get("annotations")
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise ValueError("annotations: must be a list; export the full JSON")
    done = [annotation for annotation in given if not annotation.get("was_cancelled")]
    chosen = [annotation for annotation in done if annotation.get("ground_truth")] or done
    if len(chosen) != 1:
        raise ValueError(f"annotations: {len(chosen)} in place of one; mark one as ground truth")
    result = chosen[0].get("result")
    if not isinstance(result, list) or not all(isinstance(region, dict) for region in result):
        raise ValueError("result: must be a list of objects")
    return result


def _spans_of_region(value: Mapping[str, Any], text: str) -> list[Span]:
    labels = value.get("labels")
    if not isinstance(labels, list) or not labels:
        raise ValueError("labels: must be a list of names")
    spans = [span(text, value.get("start"), value.get("end"), label) for label in labels]
    check_text(value, text, spans[0])
    return spans


def _choices_of_region(region: Mapping[str, Any]) -> Iterator[Choice]:
    """The labels of a region that classifies the text; none of a region without choices."""
    value = region.get("value")
    labels = value.get("choices") if isinstance(value, dict) else None
    if labels is None:
        return
    question = region.get("from_name")
    if not isinstance(question, str) or not question.strip():
        raise ValueError("from_name: must name the classification")
    if not isinstance(labels, list) or not all(isinstance(label, str) and label.strip() for label in labels):
        raise ValueError("choices: must be a list of names")
    yield from (Choice(question.strip(), label.strip()) for label in labels)


def _links_of_region(region: Mapping[str, Any], text: str, spans: Mapping[Any, Span]) -> Iterator[Link]:
    ends = []
    for name in ("from_id", "to_id"):
        there = spans.get(region.get(name)) if isinstance(region.get(name), str) else None
        if there is None:
            raise ValueError(f"{name}: is no entity of the task")
        ends.append(folded(text[there.start : there.end]))
    labels = region.get("labels") or []
    if not isinstance(labels, list) or not all(isinstance(label, str) and label.strip() for label in labels):
        raise ValueError("labels: must be a list of names")
    direction = region.get("direction", "right")
    for label in labels:
        if direction != "left":
            yield Link(ends[0], label.strip(), ends[1])
        if direction in ("left", "bi"):
            yield Link(ends[1], label.strip(), ends[0])


def _conll(content: str, path: str, _text_column: str) -> Iterator[Example]:
    """Sentences: words of consecutive lines, joined by spaces. The first column is the word, the last one its tag."""
    sentence: list[tuple[str, str]] = []
    first = 1
    for number, line in enumerate([*content.split("\n"), ""], 1):
        cells = line.strip("\r").split("\t") if "\t" in line else line.split()
        cells = [cell.strip() for cell in cells]
        is_comment = line.startswith("#") and not _TAG.fullmatch(cells[-1])
        if not any(cells) or cells[0] == "-DOCSTART-":
            if sentence:
                yield _sentence(sentence, f"{path}: line {first}")
            sentence, first = [], number + 1
        elif not is_comment:
            if len(cells) < 2 or not cells[0] or not _TAG.fullmatch(cells[-1]):
                raise ValueError(f"{path}: line {number}: must be a word and a tag such as B-person, I-person or O")
            if not sentence:
                first = number
            sentence.append((cells[0], cells[-1]))


def _sentence(words: Sequence[tuple[str, str]], where: str) -> Example:
    """The example of tagged words. A tag that continues nothing begins an entity, as in IOB1."""
    entities: list[Span] = []
    position, is_open = 0, False
    for word, tag in words:
        end = position + len(word)
        prefix, _, label = tag.partition("-")
        if label and prefix not in _BEGINS and is_open and entities[-1].label == label:
            entities[-1] = Span(entities[-1].start, end, label)
        elif label:
            entities.append(Span(position, end, label))
        is_open = bool(label) and prefix not in "ELSU"
        position = end + 1
    return Example(where, " ".join(word for word, _ in words), frozenset(entities))


_READERS: dict[str, Callable[[str, str, str], Iterator[Example]]] = {"jsonl": _jsonl, "json": _json, "conll": _conll}
KINDS = tuple(_READERS)
SUFFIXES = {
    **dict.fromkeys((".jsonl", ".ndjson"), "jsonl"),
    ".json": "json",
    **dict.fromkeys((".conll", ".bio", ".iob", ".tsv", ".txt"), "conll"),
}
