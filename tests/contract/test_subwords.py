"""Sub-words from the cache are those of `encode`, for every kind of tokenizer; without the cache where they are not."""

from __future__ import annotations

import json
import logging
import random
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from backbones import place
from checkpoints import load_engine, named
from tokenizers import Tokenizer, pre_tokenizers
from transformers import AutoTokenizer

from gliner_bento.engine.text.subword_cache import CachedSubwords, encoded, ids_of_each, is_exact
from gliner_bento.engine.text.subwords import Subwords, unpadded
from gliner_bento.errors import InvalidField
from gliner_bento.tasks.extraction import ExtractionItem as Item

KINDS = {
    "unigram": "microsoft/deberta-v3-small",
    "unigram of T5": "google/mt5-small",
    "unigram of ALBERT": "albert-base-v2",
    "unigram of XLM-R": "xlm-roberta-base",
    "wordpiece": "bert-base-uncased",
    "byte-level BPE": "answerdotai/ModernBERT-base",
    "byte-level BPE of RoBERTa": "roberta-base",
    "byte-level BPE of GPT-2": "HuggingFaceTB/SmolLM2-135M-Instruct",
    "BPE with byte fallback": "princeton-nlp/Sheared-LLaMA-1.3B",
}
PRE_TOKENIZERS = {
    "metaspace, always": ("unigram", lambda: pre_tokenizers.Metaspace(prepend_scheme="always")),
    "metaspace, first": ("unigram", lambda: pre_tokenizers.Metaspace(prepend_scheme="first")),
    "metaspace, never": ("unigram", lambda: pre_tokenizers.Metaspace(prepend_scheme="never")),
    "prefix space": ("byte-level BPE", lambda: pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "no prefix space": ("byte-level BPE", lambda: pre_tokenizers.ByteLevel(add_prefix_space=False)),
}
ALPHABET = (
    "aàÀbcdeEgilnoOprstuw019 .-_'▁Ġ#<>/\u0301\u200b\u200d\u00ad\u3000ﬁﬃ㈱ＡⅣ😀👍🏽🇫東京서ิमुḍ̇ßİ\x00\x07\ufffd\ue000"
)


def tokenizer_of(kind: str) -> Tokenizer:
    """Of a public kind, or of one with another pre-tokenizer."""
    base, pre_tokenizer = PRE_TOKENIZERS.get(kind, (kind, None))
    tokenizer = unpadded(AutoTokenizer.from_pretrained(place(KINDS[base])))
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer()
    return tokenizer


def random_words(tokenizer: Tokenizer, seed: int) -> list[str]:
    draw = random.Random(seed)
    specials = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    known = ["Paris", "person", "the", "Redmond", *specials]
    return [
        draw.choice(known) if draw.random() < 0.3 else "".join(draw.choices(ALPHABET, k=draw.randint(1, 9)))
        for _ in range(draw.randint(1, 30))
    ]


@pytest.mark.parametrize("kind", [*KINDS, *PRE_TOKENIZERS])
def test_cached_subwords_are_those_of_encode(kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    assert is_exact(tokenizer)
    cached = CachedSubwords(lambda words: ids_of_each(encoded(tokenizer, words), len(words)), max_words=200)
    for seed in range(300):
        words = random_words(tokenizer, seed)
        ids = tokenizer.encode(words, is_pretokenized=True, add_special_tokens=False).ids
        for _ in range(2):  # the second time all are cached
            assert [token for word in cached(words) for token in memoryview(word).cast("i")] == ids


@pytest.fixture
def random_tokens(checkpoint: Callable[..., Path], tmp_path: Path) -> Path:
    """A checkpoint whose tokenizer is random: BPE with dropout."""
    folder = tmp_path / "checkpoint"
    shutil.copytree(checkpoint("span", seed=1), folder)
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text("utf-8"))
    words = tokenizer["model"]["vocab"]
    merges = [pair for pair in product("acehinorst", repeat=2) if "".join(pair) not in words]
    joined = map("".join, merges)
    vocabulary = {next(joined, word) if word.startswith("##") else word: number for word, number in words.items()}
    merges = [pair for pair in merges if "".join(pair) in vocabulary]
    tokenizer["model"] = {"type": "BPE", "dropout": 0.5, "unk_token": "[UNK]", "vocab": vocabulary, "merges": merges}
    path.write_text(json.dumps(tokenizer), "utf-8")
    return folder


def test_a_tokenizer_that_fails_its_check_encodes_every_text(
    random_tokens: Path, checkpoint: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    item = Item("Ada Lovelace is a teacher in a theatre near the store", named(["person"]))
    served = load_engine(checkpoint("span", seed=1))
    assert served.info.cached_subwords
    assert len({tuple(served.prepare(item).payload.token_ids) for _ in range(20)}) == 1
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    served = load_engine(random_tokens)
    assert not served.info.cached_subwords
    assert "sub-words are not cached" in caplog.text
    assert len({tuple(served.prepare(item).payload.token_ids) for _ in range(20)}) > 1


def test_a_marker_as_a_word_is_refused_each_time(reference: Any) -> None:
    gliner = reference("span", seed=1)
    subwords = Subwords(gliner.data_processor, 128, {gliner.config.class_token_index}, framed=True)
    assert subwords.cached
    for _ in range(2):
        with pytest.raises(InvalidField, match="marker"):
            subwords.of_words(["Paris", gliner.config.ent_token])
    assert [len(ids) for ids in subwords.of_words(["Paris", "Ada", "Paris"])] == [4] * 3
