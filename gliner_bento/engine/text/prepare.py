"""Prepares items: checks them, and makes one pass or a chunked request."""

from __future__ import annotations

from collections.abc import Sequence

from gliner_bento.engine.base import AdapterLease, Prepared, Steps
from gliner_bento.engine.text.chunked import WindowedRequest, cut_text, one_window
from gliner_bento.engine.text.passes import Groups, PassPlanner, one_pass
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
        """The item. Raises InvalidField for options that the model does not support."""
        assert isinstance(item, ExtractionItem)
        schema = self._tokenizer.prompts.schema
        if not item.labels and (not item.abilities or (item.relations and not schema)):
            raise InvalidField("labels: at least one is required", param="labels")
        item.check_supported(self._model, self._tasks)
        for param, names in (("labels", item.labels), ("relations", item.relations)):
            if not schema and len(set(names.values())) < len(names):
                raise InvalidField(f"{param}: two names have the same description", param=param)
        return item

    def prepare(self, item: ExtractionItem, lease: AdapterLease | None) -> Steps[Prepared]:
        """The item as one pass or as a chunked request; without the lease if it needs no pass."""
        tokenizer, planner = self._tokenizer, self._planner
        window_words, overlap_words = planner.windows(item)
        relation_windows = planner.relation_windows(item)
        if not item.text or item.text.isspace():
            return Prepared(item, tokens=0, words=0, result=Extraction.blank(item))
        in_windows = item.long_text == "window"
        groups: Groups | None = None  # of a chunked request
        truncated_at: int | None = None
        yield from planner.tokenize_labels(item)
        if prompt := planner.fits(item):
            max_words = window_words if in_windows else tokenizer.limits.words
            words, is_cut = yield from tokenizer.read(item.text, prompt.room, max_words)
            if not is_cut or not in_windows:
                truncated_at = self._truncated_at(item, words, is_cut=is_cut)
                if not words:
                    result = Extraction.blank(item, truncated=truncated_at is not None, truncated_at=truncated_at)
                    return Prepared(item, tokens=0, words=0, truncated_at=truncated_at, result=result)
                if not relation_windows or not relation_windows.may_divide(item.text, words):
                    tokenized = tokenizer.tokenized(item.text, words, prompt)
                    return one_pass(item, tokenized, lease, truncated_at=truncated_at)
                groups = planner.one_group(item, prompt.room, divided=True)
                windows = one_window(words)
        if groups is None:
            groups = yield from planner.groups(item, divided=bool(relation_windows))
            if in_windows:
                windows = cut_text(
                    tokenizer, item.text, groups.room, window_words=window_words, overlap_words=overlap_words
                )
            else:
                words, is_cut = yield from tokenizer.read(item.text, groups.room, tokenizer.limits.words)
                truncated_at = self._truncated_at(item, words, is_cut=is_cut)
                windows = one_window(words)
        request = WindowedRequest(item, tokenizer, groups, windows, relation_windows, lease, truncated_at=truncated_at)
        return Prepared(item, tokens=0, words=0, chunked=request, adapter=lease)

    def _truncated_at(self, item: ExtractionItem, words: Words, *, is_cut: bool) -> int | None:
        """The character at which a text is cut; None if it is not cut. Raises TooLarge if it is to be rejected."""
        if not is_cut:
            return None
        if item.long_text == "reject":
            limits = self._tokenizer.limits
            raise TooLarge(
                f"text: the model's maximum length is {limits.words} words, and {limits.tokens} tokens with the labels",
                param="text",
            )
        return words.end if words else 0
