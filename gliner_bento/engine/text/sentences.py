"""Sentence boundaries in any script: the rules of Unicode's UAX 29, as one regular expression over its properties.

The rules are named where they are used (SB4 and so on). Abbreviations are not recognized: in "Mr. Smith" a sentence
ends at the full stop.
"""

from __future__ import annotations

import regex

# How many characters the rules may look ahead.
_AHEAD = 64

_IGNORED = r"[\p{SB=Extend}\p{SB=Format}]*+"  # SB5
_PARAGRAPH = r"(?:\p{SB=CR}\p{SB=LF}|[\p{SB=CR}\p{SB=LF}\p{SB=Sep}])"  # SB3, SB4
_CLOSED = rf"(?:\p{{SB=Close}}{_IGNORED})*+(?:\p{{SB=Sp}}{_IGNORED})*+"  # SB9, SB10
_STOP = rf"""
    (?: (?<=[\p{{SB=Upper}}\p{{SB=Lower}}]) \p{{SB=ATerm}} {_IGNORED} (?!\p{{SB=Upper}})   # SB7
      | (?<![\p{{SB=Upper}}\p{{SB=Lower}}]) \p{{SB=ATerm}} {_IGNORED} )
    (?!\p{{SB=Numeric}})                                                                   # SB6
"""
_BEFORE_LOWER = r"[^\p{SB=OLetter}\p{SB=Upper}\p{SB=Lower}\p{SB=CR}\p{SB=LF}\p{SB=Sep}\p{SB=STerm}\p{SB=ATerm}]*+"
_END = regex.compile(
    rf"""
    {_PARAGRAPH}
    | (?: \p{{SB=STerm}} {_IGNORED} {_CLOSED}
        | {_STOP} {_CLOSED} (?!{_BEFORE_LOWER}\p{{SB=Lower}}) )                            # SB8
      (?![\p{{SB=SContinue}}\p{{SB=STerm}}\p{{SB=ATerm}}])                                 # SB8a
      {_PARAGRAPH}?                                                                        # SB11
    """,
    regex.VERBOSE,
)


def sentence_ends(text: str, start: int, end: int) -> list[int]:
    """Positions p, start < p <= end, at which a sentence of `text[start:p]` ends, white space after it included."""
    matches = _END.finditer(text, start, min(end + _AHEAD, len(text)))
    return [match.end() for match in matches if match.end() <= end]
