"""Every word splitter of gliner whose packages are installed: places of words, results, long texts, threads."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from checkpoints import load_engine, named
from chunked_requests import passes_of
from comparison import assert_same, extract_one, gliner_extraction
from gliner.data_processing.tokenizer import WordsSplitter

from gliner_bento.engine.checkpoint.find import ModelError
from gliner_bento.engine.checkpoint.word_splitters import WORD_SPLITTERS
from gliner_bento.engine.text.word_splitter import PIECE_CHARS, WordSplitter
from gliner_bento.tasks.extraction import ExtractionItem as Item

LIVELY = {"seed": 1}
LABELS = named(["person", "company", "city"])

# Words of the language, and of the vocabulary of the test's tokenizer, as the language writes them.
TEXTS = {
    "camel": "محمد يعمل في شركة Microsoft في Paris، ويعيش في القاهرة. Bill Gates!",
    "hindi": "राम Microsoft में काम करता है। Bill Gates Paris, दिल्ली और Tokyo 3,456.78 ।",
    "janome": "田中太郎は東京のMicrosoftで働いています。日本語のParis、京都、Apple東京。",
    "jieba": "张三在北京大学工作。Microsoft在東京，Apple在日本。比尔盖茨住在Paris。",
    "mecab": "홍길동은 서울에서 Microsoft에 다닙니다. Bill Gates는 Paris, 서울, Tokyo 부산.",
    "spacy": "Bill Gates' company can't be in the U.S., e.g. Paris; Ada Lovelace lives in Tokyo.",
    "universal": "Marie Curie n'habite pas à Paris aujourd'hui, elle est à Tokyo avec Ada Lovelace.",
}
HARD = (
    "Bill  Gates' can't re-read e.g. U.S. $5,000.00\n\n \t  😀👍🏽 naïve cafe\u0301 \u200b x\u00a0y ﬁne ㈱ ＡＢＣ",
    "張三 張三, 北京北京 東京　東京タワー！\n서울 서울 दिल्ली,दिल्ली\n1 , 2 ( x ) 12/05/2024 , 5 ١٢٫٥ مُحَمَّد",
    "a\x00b \x07 c\u2028d Ðuro",
    "\nfirst\r\n\n second\n",
    "L'été, le musée du Louvre n'est pas au bord des lacs.",
)


INSTALLED = [kind for kind in TEXTS if all(map(find_spec, WORD_SPLITTERS[kind]))]


@pytest.fixture(params=INSTALLED)
def kind(request: pytest.FixtureRequest) -> str:
    """A word splitter whose packages are installed."""
    name: str = request.param
    return name


@pytest.fixture
def split(kind: str) -> WordSplitter:
    return load_splitter(kind)


def load_splitter(kind: str) -> WordSplitter:
    """Skips the test if a package is missing."""
    for module in WORD_SPLITTERS[kind]:
        pytest.importorskip(module, reason=f"the word splitter {kind} needs the module {module}")
    return WordSplitter(WordsSplitter(kind), kind)


def check_places(text: str, words: list[tuple[str, int, int]]) -> None:
    """Words are the text at their places, in order, and hold all of it but white space."""
    assert all(text[start:end] == word for word, start, end in words)
    ends = [0, *(end for _, _, end in words)]
    starts = [*(start for _, start, _ in words), len(text)]
    assert all(not text[end:start].strip() and end <= start for end, start in zip(ends, starts, strict=True))


@pytest.mark.parametrize("every_kind", TEXTS)
def test_every_word_is_the_text_at_its_place(every_kind: str) -> None:
    split, draw = load_splitter(every_kind), random.Random(0)
    characters = sorted({*"".join((*HARD, *TEXTS.values()))})
    drawn = ["".join(draw.choices(characters, k=draw.randint(1, 60))) for _ in range(60)]
    in_pieces = TEXTS[every_kind] * (1 + PIECE_CHARS // len(TEXTS[every_kind]))
    for text in (*HARD, *TEXTS.values(), *drawn, in_pieces):
        check_places(text, list(split(text)))


def test_words_are_gliners(kind: str, split: WordSplitter) -> None:
    for text in TEXTS.values():
        assert list(split(text)) == [word for word in WordsSplitter(kind)(text) if word[0]]


def test_results_are_gliners(kind: str, engine: Any, reference: Any) -> None:
    served, gliner = (made("span", words_splitter_type=kind, **LIVELY) for made in (engine, reference))
    for threshold in (0.2, 0.5, 0.8):
        item = Item(TEXTS[kind], LABELS, threshold=threshold, flat_ner=threshold > 0.5)
        expected = gliner_extraction(gliner, item)
        assert expected.entities
        assert_same(extract_one(served, item), expected)


def test_words_of_white_space_do_not_shift_entities(kind: str, engine: Any, reference: Any) -> None:
    """gliner counts them, and reports the text of other words, if the tokenizer has no tokens for them."""
    served, gliner = (made("span", words_splitter_type=kind, **LIVELY) for made in (engine, reference))
    text = TEXTS[kind].replace("Paris", "\n  Paris \n").replace("Microsoft", " Microsoft ")
    item = Item(text, LABELS, threshold=0.2, flat_ner=False)
    splitter = gliner.data_processor.words_splitter
    gliner.data_processor.words_splitter = lambda text: (word for word in splitter(text) if word[0].strip())
    try:
        expected = gliner_extraction(gliner, item)
    finally:
        gliner.data_processor.words_splitter = splitter
    assert expected.entities
    assert_same(extract_one(served, item), expected)


def test_a_long_text_is_processed_to_its_end(kind: str, engine: Any) -> None:
    served = engine("span", words_splitter_type=kind, **LIVELY)
    text = " ".join([TEXTS[kind]] * 20)
    answer, passes = passes_of(served, Item(text, named(["person"]), threshold=0.2))
    assert len(passes) == answer.usage.windows > 5
    assert all(text[entity.start : entity.end] == entity.text for entity in answer.entities)
    assert answer.entities[-1].end > len(text) - 4 * len(TEXTS[kind])


def test_a_truncated_text_is_not_split_to_its_end(kind: str, split: WordSplitter) -> None:
    piece_lengths: list[int] = []
    gliners = split._split
    split._split = lambda text: piece_lengths.append(len(text)) or gliners(text)
    next(split(TEXTS[kind] * (5 * PIECE_CHARS // len(TEXTS[kind]))))
    assert len(piece_lengths) == 1
    assert piece_lengths[0] <= PIECE_CHARS


def test_several_threads_get_the_same_words(kind: str, split: WordSplitter, restless: None) -> None:
    texts = [*HARD, *(text[: len(text) - i] for i in range(3) for text in TEXTS.values())]
    with ThreadPoolExecutor(4) as pool:  # before any other call: some libraries load their data on the first one
        answers = list(pool.map(lambda text: list(split(text)), texts * 6))
    expected = [list(split(text)) for text in texts]
    assert answers == expected * 6


@pytest.mark.parametrize("spacy_kind", {"spacy", "universal"}.intersection(INSTALLED))
def test_spacy_does_not_keep_every_word(spacy_kind: str) -> None:
    split = load_splitter(spacy_kind)
    strings = split._spacy.vocab.strings
    before = len(strings)
    for number in range(200):
        list(split(f"quelques mots français et le numéro mot{number}"))
    assert len(strings) == before


@pytest.mark.parametrize("missing", sorted(set(WORD_SPLITTERS) - {"whitespace"}))
def test_a_missing_package_is_named_with_its_extra(missing: str, with_splitter: Callable[[str], Path]) -> None:
    if all(find_spec(module) for module in WORD_SPLITTERS[missing]):
        pytest.skip("its packages are installed")
    with pytest.raises(ModelError, match=rf"{missing}' needs .* not installed; install the extra {missing}: "):
        load_engine(with_splitter(missing))


def test_an_unknown_splitter_is_refused(with_splitter: Callable[[str], Path]) -> None:
    with pytest.raises(
        ModelError, match=r"'byte' in gliner_config\.json is no word splitter of gliner; gliner has whitespace, "
    ):
        load_engine(with_splitter("byte"))


@pytest.fixture
def with_splitter(checkpoint: Callable[..., Path], tmp_path: Path) -> Callable[[str], Path]:
    """A checkpoint whose configuration names a word splitter."""

    def copied(kind: str) -> Path:
        folder = tmp_path / "checkpoint"
        shutil.copytree(checkpoint("span", **LIVELY), folder)
        path = folder / "gliner_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "words_splitter_type": kind}))
        return folder

    return copied
