"""Names of persons who are related to somebody, or do what only persons do."""

from __future__ import annotations

import pytest

from gliner_bento.privacy.near import Clues
from gliner_bento.privacy.related_names import related_names

NAMES = {
    "My older sister [Sahara] met his late wife [Erie Falls] and our landlord is called [Vault].": "behind a relation",
    "Her mother-in-law, [Mercia], came; my friend’s dentist, [Vane], too; my dad's boss named [Rio]": "and more",
    "[Lagos]'s nephew and [Trinidad]’s little brother, but Lagos's company and Lagos's sister city": "before one",
    "[Rhodes], my neighbour's daughter, and [Ember], an old friend of Ada Ng, sat.": "between commas",
    "[Nairobi] and her husband moved; [Alto] himself was ill; [Tundra], who lives there, and Lima, who won": "together",
    "[Volvo] said that she would; [Cargo] told me so; Volvo said it would; [Slate] smiled; Slate fell": "by a verb",
    "Everyone and his brother laughed. She whispered. Monday, my son. In Malta, my brother, too. Mum smiled.": "none",
    "We texted [Typhoon] and he married [Monsoon Ek]; they called Avalanche": "what is only done to persons",
    "I gave my son Calpol, taught his daughter Latin; my patient Heparin 500; my partner Acme-soft": "things",
    "The midwife, [Oleander], said; the new intern, [Rialto], left; nurse ([Tarn]), Mum ([Fenna])": "apposed",
    "Consent from daughter [Fleur]. With wife [Aurora] and dog. Husband [Basalt] came; pharmacist [Quill].": "notes",
    "[Borage], the new intern, spilled it; [Vesper] turned 40; [Caspian] forgot it; Osaka turned 400": "and more",
    "Father Christmas, Mother Nature; the patient Heparin; Sister Act; the driver Update": "things with such names",
    "My fiance [Moss] came.": "a fiance without an accent",
    "My fiancé [Moss], his fiancée [Fern Ek]; her godmother [Sage], my half-brother [Reed]": "with accents, and more",
    "Patient's son [Egon] and the nurse's daughter [Ruth]": "a relative of a role",
    "our coach Mr. X; the sister-ship Ada; her twin towers; my mother and I; your doctor": "nobody",
}


@pytest.mark.parametrize("marked", NAMES, ids=NAMES.values())
def test_names_of_relatives(marked):
    text = marked.replace("[", "").replace("]", "")
    expected = [part.split("]")[0] for part in marked.split("[")[1:]]
    found = sorted((span.start, span.end) for span in related_names(Clues(text)))
    assert [text[start:end] for start, end in found] == expected
