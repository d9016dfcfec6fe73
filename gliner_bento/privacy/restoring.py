r"""Restores the originals in what a language model has made of a redacted text, whole or in chunks.

Language models change placeholders. These are restored for `[PERSON_1]`: `[Person 1]`, `[person-1]`, `<PERSON_1>`,
`{PERSON_1}`, `{{PERSON_1}}`, `\[PERSON\_1\]`, `%5BPERSON_1%5D`, and `PERSON_1` without brackets in exactly this form;
also with the escapes of JSON, such as `[\u00c9L\u00c8VE_1]`. What may stand for several placeholders stays as it is,
and is counted.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

from gliner_bento.privacy.json_texts import is_json
from gliner_bento.privacy.placeholder_names import ESCAPED_CHARS, MAX_BACKSLASHES, PlaceholderNames, folded, unescaped
from gliner_bento.privacy.redact import CharBudget, is_written_by_us
from gliner_bento.privacy.styles import PLACEHOLDER
from gliner_bento.privacy.written_placeholders import Written, begins_word, canonical, kinds_in, underscores_before

Form = Literal["auto", "text", "json"]
"""What a text is: in `json`, originals are escaped as in strings of JSON; `auto`: `json` if the whole text is."""

_AROUND_CHARS = 32
"""More characters than brackets, spaces and backslashes add to a placeholder."""
_OPENINGS = re.compile(r"(?:&lt;|%5b|[\\\[<{【［ \t\n])*")
_DOUBLED = re.compile(r"&lt;|[<{【［]")
_CLOSING = re.compile("&gt;|[>}】］]")
_CLOSINGS = re.compile(rf"\s?(?:{_CLOSING.pattern})+\Z")
_CONTEXT_CHARS = 200
_URL = re.compile(r""":(?:/(?:/[^\s"]*)?)?\Z""")
"""The end of a text that may be the beginning of a URL, in which originals are quoted."""
_IN_URL = re.compile(r"""://[^\s"]*\Z""")
_NO_URL = re.compile(r"""[\s"<>\\^`{|}\x00-\x1f]""")
"""What no URL has. An original without it stays as it is, because it may be a URL or a part of one."""
_HALF_JSON_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")
_HALF_ESCAPE = re.compile(rf"(?:{_HALF_JSON_ESCAPE.pattern}|%[0-9a-fA-F]?\Z)")
_JSON_ESCAPE = re.compile(r"\\u[0-9a-fA-F]{4}")
_BACKSLASHES = rf"\\{{1,{MAX_BACKSLASHES}}}(?!\\)"
_ESCAPE_CHARS = 6
_MAX_REPORTED, _MAX_REPORTED_CHARS = 100, 80


@dataclass(slots=True)
class RestoredCounts:
    """What a restorer has done. ambiguous: number of placeholders that may stand for several, or have no number, which
    are left. unknown: those that the mapping does not have, the first `_MAX_REPORTED`."""

    restored: int = 0
    ambiguous: int = 0
    unknown: dict[str, None] = field(default_factory=dict)

    def shown(self) -> dict[str, Any]:
        """The fields of an answer."""
        return {"restored": self.restored, "ambiguous": self.ambiguous, "unknown": [*self.unknown]}


class Restorer:
    """Restores texts with a mapping: the original of each placeholder. Holds back the end of a chunk that may be the
    beginning of a placeholder.

    budget: of the originals in all texts of the restorer; default: `MAX_NEW_CHARS`. Beyond it, `TooLarge` is raised.
    """

    def __init__(self, mapping: Mapping[str, str], budget: CharBudget | None = None) -> None:
        self._mapping = mapping
        self._budget = budget or CharBudget()
        self.counts = RestoredCounts()
        self._by_canonical: dict[str, list[str]] = {}
        for placeholder in mapping:
            self._by_canonical.setdefault(canonical(placeholder), []).append(placeholder)
        kinds = {placeholder.strip("[]").rpartition("_")[0] for placeholder in mapping}
        self._kinds = {canonical(kind) for kind in kinds}
        self._names = PlaceholderNames(kinds)
        self._heads = {folded(kind).split("_")[0] for kind in kinds}
        self._initials = {head[0] for head in self._heads}
        self._starts = re.compile("|".join([_BACKSLASHES, r"[\[<{&%【［]", *map(re.escape, self._initials)]))
        self._longest = max(map(_longest_form, mapping), default=0) + _AROUND_CHARS

    def restore(self, text: str, form: Form = "auto") -> str:
        """The text with originals."""
        return self._restored(text, len(text), is_json=form == "json" or (form == "auto" and is_json(text)))

    def restore_chunk(self, chunk: str, form: Form = "text") -> tuple[str, str]:
        """The part of a chunk that is final, with originals; and the rest, which belongs before the next chunk."""
        end = self._final_end(chunk)
        return self._restored(chunk, end, is_json=form == "json"), chunk[end:]

    def _restored(self, text: str, end: int, *, is_json: bool) -> str:
        """The text up to `end`, restored. What is behind it may show that a word does not end there."""
        pieces, position = [], 0
        for written, placeholder in self._found_in(text, end):
            original = _notation(written, self._mapping[placeholder], is_json=is_json)
            self._budget.take(len(original))
            pieces += [text[position : written.start], original]
            position = written.end
            self.counts.restored += 1
        self._note_unknown(text[:end])
        return "".join([*pieces, text[position:end]])

    def _found_in(self, text: str, end: int) -> Iterator[tuple[Written, str]]:
        """The placeholders up to `end`, in order. Those that are as they were made need no search for names."""
        searched = 0
        for match in PLACEHOLDER.finditer(text):
            if match[0] in self._mapping and match.end() <= end:
                yield from self._changed_in(text, searched, match.start(), end)
                searched = match.end()
                yield Written(text, match.start(), searched, match[0][1:-1], "[", is_word=True), match[0]
        yield from self._changed_in(text, searched, len(text), end)

    def _changed_in(self, text: str, start: int, stop: int, end: int) -> Iterator[tuple[Written, str]]:
        """The placeholders of `_found_in` in [start, stop). Of two that overlap, the one that begins first: what is no
        placeholder hides none."""
        searched = 0
        for first, last in sorted(self._names.all_matches(text[start:stop]), key=lambda span: (span[0], -span[1])):
            if first < searched or not self._is_one(written := Written.at(text, start + first, start + last)):
                continue
            searched = last
            if written.end <= end and (placeholder := self._placeholder(written)) is not None:
                yield written, placeholder

    def _is_one(self, written: Written) -> bool:
        return bool(written.opened) or (written.may_be_one and (written.exact in self._mapping or written.is_upper))

    def _placeholder(self, written: Written) -> str | None:
        """The placeholder that is written there; None if it is not a known one, or not a single one."""
        exact = written.exact
        if exact in self._mapping:
            return exact
        candidates = self._by_canonical.get(canonical(written.inner), ())
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            self.counts.ambiguous += 1
        else:
            self._report(written.text[written.start : written.end])
        return None

    def _note_unknown(self, text: str) -> None:
        self.counts.ambiguous += sum(canonical(kind) in self._kinds for kind in kinds_in(unescaped(text)[0]))
        for match in PLACEHOLDER.finditer(text):
            placeholder = match[0]
            if (
                placeholder not in self._mapping
                and is_written_by_us(placeholder)
                and canonical(placeholder) not in self._by_canonical
            ):
                self._report(placeholder)

    def _report(self, placeholder: str) -> None:
        if len(self.counts.unknown) < _MAX_REPORTED:
            self.counts.unknown[placeholder[:_MAX_REPORTED_CHARS]] = None

    def _final_end(self, text: str) -> int:
        """The end of the part of a text that no further text can change. The rest is at most the longest form, or the
        beginning of a URL."""
        if not self._kinds:
            return len(text)
        end, lowered = len(text), folded(text)
        for match in self._starts.finditer(lowered, max(0, end - self._longest)):
            begin = self._may_begin(text, lowered, match)
            if begin is not None and self._may_continue(lowered[match.start() :]):
                end = begin
                break
        url = _URL.search(text, max(0, end - _CONTEXT_CHARS), end)
        if url:
            return url.start()
        return self._word_end(text) if end == len(text) else end

    def _word_end(self, text: str) -> int:
        """Where the end of a text begins that shows whether the next text continues a word, as `NAM` does before `E_1`:
        at the last character that no placeholder begins with."""
        if escape := _HALF_ESCAPE.search(text, max(0, len(text) - _ESCAPE_CHARS)):
            return escape.start()
        return self._context(text, len(text) - underscores_before(text, len(text)))

    def _context(self, text: str, end: int) -> int:
        """Where the text before `end` begins that shows whether a word may begin at `end`."""
        start = end
        while not begins_word(text, start) and end - start <= self._longest:
            underscores = underscores_before(text, start)
            start -= underscores or 1
            if not underscores and text[start].lower() not in self._initials:
                break
        return start

    def _may_begin(self, text: str, lowered: str, match: re.Match[str]) -> int | None:
        """From where to hold back a text because a placeholder may begin with a match of `_starts`: with a letter, one
        without brackets. None: none may."""
        start = match.start()
        if text[start] == "\\":
            return self._may_be_escape(text, start, match.end() - 1)
        if lowered[start] not in self._initials:
            return start
        if text[start].islower() or (begin := _begin_of_word(text, start)) is None:
            return None
        rest = _half_unescaped(lowered[start:])
        return begin if any(head.startswith(rest) or rest.startswith(head) for head in self._heads) else None

    def _may_be_escape(self, text: str, start: int, last: int) -> int | None:
        """As `_may_begin`, for backslashes from `start` to `last`. Before a half escape, what is before it counts too:
        a letter's begins nothing inside a word, a bracket's does."""
        if (begin := _begin_of_word(text, start)) is not None:
            return begin
        if _HALF_JSON_ESCAPE.match(text, last):
            return self._context(text, start)
        return None if _JSON_ESCAPE.match(text, last) else start

    def _may_continue(self, lowered: str) -> bool:
        """Whether a text in lower case may be the beginning of a placeholder, or of another one than it is now."""
        read = _half_unescaped(lowered)
        opened = _OPENINGS.match(read)
        body = read[opened.end() :] if opened else read
        if any(mark.startswith(body) for mark in ("%5b", "&lt;")):
            return True
        for end in ("%5", "%", "&gt", "&g", "&"):  # a closing bracket of which a part has arrived
            body = body.removesuffix(end)
        closed = _CLOSINGS.search(body)
        if closed and opened and len(_DOUBLED.findall(opened[0])) > len(_CLOSING.findall(closed[0])):
            body = body[: closed.start()]  # `{{PERSON_1}` before its last bracket
        if re.search(r"[\]>}】］;%&,.:!?\"'()`*]", body):
            return False
        letters = canonical(body)
        return not letters or any(
            kind.startswith(letters) or (letters.startswith(kind) and _is_id(letters[len(kind) :]))
            for kind in self._kinds
        )


def _begin_of_word(text: str, start: int) -> int | None:
    """From where to hold back a word at `start` that may be a placeholder without brackets: an underscore before it
    is needed if one follows. None: it can be none."""
    begin = start - (underscores_before(text, start) == 1)
    return begin if begins_word(text, begin) else None


def _half_unescaped(lowered: str) -> str:
    """A text in lower case with letters in place of their escapes, without a half escape at its end."""
    return folded(unescaped(_HALF_JSON_ESCAPE.sub("", lowered))[0])


def _longest_form(placeholder: str) -> int:
    """The length of the longest form of a placeholder, without what `_AROUND_CHARS` counts."""
    escaped = 0 if placeholder.isascii() else sum(not char.isascii() for char in placeholder)
    return len(placeholder) + 2 * placeholder.count("_") + (ESCAPED_CHARS - 1) * escaped


def _notation(written: Written, original: str, *, is_json: bool) -> str:
    """The original in the notation of what is around the placeholder."""
    before = written.text[max(0, written.start - _CONTEXT_CHARS) : written.start]
    if written.opened == "%5b" or ("://" in before and _IN_URL.search(before) and _NO_URL.search(original)):
        original = quote(original, safe="", errors="replace")
    elif written.opened == "&lt;":
        original = html.escape(original, quote=False)
    return json.dumps(original, ensure_ascii=False)[1:-1] if is_json else original


def _is_id(text: str) -> bool:
    return re.fullmatch(r"\d{1,9}|[0-9a-f]{1,16}", text) is not None
