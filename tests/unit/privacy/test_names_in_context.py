"""Names that only what is around them shows, and those that other finds lead to."""

from __future__ import annotations

import pytest

from gliner_bento.privacy.further_names import further_names
from gliner_bento.privacy.names_in_context import names_in_context
from gliner_bento.privacy.near import Clues
from gliner_bento.privacy.spans import LabeledSpan

IN_CONTEXT = {
    "“Stop,” said [Harbor], and he owes me, says [Fathom], too. “No,” said Mother. It said Open.": "speech",
    "Tell [Canyon] that it rains; ask [Plaza]'s son; we promoted [Vector] to chief. Ask Google. Told Reuters.": "told",
    "Reviewed by [Lagoon], seen with [Tariq Bell]. Spoke to [Alder]. Reviewed by Cardiology, by Ortho": "done by",
    "Thank you, [Ridge], and thanks to [Delta] for all. Thank you for Java. Thanks to God.": "thanks",
    "Happy birthday, [Sky]! Congratulations, [Heath]. Good luck, Team! Welcome back [Ivy], good luck with it": "wishes",
    "[Mango] and Peach share a flat; Delta and Bay share the sea; [Kit] & Ro broke up; Tea and Jam are off": "couples",
    "[Amina] here, about the scan. Hi, it's [Zephyr] again. It's Monday again. Look here, please": "here",
    "I'm [Tundra], from Leeds. This is [Ngaire Poe]. I am Danish. I'm Canadian, this is Monday.": "this is",
    "Then [Banner], 34, a plumber, and [Nan Yue], 61, of Leeds. In May, 34, a lot of. Psalm, 23, Acts": "with an age",
    "pt [Ferris, Odd]; bed 4 ([Wharau]), bed 2 [Ngata]; [Lowell] (room 11) fell. Pt Safety, bed 4 (ENT)": "notes",
    "Pt [Okri] c/o pain; Bed 4 [Goldberg] 2 units; Bed 5 [Ivana P.] home. Pt Alert and. Bed 2 Empty since": "a round",
    "[Rua Tamahor] (NHI 1); [Ok, Ife] - Accession 2; [Ngu Lan], 67F; [Roe, Al]  MRN 3; Main Office (ID 3)": "known",
    "North America 30 M; Revenue Growth 10 M; Latin America, 30M; New Leeds 75 F; [Ada Lind], 45 M": "amounts",
    "BP of [Ada Lind] 45 M is high; [Nan Yue] 30M; North America 30 M": "an age in a medical text",
    "[K.W.] is a 7-year-old; initials: [R.M.] noted. U.S. was first. A.B. said": "initials",
    "hello im [zdenek] and i have a rash": "small letters, by I am",
    "hi doc, [tamsin] here again": "small letters, by here",
    "hello im sorry and i left. so im marek and i": "small letters that are words, or in no greeting",
}


@pytest.mark.parametrize("marked", IN_CONTEXT, ids=IN_CONTEXT.values())
def test_names_in_context(marked):
    text, expected = unmarked(marked)
    assert found(text, names_in_context(Clues(text))) == expected


FURTHER = {
    "{Ada Kestrel} rang. [Kestrel] paid, [Ada] did not. A Kestrel flew; kestrel; in Kestrel; [Kestrel]'s": "parts",
    "The [Kestrels] and {Ada Kestrel} met the Smiths at a Kestrels; the [Ngatas], {Bo Ngata}": "families",
    "{Rose Hill} ran to Hill from Hill with [Hill]. Rose is a word. I met [Rose].": "parts that are also words",
    "We saw [Lintel] and {Ada Ng}; [Otto Fry] and {Ben} left; Monday and {Ida}; Did [Lathe] and {Uma}": "and a person",
    "[{Ng}, Ada]; [{Márquez}, Lucía]; {Bo}, Leeds met": "in a list",
    "{Ada} and [Vellum] met; {Bo Ek} and [Sable Ng] too; {Cy} and Monday; {Di} and the team; {Ed} and Ek Ltd 4": "and",
    "[Clipper] was late. She had an umbrella. Clipper cards are valid.": "a subject",
    "We looked for [Denali]. He was gone.\nWe looked at Denali. He was gone. We like Denali.": "an object",
    "I bought it from [Archer]; he had two.\nI flew to Osaka. He had two.\nHas [Rush] asked? His son has.": "and more",
    "[Sierra] forgot her keys.\nOzempic changed her life.\n[Lake]'s essay got his best mark.": "what is the subject's",
    "The nurse saw Denali. She waved.\nMy son likes Lego. He plays.\nHe saw Denali. She waved.": "somebody else",
    "On Monday he left.\nAfter Easter she left.\nA Toyota stood there. He left.": "no names",
    "Keppra was increased to 5 mg. She slept.": "a drug",
}


@pytest.mark.parametrize("marked", FURTHER, ids=FURTHER.values())
def test_further_names(marked):
    text, expected = unmarked(marked.replace("{", "").replace("}", ""))
    bare = marked.replace("[", "").replace("]", "")
    persons = []
    while "{" in bare:
        start = bare.index("{")
        bare = bare.replace("{", "", 1)
        end = bare.index("}")
        bare = bare.replace("}", "", 1)
        persons.append(LabeledSpan(start, end, "person", score=0.9))
    names = [span for span in further_names(Clues(text), persons) if not _inside(span, persons)]
    assert found(text, names) == expected


def unmarked(marked):
    return marked.replace("[", "").replace("]", ""), [part.split("]")[0] for part in marked.split("[")[1:]]


def found(text, spans):
    return [text[start:end] for start, end in sorted({(span.start, span.end) for span in spans})]


def _inside(span, persons):
    return any(one.start <= span.start and span.end <= one.end for one in persons)
