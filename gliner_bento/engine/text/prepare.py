"""Prepares items: checks them, and makes one pass or a chunked request."""

from __future__ import annotations

from collections.abc import Sequence

from gliner_bento.engine.base import AdapterLease, Prepared, Steps
from gliner_bento.engine.text.chunked import WindowedRequest
from gliner_bento.engine.text.passes import PassPlanner, one_pass
from gliner_bento.engine.text.tokenize import ItemTokenizer
from gliner_bento.engine.text.words import Words
from gliner_bento.errors import InvalidField, TooLarge
from gliner_bento.tasks.base import Item
from gliner_bento.tasks.extraction import Extraction, ExtractionItem


class ItemPreparer:
    """Prepares the items of one model. Thread-safe."""

    def __init__(self, tokenizer: ItemTokenizer, planner: PassPlanner, model: str, tasks: Sequence[str]) -> None:
        """tasks: see `ModelInfo`."""
        self._tokenizer = tokenizer
        self._planner = planner
        self._model = model
        self._tasks = tasks

    def checked(self, item: Item) -> ExtractionItem:
        """The item. Raises InvalidField for a task or options that the model does not support."""
        if not isinstance(item, ExtractionItem):
            raise InvalidField(f"{self._model} does not support the task {item.task}")
        schema = self._tokenizer.prompts.schema
        if not item.abilities or (item.relations and not item.labels and not schema):
            raise InvalidField("labels: at least one is required", param="labels")
        item.check_supported(self._model, self._tasks)
        for param, names in (("labels", item.labels), ("relations", item.relations)):
            if not schema and len(set(names.values())) < len(names):
                raise InvalidField(f"{param}: two names have the same description", param=param)
        return item

    def prepare(self, item: ExtractionItem, lease: AdapterLease | None) -> Steps[Prepared]:
        """The item as one pass or as a chunked request; without the lease if it needs no pass."""
        window, overlap = self._planner.windows(item)
        if not item.text or item.text.isspace():
            return Prepared(item, tokens=0, words=0, result=Extraction.blank(item))
        max_words = window if item.long_text == "window" else self._tokenizer.limits.words
        yield from self._planner.tokenize_labels(item)
        if prompt := self._planner.fits(item):
            words, is_cut = yield from self._tokenizer.read(item.text, prompt.room, max_words)
            if not is_cut or item.long_text != "window":
                truncated_at = self._truncated_at(item, words, is_cut=is_cut)
                if not words:
                    result = Extraction.blank(item, truncated=truncated_at is not None, truncated_at=truncated_at)
                    return Prepared(item, tokens=0, words=0, truncated_at=truncated_at, result=result)
                tokenized = self._tokenizer.tokenized(item.text, words, prompt)
                return one_pass(item, tokenized, lease, truncated_at=truncated_at)
        request = yield from self._windowed(item, window, overlap, lease)
        return Prepared(item, tokens=0, words=0, chunked=request, adapter=lease)

    def _windowed(
        self, item: ExtractionItem, window: int, overlap: int, lease: AdapterLease | None
    ) -> Steps[WindowedRequest]:
        groups = yield from self._planner.groups(item)
        request = WindowedRequest(item, self._tokenizer, groups, lease)
        if item.long_text == "window":
            request.process_windows(window, overlap)
        else:
            words, is_cut = yield from self._tokenizer.read(item.text, groups.room, self._tokenizer.limits.words)
            request.process_words(words, self._truncated_at(item, words, is_cut=is_cut))
        return request

    def _truncated_at(self, item: ExtractionItem, words: Words, *, is_cut: bool) -> int | None:
        """The character at which a text is cut; None if it is not. Raises TooLarge if it has to be rejected."""
        if is_cut and item.long_text == "reject":
            limits = self._tokenizer.limits
            raise TooLarge(
                f"text: the model's maximum length is {limits.words} words, and {limits.tokens} tokens with the labels",
                param="text",
            )
        return None if not is_cut else words.end if words else 0
