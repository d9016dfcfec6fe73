"""Sub-words of words seen before, so that most texts need no call of the tokenizer.

A tokenizer encodes each of a text's split words on its own, so a word has the same tokens in every text. `is_exact`
checks that at load. The tokens of a word are kept as the bytes of int32s: many words join into one array at C speed.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

import numpy as np
from tokenizers import Encoding, Tokenizer

MAX_CACHED_WORDS = 65_536
"""About 10 MB of ordinary words; at most 50 MB of the longest ones."""
MAX_CACHED_CHARS = 32
"""Longer words are encoded each time."""

_ODD_SENTENCES = (
    "Ada Lovelace , born in 1815 , can't re-read a e.g. naïve Straße",
    "the The THE the - _ -- ... \u2026 ' \" ( ) , , .",
    "😀 👍🏽 👩‍👩‍👧 ﬁne ㈱ ＡＢＣ ½ x² ™ ① 🇫🇷 x\ufe0f",
    "cafe\u0301 \u0301 e\u0301\u0323 \u200b \u200d \xad \ufeff \u00a0 \u3000 \x00 \x07 \ue000 \ufffd",
    "東京 張三 서울 दिल्ली กรุงเทพ مُحَمَّد Ελλάδα Москва שלום İstanbul ǅ",
    "▁ ▁a a▁b Ġ Ġthe ## ##a </w> <0x0A> <unk> aaaaaaaaaaaaaaaaaaaa",
)


class CachedSubwords:
    """The sub-words of words, with a bounded cache. Safe to call from several threads; cached words take no lock.

    A word that is used enters the newer of two generations. When the newer one is full, it replaces the older one, and
    words that were only in the older one are dropped.
    """

    def __init__(self, encode: Callable[[Sequence[str]], list[bytes]], max_words: int = MAX_CACHED_WORDS) -> None:
        """encode: the tokens of each word. A word for which it raises is not cached."""
        self._encode = encode
        self._per_generation = max_words // 2
        self._newer: dict[str, bytes] = {}
        self._older: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._newer) + len(self._older)

    def __call__(self, words: Sequence[str]) -> list[bytes]:
        """The tokens of each word."""
        try:
            return list(map(self._newer.__getitem__, words))
        except KeyError:
            return self._with_missing(words)

    def _with_missing(self, words: Sequence[str]) -> list[bytes]:
        newer, older = self._newer, self._older  # other threads may replace these dicts, but remove no words from them
        missing = [word for word in dict.fromkeys(words) if word not in newer]
        unknown = [word for word in missing if word not in older]
        encoded = dict(zip(unknown, self._encode(unknown), strict=True)) if unknown else {}
        added = {word: older[word] if word in older else encoded[word] for word in missing}
        with self._lock:
            for word, ids in added.items():
                if len(word) <= MAX_CACHED_CHARS:
                    self._newer[word] = ids
                if len(self._newer) >= self._per_generation:
                    self._older, self._newer = self._newer, {}
        return [added[word] if word in added else newer[word] for word in words]


def encoded(tokenizer: Tokenizer, words: Sequence[str]) -> Encoding:
    """Encode each word on its own, without special tokens."""
    return tokenizer.encode(words, is_pretokenized=True, add_special_tokens=False)


def ids_of_each(encoding: Encoding, words: int) -> list[bytes]:
    """The token ids of each encoded word, as the bytes of int32s. words: how many words were encoded."""
    ids = np.array(encoding.ids, np.int32)
    counts = Counter(encoding.word_ids)
    ends = list(accumulate(counts[word] * ids.itemsize for word in range(words)))
    ids_bytes = ids.tobytes()
    return [ids_bytes[start:end] for start, end in pairwise([0, *ends])]


def is_exact(tokenizer: Tokenizer) -> bool:
    """Whether words of odd sentences, and special tokens as words, have the same tokens alone as in a sentence."""
    specials = [token.content for token in tokenizer.get_added_tokens_decoder().values()][:64]
    for sentence in (*(sentence.split(" ") for sentence in _ODD_SENTENCES), specials):
        for words in (sentence, sentence[::-1], [word for word in sentence for _ in range(2)]):
            together = ids_of_each(encoded(tokenizer, words), len(words))
            if together != [np.array(encoded(tokenizer, [word]).ids, np.int32).tobytes() for word in words]:
                return False
    return True
