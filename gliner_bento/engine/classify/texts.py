"""Makes the passes of an item for GLiClass, which tokenizes labels and text as a whole.

    [CLS] <<LABEL>> label <<LABEL>> label <<SEP>> description text [SEP]    for an encoder
    description text <<SEP>> label <<LABEL>> label <<LABEL>> <<SEP>>        for a decoder

An encoder-decoder reads two sequences: the labels with the description, and the text.

A pass has one classification, because its labels affect each other's scores. A long text is cut into overlapping
windows, at the end of a sentence or else between words. Each window fits with the longest of the item's prompts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import NamedTuple

from gliner_bento.engine.base import AdapterLease, Prepared, Steps
from gliner_bento.engine.checkpoint.gliclass import GLiClass
from gliner_bento.engine.results import PassResult
from gliner_bento.engine.text.chunked import PassQueue
from gliner_bento.engine.text.passes import cost_of, windows_of
from gliner_bento.engine.text.sentences import sentence_ends
from gliner_bento.engine.text.subwords import check_unicode, unpadded
from gliner_bento.engine.text.words import TokenIds, token_array
from gliner_bento.errors import InvalidField, TooLarge
from gliner_bento.tasks.base import Item, Usage
from gliner_bento.tasks.classifications import Classification, WindowScores
from gliner_bento.tasks.extraction import Entity, Extraction, ExtractionItem

_WORD = re.compile(r"\S+")
# A text with more than this many characters per token of the limit is assumed not to fit, and is not tokenized.
_MAX_TOKEN_CHARS = 16


@dataclass(frozen=True, slots=True, eq=False)
class ClassInput:
    """The input of a pass. token_ids: with special tokens. labels, own_words: numbers of labels and words of the text.

    prompt_tokens: length of a separate sequence of labels, which comes first; 0: all tokens are one sequence.
    """

    token_ids: TokenIds
    labels: int
    own_words: int
    prompt_tokens: int = 0


class Piece(NamedTuple):
    """`text[start:end]`, with `words` words; the first `repeated` of them are also in the piece before."""

    start: int
    end: int
    words: int
    repeated: int = 0


class ClassTokenizer:
    """Tokenizes texts with labels for one GLiClass model. Thread-safe."""

    def __init__(self, model: GLiClass) -> None:
        self.limit = model.limit
        self._model = model
        self._tokenizer = unpadded(model.tokenizer)
        self._pipeline = model.pipeline
        self._markers = model.pipeline.label_token, model.pipeline.sep_token, model.pipeline.example_token
        self._label_token = model.config.class_token_index

    def token_ids(self, text: str, classification: Classification) -> list[int]:
        """The tokens of the labels and the text."""
        return list(chain.from_iterable(self._sequences(text, classification)))

    def _sequences(self, text: str, classification: Classification) -> tuple[list[int], ...]:
        """The token sequences that the model reads, as in gliclass's pipeline: (labels, text), or both in one."""
        labels, description = list(classification.labels.values()), classification.description
        if self._model.reads_labels_apart:
            return self._ids(self._pipeline.prepare_labels_prompt(labels, description)), self._ids(text)
        if self._model.is_decoder:
            (context,), (label_part,) = self._pipeline._build_context_and_labels(
                [text], labels, same_labels=True, examples=None, prompt=description
            )
            return (self._ids(context, special=False) + self._ids(label_part, special=False),)
        return (self._ids(self._pipeline.prepare_input(text, labels, prompt=description)),)

    def _ids(self, string: str, *, special: bool = True) -> list[int]:
        ids: list[int] = self._tokenizer.encode(string, add_special_tokens=special).ids
        return ids

    def check(self, classifications: Mapping[str, Classification]) -> None:
        """Raise InvalidField for labels that the model cannot encode."""
        for name, classification in classifications.items():
            param = f"classifications.{name}"
            strings = (*classification.labels.values(), classification.description or "")
            check_unicode(strings, param)
            ids = self.token_ids("", classification)
            if any(map(self._has_marker, strings)) or ids.count(self._label_token) != len(classification.labels):
                raise InvalidField(f"{param}: contains a marker that the model reserves for its labels", param=param)
            if len(ids) > self.limit // 2:
                raise InvalidField(
                    f"{param}: the labels have {len(ids)} tokens; the limit is {self.limit // 2}, half of the model's "
                    "maximum length",
                    param=param,
                )

    def input_of(self, text: str, classification: Classification, words: int) -> ClassInput:
        """The input of a pass, for checked labels. words: number of words of the text. Raises InvalidField."""
        sequences = self._sequences(text, classification)
        prompt_tokens = len(sequences[0]) if len(sequences) > 1 else 0
        ids = list(chain.from_iterable(sequences))
        if self._has_marker(text) or ids.count(self._label_token) != len(classification.labels):
            raise InvalidField("text: contains a marker that the model reserves for its labels", param="text")
        return ClassInput(token_array(ids), len(classification.labels), words, prompt_tokens)

    def longest(self, classifications: Mapping[str, Classification]) -> Classification:
        """The classification whose prompt has the most tokens."""
        return max(classifications.values(), key=lambda classification: len(self.token_ids("", classification)))

    def fits(self, text: str, classification: Classification) -> bool:
        """Whether the text fits one pass."""
        if len(text) > _MAX_TOKEN_CHARS * self.limit:
            return False
        return len(self.token_ids(text, classification)) <= self.limit

    def pieces(self, text: str, longest: Classification, max_words: int, overlap_words: int) -> Iterator[Piece]:
        """The windows of a text. Each fits one pass with the classification `longest`."""
        start = repeated = 0
        while start < len(text):
            next_words = [match.span() for match in islice(_WORD.finditer(text, start), max_words)]
            if not next_words:
                return
            words = self.fitting(text, next_words, longest)
            start, end = words[0][0], words[-1][1]
            if end < len(text.rstrip()):  # end with the last sentence that ends in the last quarter
                ends = sentence_ends(text, _last_quarter(words), end)
                if ends:
                    # A sentence may end inside the only word, in a script without spaces.
                    words = [word for word in words if word[1] <= ends[-1]] or [(start, ends[-1])]
                    end = words[-1][1]
            yield Piece(start, end, len(words), repeated)
            if not text[end:].strip():
                return
            repeated = min(overlap_words, len(words) // 2)
            start = words[len(words) - repeated][0] if repeated else end

    def fitting(
        self, text: str, words: Sequence[tuple[int, int]], longest: Classification
    ) -> Sequence[tuple[int, int]]:
        """The first words that fit one pass; if the first word alone does not fit, a piece of it."""
        start = words[0][0]
        low, high = 0, min(len(words), self.limit)
        while low < high:  # binary search for the number of words that fit
            middle = (low + high + 1) // 2
            if self.fits(text[start : words[middle - 1][1]], longest):
                low = middle
            else:
                high = middle - 1
        if low:
            return words[:low]
        end = words[0][1]
        while end - start > 1 and not self.fits(text[start:end], longest):
            end = (start + end) // 2
        return [(start, end)]

    def _has_marker(self, text: str) -> bool:
        return any(marker in text for marker in self._markers)


def _last_quarter(words: Sequence[tuple[int, int]]) -> int:
    """The character at which the last quarter of the words begins, or of a single word's characters."""
    start, end = words[0]
    return words[len(words) * 3 // 4][0] if len(words) > 1 else start + (end - start) * 3 // 4


class ClassPreparer:
    """Prepares the items of one model. Thread-safe. window_words, overlap_words: defaults; window_words 0: no limit."""

    def __init__(
        self, model: GLiClass, name: str, tasks: Sequence[str], *, window_words: int, overlap_words: int
    ) -> None:
        self.tokenizer = ClassTokenizer(model)
        self._max_labels = model.max_labels
        self._name, self._tasks = name, tasks
        self._window_words, self._overlap_words = window_words or model.limit, overlap_words

    def checked(self, item: Item) -> ExtractionItem:
        """The item. Raises InvalidField for options that the model does not support."""
        assert isinstance(item, ExtractionItem)
        item.check_supported(self._name, self._tasks)
        if not item.classifications:
            raise InvalidField("classifications: Field required", param="classifications")
        most = max(len(classification.labels) for classification in item.classifications.values())
        if self._max_labels and most > self._max_labels:
            text = f"classifications: {most} labels; the limit of the model is {self._max_labels}"
            raise InvalidField(text, param="classifications")
        return item

    def prepare(self, item: ExtractionItem, lease: AdapterLease | None) -> Steps[Prepared]:
        """The item as one pass or as a chunked request; without the lease if it needs no pass."""
        max_words, overlap = windows_of(item, self._window_words, self._overlap_words, self.tokenizer.limit, "tokens")
        if not item.text or item.text.isspace():
            return Prepared(item, tokens=0, words=0, result=Extraction.blank(item))
        check_unicode((item.text,), "text")
        self.tokenizer.check(item.classifications)
        yield
        longest = self.tokenizer.longest(item.classifications)
        text, truncated_at = item.text, None
        if item.long_text != "window" and not self.tokenizer.fits(text, longest):
            if item.long_text == "reject":
                limit = self.tokenizer.limit
                raise TooLarge(f"text: the model's maximum length is {limit} tokens with the labels", param="text")
            words_of_text = [match.span() for match in islice(_WORD.finditer(text), self.tokenizer.limit)]
            truncated_at = self.tokenizer.fitting(text, words_of_text, longest)[-1][1]
            text = text[:truncated_at]
        words = len(_WORD.findall(text, 0, _MAX_TOKEN_CHARS * self.tokenizer.limit))  # a longer text does not fit
        is_whole = (truncated_at is not None or words <= max_words) and self.tokenizer.fits(text, longest)
        if is_whole and len(item.classifications) == 1:
            return self._pass(item, text, words, lease, truncated_at=truncated_at)
        whole = iter([Piece(0, len(text), words)])
        pieces = whole if is_whole else self.tokenizer.pieces(text, longest, max_words, overlap)
        request = ClassificationRequest(self, item, pieces, lease, truncated_at)
        return Prepared(item, tokens=0, words=0, chunked=request, adapter=lease)

    def passes(self, item: ExtractionItem, piece: Piece, lease: AdapterLease | None) -> Iterator[Prepared]:
        """A pass of the piece for each classification."""
        text = item.text[piece.start : piece.end]
        for name, classification in item.classifications.items():
            pass_item = replace(item, classifications={name: classification})
            yield self._pass(pass_item, text, piece.words, lease, is_pass=True)

    def _pass(
        self,
        item: ExtractionItem,
        text: str,
        words: int,
        lease: AdapterLease | None,
        *,
        truncated_at: int | None = None,
        is_pass: bool = False,
    ) -> Prepared:
        (classification,) = item.classifications.values()
        class_input = self.tokenizer.input_of(text, classification, words)
        tokens = len(class_input.token_ids)
        return Prepared(
            item,
            tokens=tokens,
            words=words,
            truncated_at=truncated_at,
            payload=class_input,
            cost_tokens=cost_of(tokens, 0, 0),
            adapter=lease,
            is_pass=is_pass,
        )


class ClassificationRequest(PassQueue):
    """A `ChunkedRequest` with a pass for every classification of every window."""

    def __init__(
        self,
        preparer: ClassPreparer,
        item: ExtractionItem,
        pieces: Iterator[Piece],
        lease: AdapterLease | None,
        truncated_at: int | None,
    ) -> None:
        super().__init__([piece] for piece in pieces)
        self._preparer, self._item, self._lease = preparer, item, lease
        self._truncated_at = truncated_at
        self._scores = WindowScores()
        self._usage = Usage()

    def _begin(self, piece: Piece) -> Iterator[Prepared]:
        words = self._usage.words + piece.words - piece.repeated
        self._usage = replace(self._usage, words=words, windows=self._usage.windows + 1)
        return self._passes(self._usage.windows, self._preparer.passes(self._item, piece, self._lease))

    def add(self, prepared: Prepared, result: PassResult) -> Sequence[Entity]:
        with self._lock:
            self._scores.add(self._open.pop(id(prepared)), result.parts["classifications"])
            tokens, passes = self._usage.tokens + result.tokens, self._usage.passes + 1
            self._usage = replace(self._usage, tokens=tokens, passes=passes)
            return ()

    def result(self) -> Extraction:
        return Extraction(
            (),
            classifications=self._scores.results(self._item.classifications),
            truncated=self._truncated_at is not None,
            truncated_at=self._truncated_at,
            usage=self._usage,
        )
