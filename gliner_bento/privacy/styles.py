"""Replacements of spans: placeholders, masks, hashes, nothing."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from gliner_bento.mentions import normalized
from gliner_bento.privacy.recognizers.labels import PRESIDIO_LABELS
from gliner_bento.privacy.spans import LabeledSpan

Replace = Callable[[str, LabeledSpan], str]
"""Returns the replacement of a span of a text."""

_HASH_CHARS = 16
PLACEHOLDER = re.compile(rf"\[[^\W_]\w*_(?:\d+|[0-9a-f]{{{_HASH_CHARS}}})\]")
"""Matches the replacements of `Placeholders` and `hashes`."""

_PRESIDIO_TAGS = {
    **{label.upper().replace(" ", "_"): name for name, label in PRESIDIO_LABELS.items()},
    **{"CARD": "CREDIT_CARD", "EMAIL": "EMAIL_ADDRESS", "PHONE": "PHONE_NUMBER"},
}


def tag(label: str) -> str:
    """The name of a label in placeholders; Presidio's name if there is one: PHONE_NUMBER for `phone`."""
    name = re.sub(r"\W+", "_", label.upper()).strip("_") or "ENTITY"
    return _PRESIDIO_TAGS.get(name, name)


@dataclass(slots=True)
class Placeholders:
    """`[PERSON_1]`: equal names of a label get equal numbers. A placeholder that the text contains is not used.

    is_reserved: whether a placeholder must not be used, because a text contains it or for another reason; None: those
    that are in the text are not used.
    """

    is_reserved: Callable[[str], bool] | None = None
    _known: dict[tuple[str, str], str] = field(default_factory=dict)  # by tag and normalized name
    _last_number: Counter[str] = field(default_factory=Counter)
    _text: str = ""  # the last one, which is searched only once, and what it has
    _in_text: frozenset[str] = frozenset()

    def __call__(self, text: str, span: LabeledSpan) -> str:
        """See `Replace`."""
        key = (tag(span.label), normalized(text[span.start : span.end]))
        placeholder = self._known.get(key)
        if placeholder is None:
            placeholder = self._known[key] = self._new_placeholder(key[0], text)
        return placeholder

    def _new_placeholder(self, kind: str, text: str) -> str:
        while True:
            self._last_number[kind] += 1
            placeholder = f"[{kind}_{self._last_number[kind]}]"
            if not (self.is_reserved(placeholder) if self.is_reserved else placeholder in self._placeholders_in(text)):
                return placeholder

    def _placeholders_in(self, text: str) -> frozenset[str]:
        if text is not self._text:
            self._text, self._in_text = text, frozenset(PLACEHOLDER.findall(text))
        return self._in_text


def mask(text: str, span: LabeledSpan) -> str:
    """`*` for every character but white space."""
    return re.sub(r"\S", "*", text[span.start : span.end])


def remove(_text: str, _span: LabeledSpan) -> str:
    """The empty string."""
    return ""


def hashes(key: bytes) -> Replace:
    """`[PERSON_6ac3c336e4094835]`: HMAC-SHA-256 of tag and name; all runs with the same key write equal hashes."""

    def replace(text: str, span: LabeledSpan) -> str:
        kind = tag(span.label)
        tag_and_name = f"{kind.replace('_', ' ').lower()}\0{normalized(text[span.start : span.end])}"
        message = tag_and_name.encode("utf-8", "surrogatepass")
        return f"[{kind}_{hmac.new(key, message, hashlib.sha256).hexdigest()[:_HASH_CHARS]}]"

    return replace
