"""Warnings about a text's language: certain, or none."""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import replace

import pytest

from gliner_bento.gateway.context import Context
from gliner_bento.gateway.gateway import Gateway
from gliner_bento.gateway.languages import LanguageCheck
from gliner_bento.tasks.base import ExtractionWarning
from gliner_bento.tasks.extraction import ExtractionOptions, extraction_of

PERSON = ExtractionOptions(labels=["person"])
ENGLISH = LanguageCheck(["en"])
CHINESE = "比尔·盖茨于1975年创立了微软，公司总部位于雷德蒙德。"
FRENCH = (
    "Emmanuel Macron est né à Amiens et il est le président de la République. Avec son épouse, qui est enseignante, "
    "il habite dans le palais de l'Élysée depuis que les électeurs l'ont choisi."
)

TEXTS_WITHOUT_WARNING = [
    "",
    " ",
    "Bill Gates founded Microsoft.",
    "Bill Gates (比尔·盖茨) founded Microsoft.",
    "Xi Jinping (习近平) met Владимир Путин in the Kremlin, Tass reported.",
    "Zoë Brontë ate a jalapeño at Café Français in São Paulo with Łukasz Şahin and Nguyễn Văn Thiệu.",
    "Charles de Gaulle, Jean de La Fontaine, Honoré de Balzac, Notre-Dame de Paris, Le Monde, Les Échos",
    "El Niño, Los Angeles, San Diego, Rio de Janeiro, La Paz, Costa Rica",
    "Johann Wolfgang von Goethe, Ludwig van Beethoven, Leonardo da Vinci, Vincent van den Berg",
    "Die Hard, Die Another Day, War of the Worlds, Das Boot, Es, Wir",
    "He said “c'est la vie, mon ami”, and left the room with the others.",
    "MA, IL, AL, SE, UN, CON",
    "α, β and γ",
    "Δx = λ/2, ΔG = −RT ln K",
    "5 µm, 20 °C, 3 Ω",
    "1975-04-04 12:00",
    "ok 👩‍👩‍👧 🙂🙂🙂",
    "¯\\_(ツ)_/¯",
    "lol (ノಠ益ಠ)ノ彡┻━┻",
    "𝐇𝐞𝐥𝐥𝐨 𝓌ℴ𝓇𝓁𝒹",
    "Ｈｅｌｌｏ",
    "SELECT a, b FROM c WHERE d = 1; def f(x): return {'is': x}",
    "See https://www.example.org/politique/le-president-est-avec-les-ministres-dans-une-crise",
    "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore et dolore.",
]

TEXTS_WITH_WARNING = {
    "Chinese": CHINESE,
    "Han only": "北京",
    "Japanese": "ビル・ゲイツはマイクロソフトを設立しました。",
    "Korean": "빌 게이츠는 마이크로소프트를 설립했다.",
    "Arabic": "أسس بيل غيتس شركة مايكروسوفت عام 1975.",
    "Arabic with vowel signs": "أَهْلًا وَسَهْلًا",
    "Hebrew": "ביל גייטס ייסד את מיקרוסופט",
    "Cyrillic": "Билл Гейтс основал Microsoft в 1975 году.",
    "Greek": "Ο Μπιλ Γκέιτς ίδρυσε τη Microsoft.",
    "Devanagari": "बिल गेट्स ने माइक्रोसॉफ्ट की स्थापना की।",
    "Thai": "บิล เกตส์ ก่อตั้งไมโครซอฟท์",
    "French": FRENCH,
    "one French sentence": "Le Parlement a adopté une loi sur les retraites.",
    "one German sentence": "Der Zug nach Hamburg ist heute ausgefallen.",
    "German": "Angela Merkel wurde in Hamburg geboren und war bis 2021 Kanzlerin. Sie ist Chemikerin.",
    "Spanish": "Pedro Sánchez es el presidente del Gobierno y fue elegido por los diputados cuando era muy conocido.",
    "Italian": "La torre è alta e si trova nella piazza che è stata costruita dopo la guerra con molti soldi.",
    "Portuguese": "O presidente não foi ao congresso porque ele já está em Lisboa com uma comissão que também viaja.",
    "Dutch": "De koning woont niet in het paleis, maar hij komt er wel voor een feest dat door ons wordt betaald.",
}


@pytest.mark.parametrize("text", TEXTS_WITHOUT_WARNING)
def test_names_symbols_and_code_in_english_cause_no_warning(text):
    assert not ENGLISH.warnings(text)


