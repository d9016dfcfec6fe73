"""Characters that are spelled out: `&#64;` and `&nbsp;` of HTML, and mail and IP addresses as people write them so that
programs do not find them, such as `ada [at] example (dot) org` and `192.168.17[.]34`."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator

from gliner_bento.privacy.recognizers.folding import Folded, around, fold

DOMAINS = (
    "com|org|net|edu|gov|mil|int|info|biz|io|dev|app|ai|co|eu|uk|de|fr|es|it|nl|be|ch|at|se|no|dk|fi|pl|cz|pt|ie|gr|ru|ua|"
    "tr|us|ca|mx|br|ar|au|nz|jp|cn|in|kr|sg|hk|tw|za|il|example|test|xn--[a-z0-9-]{2,59}"
)
"""Regular expression of the top-level domains by which a domain is recognized in a text."""

_DOMAIN_END = rf"(?:{DOMAINS})(?![\w\-])"
_LABEL = r"[\w\-]{1,63}"
_LINE_END = r"[ \t]{0,8}\r?\n[ \t]{0,40}"
_BLANKS = rf"(?:{_LINE_END}|[ \t]{{1,8}})"

_ENTITY = re.compile(
    r"&(?:amp;)?(?P<html>#\d{1,9};?|#[xX][\dA-Fa-f]{1,8};|[A-Za-z][A-Za-z\d]{1,30};)|\\u(?P<hex>[\dA-Fa-f]{4})"
)
_BRACKETED = re.compile(r"[\[({<] ?(?:(?P<char>[.@:])|(?P<dot>(?i:dot))|(?i:at)) ?[\])}>]")
_SIGN = re.compile(
    r"(?<=[^\W_])(?:%40|(?P<dot>\u3002))(?=[A-Za-z\d])"
    rf"|(?<=\w)(?:{_BLANKS})?@{_BLANKS}(?=(?:{_LABEL}\.){{1,4}}{_DOMAIN_END})"
)
"""A percent-encoded at sign, an ideographic full stop as a point, an at sign with blanks before a domain."""
_WORD = re.compile(
    rf"(?<=\w) (?:at|AT) (?={_LABEL}(?: (?:dot|DOT) {_LABEL}){{0,3}} (?:dot|DOT) {_DOMAIN_END})"
    rf"|(?<=\w) (?P<dot>dot|DOT) (?=(?:{_LABEL} (?:dot|DOT) ){{0,3}}{_DOMAIN_END})"
)
_WRAPPED_DOT = re.compile(
    rf"@(?:{_LABEL}\.){{0,4}}(?:{_LABEL}(?P<before>{_LINE_END}\.)|(?!{_DOMAIN_END}){_LABEL}(?P<behind>\.{_LINE_END}))"
    rf"(?=(?:{_LABEL}\.){{0,3}}{_DOMAIN_END})"
)
"""A line end beside a point in the domain of a mail address."""

Spots = Iterator[tuple[int, int, str]]


def unspelled(text: Folded) -> Folded:
    """The text with the characters that are spelled out."""
    for signs, spots_in in _STEPS:
        if any(sign in text.text for sign in signs) and (spots := list(spots_in(text.text))):
            text = text.replaced(around(text.text, spots))
    return text


def _entities(text: str) -> Spots:
    for found in _ENTITY.finditer(text):
        char = chr(int(found["hex"], 16)) if found["hex"] else html.unescape(f"&{found['html']}")
        if len(char) == 1:
            yield *found.span(), char if char.isascii() and char.isprintable() else fold(char)


def _bracketed(text: str) -> Spots:
    """Between letters or digits, with a space before and behind the brackets or without."""
    for found in _BRACKETED.finditer(text):
        start, end = found.span()
        start -= text[start - 1 : start] == " "
        end += text[end : end + 1] == " "
        if text[max(0, start - 1) : start].isalnum() and text[end : end + 1].isalnum():
            yield start, end, found["char"] or ("." if found["dot"] else "@")


def _signs(text: str) -> Spots:
    for found in _SIGN.finditer(text):
        yield *found.span(), "." if found["dot"] else "@"


def _wrapped_dots(text: str) -> Spots:
    for found in _WRAPPED_DOT.finditer(text):
        yield *found.span("before" if found["before"] else "behind"), "."


def _words(text: str) -> Spots:
    for found in _WORD.finditer(text):
        yield *found.span(), "." if found["dot"] else "@"


_STEPS: tuple[tuple[tuple[str, ...], Callable[[str], Spots]], ...] = (
    (("&", "\\u"), _entities),
    (("[", "(", "{", "<"), _bracketed),
    (("@ ", "@\t", "@\r", "@\n", "%40", "\u3002"), _signs),
    (("@",), _wrapped_dots),
    ((" dot ", " DOT "), _words),
)
"""Functions that find spelled characters, each with texts of which one is there if a character is."""
