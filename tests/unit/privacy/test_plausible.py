"""What a model took for personal data, and can be some or not."""

from __future__ import annotations

import re

import pytest

from gliner_bento.privacy.plausible import is_plausible
from gliner_bento.privacy.spans import LabeledSpan

PLAUSIBLE = {
    "date": "14 May|May 3|3/14/2024|1990-05-17|3 mars 1984|23.04.1979|April 3, 2023|3rd of May|7月3日|3. Mai|"
    "día 12 de marzo de 1985|día 12 de marzo|Tag 12.03.1985|l'an 1985|12/03/1985 10 hr|March 3, 1985, 40 years|"
    "12/03/1985 - 10 hr|12.03.1985-10 hr|12.03.1985 an der Elbe|May 1985-10 hr|2 days after May 3|"
    "一九八五年三月十二日|三月",
    "street address": "14 Harbour Road|Linden Str. 5|北京市朝阳区建国路88号|芝公園四丁目|"
    "Blk 214 Serangoon Avenue 4 #08-112",
    "person": "Dr. Voss|Mrs Dalloway|Ng|Dr|He|You",
    "city": "Leeds|a",
}
IMPLAUSIBLE = {
    "date": "two days|last Monday|day 2|5 days ago|71|9 am|14:30|6 weeks|every 4 hours|40 %|Friday|3 Wochen|24-hour|"
    "10 bis 12 Tage|1.5-2.5 hours|2 years and 3 months|1200 days|1,200,000 years|T-5 days|19850 days|"
    "week 12|día 3|5 to 7 days",
    "street address": "BP 148/92|HR 88|71|building C",
    "person": "Mr.|Frau|dr.|I|me|it|Hello|Olá",
}


def plausible(marked, label, *, score=0.9, mentions_somebody=True):
    """Whether the text in [[ ]] can be what the label says."""
    before, found, behind = re.split(r"\[\[|\]\]", marked) if "[[" in marked else ("", marked, "")
    span = LabeledSpan(len(before), len(before + found), label, score=score)
    return is_plausible(before + found + behind, span, mentions_somebody=mentions_somebody)


@pytest.mark.parametrize(("label", "texts"), PLAUSIBLE.items())
def test_what_can_be_personal_is_kept(label, texts):
    dropped = {"Dr"} if label == "person" else set()
    assert {text for text in texts.split("|") if not plausible(text, label)} == dropped


@pytest.mark.parametrize(("label", "texts"), IMPLAUSIBLE.items())
def test_what_cannot_be_personal_is_not(label, texts):
    assert [text for text in texts.split("|") if plausible(text, label)] == []


AROUND = {
    "date": (
        "[[12.06.2024]], seen|born in [[1985]]|on [[2024-05-01]] at noon|born in [[June 2015]]",
        "Invoice date: [[12.06.2024]]|"
        "in [[2023]]|[[2017-2022]]|no. [[55/2024]]|[[June 2015]] to May|version [[3.13]]|[[5.1.5]]|"
        "appointment is on [[21 March]]|[[2024-05-01]] 12:00:01 failed|Valid until [[1 October]]|"
        "From: [[3 July]]|Date of incident: [[2 March]]|on [[Monday 09:20]]|takes [[24/26]] daily|"
        "ERROR [[2024-05-01]] 12:00:01 failed|ts: [[2024-05-01]] 12:00:01|mix [[3.5]] mg|version [[12.10]]",
    ),
    "id number": (
        "no. [[00482913]]|of [[KD-773-1905]]|in [[21/815]]|[[45/672]]",
        "with [[150/95]]|Invoice No. [[2024-00317]]|I am [[54]]|[[1,000.00]]|"
        'Tracking: [[1Z999AA10123456784]]|"order_id": [[991823]]|[[12000]] tablets|weight [[2410 g]]',
    ),
    "street address": (
        "[[14 Harbour Road]]|in [[Plaza mayor 3]]|[[Lange reihe 12]]|[[Rynek glowny 12]]",
        "[[Peak flow 210]]|[[Blood pressure 150]]|[[Trop 412]] with pain|[[ICU bed 4]] for surgery|"
        "[[Soup 4]],50|[[HbA1c 54]] is high|[[Lamictal 200]], then Na 128|[[Harvey-Bradshaw 9]], CRP 44|"
        "[[Keppra 500 bd]]|[[tiene 81]] años|Hạnh, [[26 tuổi]]|"
        "[[room 4]]|[[model TurboClean 3000]]|[[line 3000]]|[[SKU 88213-AZ]]|[[Warehouse 4]]",
    ),
    "person": (
        "ask [[frank]]|Please contact [[ada lovelace]]|We see [[martin king]]|Write to [[jack taylor]]|"
        "[[Wilson]] called|Dr. [[Wilson]] lymphoma clinic|[[Ann]]'s test|is on [[Ann]]'s tablets|"
        "taking [[Ann]] to surgery|We are on [[Ann]]",
        "To be [[frank]], No|Call [[the old man]]|See [[my cousin]]|At [[dean driver]]|"
        "[[Wilson]] disease|[[Foley]] catheter|the [[dean]] of Oxford|<[[qty]]>4|"
        "[[PAYSLIP]] of March|[[Hodgkin]]'s lymphoma|[[Bell]]'s palsy|[[Epley]]'s manoeuvre|[[Apgar]] score|see [[@]]|"
        "[[Mark]] each box|[[Wade]] through it|No! [[Will]] the shop open?|[[Apgar]] 8/9 at birth|"
        "<[[qty]] unit='g'>|</[[note]]>|[[Hashimoto]]'s is it|is it [[Graves]]' or|one tablet of [[Eliquis]] a day|"
        "He is on [[Yasmin]], 5 mg",
    ),
    "city": ("in [[Leeds]]", "[[Glasgow]] Coma Scale|date: [[Tue]], 4|flew to [[Paris]]"),
}


@pytest.mark.parametrize("label", AROUND)
def test_what_is_around_it_decides(label):
    kept, dropped = AROUND[label]
    assert [text for text in kept.split("|") if not plausible(text, label)] == []
    assert [text for text in dropped.split("|") if plausible(text, label)] == []


def test_words_with_one_capital_that_end_in_small_letters_need_a_high_score():
    texts = ["[[Puede tomar ibuprofeno]]", "[[Nous accusons]] de", "[[Ada de la]] Cruz", "[[Ada Lovelace called]]"]
    assert [text for text in texts if plausible(text, "person", score=0.8)] == texts[2:]
    assert [text for text in texts if plausible(text, "person", score=0.9)] == texts


def test_a_word_in_quotation_marks_that_a_model_is_not_sure_of_is_kept_where_it_is_a_value():
    kept = ["VALUES (12, '[[Marek]]', 3)", 'name="[[Marek]]">']
    dropped = ["VALUES (12, '[[Marek]] x', 3)", "the '[[Marek]]' case", "VALUES (12, '[[Marek]]\"", "('[[marek]]')"]
    assert [text for text in (*kept, *dropped) if plausible(text, "person", score=0.35)] == kept