@pytest.mark.parametrize("text", TEXTS_WITH_WARNING.values(), ids=TEXTS_WITH_WARNING.keys())
def test_a_text_in_another_language_has_one_warning(text):
    (warning,) = ENGLISH.warnings(text)
    assert warning.code == "unsupported_language"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CHINESE, "most letters of the text are Chinese, but the model's card lists only en"),
        (TEXTS_WITH_WARNING["Cyrillic"], "most letters of the text are Cyrillic, but the model's card lists only en"),
        (FRENCH, "the text seems to be French, but the model's card lists only en"),
    ],
)
def test_the_message_says_what_was_seen_and_what_to_expect(text, message):
    assert ENGLISH.warnings(text) == (
        ExtractionWarning("unsupported_language", f"{message}: expect missing or wrong results"),
    )


@pytest.mark.parametrize(
    "languages",
    [[], ["multilingual"], ["en", "multilingual"], ["en", "de", "es", "nl"], ["tlh"], ["English"]],
    ids=str,
)
def test_a_model_whose_languages_are_unknown_or_many_has_no_warnings(languages):
    check = LanguageCheck(languages)
    assert not [text for text in TEXTS_WITH_WARNING.values() if check.warnings(text)]


@pytest.mark.parametrize(
    ("languages", "silent", "warned"),
    [
        (["en", "fr"], ["French"], ["German", "Chinese"]),
        (["EN_us", "fr-CA"], ["French"], ["German", "Chinese"]),
        (["de"], ["German"], ["French", "Cyrillic"]),
        (["ru"], ["Cyrillic", "French"], ["Chinese"]),
        (["ja"], ["Japanese", "Chinese"], ["Korean"]),
        (["zh"], ["Chinese", "Han only"], ["Arabic"]),
        (["ca"], ["Spanish", "French"], ["Chinese"]),
    ],
    ids=str,
)
def test_the_languages_of_the_card_decide(languages, silent, warned):
    check = LanguageCheck(languages)
    assert not [name for name in silent if check.warnings(TEXTS_WITH_WARNING[name])]
    assert not [name for name in warned if not check.warnings(TEXTS_WITH_WARNING[name])]


def test_an_english_text_has_a_warning_for_a_german_model_but_a_russian_one_may_know_latin_letters():
    text = "This is the text of a letter that was written by the king, and it should not be read by others."
    assert LanguageCheck(["de"]).warnings(text)
    assert not LanguageCheck(["ru"]).warnings(text)


def test_the_whole_of_a_long_text_counts():
    english = "This is the introduction, and it was written by the editor of the journal. " * 100
    assert ENGLISH.warnings(english + CHINESE * 1000)
    assert ENGLISH.warnings(english + FRENCH * 500)
    assert not ENGLISH.warnings(english * 10 + CHINESE * 10 + FRENCH * 5)


@pytest.fixture
def english_gateway(replica, options) -> Gateway:
    replica.model = dataclasses.replace(replica.model, languages=["en"])
    return Gateway(replica, dataclasses.replace(options, max_text_chars=1000, max_batch_items=4))


def test_each_text_of_a_batch_has_its_own_warnings(english_gateway):
    request = extraction_of(["Ada met Charles.", CHINESE, "y" * 1001, FRENCH], PERSON)
    english, chinese, too_long, french = asyncio.run(english_gateway.run_batch(Context(), request)).results
    assert english.result.warnings == ()
    assert too_long.error.code == "too_large"
    assert [one.code for one in (*chinese.result.warnings, *french.result.warnings)] == ["unsupported_language"] * 2


def test_an_adapter_may_be_trained_for_other_languages(english_gateway, manager):
    manager.contents["chinese"] = b""
    base = extraction_of([CHINESE], PERSON)
    adapted = extraction_of([CHINESE], replace(PERSON, adapter_id="chinese"))
    assert asyncio.run(english_gateway.run(Context(), base)).warnings
    assert not asyncio.run(english_gateway.run(Context(), adapted)).warnings


def test_a_stream_ends_with_the_warnings(english_gateway):
    async def last():
        request = extraction_of([CHINESE], PERSON)
        (*_, end) = [line async for lines in english_gateway.run_stream(Context(), request) for line in lines]
        return end

    assert [one.code for one in asyncio.run(last()).warnings] == ["unsupported_language"]
