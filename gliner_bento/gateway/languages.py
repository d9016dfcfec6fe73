"""Warns of texts that are mostly in a language which the model's card does not list. Uses tables, no model.

Two tests run on a sample of the text. One counts letters of other scripts. The other tells languages in Latin script
apart by function words ("que", "est", "dans"); it covers the languages in `_FUNCTION_WORDS`, and needs a few sentences.
Names, quotations, formulas and code in an English text must not cause a warning, so a test that is not certain returns
no warning.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence, Set

import regex

from gliner_bento.tasks.base import ExtractionWarning

CODE = "unsupported_language"

_MAX_LANGUAGES = 3
"""A model with more languages is multilingual: it also works, more or less, for languages that its card omits."""

_SAMPLE_CHARS = 4096
_PIECE_CHARS = 256

_MIN_DISTINCT = 3
_MIN_SHARE = 0.12
_OWN_WEIGHT = 3
"""A text seems to be in another language if it has at least `_MIN_DISTINCT` different function words of that language
(one fewer if it has no function words of the model's languages), and if all its function words of that language are at
least the fraction `_MIN_SHARE` of its words, and `_OWN_WEIGHT` times as many as those of the model's languages."""

_LANGUAGES_OF_SCRIPT = {
    "Latin": "af bs ca cs cy da de en eo es et eu fi fr ga gl hr hu id is it la lb lt lv ms mt nb nl nn no pl pt ro "
    "sk sl sq sv sw tl tr vi",
    "Cyrillic": "be bg mk ru uk",
    "Greek": "el",
    "Arabic": "ar fa ur",
    "Hebrew": "he yi",
    "Devanagari": "hi mr ne",
    "Bengali": "bn",
    "Tamil": "ta",
    "Telugu": "te",
    "Kannada": "kn",
    "Malayalam": "ml",
    "Gujarati": "gu",
    "Gurmukhi": "pa",
    "Sinhala": "si",
    "Thai": "th",
    "Lao": "lo",
    "Myanmar": "my",
    "Khmer": "km",
    "Georgian": "ka",
    "Armenian": "hy",
    "Ethiopic": "am",
    "Hangul": "ko",
    "Han": "zh ja ko",
    "Hiragana": "ja",
    "Katakana": "ja",
}
_ALL_LANGUAGES = {language for languages in _LANGUAGES_OF_SCRIPT.values() for language in languages.split()}

_FUNCTION_WORDS = {
    "en": "the of and to in is are was were be been have has had that this these those for with from by at as "
    "it its he she his her they their them we our you your my not but or which who what when where will "
    "would can could should may if then than there into about after over all some any no more also only "
    "such other an on do does did how",
    "fr": "et est sont était une les aux au dans pas que qui avec par ce cette ces se ses leur il elle ils "
    "elles nous vous je mais ou où être été ont fait comme tout sans même aussi ne à depuis entre après "
    "avant lors selon contre chez cela dont peut fut lui si deux leurs cet aujourd jusqu",
    "de": "und ist sind das dem ein eine einen einem einer nicht mit für auf im zu zum zur sich auch wie bei "
    "nach oder aber wenn dass wird werden wurde haben ich er sie wir es kann noch nur über durch aus bis "
    "vor seit mehr sowie unter alle kein keine ihre seine diese dieser dieses gegen zwischen jedoch "
    "bereits wo",
    "es": "y que en es una por con para su sus lo como más pero fue está esta este al ser han también cuando "
    "muy hay desde puede donde ya entre hasta según durante ante contra fueron había tiene hace sino "
    "aunque les nos cual",
    "it": "che è sono una un per con non si il lo gli della delle dei del nel nella alla al più anche ma ha "
    "essere questo questa sua suo dal dalla sul sulla quando se fu era viene stato può tra fra dopo prima "
    "nei negli degli dai questi loro anni ancora dove stata hanno cui",
    "pt": "que é são uma um em na nos nas por com para se ao não os mais como mas foi ser está seu sua também "
    "pelo pela quando muito ou já este esta isso ele ela entre sobre tem há pode até depois durante foram "
    "onde sem seus suas qual à às pelos pelas lhe eu",
    "nl": "het een en zijn dat niet voor op te aan er ook als bij maar om naar wordt worden werd heeft hebben "
    "ik hij zij wij deze dit uit wel kan tot geen tussen tegen waar tijdens sinds hun haar ze je jij "
    "onder na meer alleen dus",
}
"""The lists omit words that are also English ("die", "son"), and parts of names ("de la", "der", "von", "di")."""

_NAMES = {
    "en": "English",
    "fr": "French",
    "de": "German",
    "es": "Spanish",
    "it": "Italian",
    "pt": "Portuguese",
    "nl": "Dutch",
}

_WORDS_OF = {language: frozenset(words.split()) for language, words in _FUNCTION_WORDS.items()}
_ALL_WORDS = frozenset().union(*_WORDS_OF.values())

_WORD = re.compile(r"(?<![\w/.@-])[^\W\d_]+(?![\w/@-])")
"""A word that is not part of an address, a path or a compound ("vis-à-vis")."""

_LATIN = regex.compile(r"\p{Latin}+")
_NOT_LATIN = regex.compile(r"[^\p{Latin}\p{Common}\p{Inherited}]")
_OTHER_SCRIPTS = [script for script in _LANGUAGES_OF_SCRIPT if script != "Latin"]
_RUNS = regex.compile("|".join(rf"(?P<{script}>(?:\p{{{script}}}\p{{Mn}}*+){{2,}})" for script in _OTHER_SCRIPTS))
"""At least two letters of a script in a row: a single letter is a symbol (α, Δ, ツ)."""


class LanguageCheck:
    """The two tests, for one model.

    languages: the languages in its card. No text gets a warning if there are none, more than `_MAX_LANGUAGES`, or one
    whose script is unknown.
    """

    def __init__(self, languages: Sequence[str]) -> None:
        codes = {re.split("[-_]", language.lower())[0] for language in languages}
        self._listed = ", ".join(languages)
        self._scripts = {script for script, used in _LANGUAGES_OF_SCRIPT.items() if codes & set(used.split())}
        self._own_words = frozenset().union(*(_WORDS_OF.get(code, ()) for code in codes))
        self._tests_scripts = 0 < len(codes) <= _MAX_LANGUAGES and codes <= _ALL_LANGUAGES
        self._tests_words = self._tests_scripts and codes <= _WORDS_OF.keys()
        self._foreign_words = {language: words - self._own_words for language, words in _WORDS_OF.items()}

    def warnings(self, text: str) -> Sequence[ExtractionWarning]:
        """The warnings for a text: none or one."""
        if not self._tests_scripts:
            return ()
        sample = _sample(text)
        reason = self._foreign_script(sample) or self._foreign_language(sample)
        if reason is None:
            return ()
        message = f"{reason}, but the model's card lists only {self._listed}: expect missing or wrong results"
        return (ExtractionWarning(CODE, message),)

    def _foreign_script(self, sample: str) -> str | None:
        """The reason for a warning, if most letters are of a script that the model's languages do not use. Latin
        letters never count: names, addresses and code have them in every language."""
        if sample.isascii() or not _NOT_LATIN.search(sample):
            return None
        letters = Counter({"Latin": sum(map(len, _LATIN.findall(sample)))})
        for run in _RUNS.finditer(sample):
            letters[run.lastgroup] += run.end() - run.start()
        foreign = Counter({script: letters[script] for script in letters.keys() - self._scripts - {"Latin"}})
        if 2 * foreign.total() <= letters.total():
            return None
        [(script, _)] = foreign.most_common(1)
        return f"most letters of the text are {'Chinese' if script == 'Han' else script}"

    def _foreign_language(self, sample: str) -> str | None:
        if not self._tests_words:
            return None
        words = [word.lower() for word in _WORD.findall(sample) if not word.isupper()]  # not abbreviations: IL, MA
        counts = Counter(word for word in words if word in _ALL_WORDS)
        own_count = _count(counts, self._own_words)
        foreign_counts = ((_count(counts, theirs), language) for language, theirs in self._foreign_words.items())
        foreign_count, language = max(foreign_counts)
        distinct_count = len(counts.keys() & self._foreign_words[language])
        min_distinct = _MIN_DISTINCT if own_count else _MIN_DISTINCT - 1
        min_count = max(_MIN_SHARE * len(words), _OWN_WEIGHT * own_count)
        is_certain = distinct_count >= min_distinct and foreign_count >= min_count
        return f"the text seems to be {_NAMES[language]}" if is_certain else None


def _count(counts: Counter[str], words: Set[str]) -> int:
    return sum(counts[word] for word in counts.keys() & words)


def _sample(text: str) -> str:
    """The text or, to bound the cost of the tests, evenly spaced pieces of a long text."""
    if len(text) <= _SAMPLE_CHARS:
        return text
    pieces = _SAMPLE_CHARS // _PIECE_CHARS
    starts = (index * (len(text) - _PIECE_CHARS) // (pieces - 1) for index in range(pieces))
    return " ".join(text[start : start + _PIECE_CHARS] for start in starts)
